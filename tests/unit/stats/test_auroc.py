"""AUROC against scikit-learn and by hand; ranks against scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from suffice.stats.auroc import ResampledAuroc, auroc, average_ranks


@pytest.mark.parametrize("n_values", [2, 5, 1000])
def test_it_equals_scikit_learn(n_values: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(n_values)
    values = np.floor(rng.random(300) * n_values)
    right = rng.random(300) < 0.2 + 0.6 * values / n_values
    assert auroc(values, right) == pytest.approx(metrics.roc_auc_score(right, values), abs=1e-12)
    assert auroc(-values, right) == pytest.approx(1 - auroc(values, right), abs=1e-12)


def test_one_class_is_undefined_plain_and_in_a_resample() -> None:
    assert math.isnan(auroc(np.arange(3.0), np.ones(3, bool)))
    assert math.isnan(auroc(np.zeros(0), np.zeros(0, bool)))
    counts = np.array([[1.0, 2.0], [1.0, 0.0]])
    found = ResampledAuroc(np.array([0.0, 1.0]), np.array([False, True]), np.arange(2), 2)(counts)
    assert found[0] == 1.0
    assert math.isnan(found[1])
    for right in (np.ones(2, bool), np.zeros(2, bool)):
        assert np.isnan(ResampledAuroc(np.arange(2.0), right, np.arange(2), 2)(counts)).all()


def test_average_ranks_equal_scipys() -> None:
    stats = pytest.importorskip("scipy.stats")
    values = np.floor(np.random.default_rng(0).random(200) * 30)
    np.testing.assert_array_equal(average_ranks(values), stats.rankdata(values))
