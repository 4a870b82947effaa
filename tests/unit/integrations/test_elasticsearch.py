"""The adapter against a server of the tests' own, which ranks by BM25 and misbehaves on request."""

from __future__ import annotations

import gzip
import json
import math
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from suffice.errors import BackendError, UsageError
from suffice.integrations.elasticsearch import ElasticsearchRetriever, ElasticsearchSettings
from suffice.pipelines.loops.ranked import CumulativePipeline, CumulativeSettings
from suffice.protocols import Retriever
from suffice.testing.conformance import check_retriever
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Question

Answer = tuple[int, dict[str, str], object]
NOTES = {
    "n0": {"title": "Boats", "body": {"text": "a red boat at sea"}, "key": 10},
    "n1": {"title": "Trees", "body": {"text": "an old tree by the harbour"}, "key": 11},
    "n2": {"title": "Harbour", "body": {"text": "the green boat of the harbour master"}, "key": 12},
    "n3": {"title": "Green", "body": {"text": "a colour between blue and yellow"}, "key": 13},
}
QUERIES = ("green boat", "harbour", "old tree", "zeppelin")
NAMED = ElasticsearchSettings(text_field="body.text", max_retries=2, timeout_s=5)


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


def values(source: Any, name: str) -> str:
    for part in name.split("."):
        source = source.get(part, "")
    return str(source)


def field_score(query: str, name: str, key: str) -> float:
    """Lucene's BM25 of one document over one field."""
    texts = {other: words(values(note, name)) for other, note in NOTES.items()}
    mean = sum(map(len, texts.values())) / len(texts)
    own, score = texts[key], 0.0
    if not mean:
        return score
    for word in words(query):
        df = sum(word in text for text in texts.values())
        tf = own.count(word)
        idf = math.log(1 + (len(texts) - df + 0.5) / (df + 0.5))
        score += idf * tf / (tf + 1.2 * (0.25 + 0.75 * len(own) / mean))
    return score


def ranking(body: dict[str, Any]) -> list[dict[str, Any]]:
    """What ``multi_match`` of type best_fields finds."""
    match = body["query"]["multi_match"]
    assert match["type"] == "best_fields"
    scored = []
    for key in NOTES:
        best = 0.0
        for named in match["fields"]:
            name, _, boost = named.partition("^")
            best = max(best, float(boost or 1) * field_score(match["query"], name, key))
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


def error(status: int, kind: str, reason: str) -> Answer:
    cause = {"type": kind, "reason": reason}
    return status, {}, {"error": {**cause, "root_cause": [cause]}, "status": status}


def dumped(content: object) -> bytes:
    return json.dumps(content).encode()


class Server:
    """``_search`` of the index ``notes``, and of whatever ``answers`` say first."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.always: Callable[[dict[str, Any]], Answer] | None = None
        self.seen: list[dict[str, Any]] = []
        self.url = ""
        self.authorization: str | None = None

    def handle(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Answer:
        parts = urlsplit(path)
        self.seen.append({"path": parts.path, "options": parse_qs(parts.query), "body": body})
        if self.answers:
            return self.answers.pop(0)
        if self.always is not None:
            return self.always(body)
        if self.authorization is not None and headers.get("Authorization") != self.authorization:
            return error(401, "security_exception", "missing authentication credentials")
        index = unquote(parts.path).split("/")[1]
        if index != "notes":
            return error(404, "index_not_found_exception", f"no such index [{index}]")
        if body["size"] > 10_000:
            return error(400, "illegal_argument_exception", "Result window is too large")
        return 200, {}, search_reply(ranking(body))


@pytest.fixture
def server() -> Iterator[Server]:
    double = Server()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers.get("Content-Length", 0))
            body = json.loads(self.rfile.read(length))
            status, headers, content = double.handle(self.path, dict(self.headers), body)
            drop_by_drop = isinstance(content, bytearray)
            data = bytes(content) if isinstance(content, bytes | bytearray) else dumped(content)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            step = 1 if drop_by_drop else max(1, len(data))
            for start in range(0, len(data), step):
                self.wfile.write(data[start : start + step])
                threading.Event().wait(0.05 if drop_by_drop else 0)

        def log_message(self, *args: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # clients that leave early

    with Quiet(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, args=(0.01,), daemon=True).start()
        double.url = f"http://127.0.0.1:{running.server_port}"
        yield double
        running.shutdown()


@pytest.fixture
def notes(server: Server) -> Iterator[ElasticsearchRetriever]:
    with ElasticsearchRetriever(server.url, "notes", settings=NAMED) as retriever:
        yield retriever


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Pauses between attempts, noted and not taken."""
    taken: list[float] = []
    monkeypatch.setattr("suffice.integrations.elasticsearch.time.sleep", taken.append)
    return taken


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


def test_the_request_is_one_search(server: Server, notes: ElasticsearchRetriever) -> None:
    notes.retrieve('boat" OR *', 3)
    (seen,) = server.seen
    assert seen["path"] == "/notes/_search"
    assert seen["options"] == {"preference": ["suffice"], "allow_partial_search_results": ["false"]}
    assert seen["body"] == {
        "size": 3,
        "timeout": "5000ms",
        "track_total_hits": False,
        "_source": ["body.text", "title"],
        "query": {
            "multi_match": {
                "query": 'boat" OR *',
                "fields": ["body.text", "title^1"],
                "type": "best_fields",
            }
        },
    }


def test_fields_can_be_named(server: Server) -> None:
    settings = ElasticsearchSettings(text_field="title", title_field=None, id_field="key")
    with ElasticsearchRetriever(f"{server.url}/", "notes", settings=settings) as retriever:
        (found,) = retriever.retrieve("harbour", 5)
    assert (found.id, found.title, found.text) == ("12", "", "Harbour")
    assert server.seen[0]["body"]["_source"] == ["title", "key"]


def test_a_boosted_title_comes_first(server: Server) -> None:
    def first(boost: float) -> str:
        settings = ElasticsearchSettings(text_field="body.text", title_boost=boost)
        with ElasticsearchRetriever(server.url, "notes", settings=settings) as retriever:
            return retriever.retrieve("green boat", 1)[0].id

    assert (first(5), first(0.01)) == ("n3", "n2")


def test_lists_are_joined_and_repeated_ids_are_left_out(
    server: Server, notes: ElasticsearchRetriever
) -> None:
    def hit(name: str, score: float, text: object) -> dict[str, Any]:
        return {"_id": name, "_score": score, "_source": {"body": {"text": text}}}

    hits = [hit("a", 3.0, ["one", 2, "three"]), hit("b", 2.0, None), hit("a", 1.0, "other")]
    server.answers = [(200, {}, search_reply(hits))]
    found = notes.retrieve("x", 3)
    assert [(each.id, each.text, each.score) for each in found] == [
        ("a", "one three", 3.0),
        ("b", None, 2.0),
    ]


def test_an_empty_query_asks_nothing(server: Server, notes: ElasticsearchRetriever) -> None:
    assert notes.retrieve(" \n", 3) == ()
    assert server.seen == []
    with pytest.raises(UsageError, match="k must be at least 1"):
        notes.retrieve("boat", 0)


def test_a_loop_runs_on_it(notes: ElasticsearchRetriever) -> None:
    pipeline = CumulativePipeline(ScriptedModel(), CumulativeSettings(rounds=3))
    rounds = list(pipeline.rounds(Question(id="q", text="green boat?"), notes))
    assert [each.passages and each.passages[0].id for each in rounds] == ["n2", "n3", "n0"]
    assert rounds[0].candidate_scores is not None
    assert len(rounds[0].candidate_scores) == 3


# --- credentials -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("settings", "header"),
    [
        (ElasticsearchSettings(api_key="a2V5"), "ApiKey a2V5"),
        (ElasticsearchSettings(username="ann", password="s:1"), "Basic YW5uOnM6MQ=="),
    ],
)
def test_credentials_are_sent(server: Server, settings: ElasticsearchSettings, header: str) -> None:
    server.authorization = header
    with (
        ElasticsearchRetriever(server.url, "notes", settings=settings) as retriever,
        pytest.raises(UsageError, match=r"no document of index 'notes'.*has text under 'text'"),
    ):
        retriever.retrieve("green boat", 2)
    assert "a2V5" not in repr(settings)
    assert "s:1" not in repr(settings)


def test_missing_credentials_are_told(server: Server, notes: ElasticsearchRetriever) -> None:
    server.authorization = "ApiKey x"
    with pytest.raises(UsageError, match=r"answered 401: security_exception.*api_key="):
        notes.retrieve("boat", 2)
    assert len(server.seen) == 1


# --- refusals ----------------------------------------------------------------------------------------
def test_an_index_that_is_not_there(server: Server) -> None:
    with (
        ElasticsearchRetriever(server.url, "nötes") as retriever,
        pytest.raises(UsageError, match=r"answered 404: index_not_found.*\[nötes\]"),
    ):
        retriever.retrieve("boat", 2)
    assert server.seen[0]["path"] == "/n%C3%B6tes/_search"


def test_too_large_a_k(notes: ElasticsearchRetriever) -> None:
    with pytest.raises(UsageError, match=r"answered 400.*window is too large.*fields and k"):
        notes.retrieve("boat", 10_001)


def test_too_long_a_query_fails_that_query_alone(
    server: Server, notes: ElasticsearchRetriever
) -> None:
    server.answers = [error(400, "too_many_clauses", "maxClauseCount is set to 1024")]
    with pytest.raises(BackendError, match="too many words"):
        notes.retrieve("boat", 2)


def test_a_redirect_is_not_followed(server: Server, notes: ElasticsearchRetriever) -> None:
    server.answers = [(301, {"Location": "http://127.0.0.1:9/"}, {})]
    with pytest.raises(UsageError, match="points elsewhere"):
        notes.retrieve("boat", 2)


# --- failures that pass ------------------------------------------------------------------------------
def test_passing_failures_are_tried_again(
    server: Server, notes: ElasticsearchRetriever, pauses: list[float]
) -> None:
    server.answers = [(429, {"Retry-After": "3"}, {}), (503, {}, b"<html>busy</html>")]
    assert len(notes.retrieve("green boat", 2)) == 2
    assert pauses == [3.0, 0.5]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_lasting_failures_are_told(
    server: Server, notes: ElasticsearchRetriever, status: int, pauses: list[float]
) -> None:
    server.always = lambda _: (status, {"Retry-After": "9999"}, b"<html>\n busy</html>")
    with pytest.raises(BackendError, match=rf"answered {status}: <html> busy</html> \(after"):
        notes.retrieve("boat", 2)
    assert len(server.seen) == 3
    assert pauses == [10.0, 10.0]


@pytest.mark.parametrize(
    ("said", "pause"),
    [
        *(("nan", 0.25), ("-1", 0.25), ("-inf", 0.25), ("soon", 0.25), ("", 0.25)),
        *(("Wed, 21 Oct 2015 07:28:00 GMT", 0.25), ("0", 0.0), ("inf", 10.0), ("9" * 400, 10.0)),
    ],
)
def test_pauses_that_are_none(
    server: Server, notes: ElasticsearchRetriever, said: str, pause: float, pauses: list[float]
) -> None:
    server.answers = [(503, {"Retry-After": said}, {})]
    assert len(notes.retrieve("green boat", 2)) == 2
    assert pauses == [pause]


def test_a_server_that_is_not_there(pauses: list[float]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    with (
        ElasticsearchRetriever(url, "notes", settings=NAMED) as retriever,
        pytest.raises(BackendError, match=r"index 'notes' at .* cannot be reached"),
    ):
        retriever.retrieve("boat", 2)
    assert pauses == [0.25, 0.5]


def test_a_server_that_takes_too_long(server: Server) -> None:
    waited = threading.Event()

    def late(_: dict[str, Any]) -> Answer:
        waited.wait(2)
        return 200, {}, search_reply([])

    server.always = late
    settings = ElasticsearchSettings(timeout_s=0.1, max_retries=0)
    started = time.monotonic()
    with (
        ElasticsearchRetriever(server.url, "notes", settings=settings) as retriever,
        pytest.raises(BackendError, match=r"did not answer within 0\.1 s"),
    ):
        retriever.retrieve("boat", 2)
    waited.set()
    assert time.monotonic() - started < 2


def test_a_server_that_answers_drop_by_drop(server: Server) -> None:
    server.always = lambda _: (200, {}, bytearray(dumped(search_reply([]))))
    settings = ElasticsearchSettings(timeout_s=0.3, max_retries=0)
    started = time.monotonic()
    with (
        ElasticsearchRetriever(server.url, "notes", settings=settings) as retriever,
        pytest.raises(BackendError, match=r"did not answer within 0\.3 s"),
    ):
        retriever.retrieve("boat", 2)
    assert time.monotonic() - started < 2


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
        (b"<html>hello</html>", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[]", "the reply is"),
        (b"{}", "_shards is None"),
        (search_reply([], timed_out=True), "ran out of time"),
        (search_reply([GOOD], _shards=FAILED), r"1 of 5 shards failed \(node_gone: node left\)"),
        (search_reply([], hits=None), "hits is None"),
        (search_reply([], hits={"hits": "x"}), "hits is"),
        (search_reply([GOOD] * 3), "hits is"),
        (search_reply([GOOD | {"_source": []}]), "_source is"),
        (search_reply(["x"]), "_source is"),
        (search_reply([GOOD | {"_score": None}]), "_score is None"),
        (search_reply([GOOD | {"_score": True}]), "_score is True"),
        (search_reply([GOOD | {"_score": math.nan}]), "_score is nan"),
        (search_reply([GOOD | {"_score": "1.5"}]), "_score is '1.5'"),
        (search_reply([GOOD | {"_score": [1.5]}]), r"_score is \[1.5\]"),
        (search_reply([GOOD | {"_score": 10**400}]), "_score is 1000"),
        (search_reply([GOOD | {"_id": None}]), "_id is None"),
        (search_reply([GOOD, GOOD | {"_score": 2.0}]), "later score above"),
    ],
)
def test_what_is_no_ranking_is_refused(
    server: Server, notes: ElasticsearchRetriever, content: object, told: str
) -> None:
    server.answers = [(200, {}, content)]
    with pytest.raises(BackendError, match=told):
        notes.retrieve("boat", 2)


def test_a_document_without_the_named_id(server: Server) -> None:
    settings = ElasticsearchSettings(text_field="body.text", id_field="isbn")
    with (
        ElasticsearchRetriever(server.url, "notes", settings=settings) as retriever,
        pytest.raises(UsageError, match=r"document 'n2' .* has no id under 'isbn'"),
    ):
        retriever.retrieve("green boat", 1)


def test_long_replies_are_refused_also_when_packed(server: Server) -> None:
    packed = gzip.compress(b" " * 5_000_000)
    server.answers = [(200, {"Content-Encoding": "gzip"}, packed)]
    settings = ElasticsearchSettings(max_bytes=100_000)
    assert len(packed) < settings.max_bytes
    with (
        ElasticsearchRetriever(server.url, "notes", settings=settings) as retriever,
        pytest.raises(BackendError, match=r"more than 100,000 bytes"),
    ):
        retriever.retrieve("boat", 2)


def test_a_reply_that_is_wrongly_packed(server: Server, notes: ElasticsearchRetriever) -> None:
    server.answers = [(200, {"Content-Encoding": "gzip"}, b"no gzip")]
    with pytest.raises(BackendError, match="cannot be read"):
        notes.retrieve("boat", 2)


# --- what cannot be built ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    "url",
    [
        *("", "search.example:9200", "ftp://search.example", "http://", "http://[::1"),
        *("https://ann:secret@search.example", "https://search.example/?a=1", "http://a b:9200"),
        *("ann:secret@search.example", "x://ann:secret@search.example", "http://a:port"),
    ],
)
def test_urls_that_are_none(url: str) -> None:
    with pytest.raises(UsageError, match="URL") as caught:
        ElasticsearchRetriever(url, "notes")
    assert "secret@" not in str(caught.value) or not url.startswith(("http", "x://"))


@pytest.mark.parametrize(
    "index",
    [
        *(
            "",
            ".",
            "..",
            "_all",
            "-notes",
            "+notes",
            "a/b",
            "a,b",
            "a*",
            "a b",
            "a?b",
            "<a>",
            "a#b",
        ),
        *("..%2f_cluster", "notes\n", "c:notes", "a\\b", 'a"b', "a|b", "x" * 256, "ü" * 128),
    ],
)
def test_index_names_that_are_none(index: str) -> None:
    with pytest.raises(UsageError, match="no name of an index"):
        ElasticsearchRetriever("http://127.0.0.1:9", index)


@pytest.mark.parametrize("index", [".hidden", "notes-2026.11", "...", "x" * 255])
def test_index_names_that_may_be(index: str) -> None:
    ElasticsearchRetriever("http://127.0.0.1:9", index).close()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"match": "fuzzy"}, "no match type"),
        ({"title_boost": 0.0}, "title_boost"),
        ({"timeout_s": math.inf}, "timeout_s"),
        ({"timeout_s": math.nan}, "timeout_s"),
        ({"max_retries": -1}, "max_retries"),
        ({"max_bytes": 0}, "max_bytes"),
        ({"text_field": ""}, "text_field"),
        ({"title_field": "a*"}, "title_field"),
        ({"id_field": "a b"}, "id_field"),
        ({"api_key": "a\nb"}, "api_key"),
        ({"api_key": "a", "username": "b", "password": "c"}, "not both"),
        ({"username": "b"}, "go together"),
        ({"password": "c"}, "go together"),
        ({"username": "a:b", "password": "c"}, "colon"),
    ],
)
def test_settings_that_cannot_be(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        ElasticsearchSettings(**wrong)


def test_certificates_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("nothing")
    for name in ("ca.pem", "missing.pem"):
        settings = ElasticsearchSettings(ca_file=tmp_path / name)
        with pytest.raises(UsageError, match="no certificates in PEM form"):
            ElasticsearchRetriever("https://127.0.0.1:9", "notes", settings=settings)
