"""The evaluation of AB-RAG (paper 2, V) on any record that holds its signals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from suffice.bench.ab_rag.results import ABRagStudy, SignalForm, SignalWorth, SweptTau
from suffice.bench.study import Options, Request, Study
from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.numbers.auroc import ResampledAuroc, auroc
from suffice.numbers.intervals.bootstrap import resampled_counts
from suffice.numbers.intervals.estimate import Estimate, from_draws, undefined
from suffice.options import Option, read_grid
from suffice.policies.ab_rag.policy import CERTAINTIES, ABRagPolicy
from suffice.policies.defaults import FIT_SPLIT
from suffice.replay.diagnose.selective import (
    SelectiveSettings,
    selective_prediction,
)
from suffice.replay.run.compare import Comparison, compare
from suffice.replay.run.named_policies import NamedPolicy
from suffice.replay.run.replay import ReplaySettings, replay
from suffice.replay.settings import ComparisonSettings, FittedElsewhere
from suffice.scoring import F1Kind
from suffice.signals.available import lack
from suffice.signals.registry import resolve
from suffice.trace.rounds.table import TraceSet

SWEPT = tuple(round(0.05 * step, 2) for step in range(6, 17))
_METHOD = "ab-rag"


FORMS: tuple[SignalForm, ...] = (
    *(SignalForm("S1", name, name) for name in CERTAINTIES),
    SignalForm("S2", "mean of the passages (published)", "evidence_consistency"),
    SignalForm("S2", "best passage", "evidence_consistency_max"),
    SignalForm("S2", "first passage", "evidence_consistency_top1"),
    SignalForm("S2", "answer in evidence (corrected)", "answer_in_evidence"),
    SignalForm("S2", "entailment", "evidence_entailment"),
    SignalForm("S3", "normalised variance (published)", "rerank_variance"),
    SignalForm("S3", "minus raw variance", "rerank_variance_raw", -1.0),
    SignalForm("S3", "raw variance", "rerank_variance_raw"),
    SignalForm("S3", "mean score", "rerank_mean"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ABRagComparison(ComparisonSettings):
    """A comparison scored as the paper scores: by plain SQuAD F1."""

    f1_kind: F1Kind = "squad"


@dataclass(frozen=True, slots=True, kw_only=True)
class ABRagStudySettings:
    """What to compare; ``comparison.policies`` come after AB-RAG's presets and every fixed-K."""

    comparison: ComparisonSettings = field(default_factory=ABRagComparison)
    taus: Annotated[
        Sequence[float],
        Option(
            name="grid",
            metavar="LOW:HIGH:STEP|A,B,...",
            parse=read_grid,
            help="thresholds swept (default: 0.3:0.8:0.05)",
        ),
    ] = SWEPT


def ab_rag_study(traces: TraceSet, settings: ABRagStudySettings | None = None) -> ABRagStudy:
    """Evaluate AB-RAG on a record.

    The corrected preset takes part where there is a tune split to learn on. A threshold above the one
    the record was stopped at cannot be replayed truly; ``beyond_record`` counts the questions.
    """
    settings = ABRagStudySettings() if settings is None else settings
    wanted = settings.comparison
    fitting = traces if wanted.fit_on is None else Measures.of(wanted.fit_on).traces
    presets = [_METHOD, *([f"{_METHOD}-corrected"] if FIT_SPLIT in fitting.splits else [])]
    fixed = [f"fixed-{k}" for k in range(1, traces.n_rounds + 1)]
    names = dict.fromkeys([*presets, *fixed, *wanted.policies])
    comparison = compare(
        traces,
        replace(wanted, policies=tuple(names), baseline=wanted.baseline or fixed[-1], strict=True),
    )
    result = comparison.result
    selective = selective_prediction(
        comparison.measures,
        result,
        SelectiveSettings(resamples=result.resamples, seed=result.seed),
    )
    worth, missing = _single_signals(comparison, resamples=result.resamples, seed=result.seed)
    return ABRagStudy(
        comparison=comparison,
        selective=selective,
        swept=_sweep(comparison, settings.taus),
        signals=worth,
        not_in_record=missing,
    )


def _sweep(comparison: Comparison, taus: Sequence[float]) -> tuple[SweptTau, ...]:
    result = comparison.result
    published = result.policies[0].policy
    if not isinstance(published, ABRagPolicy):
        raise UsageError(f"the first policy must be {_METHOD}, found {result.policies[0].name!r}")
    candidates = [
        NamedPolicy(
            name=f"tau {tau:g}",
            kind=_METHOD,
            preset="published",
            policy=replace(published, threshold=tau),
        )
        for tau in taus
    ]
    if not candidates:
        return ()
    replayed = replay(
        comparison.measures,
        candidates,
        ReplaySettings(
            baseline=candidates[0].name,
            split=result.split,
            f1_kind=result.f1_kind,
            resamples=result.resamples,
            seed=result.seed,
            cost=result.cost.name,
            cost_model=result.cost_model,
        ),
    )
    return tuple(
        SweptTau(tau=tau, result=policy)
        for tau, policy in zip(taus, replayed.policies, strict=True)
    )


def _single_signals(
    comparison: Comparison, *, resamples: int, seed: int
) -> tuple[tuple[SignalWorth, ...], tuple[str, ...]]:
    traces = comparison.traces
    missing = {form.signal for form in FORMS if lack(resolve(form.signal), traces)}
    held = [form for form in FORMS if form.signal not in missing]
    table = comparison.measures.signals(form.signal for form in held)
    em = comparison.measures.score("em")[:, 0]
    labelled = np.isfinite(em)
    count = int(labelled.sum())
    draws = list(resampled_counts(count, resamples=resamples, seed=seed)) if count else []
    counts = np.concatenate(draws).T if draws else np.empty((0, 0))
    worth = []
    for form in held:
        values = form.sign * table.signal(form.signal)[labelled, 0]
        defined = int(np.isfinite(values).sum())
        if not defined:
            missing.add(form.signal)
            continue
        worth.append(
            SignalWorth(
                form=form,
                defined=defined,
                auroc=_auroc(values, em[labelled] == 1.0, counts),
            )
        )
    return tuple(worth), tuple(sorted(missing))


def _auroc(
    values: NDArray[np.float64], right: NDArray[np.bool_], counts: NDArray[np.float64]
) -> Estimate:
    """AUROC of the defined values with the interval of the resamples (n_questions, n_draws)."""
    defined = np.flatnonzero(np.isfinite(values))
    area = auroc(values[defined], right[defined])
    if math.isnan(area):
        return undefined("needs right and wrong answers with a value")
    resampled = ResampledAuroc(values[defined], right[defined], defined, len(values))
    return from_draws(area, resampled(counts))


def _run(request: Request) -> ABRagStudy:
    elsewhere = request.read(FittedElsewhere).fit_on
    comparison = request.read(
        ABRagComparison, fit_on=None if elsewhere is None else request.open_traces(elsewhere)
    )
    settings: ABRagStudySettings = request.read(ABRagStudySettings, comparison=comparison)
    return ab_rag_study(request.open_traces(request.paths[0]), settings)


STUDY = Study(
    description="Evaluates AB-RAG on a record that holds its signals: static against adaptive retrieval "
    "with costs, what its confidence is worth (AUROC, answers above and below the threshold), other "
    "thresholds, and every single signal with its alternative forms.",
    options=(
        Options(settings=ABRagStudySettings),
        Options(settings=ABRagComparison),
        Options(settings=FittedElsewhere),
    ),
    run=_run,
    traces="one",
)
