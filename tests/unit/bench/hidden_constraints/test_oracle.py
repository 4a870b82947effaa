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
    Passage(id=name, text=f"text {name}", title=name.upper(), score=-3.0) for name in "abc"
]


def test_it_gives_the_documents_whatever_is_asked() -> None:
    oracle = OracleRetriever(DOCUMENTS)
    assert isinstance(oracle, Retriever)
    for query in ("", "open a port"):
        ranking = oracle.retrieve(query, 6)
        assert [passage.id for passage in ranking] == ["a", "b", "c"]
        assert [passage.text for passage in ranking] == ["text a", "text b", "text c"]
        scores = [passage.score for passage in ranking]
        assert scores == pytest.approx([1, 1 / 2, 1 / 3])


def test_it_gives_at_most_k() -> None:
    oracle = OracleRetriever(iter(DOCUMENTS))
    assert [passage.id for passage in oracle.retrieve("q", 1)] == ["a"]
    assert [passage.id for passage in oracle.retrieve("q", 2)] == ["a", "b"]
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
