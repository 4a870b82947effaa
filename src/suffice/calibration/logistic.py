"""Logistic regression by Newton's method with a line search (Lin, Lin and Weng 2007)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from suffice.errors import DataError

__all__ = ["LogisticFit", "fit_logistic", "least_cross_entropy", "sigmoid"]

_STEPS = 100
_HALVINGS = 40
_FLAT = 1e-12  # gradient, in rows, below which the fit is done


def sigmoid(logit: float) -> float:
    """``1 / (1 + exp(-logit))`` in [0, 1], without overflow; NaN stays NaN."""
    if logit < 0:
        rising = math.exp(logit)
        return rising / (1.0 + rising)
    return 1.0 / (1.0 + math.exp(-logit))


@dataclass(frozen=True, slots=True)
class LogisticFit:
    """``P(y = 1) = sigmoid(intercept + features @ weights)``; weights per unit of each feature."""

    intercept: float
    weights: tuple[float, ...]


def fit_logistic(features: ArrayLike, y: ArrayLike, *, penalty: float = 1.0) -> LogisticFit:
    """Ridge logistic regression of ``y`` on standardised features.

    Minimises the sum of the rows' cross-entropies plus ``penalty / 2`` times the squared weights of
    the standardised features, the intercept free; as scikit-learn's ``LogisticRegression(C=1/penalty)``
    behind a ``StandardScaler``. A constant feature gets weight 0. With one class of outcome all
    weights are 0 and the intercept is the logit of ``(n1 + 1) / (n + 2)``.

    Parameters
    ----------
    features
        (n, k), finite.
    y
        Outcomes in [0, 1], (n,).
    penalty
        Above 0, so that separable data give finite weights.

    Raises
    ------
    DataError
        For no rows, a value that is not finite, or a y outside [0, 1].

    >>> fit = fit_logistic([[0.0], [1.0], [0.0], [1.0]], [0, 1, 1, 1])
    >>> fit.weights[0] > 0
    True
    """
    x, targets = np.asarray(features, np.float64), np.asarray(y, np.float64)
    if x.ndim != 2 or targets.shape != (len(x),) or not len(x):
        raise DataError(
            f"needs (n, k) features and (n,) outcomes, found {x.shape}, {targets.shape}"
        )
    if not np.isfinite(x).all() or not ((targets >= 0) & (targets <= 1)).all():
        raise DataError("features must be finite and outcomes lie in [0, 1]")
    if not penalty > 0:
        raise DataError(f"penalty must be above 0, found {penalty!r}")
    right = float(targets.sum())
    if right in (0.0, float(len(x))):
        share = (right + 1) / (len(x) + 2)
        return LogisticFit(math.log(share / (1 - share)), (0.0,) * x.shape[1])
    centre, spread = x.mean(axis=0), x.std(axis=0)
    varying = spread > 1e-12 * np.maximum(np.abs(centre), 1.0)
    scale = np.where(varying, spread, 1.0)
    design = np.vstack([np.where(varying, (x - centre) / scale, 0.0).T, np.ones(len(x))])
    ridge = np.append(np.full(x.shape[1], penalty), 0.0)
    found = least_cross_entropy(design, targets, ridge)
    weights = np.where(varying, found[:-1] / scale, 0.0)
    return LogisticFit(float(found[-1] - weights @ centre), tuple(weights.tolist()))


def least_cross_entropy(
    design: NDArray[np.float64], targets: NDArray[np.float64], ridge: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Weights (k,) of least penalised cross-entropy; the loss falls at every step.

    Parameters
    ----------
    design
        (k, n); the last row is the intercept's, all ones.
    targets
        (n,), in [0, 1], neither all 0 nor all 1.
    ridge
        (k,), each weight's penalty: half of it times the weight squared is added to the loss.
    """
    mean = targets.mean()
    weights = np.zeros(len(design))
    weights[-1] = np.log(mean / (1 - mean))
    loss = _loss(design, targets, weights, ridge)
    for _ in range(_STEPS):
        predicted = 0.5 * (1 + np.tanh(0.5 * (weights @ design)))
        gradient = design @ (predicted - targets) + ridge * weights
        if np.abs(gradient).max() < _FLAT * design.shape[1]:
            break
        curvature = (design * (predicted * (1 - predicted))) @ design.T
        curvature += np.diag(ridge + 1e-12)  # held off singular
        step = np.linalg.solve(curvature, gradient)
        share = 1.0
        for _ in range(_HALVINGS):
            moved = weights - share * step
            lower = _loss(design, targets, moved, ridge)
            if lower < loss:
                break
            share /= 2
        else:
            break
        weights, loss = moved, lower
    return weights


def _loss(
    design: NDArray[np.float64],
    targets: NDArray[np.float64],
    weights: NDArray[np.float64],
    ridge: NDArray[np.float64],
) -> float:
    logits = weights @ design
    cross_entropy = (np.logaddexp(0.0, logits) - targets * logits).sum()
    return float(cross_entropy + 0.5 * (ridge * weights * weights).sum())
