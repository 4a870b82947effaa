"""p-values for "the expected loss is above the limit", one per column of losses.

Each tests H: E[loss] > limit against E[loss] <= limit over independent questions. Each is valid at any
sample size: P(p <= u) <= u under H. A small p-value means that the loss stays within the limit.
"""

from __future__ import annotations

from functools import lru_cache

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
    losses: Array,
    limits: float | Array,
    *,
    delta: float = 0.05,
    orders: NDArray[np.intp] | None = None,
    anytime: bool = False,
) -> Array:
    """Test means of bounded losses (n_questions, n_members) by betting, (n_members,), in (0, 1].

    A gambler starts with one unit and bets before each question that its loss is below the limit. Under H no
    strategy gains in expectation (Waudby-Smith and Ramdas 2024). The stake is ``sqrt(2 log(target / capital)
    / (n left * v))`` with v the variance of earlier losses. It suits a test with n questions (STaR bets,
    Voracek and Orabona 2025) and stays below ruin. Who has reached the target stops.

    Each of several gamblers has an own order of the questions. Their mean capital is the inverse of a p-value
    (Markov). The greatest mean of the first one, two, ... would be one too (Ramdas and Manole 2025), but then
    a lucky first order decides. One gambler alone proves by the greatest capital (Ville).

    ``anytime``: stakes ``sqrt(2 log(1 / delta) / (t log(t + 1) v))`` do not depend on n. The bound then holds
    at all sizes of a record that grows, in the one order of ``orders``.
    """
    limits = _checked(losses, limits)
    orders = np.arange(len(losses))[None, :] if orders is None else orders
    alone = len(orders) == 1
    target = (1.0 + 1e-9 if alone else _AIM) / delta  # reached, though sums of logarithms round
    step = max(1, _CELLS // len(orders))
    starts = range(0, losses.shape[1], step)
    parts = [
        _betting(losses[:, some], limits[some], np.inf if anytime else target, orders, delta)
        for some in (slice(start, start + step) for start in starts)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def _betting(
    losses: Array, limits: Array, target: float, orders: NDArray[np.intp], delta: float
) -> Array:
    n_questions, anytime = len(losses), np.isinf(target)
    shape = (len(orders), losses.shape[1])
    logs, total, greatest = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    squares = np.full(shape, _PRIOR_VARIANCE * _PRIOR_WEIGHT)
    most = _MOST_STAKED / (1.0 - limits)
    for index in range(n_questions):
        loss = losses[orders[:, index]]
        if anytime:
            wanted, left = -np.log(delta), (index + 1.0) * np.log(index + 2.0)
        else:
            wanted, left = np.maximum(np.log(target) - logs, 0.0), float(n_questions - index)
        stake = np.sqrt(2.0 * wanted * (index + _PRIOR_WEIGHT) / (left * squares))
        np.minimum(stake, most, out=stake)
        logs += np.log1p(stake * (limits - loss))
        np.maximum(greatest, logs, out=greatest)
        total += loss
        squares += (loss - total / (index + 1.0)) ** 2
    capital = np.exp(greatest[0]) if len(orders) == 1 else np.exp(logs).mean(axis=0)
    return np.asarray(1.0 / np.maximum(capital, 1.0))


def student_p_values(losses: Array, limits: float | Array) -> Array:
    """Test means by Student's one-sided t-test, (n_members,): nearly valid where losses are nearly normal.

    Losses that do not vary have the p-value 0 below their limit, else 1.
    """
    from scipy.special import stdtr

    limits = _checked(losses, limits)
    above = losses.mean(axis=0) - limits
    error = losses.std(axis=0, ddof=min(1, len(losses) - 1)) / np.sqrt(len(losses))
    t = np.where(above < 0.0, -np.inf, np.inf)
    np.divide(above, error, out=t, where=error > 1e-12)
    return np.asarray(stdtr(max(len(losses) - 1, 1), t))


# --- losses of -1, 0 and 1 ------------------------------------------------------------------------
_NUISANCE_SHARE = 0.01
"""Of the error, for the interval of the share of changed answers (Berger and Boos 1994)."""
_SHARES, _FINER = 41, 17  # values of that share tried, and about the worst of them
_SPREADS = 12.0  # standard deviations of the gained questions beyond which none is looked at


def signed_p_values(losses: Array, limits: float | Array, *, delta: float = 0.05) -> Array:
    """Test means of losses of -1, 0 or 1 exactly, (n_members,), in (0, 1].

    The statistic is the score test of a difference of paired shares (Tango 1998). The p-value is the greatest
    probability of one as small, over the shares of changed answers in their exact interval with error
    ``delta / 100``, which is added (Berger and Boos 1994). It depends on no order of the questions. A limit
    of 1 or more holds by itself.

    >>> losses = np.zeros((150, 1))
    >>> signed_p_values(losses, 0.02).round(4).tolist(), round(0.98**150, 4)
    ([0.0488], 0.0483)
    """
    limits = np.broadcast_to(np.asarray(limits, np.float64), losses.shape[1:])
    lost, gained = ((losses == value).sum(axis=0) for value in (1.0, -1.0))
    n = len(losses)
    told = zip(lost.tolist(), gained.tolist(), limits.tolist(), strict=True)
    return np.array([_signed_p_value(a, b, n, most, delta) for a, b, most in told])


@lru_cache(maxsize=1 << 14)
def _signed_p_value(lost: int, gained: int, n: int, limit: float, delta: float) -> float:
    error = _NUISANCE_SHARE * delta
    if limit >= 1.0:
        return error
    low, high = rate_interval(lost + gained, n, error)
    low, high = max(low, limit), min(high, 1.0 - 1e-9)
    if high <= low:  # under H more answers change than the limit
        return error
    most = _most_lost(lost, gained, n, limit)
    shares = np.linspace(low, high, _SHARES)
    chances = _chance_within(most, shares, n, limit)
    worst = int(chances.argmax())
    finer = np.linspace(shares[max(worst - 1, 0)], shares[min(worst + 1, _SHARES - 1)], _FINER)
    greatest = max(chances.max(), _chance_within(most, finer, n, limit).max())
    return min(float(greatest) + error, 1.0)


def _statistic(lost: ArrayLike, gained: ArrayLike, n: int, limit: float) -> Array:
    """(mean - limit) / standard error, the error of the likeliest law whose mean is the limit."""
    lost, gained = np.asarray(lost, np.float64), np.asarray(gained, np.float64)
    alike = n - lost - gained
    # q = P(-1), P(1) = q + limit maximize the likelihood: a root of a quadratic
    linear = 2.0 * (gained + alike) * limit - (1.0 - limit) * (lost + gained)
    root = np.sqrt(linear**2 + 8.0 * n * gained * limit * (1.0 - limit))
    q = (root - linear) / (4.0 * n)
    return np.asarray(((lost - gained) / n - limit) / np.sqrt((2.0 * q + limit - limit**2) / n))


def _most_lost(lost: int, gained: int, n: int, limit: float) -> NDArray[np.intp]:
    """The most lost questions with a statistic as small, by the number of gained ones, (n + 1,); -1: none."""
    gains = np.arange(n + 1)
    observed = _statistic(lost, gained, n, limit) + 1e-9
    low, high = np.full(n + 1, -1), n - gains + 1
    while (apart := high - low > 1).any():  # it rises with the lost ones
        middle = (low + high) // 2
        within = apart & (_statistic(np.maximum(middle, 0), gains, n, limit) <= observed)
        low, high = np.where(within, middle, low), np.where(apart & ~within, middle, high)
    return low


def _chance_within(most: NDArray[np.intp], shares: Array, n: int, limit: float) -> Array:
    """P(lost <= most[gained]) for every share of changed answers, the mean at the limit, (n_shares,)."""
    from scipy.special import bdtr, gammaln, xlog1py, xlogy

    gain, loss = (shares[:, None] - limit) / 2.0, (shares[:, None] + limit) / 2.0
    expected = n * float(gain.max())
    gains = np.arange(min(n, int(expected + _SPREADS * np.sqrt(expected + 1.0)) + 20) + 1)
    ways = gammaln(n + 1) - gammaln(gains + 1) - gammaln(n - gains + 1)
    chance = np.exp(ways + xlogy(gains, gain) + xlog1py(n - gains, -gain))
    rest, most = n - gains, most[gains]
    below = bdtr(np.maximum(most, 0), rest, np.minimum(loss / (1.0 - gain), 1.0))
    below = np.where(most < 0, 0.0, np.where(most >= rest, 1.0, below))
    return np.asarray((chance * below).sum(axis=1))


def hoeffding_bentkus_p_values(losses: Array, limits: float | Array) -> Array:
    """Return the smaller of Hoeffding's and Bentkus's p-value for the mean loss, (n_members,), in [0, 1].

    ``min(exp(-n h(min(R, limit), limit)), e P(Bin(n, limit) <= ceil(n R)))`` with R the mean loss
    (Angelopoulos et al. 2021, "Learn then Test", Eq. 9).
    """
    from scipy.special import rel_entr

    limits, n_questions = _checked(losses, limits), losses.shape[0]
    low = np.minimum(losses.mean(axis=0), limits)
    hoeffding = np.exp(-n_questions * (rel_entr(low, limits) + rel_entr(1.0 - low, 1.0 - limits)))
    # a sum of zeros and ones may miss its whole number by rounding
    reached = np.ceil(losses.sum(axis=0) - 1e-9)
    bentkus = np.e * binomial_cdf(reached, n_questions, limits)
    return np.asarray(np.minimum(1.0, np.minimum(hoeffding, bentkus)))


def binomial_p_values(losses: Array, limits: float | Array) -> Array:
    """Test losses of 0 or 1 exactly: P(Bin(n, limit) <= number of losses), (n_members,), in (0, 1]."""
    limits = _checked(losses, limits)
    if not np.isin(losses, (0.0, 1.0)).all():
        raise UsageError("the exact binomial test needs losses of 0 or 1")
    return binomial_cdf(losses.sum(axis=0), losses.shape[0], limits)


def _checked(losses: Array, limits: float | Array) -> Array:
    """Return a limit for every column; refuse what is no loss or no limit."""
    if losses.ndim != 2 or losses.shape[0] == 0:
        raise UsageError(f"losses must be (n_questions, n_members), found shape {losses.shape}")
    limits = np.broadcast_to(np.asarray(limits, np.float64), losses.shape[1:])
    if not ((limits > 0.0) & (limits < 1.0)).all():
        raise UsageError(f"the limit of a loss in [0, 1] must lie in (0, 1), found {limits!r}")
    if not ((losses >= 0.0) & (losses <= 1.0)).all():
        raise UsageError("losses must lie in [0, 1] and be defined everywhere")
    return limits


# --- exact tails ----------------------------------------------------------------------------------
@lru_cache(maxsize=1 << 14)
def rate_interval(successes: float, trials: float, level: float = 0.05) -> tuple[float, float]:
    """Return Clopper and Pearson's interval of a rate with error at most ``level``; (0, 1) for no trial.

    Whole counts: exact.
    """
    successes, rest = round(successes, 9), round(trials - successes, 9)
    low = beta_quantile(successes, rest + 1, level / 2) if successes else 0.0
    high = beta_quantile(successes + 1, rest, 1 - level / 2) if rest else 1.0
    return low, high


def beta_quantile(a: float, b: float, probability: float) -> float:
    """Return the x where Beta(a, b) reaches ``probability``; a, b > 0."""
    from scipy.special import betaincinv

    return float(betaincinv(a, b, probability))


def binomial_cdf(successes: ArrayLike, trials: ArrayLike, p: ArrayLike) -> Array:
    """Return P(Binomial(trials, p) <= successes), broadcast; p in [0, 1]."""
    from scipy.stats import binom

    return np.asarray(binom.cdf(successes, trials, p))


def student_t_upper(t: ArrayLike, degrees: ArrayLike) -> Array:
    """Return P(T > t) for Student's t with ``degrees`` of freedom, broadcast; 0 at infinity."""
    from scipy.special import stdtr

    return np.asarray(stdtr(degrees, -np.asarray(t, np.float64)))
