"""Selective prediction: answer what a policy is confident of, and decline the rest.

A policy's confidence is its own estimate that the answer at its stop round is right; a plain rule has
none, and the user may name a signal instead. Undefined confidences are answered last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import ConfidentPolicy, PolicyTable, StopPolicy
from suffice.errors import UsageError
from suffice.measures.measures import Measures
from suffice.replay.diagnose.reliability import wilson
from suffice.replay.diagnose.signal_tables import (
    POLICY,
    USE,
    Described,
    estimate_column,
    table_of,
    use_cell,
)
from suffice.replay.run.named_policies import of_rounds, replayed
from suffice.replay.run.results import PolicyResult, ReplayResult
from suffice.results.table import Cell, Column, Table
from suffice.signals.abstained import ABSTAINED
from suffice.signals.table import declared
from suffice.stats.auroc import ResampledAuroc, auroc, auroc_use
from suffice.stats.intervals import (
    Estimate,
    from_draws,
    resampled_counts,
    resampled_means,
    undefined,
)
from suffice.stats.risk_coverage import ResampledAurc, risk_coverage
from suffice.stats.units import unit_means, unit_weights
from suffice.trace.rounds.table import TraceSet

OWN_CONFIDENCE = "policy"
Array = NDArray[np.float64]


def stop_confidence(
    policy: StopPolicy | None, table: PolicyTable, stops: NDArray[np.int16]
) -> Array | None:
    """A policy's confidence at its stop rounds (n_questions,); ``None`` for a policy without one."""
    if not isinstance(policy, ConfidentPolicy):
        return None
    values = policy.confidence(table)
    return None if values is None else values[np.arange(len(stops)), stops - 1]


def confidence_auroc(confidence: Array, em: Array) -> float | None:
    """AUROC of a confidence against exact match, ties half, both (n_questions,)."""
    usable = ~np.isnan(confidence) & ~np.isnan(em)
    area = auroc(confidence[usable], em[usable] == 1.0)
    return None if math.isnan(area) else area


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectiveSettings:
    """How to look at a policy's confidence.

    ``confidence`` names a signal that stands in for the policy's own, in its declared direction.
    ``threshold`` is on the scale of the confidence, or of the signal as it is; ``None``: that at which
    the policy stops (AB-RAG), else the median.
    """

    confidence: str | None = None
    threshold: float | None = None
    resamples: int = 1000
    seed: int = 42

    def __post_init__(self) -> None:
        if self.threshold is not None and not math.isfinite(self.threshold):
            raise UsageError(f"the threshold must be a finite number, found {self.threshold}")


def selective_prediction(
    traces: TraceSet | Measures, result: ReplayResult, settings: SelectiveSettings | None = None
) -> tuple[dict[str, Any], ...]:
    """What :func:`selective` says of every policy that has a confidence and whose stops were seen."""
    settings = SelectiveSettings() if settings is None else settings
    measures = replayed(traces, result)
    result = of_rounds(result)
    scored = measures.scores(result.f1_kind)
    if not scored.labelled.any() or not scored.metric.gold:
        return ()
    results = []
    for policy in result.policies:
        if policy.at_stops.past is not None:
            continue
        sign, confidence = _confidence(measures, policy, settings.confidence)
        if confidence is None:
            continue
        own = None if policy.policy is None else policy.policy.facts.threshold
        asked = settings
        if settings.threshold is None and settings.confidence is None and own is not None:
            asked = replace(settings, threshold=own)  # it stops at this confidence
        specs = () if policy.policy is None else policy.policy.specs
        # an abstention is what the policy itself takes for one
        spec = next((spec for spec in specs if spec.name == ABSTAINED.name), ABSTAINED)
        abstained = measures.signals([spec]).signal(spec.name)
        rows, columns = np.flatnonzero(scored.labelled), policy.answers[scored.labelled] - 1
        at_stop = {"em": scored.em, "f1": scored.f1, "abstained": abstained == 1.0}
        of_policy = selective(
            confidence[rows],
            {name: values[rows, columns] for name, values in at_stop.items()},
            asked,
            sign=sign,
            units=measures.units[rows],
        )
        shown = settings.confidence or OWN_CONFIDENCE
        results.append({"policy": policy.name, "confidence": shown, **of_policy})
    return tuple(results)


def _confidence(
    measures: Measures, result: PolicyResult, signal: str | None
) -> tuple[float, Array | None]:
    if signal is None:
        return 1.0, result.confidence
    spec = declared(signal, measures.traces)
    values = measures.signals([spec]).signal(signal)
    sign = -1.0 if spec.direction == "low" else 1.0
    return sign, values[np.arange(len(result.answers)), result.answers - 1]


def selective(
    confidence: Array,
    at_stop: Mapping[str, NDArray[Any]],
    settings: SelectiveSettings,
    *,
    sign: float = 1.0,
    units: NDArray[np.intp] | None = None,
) -> dict[str, Any]:
    """What a confidence (n_questions,) is worth, whose answers score ``em`` and ``f1`` or have ``abstained``.

    ``aurc`` is the area under the risk-coverage curve (risk: 1 - EM; low is good), ``excess_aurc`` what it
    lies above that of a confidence that ranks every right answer first. ``above`` are the answers whose
    confidence is at least ``threshold`` (at most, where the ``sign`` is -1: low is confident), ``below`` the
    others, the ``undefined`` ones without a confidence among them. Questions of one of ``units`` are
    resampled together (``None``: each is one).
    """
    units = np.arange(len(confidence)) if units is None else units
    known = ~np.isnan(confidence)
    ordered = np.where(known, sign * confidence, -np.inf)
    threshold = settings.threshold
    if threshold is None and known.any():
        threshold = float(np.median(confidence[known]))
    above = np.zeros(len(known), bool)
    if threshold is not None:
        above = known & (ordered >= sign * threshold)
    wrong, abstained = 1.0 - at_stop["em"], at_stop["abstained"]
    area = ResampledAurc(ordered, wrong)
    drawn = resampled_counts(
        len(known), resamples=settings.resamples, seed=settings.seed, units=units
    )
    area_draws = np.concatenate([area(counts) for counts in drawn], axis=1)

    def group(chosen: NDArray[np.bool_]) -> dict[str, Any]:
        return _group(chosen, at_stop, units, settings)

    return {
        "answers": group(np.ones(len(known), bool)),
        "undefined": int((~known).sum()),
        "auroc": _auroc(sign * confidence[known], wrong[known] == 0.0, known, units, settings),
        "aurc": from_draws(area.plain[0], area_draws[0]),
        "excess_aurc": from_draws(area.plain[1], area_draws[1]),
        "curve": risk_coverage(confidence, {"em": wrong, "f1": 1.0 - at_stop["f1"]}, sign=sign),
        "threshold": threshold,
        "threshold_is_median": settings.threshold is None,
        "above": group(above),
        "below": group(~above),
        "abstentions": {
            "count": int(abstained.sum()),
            "share": float(abstained.mean()),
            "others": group(~abstained),
        },
    }


def _auroc(
    values: Array,
    right: NDArray[np.bool_],
    known: NDArray[np.bool_],
    units: NDArray[np.intp],
    settings: SelectiveSettings,
) -> Estimate:
    if len(values) == 0:
        return undefined("no answer has a defined confidence")
    if right.all() or not right.any():
        return undefined(
            f"no {'wrong' if right.all() else 'right'} answer has a defined confidence"
        )
    resampled = ResampledAuroc(values, right, np.flatnonzero(known), len(known))
    drawn = resampled_counts(
        len(known), resamples=settings.resamples, seed=settings.seed, units=units
    )
    draws = [resampled(np.ascontiguousarray(counts.T)) for counts in drawn]
    return from_draws(auroc(values, right), np.concatenate(draws))


def _group(
    chosen: NDArray[np.bool_],
    at_stop: Mapping[str, NDArray[Any]],
    units: NDArray[np.intp],
    settings: SelectiveSettings,
) -> dict[str, Any]:
    """Mean scores of some of the answers: EM with its Wilson interval, F1 with a resampled one."""
    count = int(chosen.sum())
    if count == 0:
        nothing = undefined("no such answer")
        return {"questions": 0, "em": nothing, "f1": nothing}
    em, independent = at_stop["em"][chosen], len(np.unique(units[chosen]))
    low, high = wilson(float(em.sum()) * independent / count, independent)
    columns = np.stack([chosen, chosen * at_stop["f1"]], axis=1).astype(np.float64)
    columns = unit_means(columns, units) * unit_means(1.0 / unit_weights(units), units)[:, None]
    means = resampled_means(columns, resamples=settings.resamples, seed=settings.seed)
    draws = np.where(
        means[:, 0] > 0, means[:, 1] / np.where(means[:, 0] > 0, means[:, 0], 1), np.nan
    )
    return {
        "questions": count,
        "em": Estimate(estimate=float(em.mean()), low=low, high=high),
        "f1": from_draws(float(at_stop["f1"][chosen].mean()), draws),
    }


def selective_tables(results: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    """What confidences are worth, the answers above and below the threshold, abstentions."""
    if not results:
        return
    first = results[0]
    whose = "its own" if first["confidence"] == OWN_CONFIDENCE else f"signal {first['confidence']}"
    caption = (
        f"Selective prediction by the confidence at the stop ({whose}). AURC: mean risk (1 - EM) over "
        "all coverages; excess: above the best possible order. Above: confidence of at least the "
        f"threshold{' (its median)' if first['threshold_is_median'] else ''}."
    )
    yield table_of(
        "confidences",
        results,
        (
            ("policy", POLICY),
            ("auroc", estimate_column("auroc", "AUROC")),
            (lambda result: use_cell(auroc_use(result["auroc"])), USE),
            ("aurc", estimate_column("aurc", "AURC")),
            ("excess_aurc", replace(estimate_column("excess_aurc", "excess AURC"), drop=2)),
            (
                lambda result: result["undefined"] or Cell(0, ""),
                Column(name="undefined", kind="count", drop=1),
            ),
        ),
        caption,
    )
    groups: list[Described] = []
    for name in ("above", "below"):
        groups += [
            (f"{name}.questions", Column(name=f"{name}_n", kind="count", head=f"n {name}")),
            *_scores(name, name, "EM [95%]", "F1"),
        ]
    threshold = Column(name="threshold", kind="significant", digits=3)
    described: list[Described] = [("policy", POLICY), ("threshold", threshold), *groups]
    yield table_of("above and below", results, described)
    abstaining = [result for result in results if result["abstentions"]["count"]]
    if abstaining:
        share = Column(name="share", kind="percent", head="abstain, %")
        of_all = _scores("answers", "all", "EM of all", "F1 of all")
        without = _scores("abstentions.others", "without", "EM without", "F1 without")
        described = [("policy", POLICY), ("abstentions.share", share), *of_all, *without]
        yield table_of("abstentions", abstaining, described)


def _scores(of: str, name: str, em: str, f1: str) -> tuple[Described, Described]:
    """EM with its interval and F1 of a group of answers."""
    return (
        (f"{of}.em", Column(name=f"{name}_em", kind="percent", interval=True, head=em)),
        (f"{of}.f1.estimate", Column(name=f"{name}_f1", kind="percent", head=f1)),
    )
