"""Betting capital: evidence and intervals that stay valid at every look.

Under the hypothesis no bet wins in expectation. So capital that starts at 1 ever reaches ``c`` with
probability at most ``1 / c`` (Ville's inequality). You may look after every observation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from suffice.errors import UsageError
from suffice.stats.conformal import exact_level
from suffice.stats.units import Array

_PACE = 100.0  # observations over which the first share of the reserve is put into play
_MOST = 1e200


class Monitor:
    """Bet one unit, spread over gamblers and starting times, against a promise; raise its alarm.

    A gambler who bets from the start loses while nothing is wrong, and finds a late change too late. So the
    unit starts as a reserve, of which ``1 / log(e + n / 100)`` is left after n observations. Before each
    observation the gamblers share what leaves it: ``c_n = f_n (c_(n-1) + entering_n)``. A change after n
    observations costs a factor of about ``n log(n)^2``; the delay grows by its logarithm.

    Stakes that double 20 times make 2 ** 20 of the little that was in play; most was still in reserve:

    >>> monitor = Monitor(0.05, gamblers=1)
    >>> monitor.settle([1.0])
    False
    >>> monitor.capital
    1.0
    >>> monitor = Monitor(0.05, gamblers=1)
    >>> any([monitor.settle([2.0]) for _ in range(20)])
    True
    >>> round(monitor.capital), monitor.alarmed_at
    (7591, 12)
    """

    __slots__ = ("_greatest", "_in_play", "_level", "alarmed_at", "seen")

    def __init__(self, level: float, gamblers: int) -> None:
        exact_level(level, "level")
        self._level = float(level)
        self._in_play = [0.0] * gamblers
        self.seen: int = 0
        self._greatest = 1.0
        self.alarmed_at: int | None = None

    def settle(self, factors: Sequence[float]) -> bool:
        """Multiply each gambler's stake by an outcome of mean at most 1, from 0; return the alarm."""
        before = _reserve(self.seen)
        self.seen += 1
        entering = (before - _reserve(self.seen)) / len(self._in_play)
        # capping is less than won: still a bet that does not win in expectation
        self._in_play = [
            min((held + entering) * factor, _MOST)
            for held, factor in zip(self._in_play, factors, strict=True)
        ]
        self._greatest = max(self._greatest, self.capital)
        if self.alarmed_at is None and self.p_value <= self._level:
            self.alarmed_at = self.seen
        return self.alarmed

    @property
    def level(self) -> float:
        """Return the probability of a false alarm, ever."""
        return self._level

    @property
    def capital(self) -> float:
        """Return the value of the unit, from 0; high is evidence that the promise is broken."""
        return sum(self._in_play) + _reserve(self.seen)

    @property
    def p_value(self) -> float:
        """Bound the chance of so much evidence, now or ever, if the promise holds; in (0, 1]."""
        return 1.0 / self._greatest

    @property
    def alarmed(self) -> bool:
        return self.alarmed_at is not None


def _reserve(seen: int) -> float:
    return 1.0 / math.log(math.e + seen / _PACE)


# --- a mean that is looked at after every value ---------------------------------------------------
STAKES = np.geomspace(0.01, 0.95, 12)
"""Shares of what could be lost that gamblers stake in every bet."""
_DECIMALS = 6  # values count to so many; their mean is off by at most half of the last
_GRID, _REFINEMENTS = 33, 6  # an end to a billionth of the range


@dataclass(frozen=True, slots=True, kw_only=True)
class AnytimeMean:
    """Hold a mean of ``count`` values with an interval that holds at all times; NaN: no value."""

    count: int
    estimate: float
    low: float
    high: float


class MeanSequence:
    """Track the mean of values in a known range, one by one.

    The interval holds for values whose mean, given those before, stays the same. If it changes, the lower end
    lies below the greatest of these means, with the same probability. The upper end lies above the least.
    """

    __slots__ = ("_counts", "_least", "_most")

    def __init__(self, least: float, most: float) -> None:
        self._least, self._most = float(least), float(most)
        self._counts: dict[float, int] = {}

    def take(self, value: float) -> None:
        if not self._least <= value <= self._most:
            raise UsageError(
                f"a value must be from {self._least:g} to {self._most:g}, found {value!r}"
            )
        key = min(max(round(float(value), _DECIMALS), self._least), self._most)
        self._counts[key] = self._counts.get(key, 0) + 1

    @property
    def count(self) -> int:
        return sum(self._counts.values())

    @property
    def mean(self) -> float:
        """Return the mean of the values; NaN without any."""
        if not self._counts:
            return math.nan
        return math.fsum(value * times for value, times in self._counts.items()) / self.count

    def at(self, level: float, count: int | None = None) -> AnytimeMean:
        """Return the mean and an interval that ever misses it with probability at most ``level``.

        ``count``: the interval after so many values, if they repeat those that came.
        """
        exact_level(level, "level")
        count, mean = self.count if count is None else count, self.mean
        if not self._counts:
            return AnytimeMean(count=0, estimate=mean, low=self._least, high=self._most)
        values = np.array(list(self._counts))
        times = np.array(list(self._counts.values()), np.float64) * (count / self.count)
        wanted = math.log(2.0 / level)
        span = self._most - self._least
        above = (values - self._least) / span
        low = _limit(above, times, wanted)
        high = _limit(1.0 - above, times, wanted)
        return AnytimeMean(
            count=count, estimate=mean, low=self._least + span * low, high=self._most - span * high
        )


def log_capital(above: Array, times: Array, means: Array) -> Array:
    """Return the log capital of bets that values in [0, 1] exceed each mean, (n_means,).

    ``above`` (n,) are distinct values, ``times`` (n,) how often each came. A stake c multiplies the capital
    by ``1 - c + c v / mean``. So the result falls with the mean.
    """
    ratios = above / means[:, None] - 1.0
    won = np.log1p(STAKES[:, None] * ratios[:, None, :]) @ times
    best = won.max(axis=1)
    return np.asarray(best + np.log(np.exp(won - best[:, None]).mean(axis=1)))


def _limit(above: Array, times: Array, wanted: float) -> float:
    """Return the greatest mean, from below, against which bets won so much; 0 if none."""
    low, high = 0.0, float((above * times).sum() / times.sum())
    if high == 0.0:
        return 0.0
    for _ in range(_REFINEMENTS):
        grid = np.linspace(low, high, _GRID)
        reached = log_capital(above, times, grid[1:-1]) >= wanted
        first = int(np.append(reached, False).argmin())  # of those not reached
        low, high = float(grid[first]), float(grid[first + 1])
    return low
