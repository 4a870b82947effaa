"""Statistics of raw reranker scores."""

from __future__ import annotations

import math
from collections.abc import Mapping

import pytest

from suffice.signals.rerank_scores import (
    RERANK_MEAN,
    RERANK_TOP_SCORE,
    RERANK_VARIANCE,
    RERANK_VARIANCE_RAW,
)
from suffice.trace.records import LoopView, Passage, Round

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
    for rounds in (view({}), view({"a": None}), LoopView("q", (Round(answer="x"),))):
        assert all(math.isnan(spec(rounds)) for spec in ALL)
