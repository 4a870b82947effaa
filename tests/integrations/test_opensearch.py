"""The adapter with the clients of OpenSearch and Elasticsearch, against a server that a package brings.

``osmem-server`` is not OpenSearch itself, but written apart from this library by others, so it does not
share the mistakes of the server in ``tests/unit/integrations/test_elasticsearch.py``.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server import Server

from suffice.errors import BackendError, UsageError
from suffice.integrations.documents import connect_own
from suffice.integrations.elasticsearch import ElasticsearchRetriever, ElasticsearchSettings
from suffice.testing.conformance import check_retriever

osmem = pytest.importorskip(
    "osmem_server", reason="runs in its own environment: make test-integrations"
)
elasticsearch = pytest.importorskip("elasticsearch")
opensearchpy = pytest.importorskip("opensearchpy")

CERTIFICATE = Path(__file__).parents[1] / "untrusted.pem"
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
def client(url: str) -> Iterator[Any]:
    with opensearchpy.OpenSearch(url, max_retries=0) as made:
        yield made


@pytest.fixture
def notes(client: Any) -> ElasticsearchRetriever:
    return ElasticsearchRetriever(
        client, "notes", settings=ElasticsearchSettings(text_field="body.text")
    )


def test_it_keeps_the_protocol(notes: ElasticsearchRetriever) -> None:
    check_retriever(notes, QUERIES, size=len(NOTES))


def test_passages_carry_what_the_index_holds(notes: ElasticsearchRetriever) -> None:
    found = notes.retrieve("green boat", 10)
    assert found[0].id == "harbour"
    assert {each.id for each in found} == {"harbour", "boats", "colours"}
    assert all((each.title, each.text) == NOTES[each.id] for each in found)
    assert notes.retrieve("zeppelin", 3) == ()


def test_refusals_are_told(client: Any, notes: ElasticsearchRetriever) -> None:
    with pytest.raises(UsageError, match=r"400: .*Result window is too large"):
        notes.retrieve("boat", 10_001)
    with pytest.raises(
        UsageError, match=r"404: index_not_found_exception: no such index \[nothing\]"
    ):
        ElasticsearchRetriever(client, "nothing").retrieve("boat", 1)
    with pytest.raises(UsageError, match=r"has text under 'text'.*text_field="):
        ElasticsearchRetriever(client, "notes").retrieve("harbour", 1)


def test_it_is_made_of_what_is_typed(url: str, notes: ElasticsearchRetriever) -> None:
    """Credentials reach the client, which this server does not ask for, and no message or record."""
    place = f"{url.removeprefix('http://')}/notes?text_field=body.text"
    own = connect_own(f"opensearch:http://ann:secret@{place}")
    assert own.name == f"opensearch:http://{place}"
    assert own.retriever.retrieve("green boat", 10) == notes.retrieve("green boat", 10)


def test_the_snippet_of_the_docs_runs(run_snippet: Callable[..., dict[str, Any]], url: str) -> None:
    made = run_snippet("Elasticsearch and OpenSearch", **{"https://search.example:9200": url})
    assert made["passages"][0].id == "harbour"


# --- how either client fails --------------------------------------------------------------------------
HIT = {"_id": "a", "_score": 1.5, "_source": {"text": "a red boat", "title": "Boats"}}
RANKING = {"timed_out": False, "_shards": {"total": 1, "failed": 0}, "hits": {"hits": [HIT]}}
CLIENTS = {
    "elasticsearch": lambda url: elasticsearch.Elasticsearch(
        url, max_retries=0, request_timeout=0.5
    ),
    "opensearch-py": lambda url: opensearchpy.OpenSearch(url, max_retries=0, timeout=0.5),
}


ELASTIC = {"x-elastic-product": "Elasticsearch"}


@pytest.fixture
def moody() -> Iterator[Server]:
    """A server that answers with one passage, unless it is told otherwise."""
    server = Server(lambda _: (200, ELASTIC, RANKING))
    yield server
    server.close()


def url_of(server: Server) -> str:
    return f"http://127.0.0.1:{server.http.server_port}"


@pytest.mark.parametrize("made", CLIENTS.values(), ids=CLIENTS)
@pytest.mark.parametrize(
    ("status", "content", "kind", "told"),
    [
        (401, {"error": "no key"}, UsageError, "401: no key"),
        (404, {"error": "none"}, UsageError, "404: none"),
        (503, b"{}", BackendError, "503"),
        (200, b"<html>", BackendError, "'notes'"),
        (None, b"", BackendError, "'notes'.*timeout"),
    ],
)
def test_how_either_client_fails_is_told(
    made: Callable[[str], Any],
    moody: Server,
    status: int | None,
    content: object,
    kind: type[Exception],
    told: str,
) -> None:
    def answer(_: object) -> Any:
        if status is None:
            time.sleep(2.0)
        return status or 200, dict(ELASTIC), content

    moody.answer = answer
    with pytest.raises(kind, match=told):
        ElasticsearchRetriever(made(url_of(moody)), "notes").retrieve("boat", 3)


@pytest.mark.parametrize("kind", ["opensearch", "elasticsearch"])
def test_credentials_go_nowhere_else(kind: str) -> None:
    """Neither over a redirect nor to a server whose certificate is not trusted, nor into a message."""
    there, other = Server(lambda _: (200, {}, {})), Server(lambda _: (200, {}, {}))
    try:
        there.redirect = 307, f"{other.url}/elsewhere"
        place = f"{kind}:http://ann:s3cret-pass@127.0.0.1:{there.http.server_port}/notes"
        found = connect_own(place)
        with pytest.raises(UsageError, match="answered 307") as error:
            found.retriever.retrieve("boats", 3)
        assert other.seen == []
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE)
        other.http.socket = context.wrap_socket(other.http.socket, server_side=True)
        place = f"{kind}:https://ann:s3cret-pass@127.0.0.1:{other.http.server_port}/notes"
        with pytest.raises(UsageError, match="certificates") as untrusted:
            connect_own(place).retriever.retrieve("boats", 3)
        assert other.seen == []
        assert "s3cret" not in f"{found.name} {error.value} {untrusted.value}"
    finally:
        there.close()
        other.close()
