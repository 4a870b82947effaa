"""LangChain's vector store as a retriever, as the page shows it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from suffice.testing.conformance import check_retriever

pytest.importorskip(
    "langchain_core.documents", reason="runs in its own environment: make test-integrations"
)


def test_the_snippet_of_the_docs_runs(run_snippet: Callable[..., dict[str, Any]]) -> None:
    made = run_snippet("LangChain")
    assert {(passage.id, passage.title) for passage in made["passages"]} == {
        ("b1", "Boats"), ("t1", "Trees"),
    }  # fmt: skip
    check_retriever(made["retriever"], ("a boat", "an old tree"), size=2)
    assert len(made["back"].invoke("a boat")) == 1
