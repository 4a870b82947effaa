"""The evaluation of Stop-RAG (paper 1, sections 5 and 6): what a learned value of stopping is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from suffice.bench.stop_rag.fits import (
    FitProgress,
    FittedPolicy,
    fit_variants,
    fitting_questions,
)
from suffice.bench.stop_rag.found import (
    DEFAULT,
    LLM_STOPS,
    ORACLE,
    Contender,
    FitFacts,
    StopRAGStudy,
    StopRAGStudySettings,
    Unread,
)
from suffice.bench.stop_rag.notes import study_notes
from suffice.bench.stop_rag.scores import Questions, best_fixed, contrasts
from suffice.policies.fitting import fit_rule
from suffice.signals.recorded import LLM_STOP, MALFORMED_ACTIONS
from suffice.trace.rounds.table import TraceSet


def stop_rag_study(
    traces: TraceSet,
    settings: StopRAGStudySettings | None = None,
    on_progress: Callable[[FitProgress], None] | None = None,
) -> StopRAGStudy:
    """Train every variant in every seed, and compare them on questions that none has seen.

    Raises
    ------
    MissingExtra
        When the extra ``learn`` is not installed.
    UsageError
        When the record holds nothing to learn from or to score.
    DataError
        When a split is missing, or the folder holds policies of another study.
    """
    wanted = StopRAGStudySettings() if settings is None else settings
    asked = traces.only_split(wanted.split)
    questions = Questions.read(asked, wanted.f1_kind)
    fitting = fitting_questions(traces, wanted)
    rounds = questions.traces.n_rounds
    full = f"fixed-{rounds}"
    best = f"fixed-{best_fixed(list(fitting.values()), wanted.f1_kind, rounds)}"
    fitted = fit_variants(traces, wanted, on_progress)
    contenders = (
        *_learned(questions, fitted, wanted, on_progress),
        *_baselines(questions),
    )
    pairs = list(dict.fromkeys(_pairs(contenders, (full, best))))
    found = contrasts(
        {each.name: each.f1_of for each in contenders},
        pairs,
        resamples=wanted.resamples,
        seed=wanted.seed,
    )
    study = StopRAGStudy(
        settings=wanted,
        source=traces.origin.source,
        questions=questions.traces.n_questions,
        unlabelled=asked.n_questions - questions.traces.n_questions,
        rounds=rounds,
        fitting={name: _labelled(each) for name, each in fitting.items()},
        with_gold_passages=questions.with_gold_passages,
        contenders=contenders,
        full=full,
        best=best,
        contrasts=found.found,
        critical=found.critical,
        unread=_unread(questions.traces),
        notes=(),
    )
    return replace(study, notes=study_notes(study, questions.traces, fitted))


def _labelled(traces: TraceSet) -> int:
    return sum(bool(each.answers) for each in traces.gold)


def _learned(
    questions: Questions,
    fitted: Sequence[FittedPolicy],
    settings: StopRAGStudySettings,
    on_progress: Callable[[FitProgress], None] | None,
) -> Iterator[Contender]:
    for variant in settings.variants:
        runs, facts = [], []
        for each in fitted:
            if each.fit.variant != variant:
                continue
            scored, seconds = questions.policy(each.policy, each.fit.seed)
            runs.append(scored)
            facts.append(_facts(each, seconds))
            if on_progress is not None:
                on_progress(FitProgress(fit=each.fit, stage="scored"))
        yield Contender(name=variant, kind="learned", runs=tuple(runs), fits=tuple(facts))


def _facts(fitted: FittedPolicy, state_seconds: float) -> FitFacts:
    policy = fitted.policy
    training, cut = policy.fitted_on["training"], policy.fitted_on["truncation"]
    return FitFacts(
        seed=fitted.fit.seed,
        loaded=fitted.loaded,
        threshold=policy.threshold,
        trajectories=training["questions"],
        decisions=training["decisions"],
        informative=training["informative"],
        validated=policy.fitted_on["validation"]["questions"],
        steps=training["steps"],
        seconds=training["seconds"],
        truncated=None if cut is None else cut["states_cut"] / max(1, cut["states"]),
        state_seconds=state_seconds,
    )


def _baselines(questions: Questions) -> Iterator[Contender]:
    if LLM_STOP.name in questions.traces.signal_names:
        scored, _ = questions.policy(fit_rule(LLM_STOP.name, None))
        yield Contender(name=LLM_STOPS, kind="llm-stop", runs=(scored,))
    for number in range(1, questions.traces.n_rounds + 1):
        yield Contender(name=f"fixed-{number}", kind="fixed", runs=(questions.fixed(number),))
    yield Contender(name=ORACLE, kind="oracle", runs=(questions.oracle(ORACLE),))


def _pairs(contenders: Sequence[Contender], fixed: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Everything that decides against the fixed budgets and LLM-Stop, then the default target's rivals."""
    deciding = [each.name for each in contenders if each.kind in ("learned", "llm-stop")]
    learned = [each.name for each in contenders if each.kind == "learned"]
    against = [*fixed, *([LLM_STOPS] if LLM_STOPS in deciding else [])]
    yield from ((of, rival) for of in deciding for rival in against if of != rival)
    if DEFAULT in learned:
        yield from ((DEFAULT, rival) for rival in learned if rival != DEFAULT)


def _unread(traces: TraceSet) -> Unread | None:
    """The running count at the last round of each question."""
    if MALFORMED_ACTIONS.name not in traces.signal_names:
        return None
    values, _ = traces.stored_signal(MALFORMED_ACTIONS.name)
    counts = np.nan_to_num(values[np.arange(traces.n_questions), traces.last_rounds - 1])
    return Unread(
        actions=int(counts.sum()),
        questions=int((counts > 0).sum()),
        rounds=int(traces.exists.sum()),
    )
