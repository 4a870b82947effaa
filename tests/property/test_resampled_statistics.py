"""Statistics of many resamples at once equal those of the rows that each resample draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.properties import examples

from suffice.evaluation.diagnose.signal_checks import ResampledD, Rows
from suffice.stats import auroc as module
from suffice.stats.auroc import ResampledAuroc

VALUES = st.one_of(st.sampled_from([0.0, 1.0, 2.5, -3.0]), st.floats(-1e6, 1e6, width=32))
ROWS = st.lists(st.tuples(VALUES, st.booleans(), st.integers(0, 4)), min_size=1, max_size=25)
COUNTS = st.lists(st.lists(st.integers(0, 3), min_size=5, max_size=5), min_size=1, max_size=4)


def pairs(values: NDArray[np.float64], right: NDArray[np.bool_]) -> float:
    of_right, of_wrong = values[right], values[~right]
    if not len(of_right) or not len(of_wrong):
        return math.nan
    wins = (of_right[:, None] > of_wrong).sum() + 0.5 * (of_right[:, None] == of_wrong).sum()
    return float(wins / (len(of_right) * len(of_wrong)))


@pytest.mark.parametrize("few", [0, 3, 32])
@settings(max_examples=examples(60))
@given(rows=ROWS, counts=COUNTS)
def test_auroc(few: int, rows: list[tuple[float, bool, int]], counts: list[list[int]]) -> None:
    values = np.array([row[0] for row in rows])
    right = np.array([row[1] for row in rows])
    questions = np.array([row[2] for row in rows])
    before = module._FEW
    try:
        module._FEW = few
        found = ResampledAuroc(values, right, questions, 5)(np.array(counts, float).T)
    finally:
        module._FEW = before
    for area, times in zip(found, counts, strict=True):
        drawn = np.repeat(np.arange(len(rows)), np.array(times)[questions])
        expected = pairs(values[drawn], right[drawn])
        assert area == pytest.approx(expected, abs=1e-12, nan_ok=True)


@settings(max_examples=examples(60))
@given(
    rows=st.lists(
        st.tuples(st.integers(-50, 50).map(float), st.booleans(), st.integers(0, 4)),
        min_size=1,
        max_size=25,
    ),
    counts=COUNTS,
)
def test_cohens_d(rows: list[tuple[float, bool, int]], counts: list[list[int]]) -> None:
    given_rows = Rows(
        values=np.array([row[0] for row in rows]),
        right=np.array([row[1] for row in rows]),
        questions=np.array([row[2] for row in rows]),
    )
    resampled, drawn = ResampledD(given_rows, 5), np.array(counts, float).T
    found = resampled(drawn)
    for d, times in zip(found, counts, strict=True):
        drawn = np.repeat(np.arange(len(rows)), np.array(times)[given_rows.questions])
        values, right = given_rows.values[drawn], given_rows.right[drawn]
        expected = math.nan
        if min(right.sum(), (~right).sum()) > 1:
            spread = (values[right].std(ddof=1) + values[~right].std(ddof=1)) / 2
            if spread > 0:
                expected = (values[right].mean() - values[~right].mean()) / spread
        assert d == pytest.approx(expected, rel=1e-6, abs=1e-9, nan_ok=True)
