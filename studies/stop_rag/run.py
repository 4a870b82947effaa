"""The evaluation of Stop-RAG (paper 1, sections 5 and 6): what a learned value of stopping is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from studies.stop_rag.fits import (
    Fit,
    FitProgress,
    FittedPolicy,
    fit_variants,
    fitting_questions,
)
from studies.stop_rag.results import (
    DEFAULT,
    LLM_STOPS,
    ORACLE,
    Contender,
    FitFacts,
    StopRAGStudy,
    StopRAGStudySettings,
    TrainingOptions,
    Unread,
)
from studies.stop_rag.scores import Questions, best_fixed, contrasts
from studies.stop_rag.show import stop_rag_page
from studies.study import Options, Progress, Request, Study
from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.policies.defaults import FIT_SPLIT
from suffice.policies.fitting import fitted_rule
from suffice.policies.stop_rag.fit import VALIDATION_SPLIT
from suffice.policies.stop_rag.settings import StopRAGSettings
from suffice.results.formats import counted
from suffice.signals.recorded import LLM_STOP, MALFORMED_ACTIONS
from suffice.trace.rounds.labels import labelled
from suffice.trace.rounds.table import TraceSet

FEW = 200
"""Questions, below which differences of a few points drown."""


def stop_rag_study(
    traces: TraceSet,
    settings: StopRAGStudySettings | None = None,
    on_progress: Callable[[FitProgress], None] | None = None,
) -> StopRAGStudy:
    """Train every variant in every seed, and compare them on questions that none has seen."""
    wanted = StopRAGStudySettings() if settings is None else settings
    asked = traces.only_split(wanted.split)
    questions = Questions.read(asked, wanted.f1_kind)
    fitting = fitting_questions(traces, wanted)
    if not traces.has("samples"):
        raise UsageError(
            f"{traces.origin.source} holds no column samples, which the study's rewards are made of; record "
            "with --samples 8"
        )
    rounds = questions.traces.n_rounds
    full = f"fixed-{rounds}"
    best = f"fixed-{best_fixed(list(fitting.values()), wanted.f1_kind, rounds)}"
    fitted = fit_variants(traces, wanted, on_progress)
    contenders = (
        *_learned(questions, fitted, wanted, on_progress),
        *_baselines(questions),
    )
    pairs = list(dict.fromkeys(_pairs(contenders, (full, best))))
    contrasted = contrasts(
        {contender.name: contender.f1_of for contender in contenders},
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
        fitting={name: int(labelled(part).sum()) for name, part in fitting.items()},
        with_gold_passages=questions.with_gold_passages,
        contenders=contenders,
        full=full,
        best=best,
        contrasts=contrasted.differences,
        critical=contrasted.critical,
        unread=_unread(questions.traces),
        notes=(),
    )
    return replace(study, notes=study_notes(study, questions.traces, fitted))


def _learned(
    questions: Questions,
    fitted: Sequence[FittedPolicy],
    settings: StopRAGStudySettings,
    on_progress: Callable[[FitProgress], None] | None,
) -> Iterator[Contender]:
    for variant in settings.variants:
        runs, facts = [], []
        for member in fitted:
            if member.fit.variant != variant:
                continue
            scored, seconds = questions.policy(member.policy, member.fit.seed)
            runs.append(scored)
            facts.append(_facts(member, seconds))
            if on_progress is not None:
                on_progress(FitProgress(fit=member.fit, stage="scored"))
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
        scored, _ = questions.policy(fitted_rule(LLM_STOP.name, None))
        yield Contender(name=LLM_STOPS, kind="llm-stop", runs=(scored,))
    for number in range(1, questions.traces.n_rounds + 1):
        yield Contender(name=f"fixed-{number}", kind="fixed", runs=(questions.fixed(number),))
    yield Contender(name=ORACLE, kind="oracle", runs=(questions.oracle(ORACLE),))


def _pairs(contenders: Sequence[Contender], fixed: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Everything that decides against the fixed budgets and LLM-Stop, then the default target's rivals."""
    deciding = [
        contender.name for contender in contenders if contender.kind in ("learned", "llm-stop")
    ]
    learned = [contender.name for contender in contenders if contender.kind == "learned"]
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


# --- notes ----------------------------------------------------------------------------------------
def study_notes(
    study: StopRAGStudy, traces: TraceSet, fitted: Sequence[FittedPolicy]
) -> tuple[str, ...]:
    """The sentences; ``traces`` are the questions scored."""
    return (
        *_few(study),
        *_in_disguise(study),
        *_about_the_record(study, traces),
        *_about_fits(study, fitted),
    )


def _few(study: StopRAGStudy) -> Iterator[str]:
    against = [contrast.interval for contrast in study.contrasts if contrast.against == study.full]
    width = max(interval.high - interval.low for interval in against)
    if study.questions < FEW:
        yield (
            f"only {counted(study.questions, 'question')} to score: 95% intervals against the full budget "
            f"are up to {100 * width:.1f} points of F1 wide, and small differences cannot be told from none"
        )
    learned = sum(study.fitting.values())
    if learned < FEW:
        yield (
            f"only {counted(learned, 'labelled question')} to learn on and choose thresholds with: poor "
            "figures of learned policies may be for want of data"
        )


def _in_disguise(study: StopRAGStudy) -> Iterator[str]:
    """Learned policies that decide nothing."""
    for variant in study.of_kind("learned"):
        same = [run for run in variant.runs if len(np.unique(run.stops)) == 1]
        if same:
            seeds = ", ".join(f"seed {run.seed} in round {run.stops[0]}" for run in same)
            yield f"{variant.name} stops every question in the same round: {seeds}. It decides nothing there"


def _about_the_record(study: StopRAGStudy, traces: TraceSet) -> Iterator[str]:
    yield from Measures(traces).by(None).notes(None)
    if study.unlabelled:
        yield f"{counted(study.unlabelled, 'question')} without gold answers left out"
    short = int((traces.last_rounds < study.rounds).sum())
    if short:
        yield (
            f"{counted(short, 'question')} recorded for fewer than {study.rounds} rounds: whatever goes on "
            "ends with the last one there is"
        )
    yield from _about_llm_stop(study, traces)
    if study.with_gold_passages < study.questions:
        which = "no question" if not study.with_gold_passages else f"{study.with_gold_passages}"
        rest = "" if not study.with_gold_passages else f" of {counted(study.questions, 'question')}"
        yield f"precision and recall are known for {which}{rest}"
    if study.with_gold_passages and traces.origin.run.get("corpus") == "pooled":
        yield (
            "precision and recall tell passages apart by id: where the pooled corpus holds a paragraph "
            "under several, they come out too low"
        )


def _about_llm_stop(study: StopRAGStudy, traces: TraceSet) -> Iterator[str]:
    if study.contender(LLM_STOPS) is None:
        yield (
            f"no LLM-Stop: the record holds no signal {LLM_STOP.name}; record with --llm-stop to compare"
        )
        return
    values, _ = traces.stored_signal(LLM_STOP.name)
    silent = int((traces.exists & np.isnan(values)).sum())
    if silent:
        yield f"{counted(silent, 'round')} without a verdict: LLM-Stop goes on there"
    if study.unread is not None and study.unread.actions:
        unread = study.unread
        yield (
            f"{counted(unread.actions, 'action')} of the model (queries and verdicts, in "
            f"{counted(unread.rounds, 'round')}) could not be read, of "
            f"{counted(unread.questions, 'question')}; an unread verdict goes on"
        )


def _about_fits(study: StopRAGStudy, fitted: Sequence[FittedPolicy]) -> Iterator[str]:
    loaded = sum(fit.loaded for fit in fitted)
    if loaded:
        yield f"{loaded} of {counted(len(fitted), 'training')} found in {study.settings.folder}"
    if len(study.fitting) == 1 and study.settings.seeds > 1:
        yield (
            "no split validation: each seed holds other questions back to choose checkpoint and threshold "
            "on, which is part of its spread"
        )
    said: dict[str, list[str]] = {}
    for one in fitted:
        for remark in one.policy.facts.notes:
            said.setdefault(remark, []).append(one.fit.name)
    for remark, names in said.items():
        which = "every fit" if len(names) == len(fitted) else ", ".join(names)
        yield f"{which}: {remark}"


# --- the command ----------------------------------------------------------------------------------
def _run(request: Request) -> StopRAGStudy:
    training: TrainingOptions = request.read(TrainingOptions)
    steps = StopRAGSettings(epochs=training.epochs, min_steps=training.min_steps)
    settings: StopRAGStudySettings = request.read(
        StopRAGStudySettings,
        text=replace(steps, encoder=training.encoder),
        signals=replace(steps, features="signals"),
        folder=request.folder,
    )
    return stop_rag_study(request.open_traces(request.paths[0]), settings, _Watched(request).show)


class _Watched:
    """One line for every fit, and the steps of the one under way."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._lines: dict[tuple[Fit, str], Progress] = {}

    def show(self, now: FitProgress) -> None:
        """State how far a fit is."""
        fit, training = now.fit, now.training
        named = f"{fit.variant}, seed {fit.seed} ({fit.number} of {fit.of})"
        if training is None:
            self._request.say(f"{named}: {now.stage}")
            return
        if (fit, training.stage) not in self._lines:
            done = "texts read" if training.stage == "read" else "steps trained"
            self._lines[fit, training.stage] = self._request.progress(f"{named}: {done}")
        self._lines[fit, training.stage].show(training.done, training.total)


STUDY = Study(
    description="Evaluates Stop-RAG on a record that holds samples, as the paper does: trains a network "
    f"for every target in several seeds on split {FIT_SPLIT} (and {VALIDATION_SPLIT} where there is one), "
    "and compares them on another split with every fixed number of rounds, with asking the model, with a "
    "network over signals alone and with the oracle: scores, rounds, calls, precision and recall of what "
    "was retrieved, and paired differences of F1.",
    options=(
        Options(settings=StopRAGStudySettings, without=("preset",)),
        Options(
            settings=StopRAGStudySettings,
            title="training",
            about="as in 'suffice fit stop-rag'",
            only=("preset",),
        ),
        Options(settings=TrainingOptions, title="training"),
    ),
    run=_run,
    traces="one",
    out="write stop_rag.json and stop_rag.html, a page with the figures, and keep every trained policy in "
    "DIR/VARIANT-SEED; run again, it goes on where it stopped",
    page=stop_rag_page,
)
