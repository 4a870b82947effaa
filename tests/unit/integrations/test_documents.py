"""What the adapters share, and that they load without the frameworks they adapt."""

from __future__ import annotations

import importlib.util
import math
import subprocess
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suffice.errors import BackendError, DataError, MissingExtra, SufficeWarning, UsageError
from suffice.integrations.documents import (
    AdaptedRetriever,
    AdapterSettings,
    Found,
    connect_own,
    ranked,
)
from suffice.integrations.haystack import HaystackRetriever
from suffice.integrations.langchain import LangChainRetriever, as_langchain_retriever
from suffice.integrations.llamaindex import LlamaIndexRetriever
from suffice.trace.rounds.records import Passage

PLAIN = AdapterSettings()


def found(text: str, *, score: Any = None, **metadata: Any) -> Found:
    return Found(text=text, score=score, metadata=metadata)


def test_own_ids_come_before_hashes_and_named_ones_before_both() -> None:
    documents = [Found(text="a", id="7", metadata={"key": 3}), Found(text="b", metadata={"key": 4})]
    first, second = ranked(documents, 2, PLAIN, source="x")
    # printf b | sha256sum
    assert (first.id, second.id) == (
        "7",
        "3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d",
    )
    named = ranked(documents, 2, AdapterSettings(id_key="key"), source="x")
    assert [each.id for each in named] == ["3", "4"]
    with pytest.raises(DataError, match="'isbn'"):
        ranked(documents, 2, AdapterSettings(id_key="isbn"), source="x")


def test_the_first_of_an_id_stays_and_k_counts_different_ones() -> None:
    documents = [found("a", score=3), found("a", score=2), found("b", score=1), found("c", score=0)]
    kept = ranked(documents, 2, PLAIN, source="x")
    assert [(each.text, each.score) for each in kept] == [("a", 3.0), ("b", 1.0)]


@pytest.mark.parametrize(("title", "wanted"), [("Boats", "Boats"), (None, ""), (7, "7"), ("", "")])
def test_titles_are_texts(title: object, wanted: str) -> None:
    assert ranked([found("a", title=title)], 1, PLAIN, source="x")[0].title == wanted
    other = AdapterSettings(title_key="name")
    assert ranked([found("a", title=title)], 1, other, source="x")[0].title == ""


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        (AdapterSettings(), [5.0, 4.0, 4.0]),
        (AdapterSettings(scores="rank"), [1.0, 0.5, pytest.approx(1 / 3)]),
        (AdapterSettings(scores="none"), [None, None, None]),
        (AdapterSettings(score_key="s"), [0.75, 0.5, 0.25]),
    ],
)
def test_where_scores_come_from(settings: AdapterSettings, wanted: list[float | None]) -> None:
    documents = [
        found("a", score=5, s=0.75),
        found("b", score=4, s=np.float32(0.5)),
        found("c", score=4, s=0.25),
    ]
    assert [each.score for each in ranked(documents, 3, settings, source="x")] == wanted


def test_documents_without_scores_get_their_rank() -> None:
    documents = [found("a"), found("b")]
    assert [each.score for each in ranked(documents, 5, PLAIN, source="x")] == [1.0, 0.5]
    assert ranked([], 5, PLAIN, source="x") == ()


@pytest.mark.parametrize(
    ("documents", "settings", "error", "told"),
    [
        ([found("a", score=1), found("b")], PLAIN, DataError, "without a score"),
        ([found("a", score=1), found("b", score=2)], PLAIN, UsageError, "must fall along"),
        ([found("a", score=math.nan)], PLAIN, DataError, "score nan"),
        ([found("a", score=10**400)], PLAIN, DataError, "score 10000"),
        *[
            ([found("a", score=value)], PLAIN, DataError, f"score {value!r}")
            for value in (True, np.True_, "0.5", b"1")
        ],
        ([found("a", s="high")], AdapterSettings(score_key="s"), DataError, "score 'high'"),
        ([found("a", s="0.5")], AdapterSettings(score_key="s"), DataError, "score '0.5'"),
        ([found("a", s=False)], AdapterSettings(score_key="s"), DataError, "score False"),
        ([found("a", s=[1])], AdapterSettings(score_key="s"), DataError, r"score \[1\]"),
        ([found("a")], AdapterSettings(score_key="s"), DataError, "'s'"),
    ],
)
def test_scores_that_are_none(
    documents: list[Found], settings: AdapterSettings, error: type[Exception], told: str
) -> None:
    with pytest.raises(error, match=f"^the store .*{told}"):
        ranked(documents, 2, settings, source="the store")


def test_settings_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="'best'"):
        AdapterSettings(scores="best")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="'rank'"):
        AdapterSettings(score_key="s", scores="rank")


class Listed(AdaptedRetriever):
    """Finds the same two texts, unless it fails."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__("x", None, advice="Do something.")
        self.error = error

    def _search(self, query: str, k: int) -> tuple[list[str], bool]:
        if self.error is not None:
            raise self.error
        return ["a", "b"], query == "sized"

    def _found(self, document: str) -> Found:
        return Found(text=document)


def test_only_failures_named_are_translated() -> None:
    with pytest.raises(BackendError, match="TimeoutError: late") as caught:
        Listed(TimeoutError("late")).retrieve("q", 1)
    assert isinstance(caught.value.__cause__, TimeoutError)
    odd = Listed(KeyError())
    with pytest.raises(KeyError):
        odd.retrieve("q", 1)
    odd._settings = AdapterSettings(failures=(KeyError,))
    with pytest.raises(BackendError, match="KeyError"):
        odd.retrieve("q", 1)


def test_a_short_result_is_said_once() -> None:
    listed = Listed()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(listed.retrieve("q", 2)) == len(listed.retrieve("sized", 3)) == 2
    with pytest.warns(SufficeWarning, match="documents"):
        listed.retrieve("q", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        listed.retrieve("q", 3)


@pytest.mark.parametrize(
    ("build", "module", "line"),
    [
        (LangChainRetriever, "langchain_core", "pip install langchain-core"),
        (as_langchain_retriever, "langchain_core", "pip install langchain-core"),
        (LlamaIndexRetriever, "llama_index", "pip install llama-index-core"),
        (HaystackRetriever, "haystack", "pip install haystack-ai"),
    ],
)
def test_a_missing_framework_is_told_with_its_install_line(
    build: Callable[[Any], object], module: str, line: str
) -> None:
    if importlib.util.find_spec(module):
        pytest.skip(f"{module} is installed")
    with pytest.raises(MissingExtra, match=rf"{module}', which is not installed\. .*: {line}$"):
        build(object())


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


# --- own retrievers -------------------------------------------------------------------------------
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
    """Finds the same document whatever is asked."""

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
    assert asked.client.seen[-1]["body"]["query"]["multi_match"]["fields"] == [
        "body.text",
        "title^1",
    ]
    connect_own(f"{kind}:http://h/notes/?title_field=&timeout_s=3&title_boost=2")
    connect_own(f"{kind}:https://[::1]/notes")
    assert asked.urls[1:] == ["http://h:9200", "https://[::1]:443"]


@pytest.mark.parametrize(
    ("rest", "part"),
    [
        ("", "server"),
        ("localhost/notes", "names no index"),
        ("http://localhost:9200", "names no index"),
        ("http://ann:secret@localhost:x/notes", r"\(Port could not be cast"),
        ("http://h/notes?text=a", "'text'"),
        ("http://h/notes?timeout_s=soon", "'soon'"),
        ("http://h/notes?match=any", "'any'"),
        ("http://h/a,b", "'a,b' is no name of one index"),
        ("http://bad/notes", "not a host"),
    ],
)
def test_an_index_that_is_none(rest: str, part: str, server: tuple[str, Asked]) -> None:
    kind, asked = server
    with pytest.raises(UsageError, match=part) as refused:
        connect_own(f"{kind}:{rest}")
    assert "secret" not in str(refused.value)
    assert asked.urls in ([], ["http://h:9200"])
