"""Tail probabilities that exact tests need: the incomplete beta function and what follows from it."""

from __future__ import annotations

from math import lgamma

import numpy as np
from numpy.typing import ArrayLike, NDArray

_MAX_STEPS = 10_000
_TINY = 1e-300
_PRECISION = 1e-15
_GRID, _REFINEMENTS = 65, 6  # a quantile to 2e-11


def regularised_beta(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> NDArray[np.float64]:
    """The regularised incomplete beta function I_x(a, b), broadcast; a, b > 0 and x in [0, 1].

    Lentz's evaluation of the continued fraction, on the side of the mean where it converges fast;
    relative error below 1e-10 (compared with scipy in the tests).
    """
    a, b, x = np.broadcast_arrays(
        np.asarray(a, np.float64), np.asarray(b, np.float64), np.asarray(x, np.float64)
    )
    mirrored = x > (a + 1.0) / (a + b + 2.0)
    first = np.where(mirrored, b, a)
    second = np.where(mirrored, a, b)
    at = np.where(mirrored, 1.0 - x, x)
    inside = (at > 0.0) & (at < 1.0)
    safe = np.where(inside, at, 0.5)
    log_front = (
        first * np.log(safe) + second * np.log1p(-safe) - np.log(first) - _log_beta(first, second)
    )
    value = np.exp(log_front) * _fraction(first, second, safe)
    value = np.where(inside, value, np.where(at >= 1.0, 1.0, 0.0))
    return np.clip(np.where(mirrored, 1.0 - value, value), 0.0, 1.0)


def beta_quantile(a: float, b: float, probability: float) -> float:
    """The least x to 2e-11, from above, below which Beta(a, b) has ``probability``; a, b > 0.

    >>> round(beta_quantile(1, 1, 0.25), 9)
    0.25
    """
    mean = a / (a + b)
    far = 40.0 * np.sqrt(mean * (1.0 - mean) / (a + b + 1.0))  # beyond it evaluation is slow
    near = np.linspace(max(mean - far, 0.0), min(mean + far, 1.0), _GRID)
    grid = np.concatenate([[0.0], near, [1.0]])
    for _ in range(_REFINEMENTS):
        first = int((regularised_beta(a, b, grid) >= probability).argmax())
        high = float(grid[first])
        grid = np.linspace(grid[max(first - 1, 0)], high, _GRID)
    return high


def exact_interval(successes: int, trials: int, level: float) -> tuple[float, float]:
    """Clopper and Pearson's interval of a probability, which ``level`` bounds the error of.

    For one number of trials fixed beforehand, from 1.

    >>> [round(end, 4) for end in exact_interval(8, 10, 0.05)]
    [0.4439, 0.9748]
    """
    rest = trials - successes
    low = beta_quantile(successes, rest + 1, level / 2) if successes else 0.0
    high = beta_quantile(successes + 1, rest, 1 - level / 2) if rest else 1.0
    return low, high


def _log_beta(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    log_gamma = np.vectorize(lgamma, otypes=[np.float64])
    return np.asarray(log_gamma(a) + log_gamma(b) - log_gamma(a + b), np.float64)


def _fraction(
    a: NDArray[np.float64], b: NDArray[np.float64], x: NDArray[np.float64]
) -> NDArray[np.float64]:
    c = np.ones_like(x)
    d = 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1.0))
    value = d.copy()
    for step in range(1, _MAX_STEPS):
        even = step * (b - step) * x / ((a + 2 * step - 1) * (a + 2 * step))
        odd = -(a + step) * (a + b + step) * x / ((a + 2 * step) * (a + 2 * step + 1))
        for term in (even, odd):
            d = 1.0 / _away_from_zero(1.0 + term * d)
            c = _away_from_zero(1.0 + term / c)
            change = c * d
            value = value * change
        if np.all(np.abs(change - 1.0) < _PRECISION):
            break
    return value


def _away_from_zero(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.abs(values) < _TINY, _TINY, values)


def binomial_cdf(successes: ArrayLike, trials: ArrayLike, p: ArrayLike) -> NDArray[np.float64]:
    """P(Binomial(trials, p) <= successes), broadcast; p in [0, 1].

    >>> float(binomial_cdf(1, 3, 0.5))
    0.5
    """
    k, n, p = np.broadcast_arrays(
        np.floor(np.asarray(successes, np.float64)),
        np.asarray(trials, np.float64),
        np.asarray(p, np.float64),
    )
    inner = (k >= 0) & (k < n)
    value = regularised_beta(np.where(inner, n - k, 1.0), np.where(inner, k + 1.0, 1.0), 1.0 - p)
    return np.where(k < 0, 0.0, np.where(k >= n, 1.0, value))


def fisher_p_value(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Fisher's exact test, two-sided, that two groups have one share: of each how many have it, and its size.

    >>> round(fisher_p_value((3, 4), (1, 4)), 4)
    0.4857
    """
    with_it, size = first[0] + second[0], first[1] + second[1]
    has = np.arange(max(0, with_it - second[1]), min(first[1], with_it) + 1)
    # the hypergeometric law's logarithm, but for what all have in common
    parts = [has, first[1] - has, with_it - has, size - first[1] - with_it + has]
    log = -np.vectorize(lgamma, otypes=[np.float64])(np.array(parts) + 1).sum(axis=0)
    chance = np.exp(log - log.max())
    as_rare = chance <= chance[first[0] - has[0]] * (1 + 1e-9)
    return float(chance[as_rare].sum() / chance.sum())


def welch_p_value(some: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    """Welch's t-test, two-sided, that two groups (n,) of at least two have one mean.

    >>> round(welch_p_value(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0])), 4)
    0.0213
    """
    errors = np.array([group.var(ddof=1) / len(group) for group in (some, others)])
    apart = abs(float(some.mean() - others.mean()))
    if errors.sum() == 0.0:
        return float(apart == 0.0)
    least = np.array([len(some) - 1, len(others) - 1])
    degrees = errors.sum() ** 2 / (errors**2 / least).sum()
    return float(2.0 * student_t_upper(apart / np.sqrt(errors.sum()), degrees))


def student_t_upper(t: ArrayLike, degrees: ArrayLike) -> NDArray[np.float64]:
    """P(T > t) for Student's t with ``degrees`` of freedom, broadcast; 0 at infinity."""
    t, degrees = np.broadcast_arrays(np.asarray(t, np.float64), np.asarray(degrees, np.float64))
    finite = np.where(np.isfinite(t), t, 0.0)
    tail = 0.5 * regularised_beta(degrees / 2.0, 0.5, degrees / (degrees + finite * finite))
    tail = np.where(np.isinf(t), 0.0, tail)
    return np.where(t >= 0, tail, 1.0 - tail)
