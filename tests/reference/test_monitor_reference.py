"""Pieces of the monitors against scipy, and against MAPIE where it is installed."""

from __future__ import annotations

from fractions import Fraction

import pytest

from suffice.monitor.alarms import miss_rate_limit
from suffice.stats.p_values import beta_quantile, exact_interval

scipy_stats = pytest.importorskip("scipy.stats")


def test_beta_quantiles() -> None:
    for a, b in ((1, 1), (1, 50), (5, 46), (40, 3), (1000, 9001), (2.5, 0.5)):
        for probability in (1e-6, 0.025, 0.5, 0.975, 1 - 1e-9):
            expected = scipy_stats.beta.ppf(probability, a, b)
            assert beta_quantile(a, b, probability) == pytest.approx(expected, abs=1e-9)


def test_exact_intervals() -> None:
    for successes, trials in ((0, 1), (1, 1), (0, 30), (27, 30), (30, 30), (700, 1000)):
        test = scipy_stats.binomtest(successes, trials)
        expected = test.proportion_ci(confidence_level=0.95, method="exact")
        assert exact_interval(successes, trials, 0.05) == pytest.approx(expected, abs=1e-9)


def test_limits() -> None:
    for alpha in ("0.05", "0.1", "0.29"):
        for n in (19, 99, 250):
            rank = int(Fraction(alpha) * (n + 1))
            expected = scipy_stats.beta.ppf(0.975, rank, n + 1 - rank)
            assert miss_rate_limit(float(alpha), n, 0.975) == pytest.approx(expected, abs=1e-9)
