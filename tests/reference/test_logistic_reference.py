"""Logistic regression against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from suffice.stats.logistic import fit_logistic


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("penalty", [0.1, 1.0, 10.0])
def test_weights_are_those_of_scikit_learn(seed: int, penalty: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(120, 4)) * [1.0, 1e-3, 50.0, 1.0] + [0.0, 3.0, -20.0, 0.0]
    x[:, 3] = rng.random(120) < 0.2
    y = (rng.random(120) < 1 / (1 + np.exp(-(x[:, 0] + 0.03 * x[:, 2])))).astype(int)
    reference = make_pipeline(
        StandardScaler(), LogisticRegression(C=1 / penalty, tol=1e-12, max_iter=10_000)
    ).fit(x, y)
    fit = fit_logistic(x, y, penalty=penalty)
    ours = 1 / (1 + np.exp(-(fit.intercept + x @ np.array(fit.weights))))
    np.testing.assert_allclose(ours, reference.predict_proba(x)[:, 1], atol=1e-6)
