"""p-values for "the expected loss is above the limit", one a column of losses.

Each tests H: E[loss] > limit against E[loss] <= limit over independent questions and is valid at any
sample size: P(p <= u) <= u under H. Small means that the limit is kept.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.numbers.tests.tails import binomial_cdf


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


_BET_CAP = 0.75
_LEAST_VARIANCE = 1e-6
_MOST_CAPITAL = 1e200
_BLOCK = 2048  # members whose gamblers stay in cache together


def betting_p_values(
    losses: NDArray[np.float64],
    limit: float,
    *,
    delta: float = 0.05,
    prior_variance: NDArray[np.float64] | None = None,
    prior_weight: float = 1.0,
) -> NDArray[np.float64]:
    """Test by betting on bounded losses (Waudby-Smith and Ramdas 2024, sections 3.2 and 4).

    A gambler starts with one unit and bets before each question that its loss is below the limit;
    under H no strategy gains in expectation, so by Ville's inequality the inverse of the greatest
    capital is a p-value. The stake is ``sqrt(2 log(1 / delta) / (n v))`` with v the variance of
    earlier losses, which suits a test at level delta with n questions; it never exceeds 3/4 of what
    ruin would take.

    Parameters
    ----------
    losses
        (n_questions, n_members) in [0, 1], in an order that does not depend on them.
    limit
        In (0, 1).
    delta
        The level that will be tested at.
    prior_variance, prior_weight
        (n_members,), of losses of other questions, and how many those were: known before the first
        bet. Default: 0.25, the greatest possible, as if seen once.

    Returns
    -------
    (n_members,), in (0, 1].
    """
    _check(losses, limit)
    n_members = losses.shape[1]
    prior = np.full(n_members, 0.25) if prior_variance is None else prior_variance
    parts = [
        _betting(
            losses[:, start : start + _BLOCK],
            limit,
            delta,
            prior[start : start + _BLOCK],
            prior_weight,
        )
        for start in range(0, n_members, _BLOCK)
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def _betting(
    losses: NDArray[np.float64],
    limit: float,
    delta: float,
    prior: NDArray[np.float64],
    weight: float,
) -> NDArray[np.float64]:
    n_questions, n_members = losses.shape
    capital, greatest = np.ones(n_members), np.ones(n_members)
    most = _BET_CAP / (1.0 - limit)
    aim = 2.0 * np.log(1.0 / delta) / n_questions
    total = np.zeros(n_members)
    squares = np.maximum(prior, _LEAST_VARIANCE) * weight
    for index in range(n_questions):
        loss = losses[index]
        stake = np.minimum(np.sqrt(aim * (index + weight) / squares), most)
        capital *= 1.0 + stake * (limit - loss)
        np.minimum(capital, _MOST_CAPITAL, out=capital)  # less than won: still a valid bet
        np.maximum(greatest, capital, out=greatest)
        total += loss
        squares += (loss - total / (index + 1.0)) ** 2
    return np.asarray(1.0 / greatest)


def hoeffding_bentkus_p_values(losses: NDArray[np.float64], limit: float) -> NDArray[np.float64]:
    """The smaller of Hoeffding's (relative entropy) and Bentkus's bound on the mean loss.

    ``min(exp(-n h(min(R, limit), limit)), e P(Bin(n, limit) <= ceil(n R)))`` with R the mean loss
    (Angelopoulos et al. 2021, "Learn then Test", Eq. 9).

    Parameters
    ----------
    losses
        (n_questions, n_members) in [0, 1].
    limit
        In (0, 1).

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

    Parameters
    ----------
    losses
        (n_questions, n_members), 0 or 1.
    limit
        In (0, 1).

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
