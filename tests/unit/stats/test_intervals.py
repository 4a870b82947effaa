"""Intervals: what has none, the published bootstrap's draws, and sums however they are split."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.evaluation.replay.frontier import best_mix, interpolate
from suffice.stats import intervals as module
from suffice.stats.intervals import (
    Estimate,
    Sums,
    difference,
    from_draws,
    percentile_interval,
    resampled_means,
    undefined,
    with_rare_weights,
)
from suffice.stats.simultaneous import (
    SimultaneousBand,
    bands_from_sums,
    paired_p_values,
    paired_p_values_from_sums,
    simultaneous_bands,
)


def test_percentiles_of_the_defined_draws() -> None:
    draws = np.arange(101.0)
    found = from_draws(50.0, draws)
    assert found == Estimate(estimate=50.0, low=2.5, high=97.5)
    with_gaps = np.concatenate([draws, np.full(5, np.nan)])
    assert from_draws(50.0, with_gaps) == found


def test_too_many_undefined_draws_leave_no_interval() -> None:
    draws = np.concatenate([np.arange(90.0), np.full(10, np.nan)])
    found = from_draws(7.0, draws)
    assert (found.estimate, found.low, found.high) == (7.0, None, None)
    assert found.reason == "no interval: undefined in 10 of 100 resamples"
    assert from_draws(math.nan, draws).estimate is None
    assert from_draws(1.0, np.full(3, np.nan)).low is None


def test_differences_are_of_independent_draws_and_pass_reasons_on() -> None:
    later = from_draws(3.0, np.array([2.0, 4.0])), np.array([2.0, 4.0])
    earlier = from_draws(1.0, np.array([1.0, 0.0])), np.array([1.0, 0.0])
    found = difference(later, earlier)
    assert found.estimate == 2.0
    assert (found.low, found.high) == (1.0 + 0.025 * 3, 4.0 - 0.025 * 3)
    gone = undefined("one class"), np.full(2, np.nan)
    assert difference(later, gone).reason == "one class"
    assert difference(gone, earlier).estimate is None


# --- the bootstrap --------------------------------------------------------------------------------
def published_loop(values: NDArray[np.float64], seed: int = 42) -> NDArray[np.float64]:
    """One matrix of draws over sorted ids, one plain mean a resample."""
    n = len(values)
    draws = np.random.default_rng(seed).integers(0, n, size=(1000, n))
    return np.array([values[row].mean(axis=0) for row in draws])


@pytest.mark.parametrize("n", [1, 2, 124, 4001])
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


def test_rare_weights_widen_what_is_weighted_alone() -> None:
    """A mean of which nothing was seen is open to either side."""
    plain, none = np.random.default_rng(3).random(200), np.zeros(200)
    values = np.stack([plain, none, none], axis=1)
    draws = resampled_means(values)
    wider = with_rare_weights(draws, values, np.array([0.0, 50.0, 50.0]))
    np.testing.assert_array_equal(wider[:, 0], draws[:, 0])
    np.testing.assert_array_equal(wider[:, 1], wider[:, 2])  # of equal values the difference is 0
    # the difference of two Gamma(1/2), over the root of 2, has its 97.5th percentile at 1.54
    assert percentile_interval(0.0, wider[:, 1]).high == pytest.approx(1.54 * 50 / 200, rel=0.1)
    assert np.median(wider[:, 1]) == pytest.approx(0.0, abs=0.02)
    assert with_rare_weights(draws, values, np.zeros(3)) is draws


# --- sums -----------------------------------------------------------------------------------------
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
        [*(scores, scores[rows, stops], scores[:, 2]), *(tokens, tokens[rows, stops], tokens[:, 2])]
    )


def test_draws_from_sums_are_those_of_the_bootstrap(monkeypatch: pytest.MonkeyPatch) -> None:
    values = replayed(60_000)
    from_sums = resampled_means(values, resamples=1000)
    assert np.array_equal(from_sums, Sums.of(values).draws())
    monkeypatch.setattr(module, "from_sums", lambda _: False)
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


def bands(
    values: Array, references: Any = (None,), resamples: int = 200, seed: int = 42
) -> tuple[SimultaneousBand, ...]:
    return simultaneous_bands(
        values.shape[1], lambda part: values[:, part], references, resamples=resamples, seed=seed
    )


def slow_band(values: Array, reference: Array | None, resamples: int, seed: int) -> dict[str, Any]:
    if reference is not None:
        values = values - reference[:, None]
    n, columns = values.shape
    drawn = np.random.default_rng(seed).integers(0, n, size=(resamples, n))
    means = np.array([values[rows].mean(axis=0) for rows in drawn])
    estimate = values.mean(axis=0)
    errors = [float(np.std(means[:, c], ddof=1)) for c in range(columns)]
    greatest = []
    for draw in means:
        deviations = [
            abs(draw[c] - estimate[c]) / errors[c] for c in range(columns) if errors[c] > 1e-12
        ]
        greatest.append(max(deviations, default=0.0))
    critical = float(np.quantile(greatest, 0.95))
    errors = [each if each > 1e-12 else 0.0 for each in errors]
    return {
        "estimate": estimate,
        "low": estimate - critical * np.array(errors),
        "high": estimate + critical * np.array(errors),
        "naive_low": np.percentile(means, 2.5, axis=0),
        "naive_high": np.percentile(means, 97.5, axis=0),
        "critical": critical,
    }


def test_a_band_is_its_definition() -> None:
    generator = np.random.default_rng(1)
    values = generator.random((37, 9)) * np.linspace(0.01, 3, 9)
    values[:, 4] = 0.3  # no spread
    reference = generator.random(37)
    for found, given in zip(bands(values, (None, reference)), (None, reference), strict=True):
        for name, expected in slow_band(values, given, 200, 42).items():
            np.testing.assert_allclose(getattr(found, name), expected, atol=1e-12, err_msg=name)


def test_a_large_family_in_blocks_is_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(2).random((40, 1100))
    asked = []

    def columns(part: slice) -> Array:
        asked.append(part)
        return values[:, part]

    blocks = simultaneous_bands(1100, columns, (None,), resamples=50)[0]
    assert len(asked) > 2
    monkeypatch.setattr("suffice.stats.simultaneous._BLOCK", 5000)
    whole = bands(values, resamples=50)[0]
    for name in ("estimate", "low", "high", "naive_low", "naive_high"):
        np.testing.assert_allclose(getattr(blocks, name), getattr(whole, name), atol=1e-12)
    assert blocks.critical == pytest.approx(whole.critical)


def test_all_means_are_covered_at_once() -> None:
    """400 samples of 150 questions under 40 correlated columns with known means."""
    generator = np.random.default_rng(5)
    truth = generator.uniform(0.2, 0.8, 40)
    together = alone = 0
    draws = 400
    for draw in range(draws):
        rng = np.random.default_rng([6, draw])
        shared = rng.normal(size=(150, 1))
        values = truth + 0.3 * (0.6 * shared + 0.8 * rng.normal(size=(150, 40)))
        found = bands(values, resamples=300, seed=draw)[0]
        together += bool(((found.low <= truth) & (truth <= found.high)).all())
        alone += bool(((found.naive_low <= truth) & (truth <= found.naive_high)).all())
    error = (0.95 * 0.05 / draws) ** 0.5
    # bootstrap errors at 150 questions are a little small: 2 points beside the binomial error
    assert together / draws >= 0.95 - 3 * error - 0.02
    assert together / draws <= 0.95 + 3 * error
    assert alone / draws < 0.6


def test_paired_p_values_are_those_of_scipy() -> None:
    stats = pytest.importorskip("scipy.stats")
    generator = np.random.default_rng(7)
    first, second = generator.random((2, 25, 30))
    second += np.linspace(-0.5, 0.5, 30)
    expected = stats.ttest_rel(first, second, axis=0).pvalue
    np.testing.assert_allclose(paired_p_values(first - second), expected, rtol=1e-8)
    assert expected.min() < 1e-4
    assert expected.max() > 0.5
