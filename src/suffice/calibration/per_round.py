"""One calibration map a round, and the rounds it was not fitted for."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.calibration.isotonic import IsotonicMap

__all__ = ["PerRoundCalibrator"]


@dataclass(frozen=True, slots=True)
class PerRoundCalibrator:
    """Maps a signal to P(EM = 1), each round by its own fit.

    Parameters
    ----------
    maps
        ``maps[t - 1]`` serves round t.
    absent
        What a round past the last fitted one maps to; ``None``: undefined.
    """

    maps: tuple[IsotonicMap, ...]
    absent: float | None = None

    def predict(self, round_number: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities of one round's values, same shape, NaN where undefined."""
        if round_number <= len(self.maps):
            return self.maps[round_number - 1].predict(values)
        return np.full(values.shape, math.nan if self.absent is None else self.absent)

    def predict_one(self, round_number: int, value: float) -> float:
        """The same for one value."""
        if round_number <= len(self.maps):
            return self.maps[round_number - 1].predict_one(value)
        return math.nan if self.absent is None else self.absent
