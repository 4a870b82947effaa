"""Which rows a calibration map is fitted on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from suffice.errors import DataError

MINIMUM_ROWS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class FitRows:
    """The rows where signal and outcome are both defined, in the order given.

    ``mean`` is the mean outcome over all labelled rows, those without a signal included; NaN without
    a labelled row.
    """

    values: NDArray[np.float64]  # (n_usable,)
    outcomes: NDArray[np.float64]  # (n_usable,)
    mean: float

    @property
    def labelled(self) -> bool:
        """Whether any row had an outcome."""
        return not math.isnan(self.mean)


def fit_rows(x: ArrayLike, y: ArrayLike) -> FitRows:
    """Pair signal values with outcomes.

    Parameters
    ----------
    x
        Signal values, (n,); NaN and infinities are left out.
    y
        Outcomes in [0, 1], (n,); NaN: unlabelled.

    Raises
    ------
    DataError
        For a y outside [0, 1], or lengths that differ.
    """
    values, outcomes = np.asarray(x, np.float64).ravel(), np.asarray(y, np.float64).ravel()
    if values.shape != outcomes.shape:
        raise DataError(f"{values.size} signal values for {outcomes.size} outcomes", column="y")
    labelled = ~np.isnan(outcomes)
    outside = labelled & ((outcomes < 0) | (outcomes > 1))
    if outside.any():
        raise DataError(f"must be in [0, 1], found {float(outcomes[outside][0])!r}", column="y")
    usable = labelled & np.isfinite(values)
    return FitRows(
        values=values[usable],
        outcomes=outcomes[usable],
        mean=float(outcomes[labelled].mean()) if labelled.any() else math.nan,
    )
