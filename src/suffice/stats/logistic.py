"""Logistic regression by Newton's method (Lin, Lin and Weng 2007), and ridge regression."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike

from suffice.errors import DataError
from suffice.stats.units import Array, Mask

_STEPS = 100
_PENALTY = 5.0  # squared slopes, of ridge regression
_FEWEST = 10  # that a regression is fitted on
_CONSTANT = 1e-9  # spread, in the largest value, below which an input is constant
_HALVINGS = 40
_FLAT = 1e-12  # gradient, in rows, below which the fit is done


def sigmoids(logits: Array) -> Array:
    """Return ``1 / (1 + exp(-logit))`` in [0, 1] of every number, same shape; NaN stays NaN."""
    # of single numbers: an array's may differ in the last bit, and a replayed decision must be the live one
    flat = logits.ravel()
    falling = np.fromiter(map(math.exp, (-np.abs(flat)).data), np.float64, flat.size)
    shares: Array = np.where(flat < 0, falling, 1.0) / (1.0 + falling)
    return shares.reshape(logits.shape)


@dataclass(frozen=True, slots=True)
class LogisticFit:
    """Hold ``P(y = 1) = sigmoid(intercept + features @ weights)``; weights per unit of each feature."""

    intercept: float
    weights: tuple[float, ...]


def fit_logistic(
    features: ArrayLike, y: ArrayLike, *, penalty: float = 1.0, row_weights: ArrayLike | None = None
) -> LogisticFit:
    """Fit a ridge logistic regression of ``y`` on standardized features.

    It minimizes the rows' cross-entropies plus ``penalty / 2`` times the squared weights of standardized
    features; the intercept is free. It equals scikit-learn's ``LogisticRegression(C=1/penalty)`` behind a
    ``StandardScaler``. A constant feature gets weight 0. With one class of outcome all weights are 0. The
    intercept is then the logit of ``(n1 + 1) / (n + 2)``. With ``row_weights`` a row counts so often, in
    means, spreads and cross-entropies alike.
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
    counts = _row_weights(row_weights, len(x))
    return _fit(x, targets, penalty, counts)


def _fit(x: Array, targets: Array, penalty: float, counts: Array) -> LogisticFit:
    total, right = float(counts.sum()), float(counts @ targets)
    if not targets.any() or (targets == 1.0).all():
        share = (right + 1) / (total + 2)
        return LogisticFit(math.log(share / (1 - share)), (0.0,) * x.shape[1])
    centre, spread = _centre_and_spread(x, counts)
    varying = spread > 1e-12 * np.maximum(np.abs(centre), 1.0)
    scale = np.where(varying, spread, 1.0)
    # laid out as the features are, on which the last bits of its products depend
    design = np.ones((x.shape[1] + 1, len(x)), order="C" if x.flags.f_contiguous else "F")
    for index in range(x.shape[1]):  # a feature at a time, for memory
        np.subtract(x[:, index], centre[index], out=design[index])
        design[index] /= scale[index]
    design[:-1][~varying] = 0.0
    ridge = np.append(np.full(x.shape[1], penalty), 0.0)
    fitted = least_cross_entropy(design, targets, ridge, counts)
    weights = np.where(varying, fitted[:-1] / scale, 0.0)
    return LogisticFit(float(fitted[-1] - weights @ centre), tuple(weights.tolist()))


def _row_weights(counts: ArrayLike | None, n: int) -> Array:
    if counts is None:
        return np.ones(n)
    weights = np.asarray(counts, np.float64)
    if weights.shape != (n,) or not (np.isfinite(weights) & (weights > 0)).all():
        raise DataError(f"row weights must be {n} numbers above 0")
    return weights


def least_cross_entropy(
    design: Array, targets: Array, ridge: Array, row_weights: Array | None = None
) -> Array:
    """Minimize penalized cross-entropy over weights (k,) for ``design`` (k, n), falling at every step."""
    counts = np.ones(len(targets)) if row_weights is None else row_weights
    mean = np.average(targets, weights=counts)
    weights = np.zeros(len(ridge))
    weights[-1] = np.log(mean / (1 - mean))

    def loss_of(weights: Array) -> float:
        penalties = 0.5 * (ridge * weights * weights).sum()
        return float(_cross_entropy(targets, weights @ design, counts) + penalties)

    loss = loss_of(weights)
    for _ in range(_STEPS):
        predicted = 0.5 * (1 + np.tanh(0.5 * (weights @ design)))
        gradient = design @ (counts * (predicted - targets)) + ridge * weights
        if np.abs(gradient).max() < _FLAT * counts.sum():
            break
        curvature = (design * (counts * predicted * (1 - predicted))) @ design.T
        curvature += np.diag(ridge + 1e-12)  # held off singular
        step = np.linalg.solve(curvature, gradient)
        share = 1.0
        for _ in range(_HALVINGS):
            moved = weights - share * step
            lower = loss_of(moved)
            if lower < loss:
                break
            share /= 2
        else:
            break
        weights, loss = moved, lower
    return weights


_MOST_FEATURES = 8


def fit_rising_logistic(
    features: ArrayLike, y: ArrayLike, *, penalty: float = 1.0, row_weights: ArrayLike | None = None
) -> LogisticFit:
    """Fit as :func:`suffice.stats.logistic.fit_logistic`, with every weight at least 0.

    The loss is convex. So the optimum is the best unconstrained fit of a subset of the features that has no
    negative weight.
    """
    x, targets = np.asarray(features, np.float64), np.asarray(y, np.float64)
    if x.ndim != 2 or x.shape[1] > _MOST_FEATURES:
        raise DataError(f"needs (n, k) features with k at most {_MOST_FEATURES}, found {x.shape}")
    counts = _row_weights(row_weights, len(x))
    best, least = LogisticFit(0.0, (0.0,) * x.shape[1]), np.inf
    _, spread = _centre_and_spread(x, counts)
    k = x.shape[1]  # larger subsets first, so that equal losses keep the most features
    for kept in (list(some) for size in range(k, -1, -1) for some in combinations(range(k), size)):
        fit = _fit(x[:, kept], targets, penalty, counts)
        if min(fit.weights, default=0.0) < 0.0:
            continue
        weights = np.zeros(x.shape[1])
        weights[kept] = fit.weights
        loss = _cross_entropy(targets, fit.intercept + x @ weights, counts)
        loss += 0.5 * penalty * float(np.square(weights * spread).sum())
        if loss < least:
            best, least = LogisticFit(fit.intercept, tuple(weights.tolist())), loss
    return best


def _centre_and_spread(x: Array, counts: Array) -> tuple[Array, Array]:
    """Return center and spread of every feature, (k,) each."""
    centre = np.average(x, axis=0, weights=counts)
    return centre, np.sqrt(np.average((x - centre) ** 2, axis=0, weights=counts))


def _cross_entropy(targets: Array, logits: Array, counts: Array) -> float:
    return float(counts @ (np.logaddexp(0.0, logits) - targets * logits))


def predicted_by_others(inputs: Array, targets: Array, known: Mask, otherwise: Array) -> Array:
    """Predict each of ``targets`` (n,) by ridge regression on ``inputs`` (n, n_inputs) of the others.

    It learns from the ``known`` targets, but never for a target's own prediction (leave-one-out, in closed
    form). So a prediction does not depend on whether its own target is known. Inputs are standardised and the
    penalty is 5 squared slopes. Where fewer than 10 others are known it is their mean, where none is
    ``otherwise``.
    """
    others = int(known.sum()) - known
    total = float(targets[known].sum())
    mean = (total - np.where(known, targets, 0.0)) / np.maximum(others, 1)
    predicted = np.where(others > 0, mean, otherwise)
    spread = inputs.std(axis=0)
    varied = spread > _CONSTANT * np.maximum(np.abs(inputs).max(axis=0, initial=0.0), 1.0)
    if others.max(initial=0) < _FEWEST or not varied.any():
        return predicted
    scaled = (inputs[:, varied] - inputs[:, varied].mean(axis=0)) / spread[varied]
    design = np.column_stack([np.ones(len(inputs)), scaled])
    learnt, answers = design[known], targets[known]
    penalty = np.diag([0.0, *[_PENALTY] * scaled.shape[1]])
    inverse = np.linalg.inv(learnt.T @ learnt + penalty)
    fitted = design @ (inverse @ (learnt.T @ answers))
    leverage = np.einsum("ij,jk,ik->i", learnt, inverse, learnt)
    fitted[known] = answers - (answers - fitted[known]) / (1.0 - leverage)
    return np.where(others >= _FEWEST, fitted, predicted)
