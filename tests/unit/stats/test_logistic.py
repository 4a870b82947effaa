"""Logistic regression, also without negative weights."""

from __future__ import annotations

import math

import numpy as np
import pytest

from suffice.stats.logistic import fit_logistic, sigmoid, sigmoids


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
