"""Conformal order statistics: ranks, ties, undefined values, and what they promise."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.stats.conformal import (
    NEVER,
    Threshold,
    exact_level,
    lower_order_statistic,
    lower_rank,
    smallest_sample,
    tied_threshold,
)


def test_levels_are_the_decimals_they_are_written_as() -> None:
    assert exact_level(0.1) == exact_level("0.1") == Fraction(1, 10)
    assert exact_level(np.float64(0.29)) == Fraction(29, 100)
    assert exact_level("1e-3") == Fraction(1, 1000)
    assert exact_level(Fraction(1, 3)) == Fraction(1, 3)


@pytest.mark.parametrize(
    ("level", "n", "rank"),
    [("0.29", 99, 29), ("0.1", 8, 0), ("0.1", 9, 1), ("0.1", 19, 2), ("0.9", 0, 0), ("0.5", 1, 1)],
)
def test_ranks(level: str, n: int, rank: int) -> None:
    assert lower_rank(Fraction(level), n) == rank


@given(st.fractions(Fraction(1, 500), Fraction(499, 500)))
def test_the_smallest_sample_is_the_first_with_a_rank(level: Fraction) -> None:
    needed = smallest_sample(level)
    assert lower_rank(level, needed) >= 1
    assert needed == 0 or lower_rank(level, needed - 1) == 0


@given(
    st.lists(st.floats(-5, 5), min_size=1, max_size=30),
    st.sampled_from([Fraction(each, 20) for each in range(1, 20)]),
)
def test_the_order_statistic_is_numpys(values: list[float], level: Fraction) -> None:
    found = lower_order_statistic(np.array(values), level)
    rank = lower_rank(level, len(values))
    if rank == 0:
        assert found == -math.inf
    elif rank > len(values):
        assert found == math.inf
    else:
        quantile = (rank - 0.5) / len(values)
        assert found == np.quantile(values, quantile, method="inverted_cdf")


@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_exactly_k_of_n_plus_one_exchangeable_values_fire(size: int) -> None:
    """By enumeration: each of n + 1 tied values is the new one in turn."""
    for values in itertools.combinations_with_replacement([0.0, 0.5, 1.0], size + 1):
        for rank in range(1, size + 1):
            fired = Fraction(0)
            for index, value in enumerate(values):
                others = np.array(values[:index] + values[index + 1 :])
                found = tied_threshold(others, Fraction(rank, size + 1), randomised=True)
                fired += (
                    Fraction(found.share).limit_denominator(100)
                    if value == found.value
                    else int(value < found.value)
                )
            assert fired == rank, values


def test_a_strict_threshold_fires_on_less_where_values_tie() -> None:
    values = np.array([0.0] * 4 + [0.5] * 5)
    assert tied_threshold(values, Fraction(3, 10), randomised=False) == Threshold(0.0)
    assert not Threshold(0.0).fires(values, np.zeros(9)).any()


def test_undefined_values_count_as_the_largest() -> None:
    values = np.array([0.2, math.nan, 0.1, math.nan])
    assert tied_threshold(values, Fraction(2, 5), randomised=False) == Threshold(0.2)
    for randomised in (True, False):  # rank 3 of two defined ones: all of them
        found = tied_threshold(values, Fraction(3, 5), randomised=randomised)
        assert found.fires(values, np.full(4, 0.99)).tolist() == [True, False, True, False]
        assert not found.fires(np.array([0.21]), np.zeros(1)).any()
    assert tied_threshold(np.full(4, math.nan), Fraction(3, 5), randomised=True) == NEVER
