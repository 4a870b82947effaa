"""Scores of a whole record's passages: each once a question, old ones kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest

from suffice.errors import BackendError
from suffice.signals.asking.reranking import rerank_passages
from suffice.signals.asking.whole_record import Asked
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Passage, QuestionRecord

ALL = np.ones(0, bool)  # a reranker goes by its passages


class ByLength:
    """Scores a passage by the length of its text, and keeps what it was asked."""

    def __init__(self, *, drop: str = "") -> None:
        self.asked: list[tuple[str, tuple[str, ...]]] = []
        self.drop = drop

    def rerank(self, query: str, passages: Sequence[Passage]) -> Sequence[Passage]:
        self.asked.append((query, tuple(each.id for each in passages)))
        scored = [
            dataclasses.replace(each, rerank_score=float(len(each.text or "")) - 4)
            for each in passages
            if each.id != self.drop
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
    assert reranking.found == {
        0: (-3.0, 7.0),
        1: (-3.0,),
        2: (-2.0, -3.0),
        4: (-3.0,),
        5: (-1.0,),
    }
    assert reranking.calls == {0: 1, 2: 1, 4: 1, 5: 1}  # the second round added nothing new
    assert seen[-1] == Asked(what="reranked", finished=2, planned=2, unit="questions")


def test_a_question_without_anything_to_score_is_not_asked_about() -> None:
    reranker = ByLength()
    reranking = rerank_passages(
        to_trace_set([with_passages("p", [SCORED], [BARE])]), reranker, ALL, lambda _: None
    )
    assert (reranker.asked, reranking.found, reranking.calls) == ([], {}, {})


def test_a_reranker_that_drops_a_passage_is_refused() -> None:
    with pytest.raises(BackendError, match="no score for passage 'b' of 'What is p\\?'"):
        rerank_passages(
            to_trace_set([with_passages("p", [A], [B])]), ByLength(drop="b"), ALL, lambda _: None
        )
