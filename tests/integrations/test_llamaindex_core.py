"""LlamaIndex's indexes and retrievers as retrievers of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.integrations.retrieving import QUERIES, TEXTS, bag

from suffice.integrations.documents import PythonRetriever
from suffice.testing.conformance import check_retriever

core = pytest.importorskip(
    "llama_index.core", reason="runs in its own environment: make test-integrations"
)
embeddings = pytest.importorskip("llama_index.core.embeddings")
schema = pytest.importorskip("llama_index.core.schema")
bm25 = pytest.importorskip("llama_index.retrievers.bm25")


class Bags(embeddings.BaseEmbedding):  # type: ignore[name-defined,misc]
    """Counts of the longer words."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return bag(text)

    def _get_query_embedding(self, query: str) -> list[float]:
        return bag(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return bag(query)


def nodes() -> list[Any]:
    return [
        schema.TextNode(
            id_=key,
            text=text,
            metadata={"title": key.title()},
            excluded_embed_metadata_keys=["title"],  # which is for the reader
        )
        for key, text in TEXTS.items()
    ]


def test_a_vector_index_keeps_the_protocol() -> None:
    index = core.VectorStoreIndex(nodes(), embed_model=Bags())
    adapted = PythonRetriever(
        lambda query, k: index.as_retriever(similarity_top_k=k).retrieve(query)
    )
    check_retriever(adapted, QUERIES, size=len(TEXTS))
    (found,) = adapted.retrieve("green boat of the harbour master", 1)
    assert (found.id, found.title) == ("harbour", "Harbour")
    assert found.score == pytest.approx(1.0)


def test_bm25_keeps_the_protocol() -> None:
    def search(query: str, k: int) -> Any:
        size = min(k, len(TEXTS))  # it wants no more than it has nodes
        inner = bm25.BM25Retriever.from_defaults(nodes=nodes(), similarity_top_k=size)
        return inner.retrieve(query)

    adapted = PythonRetriever(search)
    check_retriever(adapted, QUERIES, size=len(TEXTS))
    assert adapted.retrieve("green boat", 9)[0].id == "harbour"


def test_the_snippet_of_the_docs_runs(run_snippet: Callable[..., dict[str, Any]]) -> None:
    assert {each.id for each in run_snippet("LlamaIndex")["passages"]} == {"b1", "t1"}
