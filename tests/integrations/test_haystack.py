"""Haystack's retrievers under the adapter."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import pytest

from suffice import Controller, FixedPolicy
from suffice.errors import BackendError, SufficeWarning, UsageError
from suffice.integrations.documents import AdapterSettings
from suffice.integrations.haystack import HaystackRetriever
from suffice.loops.ranked import CumulativePipeline, CumulativeSettings
from suffice.protocols import Retriever
from suffice.testing.conformance import check_retriever
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Question

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
haystack = pytest.importorskip(
    "haystack", reason="runs in its own environment: make test-integrations"
)
retrievers = pytest.importorskip("haystack.components.retrievers")
stores = pytest.importorskip("haystack.document_stores.in_memory")

TEXTS = {
    "boats": "a red boat at sea",
    "trees": "an old tree by the harbour",
    "harbour": "the green boat of the harbour master",
    "colours": "green is a colour between blue and yellow",
    "sea": "the sea is deep and blue",
    "masters": "the master of the ship is old",
}
VOCABULARY = sorted({word for text in TEXTS.values() for word in text.split() if len(word) > 3})
QUERIES = ("green boat", "old tree", "deep blue sea")


def bag(text: str) -> list[float]:
    """Counts of the longer words."""
    words = re.findall(r"\w+", text)
    return [0.01, *(float(words.count(word)) for word in VOCABULARY)]


@haystack.component
class Embedder:
    @haystack.component.output_types(embedding=list[float])  # type: ignore[untyped-decorator]
    def run(self, text: str) -> dict[str, Any]:
        return {"embedding": bag(text)}


@haystack.component
class Fixed:
    """Three documents, or none at all with an error."""

    @haystack.component.output_types(documents=list[Any])  # type: ignore[untyped-decorator]
    def run(self, query: str) -> dict[str, Any]:
        if query == "lost":
            raise ConnectionError(query)
        return {"documents": [haystack.Document(content=text) for text in list(TEXTS.values())[:3]]}


@pytest.fixture
def store() -> Any:
    made = stores.InMemoryDocumentStore(embedding_similarity_function="cosine")
    made.write_documents(
        [
            haystack.Document(
                id=key, content=text, meta={"title": key.title()}, embedding=bag(text)
            )
            for key, text in TEXTS.items()
        ]
    )
    return made


@pytest.mark.parametrize("scale", [False, True])
def test_bm25_keeps_the_protocol(store: Any, scale: bool) -> None:
    inner = retrievers.InMemoryBM25Retriever(store, top_k=2, scale_score=scale)
    adapted = HaystackRetriever(inner)
    assert isinstance(adapted, Retriever)
    check_retriever(adapted, (*QUERIES, "zeppelin"), size=len(TEXTS))
    found = adapted.retrieve("green boat", 5)
    wanted = inner.run(query="green boat", top_k=5)["documents"]
    assert [each.id for each in found] == [each.id for each in wanted]
    assert found[0].title == "Harbour"
    assert [each.score for each in found] == pytest.approx([each.score for each in wanted])
    assert inner.top_k == 2


def test_embeddings_keep_the_protocol(store: Any) -> None:
    inner = retrievers.InMemoryEmbeddingRetriever(store)
    with pytest.raises(UsageError, match=r"no query; join .*TextEmbeddingRetriever"):
        HaystackRetriever(inner)
    joined = retrievers.TextEmbeddingRetriever(retriever=inner, text_embedder=Embedder())
    check_retriever(HaystackRetriever(joined), QUERIES, size=len(TEXTS))
    (found,) = HaystackRetriever(joined).retrieve("green boat of the harbour master", 1)
    assert found.id == "harbour"
    assert found.score == pytest.approx(1.0, abs=1e-3)


def test_an_empty_query_finds_nothing(store: Any) -> None:
    assert HaystackRetriever(retrievers.InMemoryBM25Retriever(store)).retrieve(" ", 3) == ()


def test_a_number_out_of_reach_is_said_once() -> None:
    adapted = HaystackRetriever(Fixed())
    assert [each.score for each in adapted.retrieve("x", 2)] == [1.0, 0.5]
    with pytest.warns(SufficeWarning, match="Haystack's Fixed gave 3 documents where 15 were"):
        assert len(adapted.retrieve("x", 15)) == 3


def test_lost_connections_are_failures_of_the_back_end() -> None:
    with pytest.raises(BackendError, match="Haystack's Fixed failed: ConnectionError: lost"):
        HaystackRetriever(Fixed()).retrieve("lost", 1)


def test_a_store_is_no_component(store: Any) -> None:
    with pytest.raises(UsageError, match="wanted a Haystack component, found InMemoryDocumentSt"):
        HaystackRetriever(store)


def test_a_loop_runs_on_it(store: Any) -> None:
    adapted = HaystackRetriever(
        retrievers.InMemoryBM25Retriever(store), settings=AdapterSettings(title_key="none")
    )
    controller = Controller(FixedPolicy(rounds=3), max_rounds=5).start("green boat?")
    pipeline = CumulativePipeline(ScriptedModel(), CumulativeSettings(rounds=5))
    seen = []
    for latest in pipeline.rounds(Question(id="q", text="green boat at sea?"), adapted):
        seen.append(latest)
        if controller.observe(latest).stop:
            break
    assert len(seen) == 3
    shown = [each.passages[0].id for each in seen if each.passages]
    assert shown == [each.id for each in adapted.retrieve("green boat at sea?", 3)]


def test_the_snippet_of_the_docs_runs(run_snippet: Callable[..., dict[str, Any]]) -> None:
    assert run_snippet("Haystack")["passages"][0].title == "Boats"
