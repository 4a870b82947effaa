"""How many questions would prove a policy's loss: resamples of the record, at growing sizes."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from suffice.evaluation.choose.bounds import Half
from suffice.evaluation.settings import LossName
from suffice.stats.units import Array

POWER = 0.8
"""Share of the resamples that prove the loss, of a size that is named."""
_RESAMPLES, _MOST_CELLS = 200, 4_000_000
_STEP = 1.15
"""From one size to the next, as a factor."""
MOST_TIMES = 20
"""Times the record's size up to which sizes are tried."""
_ORDERS = 10  # of the bets on a resample


@dataclass(frozen=True, slots=True)
class SampleSize:
    """Units that would prove it: ``low`` to ``high`` (``None``: more than were tried), at least ``floor``.

    Of resamples of the record of size ``low`` the share :data:`POWER` proves the loss; of size ``high`` if
    one more question had lost all. With fewer than ``floor`` not even losses of 0 would.
    """

    low: int | None = None
    high: int | None = None
    floor: int | None = None

    def to_json(self) -> dict[str, int | None]:
        names = ("questions_needed", "questions_needed_most", "questions_at_least")
        return dict(zip(names, (self.low, self.high, self.floor), strict=True))

    def scaled(self, factor: float) -> SampleSize:
        sizes = (self.low, self.high, self.floor)
        return SampleSize(*(None if one is None else int(np.ceil(one * factor)) for one in sizes))


def sample_size(
    half: Half, losses: Array, of: LossName, limit: float, level: float, seed: int
) -> SampleSize:
    """Return how many units like those of ``half``, with losses (n_questions,), prove the limit."""
    column = half.of_units(losses[:, None], limit)[:, 0]
    sizes = [len(column)]
    while sizes[-1] < MOST_TIMES * len(column):
        sizes.append(int(np.ceil(sizes[-1] * _STEP)))

    def first(values: Array) -> int | None:
        def share(size: int) -> float:
            generator = np.random.default_rng([seed, size])
            count = max(20, min(_RESAMPLES, _MOST_CELLS // size))
            drawn = values[generator.integers(0, len(values), (size, count))]
            orders = np.stack([generator.permutation(size) for _ in range(_ORDERS)])
            return float((_p_values(half, drawn, of, limit, level, orders) <= level).mean())

        at = bisect_left(sizes, POWER, key=share)
        return None if at == len(sizes) else sizes[at]

    low = first(column)
    high = None if low is None else first(np.append(column, half.reach))
    floor = _floor(half, of, limit, level)
    return SampleSize(low, high, min(floor, low or floor))  # gains prove sooner than losses of 0


def _floor(half: Half, of: LossName, limit: float, level: float) -> int:
    def proves(size: int) -> bool:
        orders = np.arange(size)[None, :]
        return bool(_p_values(half, np.zeros((size, 1)), of, limit, level, orders)[0] <= level)

    high = 2
    while not proves(high):
        high *= 2
    return 1 + bisect_left(range(1, high), True, key=proves)


def _p_values(
    half: Half, losses: Array, of: LossName, limit: float, level: float, orders: NDArray[np.intp]
) -> Array:
    """The test of ``half`` for other independent units with losses (n_units, n)."""
    # of the scores the test only asks whether they are all 0 or 1
    scores = half.scores if half.counts(of) else np.full((1, 1), 0.5)
    other = replace(
        half,
        scores=scores,
        right=None,
        last=np.ones(len(losses), np.int16),
        units=None,
        seen=None,
        orders=orders[:1] if half.anytime else orders,
    )
    return other.p_values(losses, of, limit, level)
