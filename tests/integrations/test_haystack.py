"""Haystack's retriever as one of ours, as the page shows it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from suffice.testing.conformance import check_retriever

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
pytest.importorskip("haystack", reason="runs in its own environment: make test-integrations")


def test_the_snippet_of_the_docs_runs(run_snippet: Callable[..., dict[str, Any]]) -> None:
    made = run_snippet("Haystack")
    assert made["passages"][0].title == "Boats"
    check_retriever(made["retriever"], ("boat", "old tree", "zeppelin"), size=2)
    wanted = made["inner"].run(query="old tree", top_k=2)["documents"]
    found = made["retriever"].retrieve("old tree", 2)
    assert [each.id for each in found] == [each.id for each in wanted]
    scores = [float(each.score) for each in wanted]  # ours hold single precision
    assert [each.score for each in found] == pytest.approx(scores, rel=1e-6)
