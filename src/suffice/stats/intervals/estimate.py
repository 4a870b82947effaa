"""A number that may be undefined, with its interval or the reason it has none."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_UNDEFINED = 0.05  # of the draws; beyond it the percentiles would describe a selected part


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A point estimate with its 95% percentile interval.

    ``estimate`` is ``None`` where it is undefined, ``low`` and ``high`` also where too few resamples
    define it; ``reason`` then says why.
    """

    estimate: float | None
    low: float | None = None
    high: float | None = None
    reason: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null where undefined; ``reason`` only where something is."""
        document: dict[str, Any] = {"estimate": self.estimate, "low": self.low, "high": self.high}
        if self.reason is not None:
            document["reason"] = self.reason
        return document


def undefined(reason: str) -> Estimate:
    """No value, and why."""
    return Estimate(estimate=None, reason=reason)


def from_draws(value: float, draws: NDArray[np.float64]) -> Estimate:
    """The 2.5 and 97.5 percentiles of the draws (n_draws,) around ``value``.

    Draws that are NaN, where the resample did not define the statistic, are left out; with more than
    5% of them there is no interval.
    """
    if math.isnan(value):
        return undefined("undefined")
    defined = draws[~np.isnan(draws)]
    lost = len(draws) - len(defined)
    if len(defined) == 0 or lost > _MOST_UNDEFINED * len(draws):
        return Estimate(
            estimate=value, reason=f"no interval: undefined in {lost} of {len(draws)} resamples"
        )
    low, high = np.percentile(defined, [2.5, 97.5])
    return Estimate(estimate=value, low=float(low), high=float(high))


def difference(
    later: tuple[Estimate, NDArray[np.float64]], earlier: tuple[Estimate, NDArray[np.float64]]
) -> Estimate:
    """``later`` minus ``earlier``, each an estimate with its draws from independent resamples."""
    for estimate, _ in (later, earlier):
        if estimate.estimate is None:
            return undefined(estimate.reason or "undefined")
    value = float(later[0].estimate or 0.0) - float(earlier[0].estimate or 0.0)
    return from_draws(value, later[1] - earlier[1])
