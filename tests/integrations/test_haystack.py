"""Haystack's retrievers as retrievers of ours."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from tests.integrations.retrieving import QUERIES, TEXTS

from suffice.integrations.documents import PythonRetriever
from suffice.testing.conformance import check_retriever

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
haystack = pytest.importorskip(
    "haystack", reason="runs in its own environment: make test-integrations"
)
retrievers = pytest.importorskip("haystack.components.retrievers")
stores = pytest.importorskip("haystack.document_stores.in_memory")


@pytest.mark.parametrize("scale", [False, True])
def test_bm25_keeps_the_protocol(scale: bool) -> None:
    store = stores.InMemoryDocumentStore()
    store.write_documents(
        [
            haystack.Document(id=key, content=text, meta={"title": key.title()})
            for key, text in TEXTS.items()
        ]
    )
    inner = retrievers.InMemoryBM25Retriever(store, scale_score=scale)
    adapted = PythonRetriever(lambda query, k: inner.run(query=query, top_k=k)["documents"])
    check_retriever(adapted, (*QUERIES, "zeppelin"), size=len(TEXTS))
    found = adapted.retrieve("green boat", 5)
    wanted = inner.run(query="green boat", top_k=5)["documents"]
    assert [each.id for each in found] == [each.id for each in wanted]
    scores = [float(each.score) for each in wanted]  # ours hold single precision
    assert [each.score for each in found] == pytest.approx(scores, rel=1e-6)
    assert found[0].title == "Harbour"


def test_the_snippet_of_the_docs_runs(run_snippet: Callable[..., dict[str, Any]]) -> None:
    assert run_snippet("Haystack")["passages"][0].title == "Boats"
