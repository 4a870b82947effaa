from __future__ import annotations

import math

import numpy as np
import pytest

from suffice.errors import DataError
from suffice.numbers.logistic import fit_logistic, sigmoid


def test_sigmoid_keeps_its_ends_and_its_middle() -> None:
    assert (sigmoid(0.0), sigmoid(800.0), sigmoid(-800.0)) == (0.5, 1.0, 0.0)
    assert sigmoid(1.0) == pytest.approx(1 - sigmoid(-1.0), abs=1e-15)
    assert math.isnan(sigmoid(math.nan))


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


def test_a_constant_feature_gets_no_weight() -> None:
    fit = fit_logistic([[1.0, 5.0], [0.0, 5.0], [1.0, 5.0], [0.0, 5.0]], [1, 0, 1, 1])
    assert fit.weights[1] == 0.0
    assert fit.weights[0] > 0


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
