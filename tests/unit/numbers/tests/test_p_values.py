"""p-values: bad input, monotone in the limit, valid under the hypothesis."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.errors import UsageError
from suffice.numbers.tests.p_values import (
    betting_p_values,
    binomial_p_values,
    fixed_sequence,
    hoeffding_bentkus_p_values,
    holm,
)

TESTS = (betting_p_values, hoeffding_bentkus_p_values, binomial_p_values)


@pytest.mark.parametrize("test", TESTS)
def test_bad_input_is_refused(test: object) -> None:
    assert callable(test)
    losses = np.zeros((4, 2))
    for limit in (0.0, 1.0, -0.1, float("nan")):
        with pytest.raises(UsageError, match="limit"):
            test(losses, limit)
    with pytest.raises(UsageError, match="shape"):
        test(np.zeros((0, 2)), 0.1)
    for bad in (np.nan, 1.5, -0.5):
        with pytest.raises(UsageError, match="defined everywhere"):
            test(np.full((4, 2), bad), 0.1)


def test_the_exact_test_wants_zeros_and_ones() -> None:
    with pytest.raises(UsageError, match="0 or 1"):
        binomial_p_values(np.full((4, 1), 0.5), 0.1)


@pytest.mark.parametrize("test", TESTS)
def test_fewer_losses_and_a_laxer_limit_make_it_smaller(test: object) -> None:
    assert callable(test)
    losses = np.zeros((300, 3))
    losses[::30, 1] = 1.0
    losses[::10, 2] = 1.0
    p = test(losses, 0.15)
    assert p[0] < p[1] < p[2] < 1
    assert (test(losses, 0.2) < p).all()


def test_many_members_are_the_same_as_one_at_a_time() -> None:
    losses = np.random.default_rng(1).random((50, 4100)) * 0.2
    together = betting_p_values(losses, 0.15)
    alone = [betting_p_values(losses[:, [n]], 0.15)[0] for n in (0, 2047, 2048, 4099)]
    assert together[[0, 2047, 2048, 4099]].tolist() == alone


def test_betting_follows_its_definition() -> None:
    """One column, step by step, with and without what other questions showed."""
    losses = np.random.default_rng(2).random(30) * 0.3
    for prior, weight in ((None, 1.0), (0.01, 20.0)):
        limit, capital, greatest, total = 0.25, 1.0, 1.0, 0.0
        squares = (0.25 if prior is None else prior) * weight
        for seen, loss in enumerate(losses, start=1):
            variance = squares / (seen - 1 + weight)
            stake = min((2 * np.log(20) / (30 * variance)) ** 0.5, 0.75 / 0.75)
            capital *= 1 + stake * (limit - loss)
            greatest = max(greatest, capital)
            total += loss
            squares += (loss - total / seen) ** 2
        given = None if prior is None else np.array([prior])
        found = betting_p_values(losses[:, None], limit, prior_variance=given, prior_weight=weight)
        assert found[0] == pytest.approx(1 / greatest)


@pytest.mark.parametrize("values", [(0.0, 1.0), (0.0, 0.5, 1.0), (0.4, 0.6)])
def test_betting_is_valid_at_the_limit(values: tuple[float, ...]) -> None:
    """The mean loss is the limit: at most a share delta of 4,000 draws may reach p <= delta."""
    generator = np.random.default_rng(7)
    losses = generator.choice(values, size=(120, 4000))
    p = betting_p_values(losses, 0.5)
    for delta in (0.05, 0.1, 0.2):
        error = np.sqrt(delta * (1 - delta) / 4000)
        assert (p <= delta).mean() <= delta + 3 * error


def test_no_member_is_no_p_value() -> None:
    assert betting_p_values(np.zeros((3, 0)), 0.5).shape == (0,)


def test_holm_and_fixed_sequence_keep_their_order() -> None:
    p = np.array([0.04, 0.001, 0.9])
    assert holm(p).tolist() == [0.08, 0.003, 0.9]
    assert fixed_sequence(p, 0.05).tolist() == [True, True, False]
    assert fixed_sequence(np.array([0.9, 0.0]), 0.05).tolist() == [False, False]
    with pytest.raises(UsageError, match=r"\[0, 1\]"):
        holm(np.array([np.nan]))
