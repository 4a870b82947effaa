from __future__ import annotations

import pytest

from suffice.bench.hidden_constraints.oracle import (
    OracleRetriever,
    oracle_rank,
)
from suffice.errors import UsageError
from suffice.protocols import Retriever
from suffice.trace.rounds.records import Passage

DOCUMENTS = [
    Passage(id=each, text=f"text {each}", title=each.upper(), score=-3.0) for each in "abc"
]


def test_it_gives_the_documents_whatever_is_asked() -> None:
    oracle = OracleRetriever(DOCUMENTS)
    assert isinstance(oracle, Retriever)
    for query in ("", "open a port"):
        found = oracle.retrieve(query, 6)
        assert [each.id for each in found] == ["a", "b", "c"]
        assert [each.text for each in found] == ["text a", "text b", "text c"]
        scores = [each.score for each in found]
        assert scores == pytest.approx([1, 1 / 2, 1 / 3])


def test_it_gives_at_most_k() -> None:
    oracle = OracleRetriever(iter(DOCUMENTS))
    assert [each.id for each in oracle.retrieve("q", 1)] == ["a"]
    assert [each.id for each in oracle.retrieve("q", 2)] == ["a", "b"]
    with pytest.raises(UsageError, match="k must be at least 1, found 0"):
        oracle.retrieve("q", 0)
    with pytest.raises(UsageError, match="found none"):
        OracleRetriever([])


def test_the_rank_is_that_of_the_first_gold_document() -> None:
    assert oracle_rank(["a", "b", "c"], {"c", "b"}) == 2
    assert oracle_rank(["a", "b"], ("a",)) == 1
    assert oracle_rank(["a", "b"], {"z"}) is None
    assert oracle_rank([], {"z"}) is None
    assert oracle_rank(["a"], ()) is None
