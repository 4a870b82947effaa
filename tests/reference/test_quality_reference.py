"""Scores of probabilities against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.stats.quality import brier, expected_calibration_error, log_loss

metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is a development tool")
calibration = pytest.importorskip("sklearn.calibration")


@pytest.mark.parametrize("rows", [10, 200, 3000])
def test_brier_and_log_loss_agree_with_scikit_learn(rows: int) -> None:
    rng = np.random.default_rng(rows)
    p = rng.random(rows)
    y = (rng.random(rows) < p).astype(float)
    y[:2] = 0.0, 1.0
    assert brier(p, y) == pytest.approx(metrics.brier_score_loss(y, p), abs=1e-12)
    assert log_loss(p, y) == pytest.approx(metrics.log_loss(y, p), abs=1e-12)


def test_buckets_are_those_of_a_calibration_curve() -> None:
    """Its curve gives a point a bucket; without ties and empty ones, equal-size buckets weigh alike."""
    rng = np.random.default_rng(1)
    p = rng.random(1000)
    y = (rng.random(1000) < p**2).astype(float)
    right, predicted = calibration.calibration_curve(y, p, n_bins=10, strategy="quantile")
    expected = np.abs(right - predicted).mean()
    found = expected_calibration_error(p, y)
    assert found == pytest.approx(expected, abs=1e-12)
