"""Intervals of means where resamples fail: their coverage, by enumeration and by simulation."""

from __future__ import annotations

import math
from math import lgamma

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.stats.intervals import FEW, RARE, mean_interval, percentile_interval, resampled_means
from suffice.stats.p_values import rate_interval
from suffice.stats.units import equally_many, per_unit

Array = NDArray[np.float64]
NONE = np.zeros(1)  # draws that decide nothing


def units(up: int, down: int, n: int) -> Array:
    """So many gains, losses and ties."""
    return np.concatenate([np.ones(up), -np.ones(down), np.zeros(n - up - down)])


def log_chance(counts: tuple[int, ...], shares: tuple[float, ...]) -> float:
    """Log of the multinomial probability of these counts."""
    total = lgamma(sum(counts) + 1) - sum(lgamma(count + 1) for count in counts)
    for count, share in zip(counts, shares, strict=True):
        if count:
            total += count * math.log(share) if share else -math.inf
    return total


@pytest.mark.parametrize("n", [5, 12, 30])
def test_a_rate_is_covered_at_every_size(n: int) -> None:
    """Enumerated over all outcomes; percentiles of resamples cover .97 of 20 units in 46 of 100 samples."""
    found = [mean_interval(units(k, 0, n), NONE, 0.0) for k in range(n + 1)]
    for k, one in enumerate(found):
        assert (one.low, one.high) == pytest.approx(rate_interval(k, n))
    for rate in (0.01, 0.03, 0.1, 0.5, 0.9, 0.97, 0.99):
        covered = sum(
            math.exp(log_chance((k, n - k), (rate, 1 - rate)))
            for k, one in enumerate(found)
            if one.low <= rate <= one.high
        )
        assert covered >= 0.95


@pytest.mark.parametrize("n", [6, 12, 30])
def test_a_paired_difference_is_covered_at_every_size(n: int) -> None:
    """Enumerated, also where changes are rare and where every question changes."""
    outcomes = [(up, down) for up in range(n + 1) for down in range(n + 1 - up)]
    found = {(up, down): mean_interval(units(up, down, n), NONE, -1.0) for up, down in outcomes}
    for gains in (0.0, 0.01, 0.03, 0.1, 0.3, 0.5, 0.9):
        for losses in (0.0, 0.01, 0.03, 0.1, 0.3, 0.5):
            if gains + losses > 1:
                continue
            shares, truth = (gains, losses, max(round(1 - gains - losses, 9), 0.0)), gains - losses
            covered = sum(
                math.exp(log_chance((*outcome, n - sum(outcome)), shares))
                for outcome, one in found.items()
                if one.low - 1e-12 <= truth <= one.high + 1e-12
            )
            assert covered >= 0.947, (gains, losses, covered)  # .95 from 10 questions on
    # no wider than needed: a ratio to the widths of the bootstrap where that works
    plain = units(n // 3, n // 6, n)
    own, drawn = found[n // 3, n // 6], resampled_means(plain[:, None])[:, 0]
    percentiles = percentile_interval(0.0, drawn)
    assert own.high - own.low < 1.6 * (percentiles.high - percentiles.low)


def drawn(kind: str, n: int, rng: np.random.Generator) -> tuple[Array, float, float]:
    """Values, their true mean and their least."""
    at = rng.random(n)
    if kind == "score":  # most are 1, others anything
        return np.where(at < 0.8, 1.0, rng.beta(2, 3, n)), 0.8 + 0.2 * 0.4, 0.0
    if kind == "steps":  # .9 nearly always, seldom 0
        return np.where(at < 0.97, 0.9, 0.0), 0.97 * 0.9, 0.0
    if kind == "change":
        change = np.where(at < 0.1, rng.beta(2, 2, n), np.where(at > 0.92, -rng.beta(2, 3, n), 0))
        return change, 0.1 * 0.5 - 0.08 * 0.4, -1.0
    if kind == "rare":
        return np.where(at < 0.02, 1.0, np.where(at > 0.99, -0.5, 0.0)), 0.02 - 0.005, -1.0
    # groups of four questions that are alike: a unit is their mean
    group = (rng.random((n, 4)) < (at < 0.9)[:, None] * 0.98).mean(axis=1)
    return group, 0.9 * 0.98, 0.0


@pytest.mark.parametrize("kind", ["score", "steps", "change", "rare", "groups"])
@pytest.mark.parametrize("n", [5, 20, 59, 60, 120])
def test_scores_and_changes_are_covered(kind: str, n: int) -> None:
    """By the rule as it is applied, so also where the resamples decide; 250 samples each."""
    rng = np.random.default_rng([n, len(kind)])
    covered = 0
    for _ in range(250):
        values, truth, least = drawn(kind, n, rng)
        means = resampled_means(values[:, None], resamples=400)[:, 0]
        one = mean_interval(values, means, least)
        covered += one.low <= truth <= one.high
    assert covered / 250 >= 0.95 - 3 * math.sqrt(0.95 * 0.05 / 250)


def test_which_interval_it_is() -> None:
    """Exact below 60 units or 10 that differ, else percentiles; undefined values leave it to the draws."""
    draws = np.linspace(0.2, 0.4, 1000)
    percentiles = percentile_interval(0.0, draws)
    ends = (percentiles.low, percentiles.high)
    for up, n, exact in (
        (30, FEW - 1, True),
        (30, FEW, False),
        (RARE - 1, 200, True),
        (RARE, 200, False),
    ):
        one = mean_interval(units(up, 0, n), draws, 0.0)
        assert ((one.low, one.high) == pytest.approx(rate_interval(up, n))) is exact
        assert ((one.low, one.high) == ends) is not exact
    lacking = np.array([0.0, math.nan])
    assert (mean_interval(lacking, draws, 0.0).low, mean_interval(lacking, draws, 0.0).high) == ends
    # weights leave fewer questions that count: an interval as of these
    half = mean_interval(units(100, 0, 200), draws, 0.0, size=20.0)
    assert (half.low, half.high) == pytest.approx(rate_interval(10, 20))


def test_a_cost_without_bounds_has_the_percentiles_of_its_draws() -> None:
    draws = np.linspace(2.0, 6.0, 401)
    one = mean_interval(np.arange(10.0), draws, None)
    assert (one.low, one.high) == pytest.approx((2.1, 5.9))


@pytest.mark.parametrize("sizes", [[1] * 20 + [10] * 5, [1] * 200 + [20] * 10])
@pytest.mark.parametrize("least", [0.0, -1.0])
def test_groups_of_unequal_size_are_covered(sizes: list[int], least: float) -> None:
    """Groups that are right or wrong as a whole; percentiles cover 39 and 63 of 100 of these."""
    rng, covered = np.random.default_rng(7), 0
    groups, rate = np.repeat(np.arange(len(sizes)), sizes), 0.02
    for _ in range(200):
        right = (rng.random(len(sizes)) < rate).astype(float)[groups]
        means = per_unit(right, groups)
        draws = resampled_means(means[:, None], resamples=100, seed=0)[:, 0]
        found = mean_interval(means, draws, least, size=equally_many(groups))
        covered += found.low <= rate <= found.high
    assert covered >= 186  # 95% of 200 are 190
