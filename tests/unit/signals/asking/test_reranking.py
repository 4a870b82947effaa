"""Scores of a whole record's passages, each once a question, and their statistics."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.signals.asking.whole_record import Asked
from suffice.signals.retrieval_scores import RERANK_VARIANCE, rerank_passages
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import LoopView, Passage, QuestionRecord, Round

ALL = np.ones(0, bool)  # a reranker goes by its passages


class ByLength:
    """Scores a passage by the length of its text, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def rerank(self, query: str, passages: Sequence[Passage]) -> Sequence[Passage]:
        self.asked.append((query, tuple(each.id for each in passages)))
        scored = [
            dataclasses.replace(each, rerank_score=float(len(each.text or "")) - 4)
            for each in passages
        ]
        return sorted(scored, key=lambda each: -(each.rerank_score or 0.0))


def with_passages(name: str, *rounds: Sequence[Passage]) -> QuestionRecord:
    record = make_record(name, ["x"] * len(rounds))
    shown = tuple(
        dataclasses.replace(each, passages=tuple(passages))
        for each, passages in zip(record.rounds, rounds, strict=True)
    )
    return dataclasses.replace(record, rounds=shown)


A, B, C = (Passage(id=name, text=name * n) for n, name in enumerate("abc", start=1))
SCORED = Passage(id="s", text="four", rerank_score=7.0)
BARE = Passage(id="t")


def test_each_passage_is_scored_once_a_question_and_old_scores_stay() -> None:
    reranker = ByLength()
    found = to_trace_set(
        [with_passages("p", [A, SCORED], [A], [B, A], [BARE]), with_passages("q", [A], [C])]
    )
    seen: list[Asked] = []
    reranking = rerank_passages(found, reranker, ALL, seen.append)
    assert reranker.asked == [("What is p?", ("a", "b")), ("What is q?", ("a", "c"))]
    assert reranking.passages == 4
    assert reranking.by_row == {0: (-3.0, 7.0), 1: (-3.0,), 2: (-2.0, -3.0), 4: (-3.0,), 5: (-1.0,)}
    assert reranking.calls == {0: 1, 2: 1, 4: 1, 5: 1}  # the second round added nothing new
    assert seen[-1] == Asked(what="reranked", finished=2, planned=2, unit="questions")


def test_a_question_without_anything_to_score_is_not_asked_about() -> None:
    reranker = ByLength()
    reranking = rerank_passages(
        to_trace_set([with_passages("p", [SCORED], [BARE])]), reranker, ALL, lambda _: None
    )
    assert (reranker.asked, reranking.by_row, reranking.calls) == ([], {}, {})


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
