from __future__ import annotations

import multiprocessing
import os
import sqlite3
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties import examples

from suffice.contracts import Completion, Generation, GenerationRequest, Message
from suffice.errors import DataError, UsageError
from suffice.llm.connect import CachedModel, connect, request_key
from suffice.llm.endpoint import OpenAISettings
from suffice.llm.openai_compatible import OpenAICompatibleModel
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Token, TopToken

REQUEST = GenerationRequest(prompt="Evidence: Ann, Bob, Cid, Dee", temperature=0.9, seed=5)


def texts(reply: Generation) -> list[str]:
    return [completion.text for completion in reply.completions]


def test_samples_without_a_seed_do_not_collapse(tmp_path: Path) -> None:
    inner = ScriptedModel([str(i) for i in range(10)])
    unseeded = replace(REQUEST, seed=None)
    with CachedModel(inner, tmp_path / "c") as model:
        assert texts(model.generate(replace(unseeded, n=3))) == ["0", "1", "2"]
        assert texts(model.generate(replace(unseeded, n=5))) == ["0", "1", "2", "3", "4"]
        assert texts(model.generate(unseeded)) == ["0"]


class Costs:
    name, api = "costs", "completion"

    def __init__(self, *replies: Generation) -> None:
        self.replies = list(replies)

    def generate(self, request: GenerationRequest) -> Generation:
        return self.replies.pop(0)


def test_usage_is_that_of_the_calls_that_drew_the_samples(tmp_path: Path) -> None:
    def reply(n: int, **cost: Any) -> Generation:
        return Generation(completions=(Completion(text="x"),) * n, model="m-2026", **cost)

    first = reply(2, prompt_tokens=10, cached_tokens=4, completion_tokens=7, latency_s=0.1)
    second = reply(1, prompt_tokens=10, cached_tokens=None, completion_tokens=2, latency_s=0.2)
    with CachedModel(Costs(first, second), tmp_path / "c") as model:  # type: ignore[arg-type]
        for _ in range(2):
            assert model.generate(replace(REQUEST, n=2)) == first
        for _ in range(2):
            both = model.generate(replace(REQUEST, n=3))
            assert (both.prompt_tokens, both.cached_tokens, both.completion_tokens) == (20, None, 9)
            assert both.latency_s == 0.1 + 0.2
            assert both.model == "m-2026"


CHANGES: list[dict[str, Any]] = [
    {"prompt": "other"},
    {"prompt": (Message(role="user", content=str(REQUEST.prompt)),)},
    {"temperature": 0.8},
    {"top_p": 0.5},
    {"max_tokens": 3},
    {"top_logprobs": 1},
    {"seed": 6},
    {"seed": None},
    {"stop": ("x",)},
]


def test_the_key_holds_everything_but_n() -> None:
    def key(request: GenerationRequest, **identity: str) -> str:
        named = {"model": "m", "endpoint": "e", "api": "chat"} | identity
        return request_key(request, **named)

    keys = [key(REQUEST), *(key(replace(REQUEST, **change)) for change in CHANGES)]
    keys += [key(REQUEST, **{part: "x"}) for part in ("model", "endpoint", "api")]
    assert len(set(keys)) == len(keys)
    assert key(replace(REQUEST, n=9)) == keys[0]


names = st.text(st.characters(), max_size=8)  # lone surrogates too
logprobs = st.floats(-(2.0**127), 0, width=32) | st.just(-float("inf"))
tokens = st.builds(
    Token, names, logprobs, st.lists(st.builds(TopToken, names, logprobs), max_size=2).map(tuple)
)
completions = st.builds(
    Completion,
    text=names,
    tokens=st.none() | st.lists(tokens, max_size=3).map(tuple),
    finish_reason=st.none() | names,
)
number = st.none() | st.integers(0, 2**40)
generations = st.builds(
    Generation,
    completions=st.lists(completions, min_size=1, max_size=4).map(tuple),
    model=names,
    prompt_tokens=number,
    cached_tokens=number,
    completion_tokens=number,
    latency_s=st.none() | st.floats(0, 1e6),
)


@given(reply=generations, prompt=names)
@settings(max_examples=examples(60), deadline=None)
def test_what_comes_back_is_bit_equal(reply: Generation, prompt: str) -> None:
    request = GenerationRequest(prompt=prompt, n=len(reply.completions))
    with tempfile.TemporaryDirectory() as folder:
        for replies in ((reply,), ()):
            with CachedModel(Costs(*replies), Path(folder) / "c") as model:  # type: ignore[arg-type]
                assert model.generate(request) == reply


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 6)), max_size=8))
@settings(max_examples=examples(40), deadline=None)
def test_any_order_of_requests_equals_fresh_draws(steps: list[tuple[str, int]]) -> None:
    fresh, inner = ScriptedModel(), ScriptedModel()
    with tempfile.TemporaryDirectory() as folder, CachedModel(inner, Path(folder) / "c") as model:
        for prompt, n in steps:
            request = replace(REQUEST, prompt=f"Ann Bob, Cid, Dee, Eve {prompt}", n=n)
            assert texts(model.generate(request)) == texts(fresh.generate(request))
    drawn = sum(request.n for request in inner.requests)
    assert drawn == sum(max([n for p, n in steps if p == prompt], default=0) for prompt in "ab")


def test_threads_that_miss_together_get_the_same_row(tmp_path: Path) -> None:
    counter = iter(range(10_000))
    inner = ScriptedModel(lambda *_: str(next(counter)), delay_s=0.05)
    start = threading.Barrier(8)
    with CachedModel(inner, tmp_path / "c") as model, ThreadPoolExecutor(8) as pool:

        def ask(n: int) -> list[str]:
            start.wait()
            return texts(model.generate(replace(REQUEST, n=n)))

        found = list(pool.map(ask, [1, 2, 3, 4] * 2))
        longest = max(found, key=len)
        assert len(set(longest)) == 4
        assert all(longest[: len(some)] == some for some in found)
        assert texts(model.generate(replace(REQUEST, n=4))) == longest


def worker(path: str, number: int, out: Any) -> None:
    inner = ScriptedModel(lambda request, index: f"{request.prompt} by {number}")
    with CachedModel(inner, path) as model:
        found = [texts(model.generate(GenerationRequest(prompt=str(i), n=2))) for i in range(100)]
    out.put((found, len(inner.requests)))


def test_processes_share_a_new_file(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    processes = [
        context.Process(target=worker, args=(str(tmp_path / "c"), k, out)) for k in range(3)
    ]
    for process in processes:
        process.start()
    results = [out.get(timeout=60) for _ in processes]
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert results[0][0] == results[1][0] == results[2][0]
    # each text was asked for by somebody, and the calls of losers left nothing
    with sqlite3.connect(tmp_path / "c") as database:
        kept = database.execute("SELECT count(*) FROM samples").fetchone()[0]
        calls = database.execute("SELECT count(*) FROM calls").fetchone()[0]
        used = database.execute("SELECT count(DISTINCT call) FROM samples").fetchone()[0]
    database.close()
    assert (kept, calls) == (200, used)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_after_fork_opens_its_own_connection(tmp_path: Path) -> None:
    with CachedModel(ScriptedModel(), tmp_path / "c") as model:
        before = model.generate(REQUEST)
        child = os.fork()
        if child == 0:
            same = model.generate(REQUEST) == before
            model.generate(replace(REQUEST, prompt="from the child"))
            os._exit(0 if same else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        inner = model.model
        assert isinstance(inner, ScriptedModel)
        model.generate(replace(REQUEST, prompt="from the child"))
        assert len(inner.requests) == 1


def test_newer_and_foreign_files(tmp_path: Path) -> None:
    path = tmp_path / "c"
    CachedModel(ScriptedModel(), path).close()
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 2")
    database.close()
    with pytest.raises(DataError, match="version 2"):
        CachedModel(ScriptedModel(), path)
    other = tmp_path / "other"
    with sqlite3.connect(other) as database:
        database.execute("CREATE TABLE mine (x)")
    database.close()
    before = other.read_bytes()
    with pytest.raises(DataError, match="cache of replies"):
        CachedModel(ScriptedModel(), other)
    assert other.read_bytes() == before


def test_a_schema_and_the_order_of_its_keys_enter_the_key() -> None:
    def key(schema: Any) -> str:
        asked = replace(REQUEST, json_schema=schema)
        return request_key(asked, model="m", endpoint="", api="completion")

    first = {"type": "object", "properties": {"a": {}, "b": {}}}
    swapped = {"type": "object", "properties": {"b": {}, "a": {}}}
    keys = [key(schema) for schema in (None, {}, first, swapped)]
    assert len(set(keys)) == 4
    assert key(MappingProxyType(first)) == key(dict(first)) == keys[2]
    with pytest.raises(UsageError, match="json_schema"):
        key({"enum": {1}})


# --- connect --------------------------------------------------------------------------------------
def test_a_url_connects_without_asking() -> None:
    model = connect("http://127.0.0.1:9/v1/", "m", server=OpenAISettings(api="completion"))
    assert isinstance(model, OpenAICompatibleModel)
    assert (model.name, model.api, model.endpoint) == ("m", "completion", "http://127.0.0.1:9/v1")
    model.close()


@pytest.mark.parametrize("llm", ["", "Embedded", "gpt-5", "localhost:8000", "ftp://x"])
def test_anything_else_lists_what_is_allowed(llm: str) -> None:
    with pytest.raises(UsageError) as caught:
        connect(llm)
    for word in (repr(llm), "http://", "https://", "'embedded'", "'scripted'"):
        assert word in str(caught.value)
