"""p-values: bad input, monotone in the limit, valid under the hypothesis."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.stats.p_values import (
    betting_p_values,
    binomial_p_values,
    fisher_p_value,
    hoeffding_bentkus_p_values,
    welch_p_value,
)

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


def test_two_groups_are_compared_as_scipy_does() -> None:
    stats = pytest.importorskip("scipy.stats")
    for first, second in (((3, 4), (1, 4)), ((10, 40), (2, 50)), ((0, 5), (5, 5))):
        table = [[has, size - has] for has, size in (first, second)]
        expected = stats.fisher_exact(table).pvalue
        assert fisher_p_value(first, second) == pytest.approx(expected)
    generator = np.random.default_rng(4)
    some, others = generator.normal(0.0, 1.0, 20), generator.normal(0.5, 2.0, 9)
    expected = stats.ttest_ind(some, others, equal_var=False).pvalue
    assert welch_p_value(some, others) == pytest.approx(expected)
