"""How sure a model and a calibrated value are of answers, against how often these are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import CalibratedPolicy
from suffice.measures.scores import Outcomes
from suffice.signals.table import SignalTable
from suffice.stats.quality import equal_size_edges

_Z = 1.959963984540054  # 97.5% quantile of the standard normal


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBucket:
    """Mean calibrated value and share right among ``count`` answers, with a 95% Wilson interval."""

    predicted: float
    right: float
    low: float
    high: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reliability:
    """Buckets of one calibrated signal in one round; ``undefined`` answers had no value."""

    signal: str
    round: int
    buckets: tuple[ReliabilityBucket, ...]
    undefined: int


def wilson(successes: float, count: int) -> tuple[float, float]:
    """95% Wilson score interval of a share; (0, 1) for no observation."""
    if count == 0:
        return 0.0, 1.0
    share, z2 = successes / count, _Z * _Z
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = (
        _Z
        * float(np.sqrt(share * (1 - share) / count + z2 / (4 * count * count)))
        / (1 + z2 / count)
    )
    # rounding must not push an end past the share itself
    return max(0.0, min(share, centre - half)), min(1.0, max(share, centre + half))


def buckets(
    predicted: NDArray[np.float64], right: NDArray[np.float64], *, count: int = 5
) -> tuple[ReliabilityBucket, ...]:
    """Equal-size buckets in order of the predicted value; equal values are never split."""
    order = np.argsort(predicted, kind="stable")
    predicted, right = predicted[order], right[order]
    made = []
    for start, stop in pairwise(equal_size_edges(predicted, count)):
        low, high = wilson(float(right[start:stop].sum()), stop - start)
        made.append(
            ReliabilityBucket(
                predicted=float(predicted[start:stop].mean()),
                right=float(right[start:stop].mean()),
                low=low,
                high=high,
                count=stop - start,
            )
        )
    return tuple(made)


def reliability(
    policy: CalibratedPolicy, table: SignalTable, scored: Outcomes
) -> Sequence[Reliability]:
    """Every calibrated signal of the policy in every round that has labelled answers."""
    rounds = []
    for signal, calibrator in policy.calibrators.items():
        values = table.signal(signal)
        for number in range(1, table.n_rounds + 1):
            right = scored.em[:, number - 1]
            predicted = calibrator.predict(number, values[:, number - 1])
            recorded = np.isfinite(right)
            usable = recorded & np.isfinite(predicted)
            if recorded.any():
                rounds.append(
                    Reliability(
                        signal=signal,
                        round=number,
                        buckets=buckets(predicted[usable], right[usable]) if usable.any() else (),
                        undefined=int((recorded & ~usable).sum()),
                    )
                )
    return rounds
