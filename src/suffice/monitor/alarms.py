"""Alarms of a promise in use: one observation in, an alarm out.

You may look at every monitor after every answer. While the promise holds, the lifetime chance of a false
alarm is at most the monitor's level.
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.stats.betting import Monitor
from suffice.stats.conformal import exact_level, lower_rank
from suffice.stats.p_values import beta_quantile

_UNDEFINED = math.inf  # where NaN stands among scores: above every number
_WORSE = (0.05, 0.1, 0.2, 0.4)  # miss rates bet on, as shares of the way from the limit to 1
_STAKES = (-0.9, -0.5, -0.2, 0.2, 0.5, 0.9)
_SHIFTS = (-1.6, -0.8, -0.4, 0.4, 0.8, 1.6)  # of log-odds, for all probabilities alike
_SLOPES = (-0.5, 0.5)  # log-odds times one plus this: less sure than stated, or surer
_BIN_SHIFTS = (-0.8, 0.8)
BINS = 5
"""Equal parts of [0, 1] in which probabilities are looked at by themselves."""
_NEAREST = 0.001  # to 0 and 1 that a bet is made against


def miss_rate_limit(alpha: float, n_calibration: int, confidence: float) -> float:
    """Return the greatest miss rate of a kept promise for its calibration set, with this confidence.

    Over calibration sets the miss rate of a threshold at rank l = floor(alpha (n + 1)) follows Beta(l, n +
    1 - l) if scores are continuous, and is less if they are tied (Vovk 2012). The result is that
    distribution's quantile, and at least ``alpha``; rank 0 never misses.
    """
    rank = lower_rank(exact_level(alpha), n_calibration)
    if rank == 0:
        return alpha
    return max(alpha, beta_quantile(rank, n_calibration + 1 - rank, confidence))


class CoverageMonitor(Monitor):
    """Whether answers still cover as promised; needs the right answers of a sample of them.

    It bets that misses are more frequent than :func:`miss_rate_limit` at confidence
    ``1 - level / 2``: half of the level pays for the luck of calibration, half for the bets. One miss
    fewer never gains it anything, so the level holds for every miss rate up to the limit.

    ``alpha`` is the promised miss rate, in (0, 1); ``n_calibration`` how many questions it was calibrated
    on, from 1; ``level`` the probability of a false alarm, ever, in (0, 1). Other values are a
    ``UsageError``. ``limit`` is the miss rate it bets against, ``misses`` counts answers that did not
    cover. Answers may be a sample, drawn without regard to whether they cover. Where several thresholds
    share ``alpha``, the law behind the limit is an approximation.

    >>> monitor = CoverageMonitor(0.1, 200)
    >>> any(monitor.update(True) for _ in range(500))
    False
    >>> next(n for n in range(1, 100) if monitor.update(False))
    10
    """

    __slots__ = ("limit", "misses")

    def __init__(self, alpha: float, n_calibration: int, level: float = 0.05) -> None:
        super().__init__(level, len(_WORSE))
        exact_level(alpha)
        if _whole(n_calibration, "n_calibration") < 1:
            raise UsageError(f"n_calibration must be at least 1, found {n_calibration}")
        level = 1.0 - self._level / 2.0
        self.limit: float = miss_rate_limit(float(alpha), int(n_calibration), level)
        self.misses: int = 0

    def update(self, covered: bool | np.bool_) -> bool:  # noqa: FBT001 - an observation, no switch
        """Take one answer with a known right answer; return whether there is or was an alarm.

        Anything but True or False is a ``UsageError``.
        """
        if not isinstance(covered, bool | np.bool_):
            raise UsageError(
                f"covered must be True or False, found {covered!r}; leave out answers whose right "
                "answer is unknown"
            )
        self.misses += not covered
        rates = [self.limit + share * (1.0 - self.limit) for share in _WORSE]
        if covered:
            return self.settle([(1.0 - rate) / (1.0 - self.limit) for rate in rates])
        return self.settle([rate / self.limit for rate in rates])

    @property
    def p_value(self) -> float:
        """A bound on the probability of this much evidence, now or ever, under the promise; in (0, 1]."""
        return min(1.0, self._level / 2.0 + super().p_value)


class ExchangeabilityMonitor(Monitor):
    """Whether answers still look like those calibrated on; needs no right answer.

    Each score gets its rank among the calibration scores and the stream so far, ties broken at random:
    a p-value, uniform and independent of earlier ones while all are exchangeable (Vovk, Gammerman and
    Shafer 2005, "Algorithmic Learning in a Random World"). It bets that p-values gather high, low, in
    the middle or at both ends. A change is seen against what came before it, so a slow one may pass.

    ``calibration_scores`` are (n_calibration,), from 1, in any order; or how often each came, by score.
    NaN is undefined: a value of its own, above all numbers, so that undefined scores that become more
    frequent are a change too. ``level`` is the probability of a false alarm, ever, in (0, 1). ``seed``
    breaks ties: the same seed and stream give the same capital. Other values and infinite scores are a
    ``UsageError``. ``n_calibration`` counts the scores it began with, ``undefined`` the answers taken
    whose score was undefined.

    >>> monitor = ExchangeabilityMonitor([0.0, 0.0, 0.3, 0.5, 0.9] * 20, seed=1)
    >>> next(n for n in range(1, 100) if monitor.update(0.9))
    18
    """

    __slots__ = ("_counts", "_seed", "_values", "n_calibration", "undefined")

    def __init__(
        self,
        calibration_scores: Sequence[float] | NDArray[np.float64] | Mapping[float, int],
        level: float = 0.05,
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(level, 2 * len(_STAKES))
        self._seed = _whole(seed, "seed")
        counted: Counter[float] = Counter()
        for score, times in Counter(calibration_scores).items():
            counted[_score(score)] += times
        self._values = sorted(counted)
        self._counts = np.array([counted[value] for value in self._values], np.int64)
        self.n_calibration: int = counted.total()
        if self.n_calibration == 0:
            raise UsageError("needs at least one calibration score to compare with")
        self.undefined: int = 0

    def update(self, score: float | np.floating[Any]) -> bool:
        """Take the score of one answer; return whether there is or was an alarm.

        Anything but a finite number or NaN is a ``UsageError``.
        """
        value = _score(score)
        p = self._p_value_of(value)
        self._counts[bisect_left(self._values, value)] += 1
        self.undefined += value == _UNDEFINED
        once, twice = math.cos(math.pi * p), math.cos(2.0 * math.pi * p)
        return self.settle([1.0 + stake * wave for wave in (once, twice) for stake in _STAKES])

    def _p_value_of(self, value: float) -> float:
        """Return the rank of a score among those so far, from above, in [0, 1], and add the score's place."""
        place = bisect_left(self._values, value)
        if place == len(self._values) or self._values[place] != value:
            self._values.insert(place, value)
            self._counts = np.insert(self._counts, place, 0)
        above, equal = int(self._counts[place + 1 :].sum()), int(self._counts[place])
        return (above + self._draw() * (equal + 1)) / (self.n_calibration + self.seen + 1)

    def _draw(self) -> float:
        """Draw from [0, 1) by seed and number of the answer, so that a second reading draws the same."""
        digest = hashlib.blake2b(f"{self._seed} {self.seen}".encode(), digest_size=8).digest()
        return (int.from_bytes(digest, "big") >> 11) * 2.0**-53


class ProbabilityMonitor(Monitor):
    """Whether outcomes happen as often as their stated probabilities say.

    It bets on other log-odds: shifted for all probabilities, stretched, or shifted in one of :data:`BINS`
    bins. No bet wins in expectation if the stated probability is each outcome's mean, given all before.
    Outcomes may be shares between 0 and 1.
    """

    __slots__ = ()

    def __init__(self, level: float = 0.05) -> None:
        super().__init__(level, len(_SHIFTS) + len(_SLOPES) + BINS * len(_BIN_SHIFTS))

    def update(self, probability: float, right: float) -> bool:
        """Take a stated probability and its outcome in [0, 1]; return whether there is or was an alarm."""
        near = min(max(probability, _NEAREST), 1.0 - _NEAREST)
        odds = math.log(near / (1.0 - near))
        shifts = [*_SHIFTS, *(slope * odds for slope in _SLOPES)]
        for place in range(BINS):
            shifts += _BIN_SHIFTS if place == bin_of(probability) else [0.0] * len(_BIN_SHIFTS)
        return self.settle([_odds_bet(probability, right, shift) for shift in shifts])


def bin_of(probability: float) -> int:
    """Return the bin of a probability, from 0."""
    return min(int(probability * BINS), BINS - 1)


def _odds_bet(probability: float, right: float, shift: float) -> float:
    """Return the value of a unit that bets on these log-odds, shifted; of mean at most 1."""
    base = min(probability, 1.0 - _NEAREST) if shift < 0 else max(probability, _NEAREST)
    if shift == 0.0 or base in (0.0, 1.0):
        return 1.0
    scale = math.exp(shift)
    other = base * scale / (1.0 - base + base * scale)
    return right * other / base + (1.0 - right) * (1.0 - other) / (1.0 - base)


def _whole(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise UsageError(f"{name} must be a whole number, found {value!r}")
    return int(value)


def _score(value: object) -> float:
    """Return a score for comparison: undefined is above all numbers."""
    if isinstance(value, bool | np.bool_) or not isinstance(
        value, int | float | np.integer | np.floating
    ):
        raise UsageError(f"a score must be a number, NaN where undefined; found {value!r}")
    score = float(value)
    if math.isinf(score):
        raise UsageError(f"a score must be finite, or NaN where undefined; found {score}")
    return _UNDEFINED if math.isnan(score) else score
