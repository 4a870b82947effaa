"""Reciprocal rank fusion, by hand and against a slow twin, and a retriever whose pool is reranked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.contracts import Retriever
from suffice.errors import DataError, UsageError
from suffice.retrieval.bm25 import OKAPI, BM25Index
from suffice.retrieval.retrievers import HybridRetriever, RerankedRetriever, reciprocal_rank_fusion
from suffice.testing.conformance import check_retriever
from suffice.trace.rounds.records import Passage, best_reranked


class Listed:
    """A fixed ranking; keeps how many were asked for."""

    def __init__(self, names: Sequence[str], text: str = "") -> None:
        self.names = names
        self.text = text
        self.asked: list[int] = []

    def retrieve(self, query: str, k: int) -> list[Passage]:
        self.asked.append(k)
        return [
            Passage(id=name, text=self.text, score=-float(rank))
            for rank, name in enumerate(self.names[:k])
        ]


def slow_fusion(rankings: Sequence[Sequence[str]], k: int) -> list[tuple[str, Fraction]]:
    """Exact numbers; every id looked up in every ranking; order of first appearance at ties."""
    names = list(dict.fromkeys(name for ranking in rankings for name in ranking))
    scores = {
        name: sum(
            (Fraction(1, k + ranking.index(name) + 1) for ranking in rankings if name in ranking),
            Fraction(0),
        )
        for name in names
    }
    return sorted(scores.items(), key=lambda item: (-item[1], names.index(item[0])))


RANKINGS = st.lists(
    st.lists(st.sampled_from("abcdefgh"), unique=True, max_size=8), min_size=1, max_size=4
)


@given(RANKINGS, st.integers(0, 80))
def test_it_equals_the_slow_twin(rankings: list[list[str]], k: int) -> None:
    fast = reciprocal_rank_fusion(rankings, k=k)
    slow = dict(slow_fusion(rankings, k))
    assert dict(fast).keys() == slow.keys()
    for name, score in fast:
        assert score == pytest.approx(float(slow[name]), rel=1e-12)
    exact = [slow[name] for name, _ in fast]
    for (_, first), (_, second), left, right in zip(fast, fast[1:], exact, exact[1:], strict=False):
        assert left >= right or first == pytest.approx(second, rel=1e-12)


def test_other_things_refused() -> None:
    with pytest.raises(DataError, match="every id once"):
        reciprocal_rank_fusion([["a", "b", "a"]])
    with pytest.raises(UsageError, match="retriever"):
        HybridRetriever([])
    with pytest.raises(UsageError, match="found 0"):
        HybridRetriever([Listed("a")], candidates=0)
    with pytest.raises(UsageError, match="k must be at least 1"):
        HybridRetriever([Listed("a")]).retrieve("q", 0)


def test_passages_of_one_id_are_one_and_the_first_tells_them() -> None:
    """a: 1/61 + 1/62; c: 1/63 + 1/61; b: 1/62; d: 1/63."""
    hybrid = HybridRetriever([Listed("abc", "one"), Listed("cad", "two")])
    found = hybrid.retrieve("q", 9)
    assert [(each.id, each.text) for each in found] == [
        *(("a", "one"), ("c", "one"), ("b", "one"), ("d", "two"))
    ]
    by_hand = [0.0325225, 0.0322664, 0.0161290, 0.0158730]
    assert [each.score for each in found] == pytest.approx(by_hand, abs=1e-7)


@given(RANKINGS, st.integers(1, 4), st.integers(1, 12))
def test_a_short_answer_begins_a_longer_one(
    rankings: list[list[str]], candidates: int, k: int
) -> None:
    hybrid = HybridRetriever([Listed(each) for each in rankings], candidates=candidates)
    longest = hybrid.retrieve("q", 40)
    assert {each.id for each in longest} == {
        name for ranking in rankings for name in ranking[:candidates]
    }
    assert hybrid.retrieve("q", k) == longest[:k]


RAINY = [Passage(id=f"p{n}", text=f"rain {'and sun ' * n}") for n in range(8)]


class InOrder:
    def retrieve(self, query: str, k: int) -> list[Passage]:
        return [replace(each, score=-float(n)) for n, each in enumerate(RAINY[:k])]


INDEX = BM25Index.build(RAINY, OKAPI)


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


def test_it_conforms_also_over_a_fused_pool() -> None:
    fused = HybridRetriever([INDEX, BM25Index.build(RAINY[::-1], OKAPI)], candidates=8)
    for first in (INDEX, fused):
        check_retriever(RerankedRetriever(first, Longest()), ["rain", "sun", "", "?"], size=8)
