"""Haystack's retrievers under the adapter."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.integrations.retrieving import QUERIES, TEXTS, bag

from suffice.contracts import Retriever
from suffice.errors import UsageError
from suffice.integrations.haystack import HaystackRetriever
from suffice.testing.conformance import check_retriever

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
haystack = pytest.importorskip(
    "haystack", reason="runs in its own environment: make test-integrations"
)
retrievers = pytest.importorskip("haystack.components.retrievers")
stores = pytest.importorskip("haystack.document_stores.in_memory")


@haystack.component
class Embedder:
    @haystack.component.output_types(embedding=list[float])  # type: ignore[untyped-decorator]
    def run(self, text: str) -> dict[str, Any]:
        return {"embedding": bag(text)}


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


def test_the_snippet_of_the_docs_runs(run_snippet: Callable[..., dict[str, Any]]) -> None:
    assert run_snippet("Haystack")["passages"][0].title == "Boats"
