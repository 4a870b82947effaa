"""Logistic regression whose weights may not be negative."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from suffice.calibration.logistic import LogisticFit, fit_logistic
from suffice.errors import DataError

__all__ = ["fit_rising_logistic"]

_MOST_FEATURES = 8


def fit_rising_logistic(
    features: ArrayLike,
    y: ArrayLike,
    *,
    penalty: float = 1.0,
    row_weights: ArrayLike | None = None,
) -> LogisticFit:
    """:func:`suffice.calibration.logistic.fit_logistic` with every weight at least 0.

    The loss is convex, so the constrained optimum is the unconstrained one over the features whose
    weights are not 0 there: of all subsets whose own fit has no negative weight, the best one.

    Parameters
    ----------
    features
        (n, k), finite, at most 8 of them; each is taken to rise with P(y = 1) or to say nothing.
    y, penalty, row_weights
        As there.

    Raises
    ------
    DataError
        As there, and for more than 8 features.

    >>> fit_rising_logistic([[0.0], [1.0], [0.0], [1.0]], [1, 0, 1, 1]).weights
    (0.0,)
    """
    x, targets = np.asarray(features, np.float64), np.asarray(y, np.float64)
    if x.ndim != 2 or x.shape[1] > _MOST_FEATURES:
        raise DataError(f"needs (n, k) features with k at most {_MOST_FEATURES}, found {x.shape}")
    counts = None if row_weights is None else np.asarray(row_weights, np.float64)
    best, least = LogisticFit(0.0, (0.0,) * x.shape[1]), np.inf
    for kept in _subsets(x.shape[1]):
        fit = fit_logistic(x[:, kept], targets, penalty=penalty, row_weights=counts)
        if min(fit.weights, default=0.0) < 0.0:
            continue
        weights = np.zeros(x.shape[1])
        weights[kept] = fit.weights
        loss = _cross_entropy(targets, fit.intercept + x @ weights, counts)
        loss += 0.5 * penalty * float(np.square(weights * _spread(x, counts)).sum())
        if loss < least:
            best, least = LogisticFit(fit.intercept, tuple(weights.tolist())), loss
    return best


def _subsets(k: int) -> Iterator[list[int]]:
    """All of them, larger ones first, so that equal losses keep the most features."""
    for size in range(k, -1, -1):
        yield from (list(each) for each in combinations(range(k), size))


def _spread(x: NDArray[np.float64], counts: NDArray[np.float64] | None) -> NDArray[np.float64]:
    centre = np.average(x, axis=0, weights=counts)
    spread: NDArray[np.float64] = np.sqrt(np.average((x - centre) ** 2, axis=0, weights=counts))
    return spread


def _cross_entropy(
    targets: NDArray[np.float64],
    logits: NDArray[np.float64],
    counts: NDArray[np.float64] | None,
) -> float:
    each = np.logaddexp(0.0, logits) - targets * logits
    return float(each.sum() if counts is None else counts @ each)
