"""p-values for "the expected loss is above the limit", one per column of losses.

Each tests H: E[loss] > limit against E[loss] <= limit over independent questions. Each is valid at any
sample size: P(p <= u) <= u under H. A small p-value means that the loss stays within the limit.
"""

from __future__ import annotations

from functools import lru_cache
from math import lgamma

import numpy as np
from numpy.typing import ArrayLike, NDArray

from suffice.errors import UsageError
from suffice.stats.units import Array


def holm(p_values: Array) -> Array:
    """Adjust p-values by Holm's step-down method, (n,), in the given order.

    Reject where they are at most delta. Then any false rejection has probability at most delta, however the
    tests depend on each other (Holm 1979).
    """
    values = np.asarray(p_values, np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise UsageError("p-values must lie in [0, 1]")
    order = np.argsort(values, kind="stable")
    left = len(values) - np.arange(len(values))
    stepped = np.maximum.accumulate(np.minimum(values[order] * left, 1.0))
    adjusted = np.empty_like(values)
    adjusted[order] = stepped
    return adjusted


_MOST_STAKED = 0.98
"""Share of what ruin would take that is staked at most."""
_PRIOR_VARIANCE, _PRIOR_WEIGHT = 0.03, 20.0
_AIM = 2.0
"""Times the target that a gambler aims at whose capital is averaged with others'."""
_CELLS = 1 << 14  # gamblers that stay in cache together


def betting_p_values(
    losses: Array, limit: float, *, delta: float = 0.05, orders: NDArray[np.intp] | None = None
) -> Array:
    """Test means of bounded losses by betting, (n_members,), in (0, 1].

    A gambler starts with one unit and bets before each question that its loss is below the limit. Under H no
    strategy gains in expectation (Waudby-Smith and Ramdas 2024). The stake is ``sqrt(2 log(target / capital)
    / (n left * v))`` with v the variance of earlier losses. It suits a test with n questions (STaR bets,
    Voracek and Orabona 2025) and stays below ruin. Who has reached the target stops.

    One gambler's greatest capital is the inverse of a p-value (Ville). With several gamblers, each has its
    own order of the questions. Then it is the greatest mean capital of the first one, two, ... of them, which
    depends less on the order (Ramdas and Manole 2025).
    """
    _check(losses, limit)
    orders = np.arange(len(losses))[None, :] if orders is None else orders
    alone = len(orders) == 1
    target = (1.0 + 1e-9 if alone else _AIM) / delta  # reached, though sums of logarithms round
    step = max(1, _CELLS // len(orders))
    parts = [
        _betting(losses[:, start : start + step], limit, target, orders)
        for start in range(0, losses.shape[1], step)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def _betting(losses: Array, limit: float, target: float, orders: NDArray[np.intp]) -> Array:
    n_questions = len(losses)
    shape = (len(orders), losses.shape[1])
    logs, total = np.zeros(shape), np.zeros(shape)
    squares = np.full(shape, _PRIOR_VARIANCE * _PRIOR_WEIGHT)
    most, aim = _MOST_STAKED / (1.0 - limit), np.log(target)
    greatest = np.zeros(shape)
    for index in range(n_questions):
        loss = losses[orders[:, index]]
        missing = np.maximum(aim - logs, 0.0)
        left = n_questions - index
        stake = np.sqrt(2.0 * missing * (index + _PRIOR_WEIGHT) / (left * squares))
        np.minimum(stake, most, out=stake)
        logs += np.log1p(stake * (limit - loss))
        np.maximum(greatest, logs, out=greatest)
        total += loss
        squares += (loss - total / (index + 1.0)) ** 2
    if len(orders) == 1:
        return np.asarray(np.exp(-greatest[0]))
    means = np.cumsum(np.exp(logs), axis=0) / np.arange(1, len(orders) + 1)[:, None]
    return np.asarray(1.0 / np.maximum(means.max(axis=0), 1.0))


def hoeffding_bentkus_p_values(losses: Array, limit: float) -> Array:
    """Return the smaller of Hoeffding's and Bentkus's p-value for the mean loss, (n_members,), in [0, 1].

    ``min(exp(-n h(min(R, limit), limit)), e P(Bin(n, limit) <= ceil(n R)))`` with R the mean loss
    (Angelopoulos et al. 2021, "Learn then Test", Eq. 9).
    """
    _check(losses, limit)
    n_questions = losses.shape[0]
    mean = losses.mean(axis=0)
    low = np.minimum(mean, limit)
    hoeffding = np.exp(-n_questions * _relative_entropy(low, limit))
    # a sum of zeros and ones may miss its whole number by rounding
    reached = np.ceil(n_questions * mean - 1e-9)
    counts, member = np.unique(reached, return_inverse=True)
    bentkus = np.e * binomial_cdf(counts, n_questions, limit)[member]
    return np.asarray(np.minimum(1.0, np.minimum(hoeffding, bentkus)))


def _relative_entropy(mean: Array, limit: float) -> Array:
    """Return the relative entropy of Bernoulli(mean) from Bernoulli(limit); 0 log 0 = 0."""
    some = np.where(mean > 0, mean, 1.0)
    rest = np.where(mean < 1, 1.0 - mean, 1.0)
    value = np.where(mean > 0, mean * np.log(some / limit), 0.0) + np.where(
        mean < 1, rest * np.log(rest / (1.0 - limit)), 0.0
    )
    return np.asarray(np.maximum(value, 0.0))


def binomial_p_values(losses: Array, limit: float) -> Array:
    """Test losses of 0 or 1 exactly: P(Bin(n, limit) <= number of losses), (n_members,), in (0, 1]."""
    _check(losses, limit)
    if not np.isin(losses, (0.0, 1.0)).all():
        raise UsageError("the exact binomial test needs losses of 0 or 1")
    counts, member = np.unique(losses.sum(axis=0), return_inverse=True)
    return np.asarray(binomial_cdf(counts, losses.shape[0], limit)[member])


def _check(losses: Array, limit: float) -> None:
    if not 0.0 < limit < 1.0:
        raise UsageError(f"the limit of a loss in [0, 1] must lie in (0, 1), found {limit!r}")
    if losses.ndim != 2 or losses.shape[0] == 0:
        raise UsageError(f"losses must be (n_questions, n_members), found shape {losses.shape}")
    if not ((losses >= 0.0) & (losses <= 1.0)).all():
        raise UsageError("losses must lie in [0, 1] and be defined everywhere")


# --- exact tails ----------------------------------------------------------------------------------
_MAX_STEPS = 10_000
_TINY = 1e-300
_PRECISION = 1e-15
_GRID, _REFINEMENTS = 65, 6  # a quantile to 2e-11


def regularised_beta(a: ArrayLike, b: ArrayLike, x: ArrayLike) -> Array:
    """Return the regularized incomplete beta function I_x(a, b), broadcast; a, b > 0, x in [0, 1]."""
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
    """Return the least x, up to 2e-11, where Beta(a, b) reaches ``probability``; a, b > 0."""
    mean = a / (a + b)
    far = 40.0 * np.sqrt(mean * (1.0 - mean) / (a + b + 1.0))  # beyond it evaluation is slow
    near = np.linspace(max(mean - far, 0.0), min(mean + far, 1.0), _GRID)
    grid = np.concatenate([[0.0], near, [1.0]])
    for _ in range(_REFINEMENTS):
        first = int((regularised_beta(a, b, grid) >= probability).argmax())
        high = float(grid[first])
        grid = np.linspace(grid[max(first - 1, 0)], high, _GRID)
    return high


@lru_cache(maxsize=4096)
def rate_interval(successes: float, trials: float) -> tuple[float, float]:
    """Return Clopper and Pearson's 95% interval of a rate, of whole counts exact; (0, 1) for no trial."""
    successes, rest = round(successes, 9), round(trials - successes, 9)
    low = beta_quantile(successes, rest + 1, 0.025) if successes else 0.0
    high = beta_quantile(successes + 1, rest, 0.975) if rest else 1.0
    return low, high


def _log_beta(a: Array, b: Array) -> Array:
    log_gamma = np.vectorize(lgamma, otypes=[np.float64])
    return np.asarray(log_gamma(a) + log_gamma(b) - log_gamma(a + b), np.float64)


def _fraction(a: Array, b: Array, x: Array) -> Array:
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


def _away_from_zero(values: Array) -> Array:
    return np.where(np.abs(values) < _TINY, _TINY, values)


def binomial_cdf(successes: ArrayLike, trials: ArrayLike, p: ArrayLike) -> Array:
    """Return P(Binomial(trials, p) <= successes), broadcast; p in [0, 1]."""
    k, n, p = np.broadcast_arrays(
        np.floor(np.asarray(successes, np.float64)),
        np.asarray(trials, np.float64),
        np.asarray(p, np.float64),
    )
    inner = (k >= 0) & (k < n)
    value = regularised_beta(np.where(inner, n - k, 1.0), np.where(inner, k + 1.0, 1.0), 1.0 - p)
    return np.where(k < 0, 0.0, np.where(k >= n, 1.0, value))


def fisher_p_value(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Test by Fisher's exact two-sided test that two groups (count, size) have one share."""
    with_it, size = first[0] + second[0], first[1] + second[1]
    has = np.arange(max(0, with_it - second[1]), min(first[1], with_it) + 1)
    # the hypergeometric law's logarithm, but for what all have in common
    parts = [has, first[1] - has, with_it - has, size - first[1] - with_it + has]
    log = -np.vectorize(lgamma, otypes=[np.float64])(np.array(parts) + 1).sum(axis=0)
    chance = np.exp(log - log.max())
    as_rare = chance <= chance[first[0] - has[0]] * (1 + 1e-9)
    return float(chance[as_rare].sum() / chance.sum())


def welch_p_value(some: Array, others: Array) -> float:
    """Test by Welch's two-sided t-test that two groups (n,) of at least two have one mean."""
    errors = np.array([group.var(ddof=1) / len(group) for group in (some, others)])
    apart = abs(float(some.mean() - others.mean()))
    if errors.sum() == 0.0:
        return float(apart == 0.0)
    least = np.array([len(some) - 1, len(others) - 1])
    degrees = errors.sum() ** 2 / (errors**2 / least).sum()
    return float(2.0 * student_t_upper(apart / np.sqrt(errors.sum()), degrees))


def student_t_upper(t: ArrayLike, degrees: ArrayLike) -> Array:
    """Return P(T > t) for Student's t with ``degrees`` of freedom, broadcast; 0 at infinity."""
    t, degrees = np.broadcast_arrays(np.asarray(t, np.float64), np.asarray(degrees, np.float64))
    finite = np.where(np.isfinite(t), t, 0.0)
    tail = 0.5 * regularised_beta(degrees / 2.0, 0.5, degrees / (degrees + finite * finite))
    tail = np.where(np.isinf(t), 0.0, tail)
    return np.where(t >= 0, tail, 1.0 - tail)
