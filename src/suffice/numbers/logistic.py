"""Logistic regression by Newton's method (Lin, Lin and Weng 2007), and ridge regression."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from suffice.errors import DataError

_STEPS = 100
_PENALTY = 5.0  # squared slopes, of ridge regression
_FEWEST = 10  # that a regression is fitted on
_CONSTANT = 1e-9  # spread, in the largest value, below which an input is constant
_HALVINGS = 40
_BLOCK = 1 << 16  # numbers held as objects at a time
_ROWS = 1 << 15  # summed at a time
_FLAT = 1e-12  # gradient, in rows, below which the fit is done


def sigmoid(logit: float) -> float:
    """``1 / (1 + exp(-logit))`` in [0, 1], without overflow; NaN stays NaN."""
    if logit < 0:
        rising = math.exp(logit)
        return rising / (1.0 + rising)
    return 1.0 / (1.0 + math.exp(-logit))


def sigmoids(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    """:func:`sigmoid` of every number, shape kept, bit for bit.

    The exponentials are those of single numbers: an array's may differ in the last bit, and a replayed
    decision must be the live one.
    """
    flat = logits.ravel()
    shares = np.empty(flat.size)
    for start in range(0, flat.size, _BLOCK):
        block = flat[start : start + _BLOCK]
        falling = np.fromiter(map(math.exp, (-np.abs(block)).tolist()), np.float64, block.size)
        shares[start : start + _BLOCK] = np.where(block < 0, falling, 1.0) / (1.0 + falling)
    return shares.reshape(logits.shape)


@dataclass(frozen=True, slots=True)
class LogisticFit:
    """``P(y = 1) = sigmoid(intercept + features @ weights)``; weights per unit of each feature."""

    intercept: float
    weights: tuple[float, ...]


def fit_logistic(
    features: ArrayLike,
    y: ArrayLike,
    *,
    penalty: float = 1.0,
    row_weights: ArrayLike | None = None,
) -> LogisticFit:
    """Ridge logistic regression of ``y`` on standardised features.

    Minimises the sum of the rows' cross-entropies plus ``penalty / 2`` times the squared weights of
    the standardised features, the intercept free; as scikit-learn's ``LogisticRegression(C=1/penalty)``
    behind a ``StandardScaler``. A constant feature gets weight 0. With one class of outcome all
    weights are 0 and the intercept is the logit of ``(n1 + 1) / (n + 2)``. With ``row_weights`` a row
    counts so often, in means, spreads and cross-entropies alike.

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
    counts = _row_weights(row_weights, len(x))
    return _fit(x.__getitem__, x.shape[1], targets, penalty, counts)


def _fit(
    features: Callable[[slice], NDArray[np.float64]],
    k: int,
    targets: NDArray[np.float64],
    penalty: float,
    counts: NDArray[np.float64],
) -> LogisticFit:
    """The fit on k features, of which some rows are given at a time."""
    total, right = float(counts.sum()), float(counts @ targets)
    if not targets.any() or (targets == 1.0).all():
        share = (right + 1) / (total + 2)
        return LogisticFit(math.log(share / (1 - share)), (0.0,) * k)

    centre, spread = _centre_and_spread(features, counts)
    varying = spread > 1e-12 * np.maximum(np.abs(centre), 1.0)
    scale = np.where(varying, spread, 1.0)

    def design(rows: slice) -> NDArray[np.float64]:
        values = features(rows)
        # laid out as the features are, on which the last bits of its products depend
        scaled = np.ones((k + 1, len(values)), order="C" if values.flags.f_contiguous else "F")
        for index in range(k):
            np.subtract(values[:, index], centre[index], out=scaled[index])
            scaled[index] /= scale[index]
        scaled[:-1][~varying] = 0.0
        return scaled

    ridge = np.append(np.full(k, penalty), 0.0)
    fitted = least_cross_entropy(design, targets, ridge, counts)
    weights = np.where(varying, fitted[:-1] / scale, 0.0)
    return LogisticFit(float(fitted[-1] - weights @ centre), tuple(weights.tolist()))


def _row_weights(counts: ArrayLike | None, n: int) -> NDArray[np.float64]:
    if counts is None:
        return np.ones(n)
    weights = np.asarray(counts, np.float64)
    if weights.shape != (n,) or not (np.isfinite(weights) & (weights > 0)).all():
        raise DataError(f"row weights must be {n} numbers above 0")
    return weights


def least_cross_entropy(
    design: Callable[[slice], NDArray[np.float64]],
    targets: NDArray[np.float64],
    ridge: NDArray[np.float64],
    row_weights: NDArray[np.float64] | None = None,
) -> NDArray[np.float64]:
    """Weights (k,) of least penalised cross-entropy; the loss falls at every step."""
    counts = np.ones(len(targets)) if row_weights is None else row_weights
    mean = np.average(targets, weights=counts)
    weights = np.zeros(len(ridge))
    weights[-1] = np.log(mean / (1 - mean))
    blocks = _blocks(len(targets))

    def loss_of(weights: NDArray[np.float64]) -> float:
        penalties = 0.5 * (ridge * weights * weights).sum()
        losses = (
            _cross_entropy(targets[rows], weights @ design(rows), counts[rows]) for rows in blocks
        )
        return float(sum(losses) + penalties)

    loss = loss_of(weights)
    for _ in range(_STEPS):
        gradient, curvature = _derivatives(design, targets, counts, weights)
        gradient += ridge * weights
        if np.abs(gradient).max() < _FLAT * counts.sum():
            break
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


def _derivatives(
    design: Callable[[slice], NDArray[np.float64]],
    targets: NDArray[np.float64],
    counts: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The gradient (k,) and the curvature (k, k) of the cross-entropy, without penalties."""
    gradients, curvatures = [], []
    for rows in _blocks(len(targets)):
        part = design(rows)
        predicted = 0.5 * (1 + np.tanh(0.5 * (weights @ part)))
        gradients.append(part @ (counts[rows] * (predicted - targets[rows])))
        curvatures.append((part * (counts[rows] * predicted * (1 - predicted))) @ part.T)
    return np.sum(gradients, axis=0), np.sum(curvatures, axis=0)


def _blocks(n: int) -> list[slice]:
    """Rows at a time: what is made of them stays in the cache, and a short column is one block."""
    return [slice(start, min(start + _ROWS, n)) for start in range(0, n, _ROWS)]


_MOST_FEATURES = 8


def fit_rising_logistic(
    features: ArrayLike,
    y: ArrayLike,
    *,
    penalty: float = 1.0,
    row_weights: ArrayLike | None = None,
) -> LogisticFit:
    """:func:`suffice.numbers.logistic.fit_logistic` with every weight at least 0.

    The loss is convex, so the constrained optimum is the unconstrained one over the features whose
    weights are not 0 there: of all subsets whose own fit has no negative weight, the best one.

    >>> fit_rising_logistic([[0.0], [1.0], [0.0], [1.0]], [1, 0, 1, 1]).weights
    (0.0,)
    """
    x, targets = np.asarray(features, np.float64), np.asarray(y, np.float64)
    if x.ndim != 2 or x.shape[1] > _MOST_FEATURES:
        raise DataError(f"needs (n, k) features with k at most {_MOST_FEATURES}, found {x.shape}")
    counts = _row_weights(row_weights, len(x))
    best, least = LogisticFit(0.0, (0.0,) * x.shape[1]), np.inf
    _, spread = _centre_and_spread(x.__getitem__, counts)
    k = x.shape[1]  # larger subsets first, so that equal losses keep the most features
    for kept in (list(some) for size in range(k, -1, -1) for some in combinations(range(k), size)):
        some = partial(lambda columns, rows: x[rows][:, columns], kept)
        fit = _fit(some, len(kept), targets, penalty, counts)
        if min(fit.weights, default=0.0) < 0.0:
            continue
        weights = np.zeros(x.shape[1])
        weights[kept] = fit.weights
        loss = sum(
            _cross_entropy(targets[rows], fit.intercept + x[rows] @ weights, counts[rows])
            for rows in _blocks(len(x))
        )
        loss += 0.5 * penalty * float(np.square(weights * spread).sum())
        if loss < least:
            best, least = LogisticFit(fit.intercept, tuple(weights.tolist())), loss
    return best


def _centre_and_spread(
    features: Callable[[slice], NDArray[np.float64]], counts: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of every feature over all rows, (k,)."""
    centre = _weighted_mean(features, counts)
    return centre, np.sqrt(_weighted_mean(lambda rows: (features(rows) - centre) ** 2, counts))


def _weighted_mean(
    columns: Callable[[slice], NDArray[np.float64]], counts: NDArray[np.float64]
) -> NDArray[np.float64]:
    blocks = _blocks(len(counts))
    means = [np.average(columns(rows), axis=0, weights=counts[rows]) for rows in blocks]
    totals = [counts[rows].sum() for rows in blocks]
    off = sum(total * (mean - means[0]) for total, mean in zip(totals, means, strict=True))
    return np.asarray(means[0] + off / sum(totals), np.float64)


def _cross_entropy(
    targets: NDArray[np.float64], logits: NDArray[np.float64], counts: NDArray[np.float64]
) -> float:
    return float(counts @ (np.logaddexp(0.0, logits) - targets * logits))


def predicted_by_others(
    inputs: NDArray[np.float64],
    targets: NDArray[np.float64],
    known: NDArray[np.bool_],
    otherwise: NDArray[np.float64],
) -> NDArray[np.float64]:
    """What ridge regression on ``inputs`` (n, n_inputs) predicts of each of ``targets`` (n,), (n,).

    Those ``known`` are learnt from, and none is for its own prediction (leaving one out, in closed form), so
    that a prediction does not depend on whether its own target is known. Inputs are standardised and the
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
