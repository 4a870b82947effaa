"""The fixed-k frontier, and the best mix of two budgets, each against a plain search."""

from __future__ import annotations

import time
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from suffice.evaluation.replay.frontier import BestMix, Frontier, best_mix, interpolate, of_mix

Array = NDArray[np.float64]


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


@pytest.mark.parametrize(
    ("costs", "scores", "at", "expected"),
    [
        ([1.0, 2.0, 3.0], [0.3, 0.5, 0.4], [0.5, 1.5, 2.25, 9.0], [0.3, 0.4, 0.475, 0.4]),
        # a budget that costs more and scores less stays; as run fixed-2 may cost less than fixed-1
        ([1.0, 2.0, 3.0], [0.6, 0.2, 0.8], [1.5], [0.4]),
        ([2.0, 1.0, 4.0], [0.5, 0.1, 0.9], [0.0, 1.5, 3.0, 9.0], [0.1, 0.3, 0.7, 0.9]),
        # of equal cost the longest stands
        ([1.0, 1.0, 2.0, 2.0], [0.1, 0.2, 0.4, 0.5], [0.0, 1.0, 1.5, 3.0], [0.2, 0.2, 0.3, 0.5]),
        ([0.0, 0.0], [0.1, 0.5], [0.0, 2.0], [0.5, 0.5]),
        ([1.0], [0.2], [0.0, 5.0], [0.2, 0.2]),
    ],
)
def test_the_frontier_by_hand(
    costs: list[float], scores: list[float], at: list[float], expected: list[float]
) -> None:
    paid, reached = (np.tile(of, (len(at), 1)) for of in (costs, scores))
    assert interpolate(paid, reached, np.array(at)).tolist() == pytest.approx(expected)


def best(costs: list[float], scores: list[float], at: float) -> tuple[float, str]:
    found = best_mix(np.array([costs]), np.array([scores]), np.array([at]))
    return round(float(found.score[0]), 9), found.names[0]


_NUMBERS = st.lists(st.integers(0, 6).map(float), min_size=4, max_size=4)


@given(costs=_NUMBERS, scores=st.lists(st.floats(0, 1), min_size=4, max_size=4), at=st.floats(0, 8))
def test_the_line_of_the_best_mixes_is_theirs(
    costs: list[float], scores: list[float], at: float
) -> None:
    line = Frontier(cost_name="calls", costs=tuple(costs), scores=tuple(scores)).best
    across, up = zip(*line, strict=True)
    assert np.interp(at, across, up) == pytest.approx(best(costs, scores, at)[0], abs=1e-9)


@given(costs=_NUMBERS, scores=st.lists(st.floats(0, 1), min_size=4, max_size=4), at=st.floats(0, 8))
def test_a_mix_held_scores_what_it_was_chosen_for(
    costs: list[float], scores: list[float], at: float
) -> None:
    """At the cost that it was chosen at; past its ends it is the nearer budget."""
    rows, of_rows = np.array([costs]), np.array([scores])
    found = best_mix(rows, of_rows, np.array([at]))
    spent = np.array([max(at, min(costs))])
    assert of_mix(rows, of_rows, spent, found)[0] == pytest.approx(found.score[0], abs=1e-9)
    low, high = int(found.low[0]), int(found.high[0])
    assert of_mix(rows, of_rows, np.array([-1.0]), found)[0] == pytest.approx(scores[low])
    assert of_mix(rows, of_rows, np.array([99.0]), found)[0] == pytest.approx(scores[high])


def every_mix(costs: Array, scores: Array, at: Array) -> BestMix:
    """The best of all pairs, tried one after the other."""
    known = np.flatnonzero(~np.isnan(scores).all(axis=0)).tolist()
    spent = np.maximum(at, costs[:, known].min(axis=1))
    n_rows = len(costs)
    best = BestMix(np.full(n_rows, -np.inf), np.zeros(n_rows, int), np.zeros(n_rows, int))
    for low, high in product(known, repeat=2):
        width = costs[:, high] - costs[:, low]
        share = np.where(
            low == high, 0.0, (spent - costs[:, low]) / np.where(width > 0, width, 1.0)
        )
        mixed = scores[:, low] + share * (scores[:, high] - scores[:, low])
        alone = (low == high) & (costs[:, low] <= spent)
        better = (alone | ((width > 0) & (share >= 0) & (share < 1))) & (mixed > best.score + 1e-12)
        best.score[better], best.low[better], best.high[better] = mixed[better], low, high
    return best


def budgets(seed: int, kind: str, rows: int, rounds: int) -> tuple[Array, Array, Array]:
    """Costs and scores of fixed budgets in each draw, and what is spent there."""
    draw = np.random.default_rng(seed)
    if kind == "grid":  # full of ties
        costs = draw.integers(0, 5, (rows, rounds)).astype(float)
        return (
            costs,
            draw.integers(0, 4, (rows, rounds)) / 4,
            draw.integers(0, 6, rows).astype(float),
        )
    costs = np.cumsum(draw.random((rows, rounds)), axis=1)
    if kind == "crossing":
        costs += draw.normal(0, 2, costs.shape)
    scores = np.sqrt(np.cumsum(draw.random((rows, rounds)), axis=1)) + draw.normal(
        0, 0.3, costs.shape
    )
    if kind == "unknown":
        scores[:, draw.random(rounds) < 0.3] = np.nan
        scores[:, 0] = 0.0
    return costs, scores, draw.uniform(-1, costs.max() + 1, rows)


@pytest.mark.parametrize("kind", ["grid", "rising", "crossing", "unknown"])
@pytest.mark.parametrize("seed", range(12))
def test_the_best_mix_is_that_of_all_pairs_to_the_bit(kind: str, seed: int) -> None:
    costs, scores, at = budgets(seed, kind, 30, 1 + seed % 9)
    at[::3] = costs[::3, seed % costs.shape[1]]  # what a budget costs, to the bit
    found, expected = best_mix(costs, scores, at), every_mix(costs, scores, at)
    assert np.array_equal(found.score, expected.score)
    assert found.names == expected.names


def test_a_thousand_budgets_are_compared_in_linear_time() -> None:
    costs, scores, at = budgets(0, "rising", 200, 1000)
    began = time.process_time()
    found = best_mix(costs, scores, at)
    assert len(found.names) == 200
    assert time.process_time() - began < 10
