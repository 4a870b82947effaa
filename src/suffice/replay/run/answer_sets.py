"""Answer sets on recorded rounds: how often they hold the right answer, and how large they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.measures.measures import Measures
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval, resampled_means
from suffice.protocols import AnswerSet, CoveragePolicy, Retention
from suffice.results.as_json import as_json, fields_as_json


@dataclass(frozen=True, slots=True)
class Resampling:
    """How often questions are resampled, and from which seed."""

    resamples: int = 1000
    seed: int = 42


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSetResult:
    """What a policy's answer sets are worth.

    Parameters
    ----------
    alpha
        The error promised.
    sets
        One a question.
    coverage
        Share of labelled questions whose set holds the right answer, or "Can't Answer" where no
        recorded round up to the budget samples it; ``None``: none is labelled.
    set_size
        Mean members, "Can't Answer" counted.
    answer_rate
        Share of sets without "Can't Answer".
    objective
        What the policy was fitted to make small, over labelled questions.
    retention
        What the policy's passage filter would do to the recorded passages; ``None``: it has none, the
        passages lack its relevance, or a filter dropped some of them unrecorded.
    notes
        What a reader must know.
    """

    alpha: float
    sets: tuple[AnswerSet, ...] = field(metadata={"json": None})
    coverage: Interval | None
    set_size: Interval
    answer_rate: float
    objective: float | None
    retention: Retention | None
    notes: tuple[str, ...] = field(default=(), metadata={"json": None})

    def to_json(self, question_ids: tuple[str, ...] | None = None) -> dict[str, Any]:
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
    covered, objective, notes = recorded.covered, recorded.objective, recorded.notes
    if not measures.metric.gold:
        covered = objective = None
        notes = (*notes, "coverage and objective need gold answers")
    return AnswerSetResult(
        alpha=promise.alpha,
        sets=recorded.sets,
        coverage=None if covered is None else _interval(covered.astype(np.float64), draws),
        set_size=_interval(np.array([float(one.size) for one in recorded.sets]), draws),
        answer_rate=float(np.mean([not one.cannot_answer for one in recorded.sets])),
        objective=objective,
        retention=recorded.retention,
        notes=notes,
    )


def _interval(values: NDArray[np.float64], draws: Resampling) -> Interval:
    means = resampled_means(values[:, None], resamples=draws.resamples, seed=draws.seed)
    return percentile_interval(float(values.mean()), means[:, 0])
