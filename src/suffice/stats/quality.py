"""Quality of probabilities: Brier score, log loss, expected calibration error.

Each function takes predicted probabilities and outcomes of the same shape. It drops rows with a NaN, and
returns NaN if no row is left. Lower is better for all three.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from suffice.errors import DataError, UsageError
from suffice.stats.units import Array

CLIP = 1e-15


def squared_errors(predicted: ArrayLike, outcome: ArrayLike) -> Array:
    """Return the squared difference of every row, same shape; NaN where either is."""
    probabilities, outcomes = _checked(predicted, outcome)
    return np.asarray((probabilities - outcomes) ** 2, np.float64)


def brier(predicted: ArrayLike, outcome: ArrayLike) -> float:
    """Return the mean squared difference of probability and outcome, in [0, 1]; low is good.

    >>> brier([0.0, 0.5, 1.0], [0, 1, 1])
    0.08333333333333333
    """
    errors = squared_errors(predicted, outcome)
    return _mean(errors[~np.isnan(errors)])


def log_loss(predicted: ArrayLike, outcome: ArrayLike) -> float:
    """Return the mean negative log-likelihood in nats, from 0; low is good; leaves out NaN rows."""
    probabilities, outcomes = _usable(predicted, outcome)
    clipped = np.clip(probabilities, CLIP, 1 - CLIP)
    return _mean(-(outcomes * np.log(clipped) + (1 - outcomes) * np.log1p(-clipped)))


def expected_calibration_error(
    predicted: ArrayLike, outcome: ArrayLike, *, buckets: int = 10
) -> float:
    """Return the mean ``|mean probability - share right|`` of buckets, in [0, 1]; low is good.

    Buckets are of equal size.
    """
    if buckets < 1:
        raise UsageError(f"buckets must be at least 1, found {buckets}")
    probabilities, outcomes = _usable(predicted, outcome)
    if not probabilities.size:
        return float("nan")
    order = np.argsort(probabilities, kind="stable")
    gaps = (probabilities - outcomes)[order]
    edges = np.array(equal_size_edges(probabilities[order], buckets))
    # a bucket's share of the rows times its mean gap is its sum of gaps over all rows
    return float(np.abs(np.add.reduceat(gaps, edges[:-1])).sum() / len(gaps))


def equal_size_edges(ordered: Array, count: int) -> tuple[int, ...]:
    """Return where ``count`` buckets of equal size begin, and the end, in increasing values."""
    size = len(ordered)
    edges = {0, size}
    for part in range(1, count):
        edge = round(part * size / count)
        while 0 < edge < size and ordered[edge] == ordered[edge - 1]:
            edge += 1
        edges.add(edge)
    return tuple(sorted(edges))


def _checked(predicted: ArrayLike, outcome: ArrayLike) -> tuple[Array, Array]:
    probabilities, outcomes = np.asarray(predicted, np.float64), np.asarray(outcome, np.float64)
    if probabilities.shape != outcomes.shape:
        raise DataError(
            f"probabilities of shape {probabilities.shape} for outcomes of shape {outcomes.shape}"
        )
    for column, values in (("predicted", probabilities), ("outcome", outcomes)):
        outside = (values < 0) | (values > 1)
        if outside.any():
            raise DataError(
                f"must be in [0, 1], found {float(values[outside][0])!r}", column=column
            )
    return probabilities, outcomes


def _usable(predicted: ArrayLike, outcome: ArrayLike) -> tuple[Array, Array]:
    probabilities, outcomes = _checked(predicted, outcome)
    defined = ~(np.isnan(probabilities) | np.isnan(outcomes))
    return probabilities[defined], outcomes[defined]


def _mean(values: Array) -> float:
    return float(values.mean()) if values.size else float("nan")
