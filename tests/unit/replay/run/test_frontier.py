"""The fixed-k frontier against a plain search for the two neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.replay.run.frontier import interpolate


def slow(costs: list[float], scores: list[float], at: float) -> float:
    at = max(at, costs[0])
    for left in range(len(costs) - 1):
        if costs[left] <= at < costs[left + 1]:
            share = (at - costs[left]) / (costs[left + 1] - costs[left])
            return scores[left] + share * (scores[left + 1] - scores[left])
    return scores[-1]


@given(
    steps=st.lists(st.just(0.0) | st.floats(0.25, 3.0), min_size=1, max_size=5),
    scores=st.lists(st.floats(0, 1), min_size=5, max_size=5),
    at=st.floats(0, 20),
)
def test_it_equals_a_search(steps: list[float], scores: list[float], at: float) -> None:
    costs = np.cumsum(steps)
    ordered = scores[: len(steps)]
    for each in [at, *costs.tolist()]:
        found = interpolate(costs[None, :], np.array([ordered]), np.array([each]))
        assert found[0] == pytest.approx(slow(costs.tolist(), ordered, each), abs=1e-9)


def test_it_is_the_random_mix_of_the_neighbours() -> None:
    costs, scores = np.array([[1.0, 2.0, 3.0]]), np.array([[0.3, 0.5, 0.4]])
    for at, expected in [(0.5, 0.3), (1.0, 0.3), (1.5, 0.4), (2.0, 0.5), (2.25, 0.475), (9.0, 0.4)]:
        assert interpolate(costs, scores, np.array([at]))[0] == pytest.approx(expected)


def test_of_fixed_budgets_at_equal_cost_the_longest_stands() -> None:
    scores = np.array([[0.1, 0.2, 0.3, 0.4, 0.5]])
    costs = np.array([[1.0, 1.0, 2.0, 2.0, 2.0]])
    for at, expected in [(0.0, 0.2), (1.0, 0.2), (1.5, 0.25), (2.0, 0.5), (3.0, 0.5)]:
        assert interpolate(costs, scores, np.array([at]))[0] == pytest.approx(expected)
    free = np.zeros((1, 5))
    assert [interpolate(free, scores, np.array([at]))[0] for at in (0.0, 2.0)] == [0.5, 0.5]


def test_no_upper_hull_is_taken() -> None:
    """A budget that costs more and scores less stays on the frontier."""
    costs, scores = np.array([[1.0, 2.0, 3.0]]), np.array([[0.6, 0.2, 0.8]])
    assert interpolate(costs, scores, np.array([1.5]))[0] == pytest.approx(0.4)


def test_rows_are_independent() -> None:
    costs = np.array([[1.0, 2.0], [1.0, 1.0]])
    scores = np.array([[0.0, 1.0], [0.2, 0.8]])
    assert interpolate(costs, scores, np.array([1.5, 1.0])).tolist() == [0.5, 0.8]
    assert interpolate(costs[:, :1], scores[:, :1], np.array([5.0, 0.0])).tolist() == [0.0, 0.2]
