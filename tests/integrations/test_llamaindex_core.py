"""LlamaIndex's index as a retriever, as the page shows it, and its BM25."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from suffice.integrations.documents import PythonRetriever
from suffice.testing.conformance import check_retriever

pytest.importorskip(
    "llama_index.core", reason="runs in its own environment: make test-integrations"
)
bm25 = pytest.importorskip("llama_index.retrievers.bm25")


def test_the_snippet_of_the_docs_runs(run_snippet: Callable[..., dict[str, Any]]) -> None:
    made = run_snippet("LlamaIndex")
    found = {(passage.id, passage.title) for passage in made["passages"]}
    assert found == {("b1", "Boats"), ("t1", "Trees")}

    def search(query: str, k: int) -> Any:
        size = min(k, 2)  # it wants no more than it has nodes
        inner = bm25.BM25Retriever.from_defaults(nodes=made["nodes"], similarity_top_k=size)
        return inner.retrieve(query)

    check_retriever(PythonRetriever(search), ("red boat", "old tree"), size=2)
    assert PythonRetriever(search).retrieve("red boat", 9)[0].id == "b1"
