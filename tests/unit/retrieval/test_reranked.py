from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import pytest

from suffice.errors import UsageError
from suffice.protocols import Reranker, Retriever
from suffice.retrieval.combined import HybridRetriever, RerankedRetriever
from suffice.retrieval.lexical.bm25 import OKAPI, BM25Index
from suffice.testing.conformance import check_reranker, check_retriever
from suffice.trace.rounds.records import Passage, best_reranked

PASSAGES = [Passage(id=f"p{n}", text=f"rain {'and sun ' * n}") for n in range(8)]


class InOrder:
    """The passages as they stand, the first best."""

    def retrieve(self, query: str, k: int) -> list[Passage]:
        return [replace(each, score=-float(n)) for n, each in enumerate(PASSAGES[:k])]


INDEX = BM25Index.build(PASSAGES, OKAPI)


class Longest:
    """Prefers long passages; counts what it was given."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def rerank(self, query: str, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        self.given.append(len(passages))
        return best_reranked(passages, [len(each.text or "") for each in passages])


def test_the_pool_is_reranked_and_its_best_given() -> None:
    reranker = Longest()
    retriever = RerankedRetriever(InOrder(), reranker, candidates=5)
    assert isinstance(retriever, Retriever)
    assert retriever.candidates == 5
    found = retriever.retrieve("rain", 2)
    assert [each.id for each in found] == ["p4", "p3"]  # p5 to p7 are not in the pool
    assert found[0].score == -4.0
    assert found[0].rerank_score == len("rain " + "and sun " * 4)
    assert reranker.given == [5]


def test_more_than_the_pool_are_all_reranked() -> None:
    reranker = Longest()
    found = RerankedRetriever(InOrder(), reranker, candidates=5).retrieve("rain", 7)
    assert [each.id for each in found] == ["p6", "p5", "p4", "p3", "p2", "p1", "p0"]
    assert reranker.given == [7]


def test_nothing_found_asks_no_reranker() -> None:
    reranker = Longest()
    assert RerankedRetriever(BM25Index.build([], OKAPI), reranker).retrieve("rain", 3) == ()
    assert reranker.given == []


def test_bad_numbers_are_refused() -> None:
    with pytest.raises(UsageError, match="candidates must be at least 1, found 0"):
        RerankedRetriever(INDEX, Longest(), candidates=0)
    with pytest.raises(UsageError, match="k must be at least 1"):
        RerankedRetriever(INDEX, Longest()).retrieve("rain", 0)


def test_it_conforms_also_over_a_fused_pool() -> None:
    fused = HybridRetriever([INDEX, BM25Index.build(PASSAGES[::-1], OKAPI)], candidates=4)
    for first in (INDEX, fused):
        check_retriever(RerankedRetriever(first, Longest()), ["rain", "sun", "", "?"], size=8)
    assert isinstance(Longest(), Reranker)
    check_reranker(Longest(), "rain", INDEX.retrieve("sun", 8))


def test_scores_that_are_no_numbers_come_last_and_ties_keep_order() -> None:
    found = best_reranked(PASSAGES[:4], [math.nan, 1.0, -math.inf, 1.0])
    assert [each.id for each in found] == ["p1", "p3", "p2", "p0"]


class OneUndefined(Longest):
    """No number for the passage the query names."""

    def rerank(self, query: str, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        return best_reranked(
            passages, [math.nan if p.id == query else len(p.text or "") for p in passages]
        )


def test_an_undefined_score_conforms() -> None:
    check_retriever(RerankedRetriever(INDEX, OneUndefined()), ["p3"], size=8)
    check_reranker(OneUndefined(), "p7", PASSAGES)
