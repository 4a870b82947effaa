"""Non-negative logistic regression against a bounded optimiser, weights against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from suffice.stats.logistic import LogisticFit, fit_logistic, fit_rising_logistic


def drawn(
    seed: int, k: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Features of unlike scales, correlated, that rise or fall; outcomes and row weights."""
    rng = np.random.default_rng(seed)
    n = 150
    x = rng.normal(size=(n, k)) * rng.choice([0.1, 1.0, 20.0], k) + rng.normal(size=k)
    x += 0.5 * x[:, :1]
    slopes = rng.normal(size=k) / x.std(axis=0)
    y = rng.random(n) < 1 / (1 + np.exp(-(x - x.mean(axis=0)) @ slopes))
    return x, y.astype(float), rng.choice([0.25, 0.5, 1.0], n)


def loss(
    fit: LogisticFit,
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    counts: NDArray[np.float64],
    penalty: float,
) -> float:
    spread = np.sqrt(
        np.average((x - np.average(x, axis=0, weights=counts)) ** 2, axis=0, weights=counts)
    )
    weights = np.array(fit.weights)
    logits = fit.intercept + x @ weights
    ridge = 0.5 * penalty * float(((weights * spread) ** 2).sum())
    return float(counts @ (np.logaddexp(0.0, logits) - y * logits)) + ridge


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("penalty", [0.1, 1.0])
def test_it_is_the_bounded_optimum(seed: int, penalty: float) -> None:
    k = 1 + seed % 4
    x, y, counts = drawn(seed, k)
    found = fit_rising_logistic(x, y, penalty=penalty, row_weights=counts)
    assert min(found.weights) >= 0.0
    centre = np.average(x, axis=0, weights=counts)
    spread = np.sqrt(np.average((x - centre) ** 2, axis=0, weights=counts))
    z = (x - centre) / spread

    def objective(point: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        logits = point[-1] + z @ point[:-1]
        value = counts @ (np.logaddexp(0.0, logits) - y * logits)
        residual = counts * (1 / (1 + np.exp(-logits)) - y)
        gradient = np.append(z.T @ residual + penalty * point[:-1], residual.sum())
        return float(value + 0.5 * penalty * (point[:-1] ** 2).sum()), gradient

    bounded = minimize(
        objective,
        np.zeros(k + 1),
        jac=True,
        method="L-BFGS-B",
        bounds=[(0.0, None)] * k + [(None, None)],
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000},
    )
    assert loss(found, x, y, counts, penalty) == pytest.approx(bounded.fun, rel=1e-9)
    np.testing.assert_allclose(np.array(found.weights) * spread, bounded.x[:-1], atol=1e-4)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("penalty", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("weighted", [False, True])
def test_weights_are_those_of_scikit_learn(seed: int, penalty: float, weighted: bool) -> None:
    x, y, counts = drawn(seed, 3)
    counts = counts if weighted else np.ones(len(y))
    scaled = StandardScaler().fit(x, sample_weight=counts)
    reference = LogisticRegression(C=1 / penalty, tol=1e-12, max_iter=10_000)
    reference.fit(scaled.transform(x), y, sample_weight=counts)
    fit = fit_logistic(x, y, penalty=penalty, row_weights=counts if weighted else None)
    ours = 1 / (1 + np.exp(-(fit.intercept + x @ np.array(fit.weights))))
    np.testing.assert_allclose(ours, reference.predict_proba(scaled.transform(x))[:, 1], atol=1e-6)
