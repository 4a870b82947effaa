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


@pytest.mark.parametrize("shape", [(4,), (4, 9)])
def test_a_wrong_number_of_features_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(DataError, match="at most 8"):
        fit_rising_logistic(np.zeros(shape), np.array([0, 1, 0, 1]))


@pytest.mark.parametrize("weights", [[1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 1.0, np.nan], [1, 1, -1]])
def test_row_weights_must_be_above_zero_and_one_a_row(weights: list[float]) -> None:
    with pytest.raises(DataError, match="weights"):
        fit_rising_logistic([[0.0], [1.0], [2.0]], [0, 1, 1], row_weights=weights)
