"""Platt scaling against scikit-learn's sigmoid calibration."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.stats.maps import LogisticMap, fit_platt

calibration = pytest.importorskip(
    "sklearn.calibration", reason="scikit-learn is a development tool"
)


def loss(p: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Cross-entropy against Platt's smoothed targets."""
    right, wrong = y.sum(), len(y) - y.sum()
    targets = np.where(y == 1, (right + 1) / (right + 2), 1 / (wrong + 2))
    return float(-(targets * np.log(p) + (1 - targets) * np.log(1 - p)).sum())


@pytest.mark.parametrize("rows", [8, 30, 500])
@pytest.mark.parametrize("slope", [-1.5, 0.3, 2.0])
def test_curves_agree_with_scikit_learn(rows: int, slope: float) -> None:
    rng = np.random.default_rng(rows)
    compared = 0
    for _ in range(10):
        x = rng.normal(1.0, 2.0, rows)
        y = (rng.random(rows) < 1 / (1 + np.exp(-slope * x))).astype(float)
        if len(np.unique(y)) < 2:
            continue
        ours = fit_platt(x, y)
        theirs = calibration._SigmoidCalibration().fit(x, y)
        assert isinstance(ours, LogisticMap)
        asked = np.linspace(-6, 8, 201)
        np.testing.assert_allclose(ours.predict(asked), theirs.predict(asked), atol=2e-4)
        assert loss(ours.predict(x), y) <= loss(theirs.predict(x), y) + 1e-9
        compared += 1
    assert compared >= 5
