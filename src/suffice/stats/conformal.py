"""Order statistics for the thresholds of conformal prediction, with exact ranks.

A new score is compared with n calibration scores. If all n + 1 are exchangeable, the new one has each rank
with equal probability. Levels are exact: in floats 0.29 * 100 is below 29.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np

from suffice.errors import UsageError
from suffice.stats.units import Array, Mask


@dataclass(frozen=True, slots=True)
class Threshold:
    """Fire below ``value``, and at ``value`` with probability ``share``."""

    value: float
    share: float = 0.0

    def fires(self, scores: Array, draws: Array) -> Mask:
        """Say where it fires; ``draws`` are uniform in [0, 1), shaped like the scores."""
        below: Mask = scores < self.value
        if not self.share:
            return below
        return np.asarray(below | ((scores == self.value) & (draws < self.share)))


NEVER = Threshold(-math.inf)


def exact_level(level: float | str | Fraction, name: str = "alpha") -> Fraction:
    """Return an error level as the exact fraction of its decimal, 0.29 as 29/100."""
    try:
        exact = level if isinstance(level, Fraction) else Fraction(Decimal(str(level)))
    except (ArithmeticError, ValueError) as error:
        raise UsageError(f"{name} must be a number between 0 and 1, found {level!r}") from error
    if not 0 < exact < 1:
        raise UsageError(
            f"{name} must lie strictly between 0 and 1, found {level}; 0.1 allows one error in ten"
        )
    return exact


def lower_rank(level: Fraction, n: int) -> int:
    """Return floor(level (n + 1)), the rank that at most a share ``level`` of exchangeable scores has."""
    return math.floor(level * (n + 1))


def smallest_sample(level: Fraction) -> int:
    """Return the least n whose rank at ``level`` is not 0."""
    return math.ceil(1 / level) - 1


def lower_order_statistic(values: Array, level: Fraction) -> float:
    """Return the :func:`lower_rank`-th smallest of ``values`` (n,); -inf for rank 0, +inf for n + 1.

    A new exchangeable value lies strictly below it with probability at most ``level``.
    """
    rank = lower_rank(level, len(values))
    if rank == 0:
        return -math.inf
    if rank > len(values):
        return math.inf
    return float(np.partition(values, rank - 1)[rank - 1])


def tied_threshold(values: Array, level: Fraction, *, randomised: bool) -> Threshold:
    """Return the threshold that fires on at most a share ``level`` of exchangeable values.

    With k the rank and v the k-th smallest, it fires below v. ``randomised`` fires also at v, with
    probability (k - b) / (e + 1), if b values lie below v and e equal v. The share it fires on
    is then exactly k / (n + 1), however many are tied. Rank 0 never fires; rank n + 1 counts as rank n.
    Undefined ``values`` (n,), NaN, count in n as the largest, since they never fire.
    """
    n = len(values)
    rank = min(lower_rank(level, n), n)
    if rank == 0:
        return NEVER
    value = float(np.partition(values, rank - 1)[rank - 1])  # NaN sorts last
    if math.isnan(value):
        # every defined value is among the rank's lowest: all of them fire
        defined = values[~np.isnan(values)]
        return Threshold(float(np.nextafter(defined.max(), np.inf))) if len(defined) else NEVER
    if not randomised:
        return Threshold(value)
    below, equal = int((values < value).sum()), int((values == value).sum())
    return Threshold(value, (rank - below) / (equal + 1))
