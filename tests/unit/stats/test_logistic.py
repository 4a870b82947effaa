"""Logistic regression, also without negative weights."""

from __future__ import annotations

import math

import numpy as np
import pytest

from suffice.errors import DataError
from suffice.stats.logistic import fit_logistic, fit_rising_logistic, sigmoid, sigmoids


def test_sigmoids_are_those_of_single_numbers_to_the_bit() -> None:
    ends = [0.0, -0.0, 1e-300, 36.8, -36.8, 745.2, -745.2, 1e308, math.inf, -math.inf, math.nan]
    logits = np.concatenate([ends, np.random.default_rng(0).normal(0.0, 20.0, 989)])
    one_by_one = np.array([sigmoid(logit) for logit in logits.tolist()])
    assert sigmoids(logits.reshape(10, 100)).tobytes() == one_by_one.tobytes()


def test_the_gradient_vanishes_at_the_fit() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((60, 2))
    y = (rng.random(60) < x[:, 0]).astype(float)
    fit = fit_logistic(x, y, penalty=0.7)
    spread = x.std(axis=0)
    predicted = np.array([sigmoid(fit.intercept + row @ np.array(fit.weights)) for row in x])
    standardised = (x - x.mean(axis=0)) / spread
    gradient = standardised.T @ (predicted - y) + 0.7 * np.array(fit.weights) * spread
    np.testing.assert_allclose(gradient, 0.0, atol=1e-8)
    assert (predicted - y).sum() == pytest.approx(0.0, abs=1e-8)


@pytest.mark.parametrize(("outcome", "share"), [(1.0, 5 / 6), (0.0, 1 / 6)])
def test_one_class_gives_a_smoothed_constant(outcome: float, share: float) -> None:
    fit = fit_logistic(np.arange(4.0)[:, None], np.full(4, outcome))
    assert fit.weights == (0.0,)
    assert sigmoid(fit.intercept) == pytest.approx(share)


@pytest.mark.parametrize(
    ("features", "y", "penalty", "said"),
    [
        ([[math.nan]], [1], 1.0, "finite"),
        ([[1.0]], [2], 1.0, r"\[0, 1\]"),
        ([[1.0], [2.0]], [1], 1.0, "found"),
        (np.empty((0, 1)), [], 1.0, "found"),
        ([[1.0]], [1], 0.0, "penalty"),
    ],
)
def test_bad_input(features: object, y: object, penalty: float, said: str) -> None:
    with pytest.raises(DataError, match=said):
        fit_logistic(features, y, penalty=penalty)  # type: ignore[arg-type]


def drawn(seed: int = 0, n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.random((n, 3))
    y = rng.random(n) < 1 / (1 + np.exp(-(3 * x[:, 0] - 2 * x[:, 1])))
    return x, y.astype(float)


def test_without_a_negative_weight_it_is_the_plain_fit() -> None:
    x, y = drawn()
    x[:, 1] *= -1
    x = x[:, :2]
    plain = fit_logistic(x, y)
    assert min(plain.weights) > 0
    found = fit_rising_logistic(x, y)
    assert found.intercept == pytest.approx(plain.intercept, abs=1e-9)
    assert found.weights == pytest.approx(plain.weights, abs=1e-9)


def test_a_falling_feature_gets_no_weight_and_the_rest_is_fitted_without_it() -> None:
    x, y = drawn()
    found = fit_rising_logistic(x, y)
    assert fit_logistic(x, y).weights[1] < 0
    assert found.weights[1] == 0.0
    kept = [index for index, weight in enumerate(found.weights) if weight]
    assert kept
    alone = fit_logistic(x[:, kept], y)
    assert found.intercept == pytest.approx(alone.intercept)
    assert [found.weights[index] for index in kept] == pytest.approx(alone.weights)


def test_a_row_counts_as_often_as_its_weight_says() -> None:
    x, y = drawn(n=40)
    times = np.random.default_rng(3).integers(1, 4, 40)
    weighted = fit_rising_logistic(x, y, row_weights=times)
    repeated = fit_rising_logistic(np.repeat(x, times, axis=0), np.repeat(y, times))
    assert weighted.intercept == pytest.approx(repeated.intercept, abs=1e-8)
    assert weighted.weights == pytest.approx(repeated.weights, abs=1e-8)


@pytest.mark.parametrize("shape", [(4,), (4, 9)])
def test_a_wrong_number_of_features_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="at most 8"):
        fit_rising_logistic(np.zeros(shape), np.array([0, 1, 0, 1]))


@pytest.mark.parametrize("weights", [[1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 1.0, np.nan], [1, 1, -1]])
def test_row_weights_must_be_above_zero_and_one_a_row(weights: list[float]) -> None:
    with pytest.raises(DataError, match="weights"):
        fit_rising_logistic([[0.0], [1.0], [2.0]], [0, 1, 1], row_weights=weights)
