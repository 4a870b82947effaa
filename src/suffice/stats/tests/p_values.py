"""p-values for "the expected loss is above the limit", one a column of losses.

Each tests H: E[loss] > limit against E[loss] <= limit over independent questions and is valid at any
sample size: P(p <= u) <= u under H. Small means that the limit is kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.stats.tests.tails import binomial_cdf


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Holm's step-down adjusted p-values, (n,), in the order given.

    Rejecting where they are at most delta keeps the chance of any false rejection at most delta,
    however the tests depend on each other (Holm 1979).

    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
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


def fixed_sequence(p_values: NDArray[np.float64], delta: float) -> NDArray[np.bool_]:
    """Which hypotheses are rejected when tested in the order given until the first failure, (n,).

    The chance of any false rejection is at most delta, each test at the full level; the order must
    not depend on the data of the tests (Angelopoulos et al. 2021, "Learn then Test", section 3).

    >>> fixed_sequence(np.array([0.01, 0.04, 0.2, 0.001]), 0.05).tolist()
    [True, True, False, False]
    """
    return np.logical_and.accumulate(np.asarray(p_values, np.float64) <= delta)


_MOST_STAKED = 0.98
"""Share of what ruin would take that is staked at most."""
_PRIOR_VARIANCE, _PRIOR_WEIGHT = 0.03, 20.0
_AIM = 2.0
"""Times the target that a gambler aims at whose capital is averaged with others'."""
_CELLS = 1 << 14  # gamblers that stay in cache together


def betting_p_values(
    losses: NDArray[np.float64],
    limit: float,
    *,
    delta: float = 0.05,
    orders: NDArray[np.intp] | None = None,
) -> NDArray[np.float64]:
    """Test by betting on bounded losses.

    A gambler starts with one unit and bets before each question that its loss is below the limit; under H
    no strategy gains in expectation (Waudby-Smith and Ramdas 2024). The stake is
    ``sqrt(2 log(target / capital) / (n left * v))`` with v the variance of earlier losses, which suits a
    test with n questions (STaR bets, Voracek and Orabona 2025), and stays below ruin. Who has reached the
    target stops.

    One gambler's greatest capital is the inverse of a p-value (Ville). Of several, each with the questions
    in an order of its own, it is the greatest mean capital of the first one, two, ... (Ramdas and Manole
    2025, exchangeable e-values): the outcome hangs less on the order.

    Returns
    -------
    (n_members,), in (0, 1].
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


def _betting(
    losses: NDArray[np.float64], limit: float, target: float, orders: NDArray[np.intp]
) -> NDArray[np.float64]:
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


def hoeffding_bentkus_p_values(losses: NDArray[np.float64], limit: float) -> NDArray[np.float64]:
    """The smaller of Hoeffding's (relative entropy) and Bentkus's bound on the mean loss.

    ``min(exp(-n h(min(R, limit), limit)), e P(Bin(n, limit) <= ceil(n R)))`` with R the mean loss
    (Angelopoulos et al. 2021, "Learn then Test", Eq. 9).

    Returns
    -------
    (n_members,), in [0, 1].
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


def _relative_entropy(mean: NDArray[np.float64], limit: float) -> NDArray[np.float64]:
    """Of Bernoulli(mean) from Bernoulli(limit), with 0 log 0 = 0."""
    some = np.where(mean > 0, mean, 1.0)
    rest = np.where(mean < 1, 1.0 - mean, 1.0)
    value = np.where(mean > 0, mean * np.log(some / limit), 0.0) + np.where(
        mean < 1, rest * np.log(rest / (1.0 - limit)), 0.0
    )
    return np.asarray(np.maximum(value, 0.0))


def binomial_p_values(losses: NDArray[np.float64], limit: float) -> NDArray[np.float64]:
    """The exact test of losses that are 0 or 1: P(Bin(n, limit) <= number of losses).

    Returns
    -------
    (n_members,), in (0, 1].
    """
    _check(losses, limit)
    if not np.isin(losses, (0.0, 1.0)).all():
        raise UsageError("the exact binomial test needs losses of 0 or 1")
    counts, member = np.unique(losses.sum(axis=0), return_inverse=True)
    return np.asarray(binomial_cdf(counts, losses.shape[0], limit)[member])


def _check(losses: NDArray[np.float64], limit: float) -> None:
    if not 0.0 < limit < 1.0:
        raise UsageError(f"the limit of a loss in [0, 1] must lie in (0, 1), found {limit!r}")
    if losses.ndim != 2 or losses.shape[0] == 0:
        raise UsageError(f"losses must be (n_questions, n_members), found shape {losses.shape}")
    if not ((losses >= 0.0) & (losses <= 1.0)).all():
        raise UsageError("losses must lie in [0, 1] and be defined everywhere")
