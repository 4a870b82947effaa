"""p-values: bad input, monotone in the limit, valid under the hypothesis."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.certifying import most_allowed

from suffice.stats.betting import STAKES, MeanSequence, log_capital
from suffice.stats.p_values import betting_p_values, binomial_p_values, hoeffding_bentkus_p_values

TESTS = (betting_p_values, hoeffding_bentkus_p_values, binomial_p_values)


@pytest.mark.parametrize("test", TESTS)
def test_fewer_losses_and_a_laxer_limit_make_it_smaller(test: object) -> None:
    assert callable(test)
    losses = np.zeros((300, 3))
    losses[::30, 1] = 1.0
    losses[::10, 2] = 1.0
    p, laxer = test(losses, 0.15), test(losses, 0.2)
    if test is betting_p_values:  # a bet goes no further than to its target
        assert p[0] <= 0.05 < p[2]
        assert (laxer <= np.maximum(p, 0.05)).all()
        return
    assert p[0] < p[1] < p[2] < 1
    assert (laxer < p).all()


def by_hand(losses: list[float], limit: float, target: float) -> tuple[float, float]:
    """A gambler's last and greatest capital, question by question."""
    capital, greatest, total, squares = 1.0, 1.0, 0.0, 0.03 * 20
    for seen, loss in enumerate(losses):
        variance = squares / (seen + 20)
        missing = max(np.log(target / capital), 0.0)
        stake = (2 * missing / ((len(losses) - seen) * variance)) ** 0.5
        capital *= 1 + min(stake, 0.98 / (1 - limit)) * (limit - loss)
        greatest = max(greatest, capital)
        total += loss
        squares += (loss - total / (seen + 1)) ** 2
    return capital, greatest


@pytest.mark.parametrize("seed", range(5))
def test_betting_follows_its_definition(seed: int) -> None:
    """One gambler by the greatest capital, several by the greatest mean of the first ones."""
    generator = np.random.default_rng(seed)
    losses = generator.random(40) * 0.45
    found = betting_p_values(losses[:, None], 0.25)[0]
    assert found == pytest.approx(1 / by_hand(losses.tolist(), 0.25, 20 * (1 + 1e-9))[1])
    orders = np.stack([generator.permutation(40) for _ in range(6)])
    capital = [by_hand(losses[order].tolist(), 0.25, 40.0)[0] for order in orders]
    means = [sum(capital[: n + 1]) / (n + 1) for n in range(6)]
    found = betting_p_values(losses[:, None], 0.25, orders=orders)[0]
    assert found == pytest.approx(min(1.0, 1 / max(means)))


@pytest.mark.parametrize("values", [(0.0, 1.0), (0.0, 0.5, 1.0), (0.4, 0.6)])
@pytest.mark.parametrize("gamblers", [1, 10])
def test_betting_is_valid_at_the_limit(values: tuple[float, ...], gamblers: int) -> None:
    """The mean loss is the limit: at most a share delta of 4,000 draws may reach p <= delta."""
    generator = np.random.default_rng(7)
    losses = generator.choice(values, size=(120, 4000))
    orders = np.stack([generator.permutation(120) for _ in range(gamblers)])
    p = betting_p_values(losses, 0.5, orders=orders)
    for delta in (0.05, 0.1, 0.2):
        error = np.sqrt(delta * (1 - delta) / 4000)
        assert (p <= delta).mean() <= delta + 3 * error


Array = NDArray[np.float64]
POPULATIONS = {
    "losses": ((-1.0, 0.0, 1.0), (0.03, 0.9, 0.07)),
    "rare losses": ((-1.0, 0.0, 1.0), (0.0, 0.997, 0.003)),
    "never": ((0.0,), (1.0,)),
    "nearly always": ((0.0, 1.0), (0.01, 0.99)),
    "graded": ((-1.0, -0.4, 0.0, 0.25, 1.0), (0.1, 0.2, 0.3, 0.3, 0.1)),
}


def taken(values: Array, least: float, most: float) -> MeanSequence:
    means = MeanSequence(least, most)
    for value in values:
        means.take(float(value))
    return means


def slow_capital(values: Array, mean: float) -> float:
    """Bet by bet, every gambler by itself; values in [0, 1]."""
    return float(np.mean([math.prod(1 - c + c * value / mean for value in values) for c in STAKES]))


def ever_missed(population: str, runs: int, length: int, level: float, seed: int) -> int:
    """In how many runs the interval left the true mean out at any time."""
    values, odds = (np.array(part) for part in POPULATIONS[population])
    truth = (float(values @ odds) + 1.0) / 2.0  # of values brought from [-1, 1] to [0, 1]
    drawn = np.random.default_rng(seed).choice(len(values), (runs, length), p=odds)
    scaled = (values + 1.0) / 2.0
    missed = np.zeros(runs, bool)
    for side, mean in ((scaled, truth), (1.0 - scaled, 1.0 - truth)):
        won = np.zeros((runs, len(STAKES)))
        factors = np.log1p(STAKES * (side[:, None] / mean - 1.0))
        for step in range(length):
            won += factors[drawn[:, step]]
            missed |= np.exp(won).mean(axis=1) >= 2.0 / level
    return int(missed.sum())


def test_an_end_is_where_bets_have_won_enough() -> None:
    values = np.array([0.0, 1.0, 0.25, 0.25, 1.0, 0.0, 0.5, 0.25] * 6)
    found = taken(values, 0.0, 1.0).at(0.1)
    assert found.estimate == pytest.approx(values.mean())
    assert found.low < found.estimate < found.high
    for side, end in ((values, found.low), (1.0 - values, 1.0 - found.high)):
        assert slow_capital(side, end) >= 20.0 - 1e-6 > slow_capital(side, end + 1e-6)
        distinct, times = np.unique(side, return_counts=True)
        capital = log_capital(distinct, times.astype(float), np.array([end]))
        assert math.exp(capital[0]) == pytest.approx(slow_capital(side, end), rel=1e-9)


def test_without_values_everything_is_possible() -> None:
    nothing = MeanSequence(-1.0, 1.0).at(0.05)
    assert (nothing.count, nothing.low, nothing.high) == (0, -1.0, 1.0)
    assert math.isnan(nothing.estimate)
    zeros = taken(np.zeros(500), 0.0, 1.0).at(0.05)
    assert zeros.low == 0.0
    assert 0.004 < zeros.high < 0.02


@pytest.mark.parametrize("population", POPULATIONS)
def test_it_covers_at_all_times(population: str) -> None:
    assert ever_missed(population, 200, 300, 0.1, seed=1) <= 200 * most_allowed(0.1, 200)


@pytest.mark.slow
@pytest.mark.parametrize("population", POPULATIONS)
def test_it_covers_at_all_times_in_thousands_of_runs(population: str) -> None:
    assert ever_missed(population, 2_000, 2_000, 0.05, seed=2) <= 2_000 * most_allowed(0.05, 2_000)
