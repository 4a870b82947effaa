"""Area under the ROC curve, plain and over resampled questions.

The area is the probability that the value of a right answer exceeds that of a wrong one. Ties count half
(Mann and Whitney, 1947; Hanley and McNeil, 1982).
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from suffice.stats.intervals import Estimate
from suffice.stats.units import Array, Mask

Use = Literal["useful", "uninformative", "misleading", "unknown"]
USES: tuple[Use, ...] = ("useful", "uninformative", "misleading", "unknown")
_FEW = 32  # distinct values up to which sums a value are cheaper than sorted rows
_DRAWS_AT_ONCE = 32  # resamples whose weights of a few thousand rows stay in cache


def average_ranks(values: Array) -> Array:
    """Rank values from 1, (n,); equal values share their mean rank. No NaN."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2.0)[inverse.reshape(-1)], np.float64)


def auroc(values: Array, right: Mask) -> float:
    """Return P(right value > wrong value) + half P(equal), in [0, 1]; high: the signal separates.

    NaN when no row is right or none is wrong.
    """
    n_right = int(right.sum())
    n_wrong = len(right) - n_right
    if n_right == 0 or n_wrong == 0:
        return math.nan
    above = average_ranks(values)[right].sum() - n_right * (n_right + 1) / 2
    return float(above / (n_right * n_wrong))


def auroc_use(area: Estimate) -> Use:
    """Judge an AUROC by its interval: one that contains 0.5 tells nothing."""
    if area.low is None or area.high is None:
        return "unknown"
    if area.low > 0.5:
        return "useful"
    return "misleading" if area.high < 0.5 else "uninformative"


class ResampledAuroc:
    """Compute the AUROC of the same rows under many resamples of their questions."""

    def __init__(
        self, values: Array, right: Mask, questions: NDArray[np.int64], n_questions: int
    ) -> None:
        order = np.argsort(values, kind="stable")
        values, right, questions = values[order], right[order], questions[order]
        self._right, self._wrong = questions[right], questions[~right]
        # of each right row: how many wrong rows lie below it, and how many not above it
        self._below = np.searchsorted(values[~right], values[right], side="left")
        self._up_to = np.searchsorted(values[~right], values[right], side="right")
        distinct, groups = np.unique(values, return_inverse=True)
        self.sums: Array = np.zeros((0, n_questions))
        """(n_sums, n_questions): what :meth:`of` wants summed over the questions drawn."""
        if 0 < len(distinct) <= _FEW:
            # rows of each class and value, of every question
            kind = groups + len(distinct) * ~right
            size = 2 * len(distinct) * n_questions
            rows = np.bincount(kind * n_questions + questions, minlength=size)
            self.sums = rows.reshape(-1, n_questions).astype(np.float64)

    def __call__(self, counts: Array) -> Array:
        """Return the AUROC of every resample, (n_draws,); NaN where it holds only one class."""
        return self.of(self.sums @ counts, counts)

    def of(self, sums: Array, counts: Array) -> Array:
        """Return the same from ``self.sums @ counts`` (n_sums, n_draws)."""
        if len(self._right) == 0 or len(self._wrong) == 0:
            return np.full(counts.shape[1], np.nan)
        if len(sums):
            right, wrong = np.split(sums, 2)
            below = np.cumsum(wrong, axis=0) - wrong / 2
            return _share((right * below).sum(axis=0), right.sum(axis=0), wrong.sum(axis=0))
        parts = [
            self._by_row(np.ascontiguousarray(counts[:, start : start + _DRAWS_AT_ONCE]))
            for start in range(0, counts.shape[1], _DRAWS_AT_ONCE)
        ]
        return np.concatenate(parts)

    def _by_row(self, counts: Array) -> Array:
        drawn = counts[self._right]  # (n_right, n_draws)
        below = np.zeros((len(self._wrong) + 1, counts.shape[1]))
        np.cumsum(counts[self._wrong], axis=0, out=below[1:])
        pairs = np.einsum("rd,rd->d", drawn, below[self._below])
        pairs += np.einsum("rd,rd->d", drawn, below[self._up_to])
        return _share(pairs / 2, drawn.sum(axis=0), below[-1])


def _share(pairs: Array, right: Array, wrong: Array) -> Array:
    of = right * wrong
    return np.asarray(np.where(of > 0, pairs / np.where(of > 0, of, 1.0), np.nan))
