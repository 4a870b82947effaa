"""One calibration map a round, and the rounds it was not fitted for."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.protocols import Calibrator


@dataclass(frozen=True, slots=True)
class PerRoundCalibrator:
    """Maps a signal to P(EM = 1), each round by its own fit.

    Parameters
    ----------
    maps
        ``maps[t - 1]`` serves round t.
    absent
        What a round past the last fitted one maps to; ``None``: undefined.
    beyond
        The map of the rounds past the last of ``maps``; ``None``: they map to ``absent``. A map that
        serves every round alike stands here, with no ``maps``.
    """

    maps: tuple[Calibrator, ...] = ()
    absent: float | None = None
    beyond: Calibrator | None = None

    def _of(self, round_number: int) -> Calibrator | None:
        return self.maps[round_number - 1] if round_number <= len(self.maps) else self.beyond

    def predict(self, round_number: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities of one round's values, same shape, NaN where undefined."""
        fitted = self._of(round_number)
        if fitted is not None:
            return fitted.predict(values)
        return np.full(values.shape, math.nan if self.absent is None else self.absent)

    def predict_rounds(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Probabilities of every round's values, (n_questions, n_rounds), stored round-major."""
        found = np.empty(values.shape[::-1])
        for index, column in enumerate(values.T):
            found[index] = self.predict(index + 1, column)
        return found.T

    def predict_one(self, round_number: int, value: float) -> float:
        """The same for one value."""
        fitted = self._of(round_number)
        if fitted is not None:
            return fitted.predict_one(value)
        return math.nan if self.absent is None else self.absent
