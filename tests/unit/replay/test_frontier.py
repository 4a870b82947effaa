"""The fixed-k frontier against a plain search for the two neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.replay.frontier import interpolate


def slow(costs: list[float], scores: list[float], at: float) -> float:
    if at <= costs[0]:
        return scores[0]
    for left in range(len(costs) - 1):
        if costs[left] < at <= costs[left + 1]:
            share = (at - costs[left]) / (costs[left + 1] - costs[left])
            return scores[left] + share * (scores[left + 1] - scores[left])
    return scores[-1]


@given(
    steps=st.lists(st.floats(0.25, 3.0), min_size=1, max_size=5),
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


def test_rows_are_independent_and_equal_costs_do_no_harm() -> None:
    costs = np.array([[1.0, 2.0], [1.0, 1.0]])
    scores = np.array([[0.0, 1.0], [0.2, 0.8]])
    found = interpolate(costs, scores, np.array([1.5, 1.0]))
    assert found[0] == 0.5
    assert found[1] in (0.2, 0.8)
    assert interpolate(costs[:, :1], scores[:, :1], np.array([5.0, 0.0])).tolist() == [0.0, 0.2]
