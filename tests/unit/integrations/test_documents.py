"""Retrievers of the user's own, and that the adapters load without the frameworks they adapt."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from suffice.errors import BackendError, DataError, MissingExtra, UsageError
from suffice.integrations.documents import FORMS, PythonRetriever, connect_own, is_own
from suffice.trace.rounds.records import Passage


@dataclass
class Node:
    node_id: str
    text: str
    metadata: dict[str, str]


@dataclass
class NodeWithScore:
    node: Node
    score: float


@dataclass
class Document:
    page_content: str
    metadata: dict[str, str]
    id: str | None = None


def test_documents_of_frameworks_are_passages() -> None:
    nodes = [NodeWithScore(Node("b1", "A boat.", {"title": "Boats"}), 0.5)]
    (found,) = PythonRetriever(lambda _, k: nodes[:k]).retrieve("boat", 2)
    assert found == Passage(id="b1", text="A boat.", title="Boats", score=0.5)
    unnamed = [Document("b", {"title": "Trees"}), Document("a", {}, "7"), Document("b", {})]
    first, second = PythonRetriever(lambda *_: unnamed).retrieve("boat", 5)
    # printf b | sha256sum
    name = "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d"
    assert first == Passage(id=name, text="b", title="Trees", score=1.0)
    assert second == Passage(id="7", text="a", score=0.5)


def test_the_modules_load_without_any_framework() -> None:
    names = ("documents", "elasticsearch", "haystack", "langchain", "llamaindex")
    code = (
        "import importlib, sys\n"
        f"for name in {names}: importlib.import_module('suffice.integrations.' + name)\n"
        "print([m for m in ('haystack', 'httpx2', 'langchain_core', 'llama_index', 'torch') if m in "
        "sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


MODULE = """
from suffice import Passage
from suffice.errors import DataError

def texts(query, k):
    return (text for text in ("one", "two", "one", "three"))

def rows(query, k, *, deep=False):
    return [{"id": 7, "text": query, "title": "T", "score": 2}, {"id": "8", "text": "b", "score": 1.5}]

def passages(query, k):
    return [Passage(id="a", text="x", score=0.5, rerank_score=3.0)] * 2 + [Passage(id="b", text="y")]

def rising(query, k):
    return [{"text": "a", "score": 0.1}, {"text": "b", "score": 0.2}]

def half_scored(query, k):
    return [{"text": "a", "score": 0.1}, {"text": "b", "score": "0.05"}]

def failing(query, k):
    raise KeyError("no such shelf")

def refusing(query, k):
    raise DataError("as it is")

def lazily_failing(query, k):
    yield "a"
    raise OSError("gone")

async def later(query, k):
    return []

class Shop:
    def retrieve(self, query, k):
        return [query] * k

class Needy:
    def __init__(self, url):
        self.url = url

shop, five = Shop(), 5
nothing, word, mapping = (lambda q, k: None), (lambda q, k: "one"), (lambda q, k: {"hits": []})
unlabelled, numbers = (lambda q, k: [{"body": "x"}]), (lambda q, k: [1])
alone = lambda q: []
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``my_search`` in the working directory, which is not on Python's path."""
    (tmp_path / "my_search.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "broken_search.py").write_text("import nowhere_to_be_found\n", encoding="utf-8")
    (tmp_path / "odd_search.py").write_text("1 / 0\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in (
        "my_search",
        "broken_search",
        "odd_search",
    ):  # other tests have modules of these names
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield
    for name in ("my_search", "broken_search", "odd_search"):
        sys.modules.pop(name, None)


def find(name: str, k: int = 3) -> tuple[Passage, ...]:
    return tuple(connect_own(f"python:my_search:{name}").retriever.retrieve("q", k))


# --- Python ------------------------------------------------------------------------------------------
@pytest.mark.usefixtures("module")
def test_what_a_function_may_return() -> None:
    own = connect_own("python:my_search:rows")
    assert own.name == "python:my_search:rows"
    first, second = own.retriever.retrieve("who?", 5)
    assert (first.id, first.text, first.title, first.score) == ("7", "who?", "T", 2.0)
    assert own.retriever.retrieve("who?", 1) == (first,)
    assert second.title == ""
    texts = find("texts")
    assert [passage.text for passage in texts] == ["one", "two", "three"]
    assert [passage.score for passage in texts] == pytest.approx([1, 1 / 2, 1 / 3])
    assert [passage.id for passage in texts] == [passage.id for passage in find("texts")]
    assert [(each.id, each.rerank_score) for each in find("passages")] == [("a", 3.0), ("b", None)]
    assert [each.text for each in find("shop")] == [each.text for each in find("Shop")] == ["q"]


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("name", "kind", "part"),
    [
        ("failing", BackendError, "my_search"),
        ("lazily_failing", BackendError, "OSError: gone"),
        ("refusing", DataError, "^as it is$"),
        ("rising", UsageError, "order"),
        ("half_scored", DataError, "score"),
        ("nothing", UsageError, "returned"),
        ("word", UsageError, "returned str 'one'"),
        ("mapping", UsageError, "returned"),
        ("unlabelled", UsageError, r"returned list .*\{'body': 'x'\}"),
        ("numbers", UsageError, r"returned list \[1\]"),
    ],
)
def test_what_it_must_not_return(name: str, kind: type[Exception], part: str) -> None:
    with pytest.raises(kind, match=part):
        find(name)


@pytest.mark.usefixtures("module")
@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("python:my_search", "my_search"),
        ("python:my_search.py:rows", "function"),
        ("python:./my_search:rows", "function"),
        ("python:my_serch:rows", "'my_serch'"),
        ("python:my_search.rows:x", "my_search.rows"),
        ("python:broken_search:rows", "broken_search"),
        ("python:odd_search:rows", "odd_search"),
        ("python:my_search:row", "'row'"),
        ("python:my_search:Shop.find", "'find'"),
        ("python:my_search:five", "function"),
        ("python:my_search:later", "is async"),
        ("python:my_search:alone", "positional"),
        ("python:my_search:Needy", "'url'"),
    ],
)  # fmt: skip
def test_a_target_that_is_none(text: str, part: str) -> None:
    with pytest.raises(UsageError, match=part) as refused:
        connect_own(text)
    assert text in str(refused.value)


# --- servers -----------------------------------------------------------------------------------------
class Client:
    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def search(self, **asked: Any) -> dict[str, Any]:
        self.seen.append(asked)
        hit = {"_id": "n2", "_score": 1.5, "_source": {"body": {"text": "a boat"}, "title": "Boat"}}
        return {"timed_out": False, "_shards": {"failed": 0}, "hits": {"hits": [hit]}}


@dataclass
class Asked:
    """The clients' stand-in: what they were made with, and the one that was made."""

    urls: list[str]
    client: Client


@pytest.fixture(params=["elasticsearch", "opensearch"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Asked]:
    asked = Asked([], Client())

    def made(url: str) -> Client:
        if "bad" in url:
            raise ValueError("not a host")
        asked.urls.append(url)
        return asked.client

    kind: str = request.param
    module, name = {
        "elasticsearch": ("elasticsearch", "Elasticsearch"),
        "opensearch": ("opensearchpy", "OpenSearch"),
    }[kind]
    stand_in: Any = types.ModuleType(module)
    setattr(stand_in, name, made)
    monkeypatch.setitem(sys.modules, module, stand_in)
    return kind, asked


def test_an_index_of_a_server_is_searched(server: tuple[str, Asked]) -> None:
    kind, asked = server
    own = connect_own(f"{kind}:http://ann:secret@localhost:1/below/notes?text_field=body.text")
    assert asked.urls == ["http://ann:secret@localhost:1/below"]
    assert own.name == f"{kind}:http://localhost:1/below/notes?text_field=body.text"
    found = own.retriever.retrieve("green boat", 2)
    assert [(each.id, each.text, each.score) for each in found] == [("n2", "a boat", 1.5)]
    assert asked.client.seen[-1]["index"] == "notes"
    assert asked.client.seen[-1]["body"]["query"]["multi_match"]["fields"] == ["body.text", "title"]
    connect_own(f"{kind}:http://h/notes/?title_field=&id_field=key")
    connect_own(f"{kind}:https://[::1]/notes")
    assert asked.urls[1:] == ["http://h:9200", "https://[::1]:443"]


def test_the_client_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opensearchpy", None)
    with pytest.raises(MissingExtra, match="--retriever"):
        connect_own("opensearch:http://localhost:9200/notes")


def test_which_names_are_own() -> None:
    assert FORMS == ("elasticsearch:URL/INDEX", "opensearch:URL/INDEX", "python:MODULE:FUNCTION")
    assert is_own("python:x")
    assert not any(map(is_own, ("bm25", "python", "http://x", "dense+rerank")))
