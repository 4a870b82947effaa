"""Answer sets on recorded rounds: how often they hold the right answer, and how large they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.measures.measures import Measures
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval, resampled_means
from suffice.numbers.units import unit_means
from suffice.protocols import AnswerSet, CoveragePolicy, Retention
from suffice.results.as_json import as_json, fields_as_json

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Resampling:
    """How often questions are resampled, and from which seed."""

    resamples: int = 1000
    seed: int = 42


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSetResult:
    """What a policy's answer sets are worth."""

    alpha: float
    sets: tuple[AnswerSet, ...] = field(metadata={"json": None})
    coverage: Interval | None
    set_size: Interval
    answer_rate: float
    objective: float | None
    retention: Retention | None
    notes: tuple[str, ...] = field(default=(), metadata={"json": None})

    def to_json(self, question_ids: Sequence[str] | None = None) -> dict[str, Any]:
        """Its part of the entry of ``replay --json``; with ids also the set of every question."""
        entry = {
            **fields_as_json(self),
            "coverage": None if self.coverage is None else self.coverage.estimate,
            "coverage_interval": as_json(self.coverage),
            "set_size": self.set_size.estimate,
            "set_size_interval": as_json(self.set_size),
        }
        if question_ids is not None:
            entry["sets"] = dict(zip(question_ids, as_json(self.sets), strict=True))
        return entry


def answer_sets(
    policy: CoveragePolicy, measures: Measures, stops: NDArray[np.int16], draws: Resampling
) -> AnswerSetResult | None:
    """The sets of every question at its stop round (n_questions,), and what they are worth.

    ``None``: this one promises no coverage.
    """
    promise = policy.facts.coverage
    if promise is None:
        return None
    recorded = policy.recorded_sets(measures.traces, measures.signals(policy.specs), stops)
    if not measures.metric.gold:
        notes = (*recorded.notes, "coverage and objective need gold answers")
        recorded = replace(recorded, covered=None, objective=None, notes=notes)
    coverage = None
    if recorded.covered is not None:
        units = measures.units[measures.labelled]
        coverage = _interval(unit_means(recorded.covered.astype(np.float64), units), draws)
    told = np.array([[one.size, not one.cannot_answer] for one in recorded.sets], np.float64)
    means = unit_means(told.reshape(-1, 2), measures.units)
    return AnswerSetResult(
        alpha=promise.alpha,
        sets=recorded.sets,
        coverage=coverage,
        set_size=_interval(means[:, 0], draws),
        answer_rate=float(means[:, 1].mean()),
        objective=recorded.objective,
        retention=recorded.retention,
        notes=recorded.notes,
    )


def _interval(values: NDArray[np.float64], draws: Resampling) -> Interval:
    means = resampled_means(values[:, None], resamples=draws.resamples, seed=draws.seed)
    return percentile_interval(float(values.mean()), means[:, 0])
