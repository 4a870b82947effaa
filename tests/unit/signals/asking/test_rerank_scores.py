"""Statistics of raw reranker scores."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.signals.asking.reranking import (
    RERANK_MEAN,
    RERANK_TOP_SCORE,
    RERANK_VARIANCE,
    RERANK_VARIANCE_RAW,
)
from suffice.trace.rounds.records import LoopView, Passage, Round

ALL = (RERANK_TOP_SCORE, RERANK_MEAN, RERANK_VARIANCE, RERANK_VARIANCE_RAW)


def view(*rounds: Mapping[str, float | None]) -> LoopView:
    return LoopView(
        "q",
        tuple(
            Round(
                answer="",
                passages=tuple(Passage(id=key, rerank_score=score) for key, score in each.items()),
            )
            for each in rounds
        ),
    )


def test_values_by_hand() -> None:
    rounds = view({"a": -4.0, "b": 2.0}, {"c": 0.0, "d": 6.0})
    assert RERANK_TOP_SCORE(rounds) == 6.0
    assert RERANK_MEAN(rounds) == 1.0
    # Deviations -5, 1, -1, 5: 52 / 4; the range is 10, so normalised 13 / 100.
    assert RERANK_VARIANCE_RAW(rounds) == pytest.approx(13.0, abs=1e-12)
    assert RERANK_VARIANCE(rounds) == pytest.approx(0.13, abs=1e-12)


def test_the_top_score_is_a_running_maximum_of_raw_scores() -> None:
    rounds = view({"a": -1.5}, {"b": -4.0}, {"c": 2.0}, {"d": 1.0}).rounds
    assert [RERANK_TOP_SCORE(LoopView("q", rounds[:t])) for t in range(1, 5)] == [
        -1.5,
        -1.5,
        2.0,
        2.0,
    ]


def test_variance_at_its_ends() -> None:
    assert RERANK_VARIANCE(view({"a": 1.0, "b": 0.0})) == 0.25
    assert RERANK_VARIANCE(view({"a": 1.0})) == 0.0
    assert RERANK_VARIANCE(view({"a": 0.1, "b": 0.1, "c": 0.1})) == 0.0
    assert RERANK_VARIANCE_RAW(view({"a": 0.1, "b": 0.1, "c": 0.1})) == 0.0
    # K = 10 with all but the extremes in the middle: the lower bound 1 / (2K).
    ten = view({str(i): 0.5 for i in range(8)} | {"low": 0.0, "high": 1.0})
    assert RERANK_VARIANCE(ten) == pytest.approx(1 / 20, abs=1e-15)


def test_a_passage_counts_once() -> None:
    assert RERANK_MEAN(view({"a": 1.0}, {"a": 1.0, "b": 4.0})) == 2.5


def test_missing_scores_are_left_out_or_leave_it_undefined() -> None:
    assert RERANK_MEAN(view({"a": None, "b": 3.0, "c": math.nan})) == 3.0
    for rounds in (view({"a": None}), LoopView("q", (Round(answer="x"),))):
        assert all(math.isnan(spec(rounds)) for spec in ALL)


def test_no_passages_have_no_variance_and_no_other_statistic() -> None:
    assert RERANK_VARIANCE(view({}, {})) == 0.0
    others = (RERANK_TOP_SCORE, RERANK_MEAN, RERANK_VARIANCE_RAW)
    assert all(math.isnan(spec(view({}))) for spec in others)


@given(
    st.lists(
        st.floats(-1e4, 1e4, width=32) | st.sampled_from([0.0, 1.0, -11.5]), min_size=1, max_size=15
    ),
    st.integers(1, 3),
)
def test_the_normalised_variance_against_its_bounds_and_its_definition(
    scores: list[float], rounds: int
) -> None:
    size = -(-len(scores) // rounds)
    named = [(str(i), score) for i, score in enumerate(scores)]
    found = RERANK_VARIANCE(view(*(dict(named[i : i + size]) for i in range(0, len(named), size))))
    low, high = min(scores), max(scores)
    if low == high:
        assert found == 0.0
        return
    exact = [
        (Fraction(score) - Fraction(low)) / (Fraction(high) - Fraction(low)) for score in scores
    ]
    assert found == pytest.approx(float(statistics.pvariance(exact)), rel=1e-9)
    assert 1 / (2 * len(scores)) - 1e-12 <= found <= 0.25
