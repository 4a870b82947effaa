from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from suffice.errors import UsageError
from suffice.policies.stop_rag.threshold import choose_threshold, stop_rounds

NAN = math.nan


def test_the_first_round_that_exceeds_else_the_last() -> None:
    differences = [[0.1, 0.3, 0.2, 9.0], [0.3, 0.9, NAN, NAN], [0.0, NAN, 0.21, 9.0], [9.0] * 4]
    found = stop_rounds(differences, [4, 2, 4, 1], 0.2)
    assert found.tolist() == [2, 1, 3, 1]
    assert found.dtype == np.int16
    # equal does not exceed
    assert stop_rounds(differences, [4, 2, 4, 1], 0.3).tolist() == [4, 2, 4, 1]
    assert stop_rounds(differences, [4, 2, 4, 1], -math.inf).tolist() == [1, 1, 1, 1]
    assert stop_rounds(np.empty((0, 3)), [], 0.2).shape == (0,)


# Stopping pays in the first question only, and there in round 2.
DIFFERENCES = [[0.1, 0.5, 0.0], [0.3, 0.2, 0.0], [7.0, NAN, NAN]]
REWARDS = [[0.0, 1.0, 0.5], [0.25, 0.25, 0.75], [0.5, NAN, 5.0]]
LENGTHS = [3, 3, 1]


def test_by_hand() -> None:
    """Stops by threshold: below 0.1 rounds 1, 1; from 0.1 on 2, 1; from 0.3 on 2, 3; from 0.5 on 3, 3."""
    found = choose_threshold(DIFFERENCES, REWARDS, LENGTHS, ends=False)
    assert found.threshold == pytest.approx(0.4)
    assert found.score == (1.0 + 0.75 + 0.5) / 3
    assert found.mean_rounds == 2.0
    assert found.candidates == 3  # 0.15, 0.25, 0.4; the question of one round decides nothing


def test_of_equal_ones_the_earlier_and_then_the_lower() -> None:
    # 0.15 and 0.25 stop alike, for 0.2 never decides; 0.4 earns the same later
    rewards = [[0.0, 1.0, 0.5], [0.75, 0.25, 0.75], [0.5, NAN, 5.0]]
    found = choose_threshold(DIFFERENCES, rewards, LENGTHS, ends=False)
    assert found.threshold == pytest.approx(0.15)
    assert found.mean_rounds == (2 + 1 + 1) / 3


def test_equal_means_are_equal_whatever_floats_say() -> None:
    """0.3 + 0 at once and 0.1 + 0.2 later, which is more in floats, exactly added or not."""
    assert math.fsum([0.1, 0.2]) > 0.3
    rewards = [[0.3, 0.1], [0.0, 0.2]]
    found = choose_threshold([[0.5, 0.0]] * 2, rewards, [2, 2], ends=True)
    assert (found.threshold, found.mean_rounds) == (-0.5, 1.0)
    # a difference that means something is none of these
    rewards[1][1] += 1e-9
    found = choose_threshold([[0.5, 0.0]] * 2, rewards, [2, 2], ends=True)
    assert (found.threshold, found.mean_rounds) == (1.5, 2.0)


def test_ends_stop_at_once_and_never() -> None:
    differences = [[0.25, 0.5, 0.0], [0.5, 0.75, 0.0]]
    falling, rising = [[1.0, 0.5, 0.25]] * 2, [[0.25, 0.5, 1.0]] * 2
    found = choose_threshold(differences, falling, [3, 3], ends=True)
    assert (found.threshold, found.score, found.mean_rounds) == (-0.75, 1.0, 1.0)
    found = choose_threshold(differences, rising, [3, 3], ends=True)
    assert (found.threshold, found.score, found.mean_rounds) == (1.75, 1.0, 3.0)
    assert found.candidates == 4
    # without them the nearest
    found = choose_threshold(differences, falling, [3, 3], ends=False)
    assert (found.threshold, found.mean_rounds, found.candidates) == (0.375, 1.5, 2)
    found = choose_threshold(differences, rising, [3, 3], ends=False)
    assert (found.threshold, found.mean_rounds, found.candidates) == (0.625, 2.5, 2)


def test_without_a_midpoint_the_ends_are_tried() -> None:
    found = choose_threshold([[0.5, 0.0]] * 3, [[0.2, 0.9]] * 3, [2, 2, 2], ends=False)
    assert (found.threshold, found.mean_rounds, found.candidates) == (1.5, 2.0, 2)
    found = choose_threshold([[0.5, 0.0]] * 3, [[0.9, 0.2]] * 3, [2, 2, 2], ends=False)
    assert (found.threshold, found.mean_rounds) == (-0.5, 1.0)


def test_neighbouring_floats_are_still_told_apart() -> None:
    """A midpoint that rounds up to the upper one would stop neither."""
    low, high = math.nextafter(1.0, 2.0), math.nextafter(math.nextafter(1.0, 2.0), 2.0)
    assert low / 2 + high / 2 == high
    rewards = [[0.0, 1.0], [1.0, 0.0]]
    found = choose_threshold([[low, 0.0], [high, 0.0]], rewards, [2, 2], ends=False)
    assert (found.threshold, found.score) == (low, 1.0)


@pytest.mark.parametrize("size", [1.7e308, 1e300, 2.0**53])
def test_ends_beyond_large_differences(size: float) -> None:
    differences = [[-size, 0.0], [size, 0.0]]
    found = choose_threshold(differences, [[1.0, 0.0]] * 2, [2, 2], ends=True)
    assert found.mean_rounds == 1.0
    assert math.isfinite(found.threshold)
    found = choose_threshold(differences, [[0.0, 1.0]] * 2, [2, 2], ends=True)
    assert found.mean_rounds == 2.0
    assert math.isfinite(found.threshold)


def test_midpoints_of_large_differences() -> None:
    differences = [[1.6e308, 0.0], [1.7e308, 0.0]]
    found = choose_threshold(differences, [[0.0, 1.0], [1.0, 0.0]], [2, 2], ends=False)
    assert found.threshold == pytest.approx(1.65e308)
    assert found.score == 1.0


@pytest.mark.parametrize(("at_once", "later"), [(1.0, 0.5), (0.0, 1.0)])
def test_totals_of_many_questions_do_not_overflow(at_once: float, later: float) -> None:
    n = 1000
    differences = np.tile([[0.5, 0.0]], (n, 1))
    differences[-1] = 0.25
    rewards = np.tile([[at_once, later]], (n, 1))
    found = choose_threshold(differences, rewards, np.full(n, 2), ends=True)
    assert (found.score, found.mean_rounds) == (1.0, 1.0 + (later > at_once))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: choose_threshold([[0.5, 0.1]], [[0.5, 0.1]], [1], ends=True),
            "no trajectory has two rounds",
        ),
        (
            lambda: choose_threshold(np.empty((0, 2)), np.empty((0, 2)), [], ends=True),
            "no trajectory has two rounds",
        ),
        (
            lambda: choose_threshold([[0.1, 0.1]] * 2, [[0.1] * 3] * 2, [2, 2], ends=True),
            r"shape \(2, 2\) of the differences, found \(2, 3\)",
        ),
        (
            lambda: choose_threshold([[0.1, 0], [NAN, 0]], [[0.1, 0.1]] * 2, [2, 2], ends=True),
            "must be finite, found nan in round 1 of trajectory 1",
        ),
        (
            lambda: choose_threshold([[0.1, math.inf, 0]], [[0.1] * 3], [3], ends=True),
            "must be finite, found inf in round 2 of trajectory 0",
        ),
        (
            lambda: choose_threshold([[0.1, -np.finfo(float).max, 0]], [[0.1] * 3], [3], ends=True),
            r"must be finite, found -1.79\S+e\+308 in round 2",
        ),
        (
            lambda: choose_threshold([[0.1, 0.2]], [[0.1, NAN]], [2], ends=True),
            r"in \[0, 1\], found nan in round 2 of trajectory 0 .* not usable",
        ),
        (
            lambda: choose_threshold([[0.1, 0.2]], [[1.1, 0.2]], [2], ends=True),
            "found 1.1 in round 1",
        ),
        (lambda: stop_rounds([[0.1, 0.2]], [2], NAN), "must be a number, found nan"),
        (lambda: stop_rounds([0.1, 0.2], [2], 0.0), r"must be \(n, T\)"),
    ],
)
def test_what_does_not_fit_is_refused(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        call()
