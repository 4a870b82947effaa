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


@pytest.mark.parametrize(("at_once", "later"), [(1.0, 0.5), (0.0, 1.0)])
def test_totals_of_many_questions_do_not_overflow(at_once: float, later: float) -> None:
    n = 1000
    differences = np.tile([[0.5, 0.0]], (n, 1))
    differences[-1] = 0.25
    rewards = np.tile([[at_once, later]], (n, 1))
    found = choose_threshold(differences, rewards, np.full(n, 2), ends=True)
    assert (found.score, found.mean_rounds) == (1.0, 1.0 + (later > at_once))
