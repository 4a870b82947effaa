"""How far the best candidate stands out among everything the retriever returned.

Where a pipeline ranks once, these are constant over a question's rounds: a rule on them fires at
its first opportunity or never. A round without a candidate list of its own uses the newest earlier
one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import Absence
from suffice.signals.columns.ragged import by_length
from suffice.signals.columns.rounds import RoundColumns
from suffice.signals.spec import SignalSpec
from suffice.trace.rounds.records import LoopView

Array = NDArray[np.float64]
Places = NDArray[np.int64]
Statistic = Callable[[Array], Array]


@dataclass(frozen=True, slots=True, eq=False)
class Finite:
    """The finite scores of each row: in ``scores`` from ``begins`` to before ``ends`` (n_rows,)."""

    scores: Array
    begins: Places
    ends: Places

    @classmethod
    def of(cls, scores: Array, begins: Places, ends: Places) -> Finite:
        """Those that lie from place to place among scores some of which are not finite."""
        finite = np.isfinite(scores)
        before = np.append(0, np.cumsum(finite))
        return cls(scores[finite], before[begins], before[ends])

    def statistic(self, statistic: Statistic) -> Array:
        """What a statistic of rows of one length gives, NaN without a score, (n_rows,)."""
        with np.errstate(divide="ignore", invalid="ignore"):  # where all are equal, or half of them
            return by_length(self.scores, self.begins, self.ends, statistic)


def retrieval_z(rounds: RoundColumns) -> Array:
    """(best - mean) / population standard deviation of the scores (paper 0), >= 0.

    0 when all scores are equal; undefined without scores.
    """
    return _of_newest(rounds, _z)


def retrieval_z_robust(rounds: RoundColumns) -> Array:
    """(best - median) / interquartile range of the scores (paper 0), >= 0; quartiles are linear.

    0 when all scores are equal; undefined without scores, or when only the middle half is equal.
    """
    return _of_newest(rounds, _z_robust)


def retrieval_gap(rounds: RoundColumns) -> Array:
    """Best minus second best score (paper 0), >= 0; undefined with fewer than two scores."""
    return _of_newest(rounds, _gap)


def _of_newest(rounds: RoundColumns, statistic: Statistic) -> Array:
    """A statistic of the newest candidate list of every row."""
    lists = rounds.lists("candidate_scores")
    own = Finite.of(lists.numbers(), lists.offsets[:-1], lists.offsets[1:]).statistic(statistic)
    newest = np.maximum.accumulate(np.where(lists.valid, np.arange(rounds.n_rows), -1))
    return np.where(newest < rounds.first_row, np.nan, own[newest])


def _z(scores: Array) -> Array:
    return unless_equal(scores, (scores.max(axis=1) - scores.mean(axis=1)) / scores.std(axis=1))


def _z_robust(scores: Array) -> Array:
    low, median, high = np.percentile(scores, [25, 50, 75], axis=1)
    z = (scores.max(axis=1) - median) / (high - low) + 0.0
    return unless_equal(scores, np.where(high > low, z, np.nan))


def _gap(scores: Array) -> Array:
    if scores.shape[1] == 1:
        return np.full(len(scores), np.nan)
    second, best = np.partition(scores, (-2, -1), axis=1)[:, -2:].T
    gaps: Array = best - second + 0.0
    return gaps


def unless_equal(scores: Array, values: Array) -> Array:
    """The values, 0 for rows of equal scores."""
    return np.where(scores.min(axis=1) == scores.max(axis=1), 0.0, values)


def _no_scores(view: LoopView) -> bool:
    lists = (held.candidate_scores for held in reversed(view.rounds))
    newest = next((scores for scores in lists if scores is not None), ())
    return not any(map(math.isfinite, newest))


_of_scores = partial(SignalSpec, needs=("candidate_scores",), answers=False, low=0.0)
_NO_SCORES = Absence("no candidate scores were recorded", _no_scores)
RETRIEVAL_Z = _of_scores(
    name="retrieval_z",
    summary="by how many standard deviations the best candidate stands above the mean",
    columns=retrieval_z,
    undefined=(_NO_SCORES,),
)
RETRIEVAL_Z_ROBUST = _of_scores(
    name="retrieval_z_robust",
    summary="how far the best candidate stands above the median, measured by the interquartile range",
    columns=retrieval_z_robust,
    undefined=(
        _NO_SCORES,
        Absence("the middle half of the candidate scores is one number", lambda _: True),
    ),
)
RETRIEVAL_GAP = _of_scores(
    name="retrieval_gap",
    summary="score of the best candidate less that of the second",
    columns=retrieval_gap,
    undefined=(_NO_SCORES, Absence("there is only one candidate score", lambda _: True)),
)
