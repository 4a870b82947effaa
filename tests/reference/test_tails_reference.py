"""Tail probabilities and tests against scipy and textbook values."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.stats as scipy_stats

from suffice.monitor.alarms import miss_rate_limit
from suffice.stats.p_values import (
    beta_quantile,
    binomial_cdf,
    binomial_p_values,
    hoeffding_bentkus_p_values,
    holm,
    rate_interval,
    student_t_upper,
)


def test_binomial_cdf() -> None:
    for n in (1, 7, 100, 10_000):
        k = np.unique(np.linspace(-1, n + 1, 50).round())
        for p in (0.0, 0.02, 0.5, 0.98, 1.0):
            expected = scipy_stats.binom.cdf(k, n, p)
            np.testing.assert_allclose(binomial_cdf(k, n, p), expected, rtol=1e-9, atol=1e-200)


def test_student_t() -> None:
    t = np.array([-np.inf, -40.0, -2.0, -0.1, 0.0, 0.3, 2.5, 9.0, 60.0, np.inf])
    for degrees in (1, 4, 74, 3000):
        np.testing.assert_allclose(
            student_t_upper(t, degrees), scipy_stats.t.sf(t, degrees), rtol=1e-8, atol=1e-290
        )


def test_exact_binomial_test() -> None:
    losses = np.zeros((200, 3))
    losses[:1, 1] = 1
    losses[:9, 2] = 1
    expected = [
        scipy_stats.binomtest(int(count), 200, 0.04, alternative="less").pvalue
        for count in (0, 1, 9)
    ]
    np.testing.assert_allclose(binomial_p_values(losses, 0.04), expected, rtol=1e-9)


def test_hoeffding_bentkus_by_hand() -> None:
    losses = np.zeros((100, 2))
    losses[:5, 0] = 1.0
    losses[:, 1] = 0.5
    entropy = 0.05 * np.log(0.05 / 0.1) + 0.95 * np.log(0.95 / 0.9)
    expected = min(np.exp(-100 * entropy), np.e * scipy_stats.binom.cdf(5, 100, 0.1))
    np.testing.assert_allclose(hoeffding_bentkus_p_values(losses, 0.1), [expected, 1.0])


def test_holm_rejects_what_its_definition_rejects() -> None:
    generator = np.random.default_rng(3)
    for _ in range(50):
        p = generator.random(8) ** 3
        adjusted = holm(p)
        order = np.argsort(p)
        rejected = []
        for step, index in enumerate(order):
            if p[index] > 0.05 / (8 - step):
                break
            rejected.append(int(index))
        assert sorted(rejected) == np.flatnonzero(adjusted <= 0.05).tolist()


def test_beta_quantiles() -> None:
    for a, b in ((1, 1), (1, 50), (5, 46), (40, 3), (1000, 9001), (2.5, 0.5)):
        for probability in (1e-6, 0.025, 0.5, 0.975, 1 - 1e-9):
            expected = scipy_stats.beta.ppf(probability, a, b)
            assert beta_quantile(a, b, probability) == pytest.approx(expected, abs=1e-9)


def test_exact_intervals() -> None:
    for successes, trials in ((0, 1), (1, 1), (0, 30), (27, 30), (30, 30), (700, 1000)):
        test = scipy_stats.binomtest(successes, trials)
        expected = test.proportion_ci(confidence_level=0.95, method="exact")
        assert rate_interval(successes, trials) == pytest.approx(expected, abs=1e-9)


def test_limits() -> None:
    assert miss_rate_limit(0.1, 8, 0.975) == 0.1  # rank 0: nothing is ever left out
    for alpha in ("0.05", "0.1", "0.29"):
        for n in (19, 99, 250):
            rank = int(Fraction(alpha) * (n + 1))
            expected = scipy_stats.beta.ppf(0.975, rank, n + 1 - rank)
            assert miss_rate_limit(float(alpha), n, 0.975) == pytest.approx(expected, abs=1e-9)
