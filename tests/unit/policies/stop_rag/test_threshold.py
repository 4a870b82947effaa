from __future__ import annotations

import math

import numpy as np
import pytest

from suffice.policies.stop_rag.targets import choose_threshold

# Stopping pays in the first question only, and there in round 2.


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


def test_neighbouring_floats_are_still_told_apart() -> None:
    """A midpoint that rounds up to the upper one would stop neither."""
    low, high = math.nextafter(1.0, 2.0), math.nextafter(math.nextafter(1.0, 2.0), 2.0)
    assert low / 2 + high / 2 == high
    rewards = [[0.0, 1.0], [1.0, 0.0]]
    found = choose_threshold([[low, 0.0], [high, 0.0]], rewards, [2, 2], ends=False)
    assert (found.threshold, found.score) == (low, 1.0)


@pytest.mark.parametrize(("at_once", "later"), [(1.0, 0.5), (0.0, 1.0)])
def test_totals_of_many_questions_do_not_overflow(at_once: float, later: float) -> None:
    n = 1000
    differences = np.tile([[0.5, 0.0]], (n, 1))
    differences[-1] = 0.25
    rewards = np.tile([[at_once, later]], (n, 1))
    found = choose_threshold(differences, rewards, np.full(n, 2), ends=True)
    assert (found.score, found.mean_rounds) == (1.0, 1.0 + (later > at_once))
