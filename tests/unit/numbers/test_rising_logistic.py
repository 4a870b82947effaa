"""Logistic regression without negative weights."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.errors import DataError
from suffice.numbers.logistic import fit_logistic, fit_rising_logistic


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


def test_one_class_gives_a_smoothed_constant() -> None:
    found = fit_rising_logistic(np.arange(8.0).reshape(4, 2), np.ones(4))
    assert found.weights == (0.0, 0.0)
    assert found.intercept == pytest.approx(np.log(5.0))


def test_a_constant_feature_gets_no_weight() -> None:
    x, y = drawn()
    x[:, 2] = 4.0
    assert fit_rising_logistic(x, y).weights[2] == 0.0


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
    with pytest.raises(DataError, match="row weights must be 3 numbers above 0"):
        fit_rising_logistic([[0.0], [1.0], [2.0]], [0, 1, 1], row_weights=weights)
