"""Answer sets on recorded rounds: how often they hold the right answer, and how large they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.measures.measures import Measures
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval, resampled_means
from suffice.numbers.intervals.sums import Sums
from suffice.numbers.units import unit_means
from suffice.protocols import AnswerSet, CoveragePolicy, RecordedSets, Retention
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SetsTally:
    """Sums over the answer sets of a policy, of one part of a record or of several.

    ``covered`` is over labelled questions (``None``: none is, or coverage is not told); ``answering`` counts
    sets without "Can't Answer". ``objective`` and ``retention`` do not add up: they are of one part.
    """

    alpha: float
    covered: Sums | None
    sizes: Sums
    answering: float
    objective: float | None
    retention: Retention | None
    notes: tuple[str, ...]
    parts: int = 1

    def add(self, other: SetsTally) -> SetsTally:
        """That of both parts; notes that differ by the number that they begin with become one."""
        covered = self.covered or other.covered
        if self.covered is not None and other.covered is not None:
            covered = self.covered.add(other.covered)
        return SetsTally(
            alpha=self.alpha,
            covered=covered,
            sizes=self.sizes.add(other.sizes),
            answering=self.answering + other.answering,
            objective=None,
            retention=None,
            notes=_together((*self.notes, *other.notes)),
            parts=self.parts + other.parts,
        )

    def result(self, draws: Resampling) -> AnswerSetResult:
        """What the sets are worth, none of which is kept."""
        notes = self.notes
        if self.parts > 1:
            notes += (
                "the objective of its fit and what its passage filter keeps are not given of so many "
                "questions",
            )
        return AnswerSetResult(
            alpha=self.alpha,
            sets=(),
            coverage=None if self.covered is None else _of_sums(self.covered, draws),
            set_size=_of_sums(self.sizes, draws),
            answer_rate=self.answering / self.sizes.n,
            objective=self.objective,
            retention=self.retention,
            notes=notes,
        )


def answer_sets(
    policy: CoveragePolicy, measures: Measures, stops: NDArray[np.int16], draws: Resampling
) -> AnswerSetResult | None:
    """The sets of every question at its stop round (n_questions,), and what they are worth.

    ``None``: this one promises no coverage.
    """
    promise = policy.facts.coverage
    if promise is None:
        return None
    recorded = _recorded(policy, measures, stops)
    covered, sizes, answering = _of_units(recorded, measures)
    return AnswerSetResult(
        alpha=promise.alpha,
        sets=recorded.sets,
        coverage=None if covered is None else _interval(covered, draws),
        set_size=_interval(sizes, draws),
        answer_rate=float(answering.mean()),
        objective=recorded.objective,
        retention=recorded.retention,
        notes=recorded.notes,
    )


def tally_sets(
    policy: CoveragePolicy, measures: Measures, stops: NDArray[np.int16]
) -> SetsTally | None:
    """What adds up of them over parts of a record; ``None``: this one promises no coverage."""
    promise = policy.facts.coverage
    if promise is None:
        return None
    recorded = _recorded(policy, measures, stops)
    covered, sizes, answering = _of_units(recorded, measures)
    return SetsTally(
        alpha=promise.alpha,
        covered=None if covered is None else Sums.of(covered[:, None]),
        sizes=Sums.of(sizes[:, None]),
        answering=float(answering.sum()),
        objective=recorded.objective,
        retention=recorded.retention,
        notes=recorded.notes,
    )


def _recorded(policy: CoveragePolicy, measures: Measures, stops: NDArray[np.int16]) -> RecordedSets:
    recorded = policy.recorded_sets(measures.traces, measures.signals(policy.specs), stops)
    if measures.metric.gold:
        return recorded
    notes = (*recorded.notes, "coverage and objective need gold answers")
    return replace(recorded, covered=None, objective=None, notes=notes)


def _of_units(recorded: RecordedSets, measures: Measures) -> tuple[Array | None, Array, Array]:
    """Which hold the right answer (of labelled questions), members, and which answer, a unit's mean each."""
    covered, sets = recorded.covered, recorded.sets
    held = None
    if covered is not None:
        held = unit_means(covered.astype(np.float64), measures.units[measures.labelled])
    told = np.array([[one.size, not one.cannot_answer] for one in sets], np.float64)
    means = unit_means(told.reshape(-1, 2), measures.units)
    return held, means[:, 0], means[:, 1]


def _together(notes: Sequence[str]) -> tuple[str, ...]:
    counts: dict[str, int | None] = {}
    for note in notes:
        count, _, rest = note.partition(" ")
        if count.isdecimal():
            counts[rest] = (counts.get(rest) or 0) + int(count)
        else:
            counts[note] = None
    return tuple(note if count is None else f"{count} {note}" for note, count in counts.items())


def _of_sums(sums: Sums, draws: Resampling) -> Interval:
    drawn = sums.draws(resamples=draws.resamples, seed=draws.seed)
    return percentile_interval(float(sums.mean[0]), drawn[:, 0])


def _interval(values: NDArray[np.float64], draws: Resampling) -> Interval:
    means = resampled_means(values[:, None], resamples=draws.resamples, seed=draws.seed)
    return percentile_interval(float(values.mean()), means[:, 0])
