from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.stop_rag_twins import q_lambda_of_trajectory

from suffice.errors import UsageError
from suffice.policies.stop_rag.targets import (
    binary_labels,
    informative,
    monte_carlo,
    q_lambda,
    rounds_left,
)

NAN = math.nan
# Four rounds; two rounds that earn nothing; one round; columns past the last are rubbish on purpose.
REWARDS = [[0.2, 0.6, 0.4, 0.5], [0.0, 0.0, 0.9, NAN], [0.7, 9.0, 9.0, 9.0]]
LENGTHS = [4, 2, 1]
Q_STOP = [[9.0, 0.5, 0.3, 9.0], [9.0, 9.0, NAN, NAN], [NAN] * 4]
Q_CONT = [[9.0, 0.7, 0.45, 9.0], [9.0, 9.0, NAN, NAN], [NAN] * 4]


def q(lam: float) -> NDArray[np.float64]:
    return q_lambda(REWARDS, LENGTHS, Q_STOP, Q_CONT, lam)


def test_monte_carlo_by_hand() -> None:
    # s_1: max(0.6, 0.4, 0.5); s_2: max(0.4, 0.5); s_3 goes on to s_4 and earns 0.5
    wanted = [[0.6, 0.5, 0.5, NAN], [0.0, NAN, NAN, NAN], [NAN] * 4]
    np.testing.assert_array_equal(monte_carlo(REWARDS, LENGTHS), wanted)


def test_q_lambda_by_hand() -> None:
    """λ = 1/2.

    s_3: 0.5.
    s_2: 1/2 max(0.3, 0.45) + 1/2 max(0.4, 0.5) = 0.225 + 0.25.
    s_1: 1/2 max(0.5, 0.7) + 1/4 max(0.6, 0.3, 0.45) + 1/4 max(0.6, 0.4, 0.5) = 0.35 + 0.15 + 0.15.
    """
    wanted = [[0.65, 0.475, 0.5, NAN], [0.0, NAN, NAN, NAN], [NAN] * 4]
    np.testing.assert_allclose(q(0.5), wanted, rtol=1e-15)


def test_q_lambda_at_both_ends_of_lambda() -> None:
    np.testing.assert_array_equal(q(1.0), monte_carlo(REWARDS, LENGTHS))
    np.testing.assert_array_equal(q(0.0)[0], [0.7, 0.45, 0.5, NAN])


def test_weights_of_long_trajectories() -> None:
    """A network that says 1 where every reward is 0: all but the weight of the full return."""
    ones, zeros = np.ones((1, 10)), np.zeros((1, 10))
    found = q_lambda(zeros, [10], ones, ones, 0.9)
    np.testing.assert_allclose(found[0, :9], [1 - 0.9 ** (9 - t) for t in range(1, 10)], atol=1e-15)


def test_informative_states() -> None:
    assert informative(REWARDS, LENGTHS).tolist() == [
        [True, True, True, False],
        [False] * 4,
        [False] * 4,
    ]
    # nothing now but something later, and the other way round
    assert informative([[0.0, 0.1, 0.0]], [3]).tolist() == [[True, True, False]]


def test_binary_labels() -> None:
    np.testing.assert_array_equal(binary_labels(REWARDS, LENGTHS)[0], [0.0, 1.0, 0.0, NAN])
    np.testing.assert_array_equal(binary_labels([[0.5, 0.5]], [2]), [[0.0, NAN]])


def test_undefined_rewards_make_nothing_to_learn() -> None:
    rewards = [[0.3, NAN, 0.5, 0.2]]
    np.testing.assert_array_equal(monte_carlo(rewards, [4]), [[NAN, 0.5, 0.2, NAN]])
    assert informative(rewards, [4]).tolist() == [[False, False, True, False]]
    np.testing.assert_array_equal(binary_labels(rewards, [4]), [[NAN, NAN, 1.0, NAN]])
    found = q_lambda(rewards, [4], np.ones((1, 4)), np.ones((1, 4)), 0.5)
    np.testing.assert_array_equal(np.isnan(found), [[True, False, False, True]])


def test_many_trajectories_are_cut_in_blocks_unseen() -> None:
    rng = np.random.default_rng(0)
    n = 2 * 2048 + 1
    rewards, q_stop, q_cont = rng.random((3, n, 5))
    lengths = rng.integers(1, 6, n)
    found = q_lambda(rewards, lengths, q_stop, q_cont, 0.6)
    for row in (0, 2047, 2048, 4095, 4096):
        length = lengths[row]
        r, stop, cont = (each[row, :length].tolist() for each in (rewards, q_stop, q_cont))
        wanted = q_lambda_of_trajectory(r, stop, cont, 0.6)
        np.testing.assert_allclose(found[row, : length - 1], wanted, rtol=1e-14)
        assert np.isnan(found[row, length - 1 :]).all()


def test_no_trajectories() -> None:
    none = np.empty((0, 3))
    assert q_lambda(none, [], none, none, 0.5).shape == (0, 3)
    assert informative(none, []).shape == (0, 3)


def test_rounds_left() -> None:
    assert rounds_left([3, 1], (2, 3)).tolist() == [[2, 1, 0], [0, -1, -2]]
    assert rounds_left(np.array([2], np.uint8), (1, 3)).tolist() == [[1, 0, -1]]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: monte_carlo([0.1, 0.2], [2]), r"must be \(n, T\), found shape \(2,\)"),
        (lambda: monte_carlo([[0.1, 0.2]], [2, 2]), r"\(1,\), found shape \(2,\)"),
        (lambda: monte_carlo([[0.1, 0.2]], [3]), "from 1 to the 2 rounds there are, found 3 to 3"),
        (lambda: monte_carlo([[0.1, 0.2]], [0]), "found 0 to 0"),
        (lambda: monte_carlo([[0.1, 0.2]], [1.5]), "whole numbers, found float64"),
        (
            lambda: q_lambda([[0.1]], [1], [[0.1, 0.2]], [[0.1]], 0.5),
            r"found \(1, 2\) and \(1, 1\)",
        ),
        (
            lambda: q_lambda([[0.1]], [1], [[0.1]], [[0.1, 0.2]], 0.5),
            r"found \(1, 1\) and \(1, 2\)",
        ),
        (lambda: q_lambda([[0.1]], [1], [[0.1]], [[0.1]], 1.01), "from 0 to 1, found 1.01"),
        (lambda: q_lambda([[0.1]], [1], [[0.1]], [[0.1]], -0.1), "from 0 to 1, found -0.1"),
        (lambda: q_lambda([[0.1]], [1], [[0.1]], [[0.1]], NAN), "from 0 to 1, found nan"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        call()
