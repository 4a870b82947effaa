"""Intervals from sums against the paired bootstrap, and sums however they are split."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.replay.run.frontier import best_mix, interpolate
from suffice.stats import intervals as bootstrap
from suffice.stats import intervals as module
from suffice.stats.intervals import Sums, percentile_interval, resampled_means
from suffice.stats.simultaneous import (
    bands_from_sums,
    paired_p_values,
    paired_p_values_from_sums,
    simultaneous_bands,
)

Array = NDArray[np.float64]


def replayed(n: int, seed: int = 0) -> Array:
    """Scores of fixed-1 .. fixed-4 and two policies, then their costs; the second policy is fixed-3."""
    rng = np.random.default_rng(seed)
    hard = rng.random(n)
    scores = np.stack([(rng.random(n) + 0.05 * k > hard + 0.2) * 1.0 for k in range(4)], axis=1)
    stops = 1 + (rng.random(n) < hard) * 2
    tokens = np.cumsum(rng.integers(200, 900, (n, 4)), axis=1).astype(np.float64)
    rows = np.arange(n)
    return np.column_stack(
        [
            *(scores, scores[rows, stops], scores[:, 2]),
            *(tokens, tokens[rows, stops], tokens[:, 2]),
        ]
    )


def test_draws_from_sums_are_those_of_the_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    values = replayed(60_000)
    from_sums = resampled_means(values, resamples=1000)
    assert np.array_equal(from_sums, Sums.of(values).draws())
    monkeypatch.setattr(bootstrap, "from_sums", lambda _: False)
    drawn = resampled_means(values, resamples=400)

    def figures(draws: Array) -> Array:
        scores, costs = draws[:, :4], draws[:, 6:10]
        return np.column_stack(
            [
                *(draws, draws[:, 4] - draws[:, 2]),
                draws[:, 4] - interpolate(costs, scores, draws[:, 10]),
                draws[:, 4] - best_mix(costs, scores, draws[:, 10]).score,
            ]
        )

    means = figures(values.mean(axis=0)[None, :])[0]
    ones, others = figures(from_sums), figures(drawn)
    for column, mean in enumerate(means.tolist()):
        one, other = (percentile_interval(mean, draws[:, column]) for draws in (ones, others))
        width = other.high - other.low
        # the ends of 400 resamples are off by a twentieth of the width
        assert one.low == pytest.approx(other.low, abs=0.2 * width)
        assert one.high == pytest.approx(other.high, abs=0.2 * width)
    assert np.array_equal(from_sums[:, 5], from_sums[:, 2])  # equal in every question


def test_sums_do_not_depend_on_how_they_are_split(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.column_stack([replayed(5000), np.full(5000, 0.3), replayed(5000)[:, 0] * 1e-9])
    whole = Sums.of(values)
    halves = Sums.of(values[:1234]).add(Sums.of(values[1234:]))
    monkeypatch.setattr(module, "_ROWS", 77)
    for split in (halves, Sums.of(values), Sums.none(values.shape[1]).add(whole)):
        assert np.array_equal(split.total[:4], whole.total[:4])  # sums of whole numbers
        np.testing.assert_allclose(split.mean, whole.mean, rtol=1e-12)
        np.testing.assert_allclose(
            split.draws(), whole.draws(), rtol=1e-12, err_msg="draws of the same record"
        )
    covariance = np.cov(values.T, bias=True) / len(values)
    np.testing.assert_allclose(whole.error**2, np.diagonal(covariance), rtol=1e-9, atol=1e-30)
    drawn = np.cov(whole.draws(resamples=20_000)[:, :12].T)
    scale = np.sqrt(np.outer(np.diagonal(drawn), np.diagonal(drawn)))
    assert np.abs((drawn - covariance[:12, :12]) / scale).max() < 0.05


def test_bands_and_p_values_from_sums() -> None:
    values = replayed(4000)[:, :6]
    sums = Sums.of(np.column_stack([values, values[:, 2]]))
    from_sums = bands_from_sums(sums, 6, (None, 6), resamples=4000)
    resampled = simultaneous_bands(
        6, lambda part: values[:, part], (None, values[:, 2]), resamples=2000
    )
    for one, other in zip(from_sums, resampled, strict=True):
        assert one.critical == pytest.approx(other.critical, abs=0.12)
        np.testing.assert_allclose(one.estimate, other.estimate, atol=1e-12)
        for end in ("low", "high", "naive_low", "naive_high"):
            np.testing.assert_allclose(getattr(one, end), getattr(other, end), atol=2e-3)
    p_values = paired_p_values(values - values[:, [2]])
    np.testing.assert_allclose(paired_p_values_from_sums(sums, 6)[:6], p_values, rtol=1e-7)
