from __future__ import annotations

import pytest

from suffice.bench.hidden_constraints.generate import generate
from suffice.bench.hidden_constraints.oracle import (
    OracleRetriever,
    canonical_query,
    hit_at,
    mean_rank,
    oracle_rank,
    recall_at,
)
from suffice.bench.hidden_constraints.tasks import BenchmarkSettings
from suffice.errors import UsageError
from suffice.protocols import Retriever
from suffice.trace.plan import PlanTask
from suffice.trace.records import Passage

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


def test_the_canonical_query_is_goal_and_context() -> None:
    task = PlanTask(id="t", goal="Open a queue.", context="In Madrid.", total_steps=3)
    assert canonical_query(task) == "Open a queue. In Madrid."
    bare = PlanTask(id="t", goal="Open a queue.", context="", total_steps=3)
    assert canonical_query(bare) == "Open a queue."
    for each in generate(BenchmarkSettings(tasks=5, hard_small=2, documents=60)).tasks:
        assert canonical_query(each.visible) == each.query


def test_the_rank_is_that_of_the_first_gold_document() -> None:
    assert oracle_rank(["a", "b", "c"], {"c", "b"}) == 2
    assert oracle_rank(["a", "b"], ("a",)) == 1
    assert oracle_rank(["a", "b"], {"z"}) is None
    assert oracle_rank([], {"z"}) is None
    assert oracle_rank(["a"], ()) is None


def test_recall_counts_gold_documents_and_a_hit_wants_one() -> None:
    ranking = ["x", "a", "y", "b"]
    assert [recall_at(ranking, {"a", "b"}, k) for k in (1, 2, 4, 9)] == [0, 0.5, 1, 1]
    assert [hit_at(ranking, {"a", "b"}, k) for k in (1, 2, 4)] == [False, True, True]
    assert recall_at(["a", "a"], ["a", "a", "c"], 2) == 0.5
    for measure in (recall_at, hit_at):
        with pytest.raises(UsageError, match="k must be at least 1"):
            measure(ranking, {"a"}, 0)
        with pytest.raises(UsageError, match="undefined without gold"):
            measure(ranking, (), 1)


def test_the_mean_rank_is_over_those_found() -> None:
    assert mean_rank([1, None, 4]) == 2.5
    assert mean_rank([None]) is None
    assert mean_rank([]) is None
