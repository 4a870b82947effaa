"""LangChain's vector store as a retriever."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.integrations.retrieving import QUERIES, TEXTS, bag

from suffice.integrations.documents import PythonRetriever
from suffice.testing.conformance import check_retriever

documents = pytest.importorskip(
    "langchain_core.documents", reason="runs in its own environment: make test-integrations"
)
embeddings = pytest.importorskip("langchain_core.embeddings")
vectorstores = pytest.importorskip("langchain_core.vectorstores")


class Bags(embeddings.Embeddings):  # type: ignore[name-defined,misc]
    """Counts of the longer words."""

    def embed_query(self, text: str) -> list[float]:
        return bag(text)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return list(map(bag, texts))


def test_a_vector_store_keeps_the_protocol() -> None:
    store = vectorstores.InMemoryVectorStore(Bags())
    store.add_documents(
        [
            documents.Document(id=key, page_content=text, metadata={"title": key.title()})
            for key, text in TEXTS.items()
        ]
    )
    found = PythonRetriever(lambda query, k: store.similarity_search_with_score(query, k=k))
    check_retriever(found, QUERIES, size=len(TEXTS))
    check_retriever(PythonRetriever(store.similarity_search), QUERIES, size=len(TEXTS))
    (first,) = found.retrieve("green boat of the harbour master", 1)
    assert (first.id, first.title) == ("harbour", "Harbour")
    assert first.score == pytest.approx(1.0)


def test_the_snippet_of_the_docs_runs(run_snippet: Callable[..., dict[str, Any]]) -> None:
    made = run_snippet("LangChain")
    assert {passage.id for passage in made["passages"]} == {"b1", "t1"}
    assert len(made["back"].invoke("a boat")) == 1
