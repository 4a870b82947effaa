"""How a number goes from round to round, against plain loops over single questions."""

from __future__ import annotations

import math
import statistics
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.properties import examples

from suffice.stats import series

ERRORS = st.one_of(
    st.sampled_from([0.0, 1.0, 2.0, 4.0, 0.05, 1e6, math.nan, -1.0, math.inf]), st.floats(0.0, 10.0)
)
RECORDS = st.integers(1, 7).flatmap(
    lambda rounds: st.lists(
        st.lists(ERRORS, min_size=rounds, max_size=rounds), min_size=1, max_size=3
    )
)
FUNCTIONS = (
    series.change,
    series.since_highest,
    series.since_lowest,
    series.gain,
    series.stalling,
    series.oscillating,
    series.diverging,
)


@settings(max_examples=examples(60))
@given(rows=RECORDS)
@example(rows=[[math.inf, math.inf]])
def test_a_question_is_alone_and_every_round_sees_the_past_only(rows: list[list[float]]) -> None:
    values = np.array(rows)
    for function in FUNCTIONS:
        together = function(values)
        for row, of_all in zip(values, together, strict=True):
            for number in range(1, len(row) + 1):
                alone = function(row[None, :number])[0, -1]
                np.testing.assert_array_equal(alone, of_all[number - 1])


@settings(max_examples=examples(60))
@given(rows=RECORDS)
def test_they_are_what_plain_loops_find(rows: list[list[float]]) -> None:
    values = np.array(rows)
    twins = {
        "since_lowest": series.since_lowest(values),
        "gain": series.gain(values),
        "state": _codes(values),
    }
    for index, row in enumerate(rows):
        for number in range(1, len(row) + 1):
            past = row[:number]
            cell = (index, number - 1)
            np.testing.assert_array_equal(twins["since_lowest"][cell], since_lowest(past))
            np.testing.assert_allclose(twins["gain"][cell], gain(past), rtol=1e-12)
            assert twins["state"][cell] == state(past), past


def _codes(values: NDArray[np.float64]) -> NDArray[np.str_]:
    stalls, waves = series.stalling(values), series.oscillating(values)
    rises = series.diverging(values)
    names = np.where(stalls > 0, "stalling", "converging")
    names = np.where(waves == 1, "oscillating", np.where(rises == 1, "diverging", names))
    return np.where(np.isnan(stalls), "undefined", names)


def since_lowest(past: list[float]) -> float:
    if not math.isfinite(past[-1]):
        return math.nan
    known = [value for value in past if math.isfinite(value)]
    return float(len(past) - 1 - past.index(min(known)))


def gain(past: list[float]) -> float:
    if len(past) < 2 or not all(math.isfinite(value) and value >= 0 for value in past):
        return math.nan
    smoothed = None
    for before, now in pairwise(past):
        ratio = now / before if before > 0 else 0.0 if now == 0 else 2.05
        smoothed = ratio if smoothed is None else (ratio + smoothed) / 2
    assert smoothed is not None
    return smoothed


def state(past: list[float]) -> str:
    """The published definition, from textbook formulas."""
    if len(past) < 2 or not all(math.isfinite(value) and value >= 0 for value in past):
        return "undefined"
    ratio = past[-1] / max(past[0], 1e-12)
    if len(past) == 2:
        return "converging" if ratio < 1 else "diverging" if ratio > 1.1 else "stalling"
    logs = [math.log10(max(value, 1e-12)) for value in past]
    n, improving = len(past), len(past) - 1 - past.index(min(past)) < 3
    slope, level = statistics.linear_regression(range(n), logs)
    residuals = [log - level - slope * place for place, log in enumerate(logs)]
    squares = sum(residual**2 for residual in residuals)
    spread = sum((place - (n - 1) / 2) ** 2 for place in range(n))
    if squares < 1e-20:  # a line, whose slope is exact
        significant, slope = abs(slope) > 1e-9, slope if abs(slope) > 1e-9 else 0.0
    else:
        t = abs(slope) / math.sqrt(squares / (n - 2) / spread)
        significant = p_value(t, n - 2) < 0.05
    if improving and (ratio <= 0.1 or (slope < 0 and (significant or ratio <= 0.5))):
        return "converging"
    if slope > 0 and significant and ratio > 1.1:
        return "diverging"
    if abs(slope) < 0.05 and statistics.pstdev(residuals) >= 0.3:
        return "oscillating"
    return "stalling"


def p_value(t: float, freedom: int) -> float:
    if freedom == 1:
        return 1 - 2 * math.atan(t) / math.pi
    if freedom == 2:
        return 1 - t / math.sqrt(2 + t * t)
    z = t * (1 - 1 / (4 * freedom)) / math.sqrt(1 + t * t / (2 * freedom))
    return math.erfc(z / math.sqrt(2))


@pytest.mark.parametrize(
    ("errors", "expected"),
    [  # worked by hand from the published thresholds
        ([1.0, 1.0, 1.0], "stalling"),
        ([1.0, 0.9, 0.09], "converging"),
        ([8.0, 4.0, 2.0, 1.0], "converging"),
        ([1.0, 1.2], "diverging"),
        ([1.0, 2.0, 4.0, 8.0], "diverging"),
        ([10.0, 1.0, 10.0, 1.0, 10.0, 1.0, 10.0], "oscillating"),
        ([100.0, 1.0, 1.0, 1.0, 1.0], "stalling"),  # no new lowest for three rounds
    ],
)
def test_states_of_worked_series(errors: list[float], expected: str) -> None:
    assert _codes(np.array([errors]))[0, -1] == expected == state(errors)
