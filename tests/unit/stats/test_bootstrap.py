"""The bootstrap draws what the published loop draws."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.stats import intervals as bootstrap
from suffice.stats.intervals import (
    percentile_interval,
    resampled_means,
    with_rare_weights,
)


def published_loop(values: NDArray[np.float64], seed: int = 42) -> NDArray[np.float64]:
    """One matrix of draws over sorted ids, one plain mean a resample."""
    n = len(values)
    draws = np.random.default_rng(seed).integers(0, n, size=(1000, n))
    return np.array([values[row].mean(axis=0) for row in draws])


@pytest.mark.parametrize("n", [1, 2, 7, 124, 500, 4000, 4001])
def test_it_equals_the_published_loop(n: int) -> None:
    """4,000 questions fill a block of draws exactly, 4,001 go over."""
    values = np.random.default_rng(n).integers(0, 2, size=(n, 3)).astype(float)
    expected = published_loop(values)
    found = resampled_means(values)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)
    interval = percentile_interval(values[:, 0].mean(), found[:, 0])
    low, high = np.percentile(expected[:, 0], [2.5, 97.5])
    assert interval.low == pytest.approx(low, abs=1e-12)
    assert interval.high == pytest.approx(high, abs=1e-12)
    assert interval.estimate == values[:, 0].mean()


@pytest.mark.parametrize("cells", [1, 50, 51, 10_000, 50_000, 50_001])
def test_blocks_do_not_change_the_draws(monkeypatch: pytest.MonkeyPatch, cells: int) -> None:
    values = np.random.default_rng(0).normal(size=(50, 2))
    whole = resampled_means(values)
    monkeypatch.setattr(bootstrap, "_MAX_CELLS", cells)
    np.testing.assert_allclose(resampled_means(values), whole, rtol=0, atol=1e-12)


def test_rare_weights_widen_what_is_weighted_alone() -> None:
    """A rate of which nothing was seen lies below 2.5 events (Jeffreys), not at 0."""
    plain, none = np.random.default_rng(3).random(200), np.zeros(200)
    values = np.stack([plain, none, none], axis=1)
    draws = resampled_means(values)
    wider = with_rare_weights(draws, values, np.array([0.0, 50.0, 50.0]))
    np.testing.assert_array_equal(wider[:, 0], draws[:, 0])
    np.testing.assert_array_equal(wider[:, 1], wider[:, 2])  # of equal values the difference is 0
    assert percentile_interval(0.0, wider[:, 1]).high == pytest.approx(2.5 * 50 / 200, rel=0.1)
    sided = with_rare_weights(draws, values, np.array([0.0, 50.0, 50.0]), centred=True)
    assert np.median(sided[:, 1]) == pytest.approx(0.0, abs=0.02)
    assert with_rare_weights(draws, values, np.zeros(3)) is draws
