"""The adapter against a client of the tests' own, which fails as the real ones do."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest

from suffice.contracts import Retriever
from suffice.errors import BackendError, UsageError
from suffice.integrations.elasticsearch import ElasticsearchRetriever, ElasticsearchSettings
from suffice.testing.conformance import check_retriever

NOTES = {
    "n0": {"title": "Boats", "body": {"text": "a red boat at sea"}, "key": 10},
    "n1": {"title": "Trees", "body": {"text": "an old tree by the harbour"}, "key": 11},
    "n2": {"title": "Harbour", "body": {"text": "the green boat of the harbour master"}, "key": 12},
    "n3": {"title": "Green", "body": {"text": "a colour between blue and yellow"}, "key": 13},
}
QUERIES = ("green boat", "harbour", "old tree", "zeppelin")
NAMED = ElasticsearchSettings(text_field="body.text")


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def values(source: Any, name: str) -> str:
    for part in name.split("."):
        source = source.get(part, "")
    return str(source)


def field_score(query: str, name: str, key: str) -> float:
    """Of one document over one field: the words it shares, more where there are few others."""
    own = words(values(NOTES[key], name))
    shared = len({*words(query)} & {*own})
    return shared + shared / (10 * len(own) or 1)


def ranking(body: dict[str, Any]) -> list[dict[str, Any]]:
    """What ``multi_match`` finds, whose usual type is best_fields."""
    match = body["query"]["multi_match"]
    scored = []
    for key in NOTES:
        best = 0.0
        for name in match["fields"]:
            best = max(best, field_score(match["query"], name, key))
        if best > 0:
            scored.append((best, key))
    scored.sort(key=lambda each: -each[0])
    wanted = {name.split(".")[0] for name in body["_source"]}
    return [
        {
            "_index": "notes",
            "_id": key,
            "_score": score,
            "_source": {name: value for name, value in NOTES[key].items() if name in wanted},
        }
        for score, key in scored[: body["size"]]
    ]


def search_reply(found: object, **other: object) -> dict[str, Any]:
    shards = {"total": 1, "successful": 1, "skipped": 0, "failed": 0}
    return {"took": 1, "timed_out": False, "_shards": shards, "hits": {"hits": found}} | other


class TransportError(Exception):
    """As both clients raise it: ``status_code`` and ``info`` are the server's."""

    __module__ = "opensearchpy.exceptions"

    def __init__(self, status_code: int | str, info: object) -> None:
        super().__init__(status_code, info)
        self.status_code, self.info = status_code, info


class ConnectionTimeout(TransportError):  # noqa: N818 - its name there
    __module__ = "opensearchpy.exceptions"


class SerializationError(Exception):
    __module__ = "elasticsearch"


def error(status: int, kind: str, reason: str) -> TransportError:
    cause = {"type": kind, "reason": reason}
    return TransportError(status, {"error": {**cause, "root_cause": [cause]}, "status": status})


class Client:
    """``search`` of the index ``notes``, and whatever ``answers`` say first."""

    def __init__(self) -> None:
        self.answers: list[object] = []
        self.seen: list[dict[str, Any]] = []

    def search(self, *, index: str, body: dict[str, Any], **options: object) -> object:
        self.seen.append({"index": index, "options": options, "body": body})
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer
        if index != "notes":
            raise error(404, "index_not_found_exception", f"no such index [{index}]")
        if body["size"] > 10_000:
            raise error(400, "illegal_argument_exception", "Result window is too large")
        return search_reply(ranking(body))


@dataclass(frozen=True)
class Wrapped:
    body: dict[str, Any]


@pytest.fixture
def client() -> Client:
    return Client()


@pytest.fixture
def notes(client: Client) -> ElasticsearchRetriever:
    return ElasticsearchRetriever(client, "notes", settings=NAMED)


# --- what it finds -----------------------------------------------------------------------------------
def test_it_keeps_the_retriever_protocol(notes: ElasticsearchRetriever) -> None:
    assert isinstance(notes, Retriever)
    check_retriever(notes, QUERIES, size=len(NOTES))


def test_passages_carry_what_the_index_holds(notes: ElasticsearchRetriever) -> None:
    boat, *rest = notes.retrieve("green boat", 10)
    text = "the green boat of the harbour master"
    assert (boat.id, boat.title, boat.text) == ("n2", "Harbour", text)
    assert boat.score == pytest.approx(field_score("green boat", "body.text", "n2"), rel=1e-6)
    assert [each.id for each in rest] == ["n3", "n0"]
    assert notes.retrieve("zeppelin", 3) == ()


def test_the_request_is_one_search(client: Client, notes: ElasticsearchRetriever) -> None:
    notes.retrieve('boat" OR *', 3)
    (seen,) = client.seen
    assert seen["index"] == "notes"
    assert seen["options"] == {"preference": "suffice", "allow_partial_search_results": "false"}
    assert seen["body"] == {
        "size": 3,
        "track_total_hits": False,
        "_source": ["body.text", "title"],
        "query": {"multi_match": {"query": 'boat" OR *', "fields": ["body.text", "title"]}},
    }


def test_fields_can_be_named(client: Client) -> None:
    settings = ElasticsearchSettings(text_field="title", title_field=None, id_field="key")
    (found,) = ElasticsearchRetriever(client, "notes", settings=settings).retrieve("harbour", 5)
    assert (found.id, found.title, found.text) == ("12", "", "Harbour")
    assert client.seen[0]["body"]["_source"] == ["title", "key"]


def test_lists_are_joined_and_repeated_ids_are_left_out(
    client: Client, notes: ElasticsearchRetriever
) -> None:
    def hit(name: str, score: float, text: object) -> dict[str, Any]:
        return {"_id": name, "_score": score, "_source": {"body": {"text": text}}}

    hits = [hit("a", 3.0, ["one", 2, "three"]), hit("b", 2.0, None), hit("a", 1.0, "other")]
    client.answers = [Wrapped(search_reply(hits))]
    found = notes.retrieve("x", 3)
    assert [(each.id, each.text, each.score) for each in found] == [
        ("a", "one three", 3.0),
        ("b", None, 2.0),
    ]


# --- refusals ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("raised", "kind", "told"),
    [
        (error(401, "security_exception", "missing credentials"), UsageError, "security_exception"),
        (TransportError(403, "no"), UsageError, "credentials"),
        (
            error(400, "too_many_clauses", "maxClauseCount is set to 1024"),
            BackendError,
            "too many words",
        ),
        (TransportError(301, {}), UsageError, "answered 301"),
        (TransportError(405, "<html>\n no</html>"), UsageError, "answered 405"),
        *(
            (TransportError(status, "busy"), BackendError, f"answered {status}: ")
            for status in (429, 500, 502, 503, 504)
        ),
        (TransportError("N/A", "refused"), BackendError, "'notes'"),
        (ConnectionTimeout("TIMEOUT", "read"), BackendError, "ConnectionTimeout"),
        (SerializationError("no JSON"), BackendError, "SerializationError (no JSON)"),
    ],
)
def test_what_a_client_raises_is_told(
    client: Client,
    notes: ElasticsearchRetriever,
    raised: Exception,
    kind: type[Exception],
    told: str,
) -> None:
    client.answers = [raised]
    with pytest.raises(kind, match=re.escape(told)) as caught:
        notes.retrieve("boat", 2)
    assert caught.value.__cause__ is raised


def test_an_index_without_the_field(client: Client) -> None:
    with pytest.raises(UsageError, match="'notes'"):
        ElasticsearchRetriever(client, "notes").retrieve("green boat", 2)


# --- replies that are no ranking ---------------------------------------------------------------------
GOOD = {"_id": "a", "_score": 1.0, "_source": {"body": {"text": "x"}}}
FAILED = {
    "total": 5,
    "failed": 1,
    "failures": [{"shard": 0, "reason": {"type": "node_gone", "reason": "node left"}}],
}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ([], "no ranking"),
        ({}, "'timed_out'"),
        (search_reply([], timed_out=True), "time ran out"),
        (search_reply([GOOD], _shards=FAILED), "node_gone"),
        (search_reply([], hits=None), "no ranking"),
        (search_reply([GOOD | {"_source": []}]), "no ranking"),
        (search_reply(["x"]), "no ranking"),
        (search_reply([GOOD | {"_score": None}]), "no ranking"),
        (search_reply([{"_score": 1.0}]), "'_id'"),
    ],
)
def test_what_is_no_ranking_is_refused(
    client: Client, notes: ElasticsearchRetriever, content: object, told: str
) -> None:
    client.answers = [content]
    with pytest.raises(BackendError, match=told):
        notes.retrieve("boat", 2)


def test_a_document_without_the_named_id(client: Client) -> None:
    settings = ElasticsearchSettings(text_field="body.text", id_field="isbn")
    with pytest.raises(UsageError, match="'isbn'"):
        ElasticsearchRetriever(client, "notes", settings=settings).retrieve("green boat", 1)


@pytest.mark.parametrize("index", ["", "a,b", "a*", "a b", "notes\n"])
def test_index_names_that_are_none(client: Client, index: str) -> None:
    with pytest.raises(UsageError, match="one index"):
        ElasticsearchRetriever(client, index)
