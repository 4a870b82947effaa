"""The Elasticsearch adapter against an OpenSearch-compatible server that a package brings.

``osmem-server`` is not OpenSearch itself, but written apart from this library by others, so it does not
share the mistakes of the server in ``tests/unit/integrations/test_elasticsearch.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from suffice.errors import UsageError
from suffice.integrations.elasticsearch import ElasticsearchRetriever, ElasticsearchSettings
from suffice.pipelines.loops.ranked import CumulativePipeline, CumulativeSettings
from suffice.testing.conformance import check_retriever
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Question

osmem = pytest.importorskip(
    "osmem_server", reason="runs in its own environment: make test-integrations"
)

NOTES = {
    "boats": ("Boats", "a red boat at sea"),
    "trees": ("Trees", "an old tree by the harbour"),
    "harbour": ("Harbour", "the green boat of the harbour master"),
    "colours": ("Colours", "green is a colour between blue and yellow"),
    "sea": ("Seas", "deep and blue"),
    "masters": ("Masters", "the master of the ship is old"),
}
QUERIES = ("green boat", "old tree", "deep blue sea", "zeppelin", 'boat" OR title:*')


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with osmem.OsmemServer.start(japanese=False) as server:
        text: dict[str, Any] = {"type": "text"}
        mappings = {"properties": {"title": text, "body": {"properties": {"text": text}}}}
        server.request("PUT", "/notes", {"mappings": mappings})
        for key, (title, words) in NOTES.items():
            note = {"title": title, "body": {"text": words}, "key": f"k-{key}"}
            server.request("PUT", f"/notes/_doc/{key}", note)
        server.request("POST", "/notes/_refresh")
        yield server.url


@pytest.fixture
def notes(url: str) -> Iterator[ElasticsearchRetriever]:
    settings = ElasticsearchSettings(text_field="body.text", max_retries=0)
    with ElasticsearchRetriever(url, "notes", settings=settings) as retriever:
        yield retriever


def test_it_keeps_the_protocol(notes: ElasticsearchRetriever) -> None:
    check_retriever(notes, QUERIES, size=len(NOTES))


def test_passages_carry_what_the_index_holds(notes: ElasticsearchRetriever) -> None:
    found = notes.retrieve("green boat", 10)
    assert found[0].id == "harbour"
    assert {each.id for each in found} == {"harbour", "boats", "colours"}
    assert all((each.title, each.text) == NOTES[each.id] for each in found)
    assert notes.retrieve("zeppelin", 3) == ()


def test_the_title_is_searched_too(url: str, notes: ElasticsearchRetriever) -> None:
    assert [each.id for each in notes.retrieve("seas", 3)] == ["sea"]
    settings = ElasticsearchSettings(text_field="body.text", title_field=None, id_field="key")
    with ElasticsearchRetriever(url, "notes", settings=settings) as untitled:
        assert untitled.retrieve("seas", 3) == ()
        assert untitled.retrieve("yellow", 3)[0].id == "k-colours"


def test_refusals_are_told(url: str, notes: ElasticsearchRetriever) -> None:
    with pytest.raises(UsageError, match=r"400: .*Result window is too large"):
        notes.retrieve("boat", 10_001)
    settings = ElasticsearchSettings(max_retries=0)
    with (
        ElasticsearchRetriever(url, "nothing", settings=settings) as missing,
        pytest.raises(
            UsageError, match=r"404: index_not_found_exception: no such index \[nothing\]"
        ),
    ):
        missing.retrieve("boat", 1)
    with (
        ElasticsearchRetriever(url, "notes", settings=settings) as wrong,
        pytest.raises(UsageError, match=r"has text under 'text'.*text_field="),
    ):
        wrong.retrieve("harbour", 1)


def test_a_loop_runs_on_it(notes: ElasticsearchRetriever) -> None:
    pipeline = CumulativePipeline(ScriptedModel(), CumulativeSettings(rounds=3))
    rounds = list(pipeline.rounds(Question(id="q", text="green boat?"), notes))
    shown = [each.passages[0].id for each in rounds if each.passages]
    assert shown == [each.id for each in notes.retrieve("green boat?", 3)]


def test_the_snippet_of_the_docs_runs(run_snippet: Callable[..., dict[str, Any]], url: str) -> None:
    made = run_snippet("Elasticsearch and OpenSearch", **{"https://search.example:9200": url})
    assert made["passages"][0].id == "harbour"
