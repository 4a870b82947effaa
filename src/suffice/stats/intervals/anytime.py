"""Intervals of a mean that may be looked at after every value: they hold at all times together.

A gambler who bets that values lie above m wins nothing in expectation where m is their mean, so capital that
started at 1 reaches ``1 / level`` ever with probability at most ``level``; means that would have made
somebody that rich are left out (Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables
by betting", their diversified Kelly bets). Published are two capitals, hedged, over a grid of means whose
nearest points are given. Here each side has half of the level, and the ends are solved for and rounded
outwards, which can only widen the interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError
from suffice.stats.conformal.order_statistics import exact_level
from suffice.stats.fields import map_fields, numbers

STAKES = np.geomspace(0.01, 0.95, 12)
"""Shares of what could be lost that gamblers stake in every bet."""
_DECIMALS = 6  # values count to so many; their mean is off by at most half of the last
_GRID, _REFINEMENTS = 33, 6  # an end to a billionth of the range
_MOST_COUNT = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class AnytimeMean:
    """The mean of ``count`` values, and an interval that holds at all times; NaN: no value."""

    count: int
    estimate: float
    low: float
    high: float


class MeanSequence:
    """The mean of values in a known range, as they come.

    The interval holds for values whose mean, given those before, stays the same. Where it changes, the lower
    end lies below the greatest of these means and the upper end above the least, as surely.
    """

    __slots__ = ("_counts", "_least", "_most")

    def __init__(self, least: float, most: float) -> None:
        if not least < most:
            raise UsageError(f"a range goes from less to more, found {least!r} to {most!r}")
        self._least, self._most = float(least), float(most)
        self._counts: dict[float, int] = {}

    def take(self, value: float, times: int = 1) -> None:
        """A value, so many times."""
        if not self._least <= value <= self._most:
            raise UsageError(
                f"a value from {self._least:g} to {self._most:g} is wanted, found {value!r}"
            )
        key = min(max(round(float(value), _DECIMALS), self._least), self._most)
        self._counts[key] = self._counts.get(key, 0) + times

    @property
    def count(self) -> int:
        """How many values there were."""
        return sum(self._counts.values())

    @property
    def mean(self) -> float:
        """Of the values; NaN: none."""
        if not self._counts:
            return math.nan
        return math.fsum(value * times for value, times in self._counts.items()) / self.count

    def at(self, level: float) -> AnytimeMean:
        """The mean, with an interval that misses it ever with probability at most ``level``."""
        exact_level(level, "level")
        count, mean = self.count, self.mean
        if not count:
            return AnytimeMean(count=0, estimate=mean, low=self._least, high=self._most)
        values = np.array(list(self._counts))
        times = np.array(list(self._counts.values()), np.float64)
        wanted = math.log(2.0 / level)
        span = self._most - self._least
        above = (values - self._least) / span
        low = _limit(above, times, wanted)
        high = _limit(1.0 - above, times, wanted)
        return AnytimeMean(
            count=count,
            estimate=mean,
            low=self._least + span * low,
            high=self._most - span * high,
        )

    def to_json(self) -> dict[str, Any]:
        """All it needs to go on, as strict JSON; as long as there are distinct values."""
        return {"values": list(self._counts), "counts": list(self._counts.values())}

    @classmethod
    def from_json(cls, document: object, least: float, most: float) -> MeanSequence:
        """What :meth:`to_json` gave."""
        fields: Mapping[str, Any] = map_fields(document, "a saved mean", ("values", "counts"))
        values, counts = numbers(fields.get("values"), "values"), fields.get("counts")
        if not isinstance(counts, list) or len(counts) != len(values):
            raise DataError("values and counts must be lists of one length", column="counts")
        means = cls(least, most)
        for value, times in zip(values, counts, strict=True):
            if isinstance(times, bool) or not isinstance(times, int) or not 0 < times < _MOST_COUNT:
                raise DataError(f"must be whole numbers from 1, found {times!r}", column="counts")
            if not least <= value <= most:
                raise DataError(f"must lie in [{least:g}, {most:g}]: {value!r}", column="values")
            means.take(value, times)
        return means


def log_capital(
    above: NDArray[np.float64], times: NDArray[np.float64], means: NDArray[np.float64]
) -> NDArray[np.float64]:
    """What a unit has become of bets that values in [0, 1] have a mean above each, its log, (n_means,).

    ``above`` (n,) are distinct values, ``times`` (n,) how often each came. A stake c of what could be lost
    makes ``1 - c + c v / mean`` of the capital, so the result falls with the mean.
    """
    ratios = above / means[:, None] - 1.0
    won = np.log1p(STAKES[:, None] * ratios[:, None, :]) @ times
    best = won.max(axis=1)
    return np.asarray(best + np.log(np.exp(won - best[:, None]).mean(axis=1)))


def _limit(above: NDArray[np.float64], times: NDArray[np.float64], wanted: float) -> float:
    """The greatest mean in [0, 1] above which bets have won so much, from below; 0: none."""
    low, high = 0.0, float((above * times).sum() / times.sum())
    if high == 0.0:
        return 0.0
    for _ in range(_REFINEMENTS):
        grid = np.linspace(low, high, _GRID)
        reached = log_capital(above, times, grid[1:-1]) >= wanted
        first = int(np.append(reached, False).argmin())  # of those not reached
        low, high = float(grid[first]), float(grid[first + 1])
    return low
