"""Platt scaling: a logistic curve from a signal to P(EM = 1), two numbers a round.

Targets are smoothed as Platt (1999) has it. The tests compare with scikit-learn's sigmoid calibration.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from suffice.errors import DataError
from suffice.stats.fields import probability_or_none
from suffice.stats.logistic import least_cross_entropy, sigmoids
from suffice.stats.maps.isotonic import (
    MINIMUM_ROWS,
    FitRows,
    IsotonicMap,
    constant_map,
    fit_rows,
)
from suffice.stats.maps.per_round import FittedMap

_LARGEST = float(np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogisticMap(FittedMap):
    """A fitted map ``1 / (1 + exp(-(slope * value + intercept)))``, into [0, 1].

    Unlike a piecewise map it goes on towards 0 and 1 outside the values it was fitted on.
    """

    kind: ClassVar[str] = "logistic"
    title: ClassVar[str] = "a logistic map"

    slope: float
    intercept: float
    undefined: float | None = None

    def __post_init__(self) -> None:
        for column in ("slope", "intercept"):
            value = float(getattr(self, column))
            object.__setattr__(self, column, value)
            if not math.isfinite(value):
                raise DataError(f"must be finite, found {value!r}", column=column)
        probability_or_none(self.undefined, "undefined")

    def predict(self, values: ArrayLike) -> NDArray[np.float64]:
        """The map at every value, shape kept."""
        source = np.asarray(values, np.float64)
        within = np.clip(source, -_LARGEST, _LARGEST)
        with np.errstate(over="ignore"):
            probabilities = sigmoids(self.slope * within + self.intercept)
        probabilities[np.isnan(source)] = math.nan if self.undefined is None else self.undefined
        return probabilities


def fit_platt(
    x: ArrayLike, y: ArrayLike, *, undefined: float | None = None
) -> LogisticMap | IsotonicMap:
    """Logistic fit of ``y`` on ``x`` by maximum likelihood with Platt's smoothed targets.

    A right answer counts as ``(N1 + 1) / (N1 + 2)`` and a wrong one as ``1 / (N0 + 2)``, where N1 and
    N0 are their numbers, so that separable data give finite numbers. With fewer than five rows where
    both are defined, one distinct x or one class of outcome, the map is the constant mean of y over
    all labelled rows, as in :func:`~suffice.stats.maps.isotonic.fit_isotonic`. The direction of the
    signal is found, not assumed: see ``slope`` of :class:`LogisticMap`.

    Three right of six, smoothed to 0.8 and 0.2, rise from about 0.2 to about 0.8:

    >>> fit_platt([1, 2, 3, 4, 5, 6], [0, 0, 1, 0, 1, 1]).predict([1, 3.5, 6]).round(3).tolist()
    [0.208, 0.5, 0.792]
    """
    rows = fit_rows(x, y)
    fitted = _fit(rows, undefined)
    return constant_map(rows.mean, undefined) if fitted is None else fitted


def _fit(rows: FitRows, undefined: float | None) -> LogisticMap | None:
    right = float(rows.outcomes.sum())
    wrong = len(rows.outcomes) - right
    if len(rows.values) < MINIMUM_ROWS or right == 0 or wrong == 0:
        return None
    low, high = float(rows.values.min()), float(rows.values.max())
    # the fit runs on [-1, 1], where any unit of the signal is well conditioned
    centre, half = low / 2 + high / 2, high / 2 - low / 2
    if half == 0.0:
        return None
    targets = rows.outcomes * ((right + 1) / (right + 2)) + (1 - rows.outcomes) / (wrong + 2)

    design = np.stack([(rows.values - centre) / half, np.ones_like(targets)])
    with np.errstate(over="ignore"):
        scaled_slope, offset = least_cross_entropy(design, targets, np.zeros(2)).tolist()
        slope = float(np.float64(scaled_slope) / half)
        intercept = float(offset - np.float64(slope) * centre)
    if not (math.isfinite(slope) and math.isfinite(intercept)):
        return None  # values too close for a slope that a float can hold
    return LogisticMap(slope=slope, intercept=intercept, undefined=undefined)
