"""Statistics of a retriever's and a reranker's scores in all rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.columns.ragged import by_length, ranges
from suffice.columns.sums import segment_means
from suffice.signals.by_columns.passages import listings, unrecorded_so_far
from suffice.signals.by_columns.rounds import RoundColumns

Array = NDArray[np.float64]
Places = NDArray[np.int64]
Statistic = Callable[[Array], Array]


@dataclass(frozen=True, slots=True, eq=False)
class _Finite:
    """The finite scores of each row: in ``scores`` from ``begins`` to before ``ends`` (n_rows,)."""

    scores: Array
    begins: Places
    ends: Places

    @classmethod
    def of(cls, scores: Array, begins: Places, ends: Places) -> _Finite:
        """Those that lie from place to place among scores some of which are not finite."""
        finite = np.isfinite(scores)
        before = np.append(0, np.cumsum(finite))
        return cls(scores[finite], before[begins], before[ends])

    def statistic(self, statistic: Statistic) -> Array:
        """What a statistic of rows of one length gives, NaN without a score, (n_rows,)."""
        with np.errstate(divide="ignore", invalid="ignore"):  # where all are equal, or half of them
            return by_length(self.scores, self.begins, self.ends, statistic)


# --- of a retriever --------------------------------------------------------------------------------
def retrieval_z(rounds: RoundColumns) -> Array:
    """``retrieval_z``."""
    return _of_newest(rounds, _z)


def retrieval_z_robust(rounds: RoundColumns) -> Array:
    """``retrieval_z_robust``."""
    return _of_newest(rounds, _z_robust)


def retrieval_gap(rounds: RoundColumns) -> Array:
    """``retrieval_gap``."""
    return _of_newest(rounds, _gap)


def _of_newest(rounds: RoundColumns, statistic: Statistic) -> Array:
    """A statistic of the newest candidate list of every row."""
    lists = rounds.lists("candidate_scores")
    own = _Finite.of(lists.numbers(), lists.offsets[:-1], lists.offsets[1:]).statistic(statistic)
    newest = np.maximum.accumulate(np.where(lists.valid, np.arange(rounds.n_rows), -1))
    return np.where(newest < rounds.first_row, np.nan, own[newest])


def _z(scores: Array) -> Array:
    return _unless_equal(scores, (scores.max(axis=1) - scores.mean(axis=1)) / scores.std(axis=1))


def _z_robust(scores: Array) -> Array:
    low, median, high = np.percentile(scores, [25, 50, 75], axis=1)
    z = (scores.max(axis=1) - median) / (high - low) + 0.0
    return _unless_equal(scores, np.where(high > low, z, np.nan))


def _gap(scores: Array) -> Array:
    if scores.shape[1] == 1:
        return np.full(len(scores), np.nan)
    second, best = np.partition(scores, (-2, -1), axis=1)[:, -2:].T
    gaps: Array = best - second + 0.0
    return gaps


def _unless_equal(scores: Array, values: Array) -> Array:
    """The values, 0 for rows of equal scores."""
    return np.where(scores.min(axis=1) == scores.max(axis=1), 0.0, values)


# --- of a reranker ---------------------------------------------------------------------------------
def rerank_top_score(rounds: RoundColumns) -> Array:
    """``rerank_top_score``."""
    lists = rounds.lists("passages")
    scores = lists.numbers("rerank_score")
    own = _Finite.of(scores, lists.offsets[:-1], lists.offsets[1:]).statistic(
        lambda s: s.max(axis=1)
    )
    dense = np.fmax.accumulate(rounds.traces.dense(own), axis=1)
    highest: Array = dense[rounds.question, np.arange(rounds.n_rows) - rounds.first_row] + 0.0
    return highest


def rerank_mean(rounds: RoundColumns) -> Array:
    """``rerank_mean``."""
    seen = rounds.once(_seen)
    offsets = np.append(0, np.cumsum(seen.ends - seen.begins))
    return segment_means(seen.scores[ranges(seen.begins, seen.ends)], offsets)


def rerank_variance(rounds: RoundColumns) -> Array:
    """``rerank_variance``."""
    values = rounds.once(_seen).statistic(_normalised_variance)
    nothing = ~unrecorded_so_far(rounds) & ~rounds.so_far(rounds.lists("passages").lengths > 0)
    values[nothing] = 0.0
    return values


def rerank_variance_raw(rounds: RoundColumns) -> Array:
    """``rerank_variance_raw``."""
    return rounds.once(_seen).statistic(lambda scores: _unless_equal(scores, scores.var(axis=1)))


def _seen(rounds: RoundColumns) -> _Finite:
    """Raw scores of the distinct passages of this round and earlier ones."""
    listed = rounds.once(listings)
    ends = np.cumsum(listed.new)
    begins = (ends - listed.new)[rounds.first_row]
    return _Finite.of(listed.lists.numbers("rerank_score")[listed.places], begins, ends)


def _normalised_variance(scores: Array) -> Array:
    low, high = scores.min(axis=1, keepdims=True), scores.max(axis=1, keepdims=True)
    return _unless_equal(scores, ((scores - low) / (high - low)).var(axis=1))
