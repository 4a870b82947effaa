"""Every known shape of usage gives the same counts, and a broken one gives none."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.server import Server

import suffice
from suffice.contracts import GenerationRequest, Message
from suffice.datasets.recordings import import_traces
from suffice.live.reported import reported_usage
from suffice.llm.openai_compatible import OpenAICompatibleModel
from suffice.trace.rounds.reader import read_traces
from suffice.trace.usage import read_counts

WORLD = Path(__file__).parents[2] / "world" / "usage"
SHAPES = [
    pytest.param(shape, id=f"{file.stem}: {shape['name']}")
    for file in sorted(WORLD.glob("*.json"))
    for shape in json.loads(file.read_text("utf-8"))
]


def _object(value: Any) -> Any:
    """A client's object in place of each mapping."""
    if not isinstance(value, dict):
        return value
    return SimpleNamespace(**{name: _object(held) for name, held in value.items()})


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_read_as_mapping_and_as_object(shape: dict[str, Any]) -> None:
    for reported in (shape["reported"], _object(shape["reported"])):
        read = read_counts(reported, whole=shape.get("whole", False))
        assert [read.prompt, read.cached, read.completion, read.reasoning] == shape["counts"]


def _told(usage: Any) -> list[int | None]:
    return [usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    running = Server(lambda _: (200, {}, {}))
    yield running
    running.close()


def _is_whole(shape: Any) -> bool:
    return "whole" in shape.values[0]


@pytest.mark.filterwarnings("ignore::suffice.errors.SufficeWarning")
@pytest.mark.parametrize("shape", [shape for shape in SHAPES if not _is_whole(shape)])
def test_a_shape_counts_alike_from_the_wire_and_in_a_live_loop(
    server: Server, shape: dict[str, Any]
) -> None:
    reported, counts = shape["reported"], shape["counts"][:3]
    choices = [{"index": 0, "message": {"content": "Oslo"}, "finish_reason": "stop"}]
    reply = {"choices": choices, "usage": reported}
    server.answer = lambda _: (200, {}, reply)
    with OpenAICompatibleModel(server.url, "m") as model:
        request = GenerationRequest(prompt=(Message(role="user", content="Hi"),))
        assert _told(model.generate(request)) == counts
    assert _told(reported_usage(reported)) == counts
    with suffice.Watch("fixed-2").question("Who?") as loop:
        loop.observe(answer="Ada", usage=reported)
        assert _told(loop.rounds[0].usage) == counts


def test_a_usage_nobody_knows_ends_no_loop_and_is_said_once() -> None:
    # in a process of its own: it is said once in each
    script = """
import suffice

class Broken:
    def fail(self, *_):
        raise RuntimeError
    __repr__ = __eq__ = __ne__ = __bool__ = __getattr__ = fail
    __hash__ = None

class BrokenMapping(dict):
    items = __iter__ = Broken.fail

class BrokenList(list):
    __iter__ = Broken.fail

class BrokenName:
    __str__ = __repr__ = Broken.fail

endless = []
endless += [endless, endless]
huge = [{"prompt_tokens": 10**9, "completion_tokens": 1}] * 3
told = (None, "12 tokens", 3, {"spent": 4}, object(), [None, {}], [{"tokens": 2}], Broken(), huge, endless)
told += BrokenMapping(a=1), BrokenList([1]), {BrokenName(): 1}, 10**5000, Broken
with suffice.Watch("fixed-99").question("Who?") as loop:
    for usage in told:
        loop.observe(answer="Ada", usage=usage)
        assert loop.rounds[-1].usage.prompt_tokens is None
        loop.observe(answer="Ada", answer_usage=usage)
"""
    ran = subprocess.run(
        [sys.executable, "-W", "always", "-c", script], capture_output=True, text=True, check=True
    )
    assert ran.stderr.count("SufficeWarning") == 1
    assert "12 tokens" in ran.stderr


class _Slots:
    __slots__ = ("completion_tokens", "prompt_tokens")

    def __init__(self) -> None:
        self.prompt_tokens, self.completion_tokens = 12, 3


class _Properties:
    """As protocol buffers show their fields."""

    @property
    def usage_metadata(self) -> Any:
        return SimpleNamespace(prompt_token_count=12, candidates_token_count=3)


_Row = namedtuple("_Row", ["prompt_tokens", "completion_tokens"])
_NUMPY = {"prompt_tokens": np.int64(12), "completion_tokens": np.float32(3)}


@pytest.mark.parametrize("reported", [_Slots(), _Properties(), _Row(12, 3), _NUMPY])
def test_objects_of_other_kinds_are_read(reported: Any) -> None:
    usage = reported_usage(reported)
    assert (usage.llm_calls, usage.prompt_tokens, usage.completion_tokens) == (1, 12, 3)


def test_null_usage_is_no_reason_to_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for told in (None, {}, {"usage": None}, {"prompt_tokens": None}):
            assert reported_usage(told).prompt_tokens is None


@pytest.mark.parametrize("silent", [0, 1])
def test_one_call_that_tells_nothing_makes_the_sum_of_its_round_unknown(
    tmp_path: Path, silent: int
) -> None:
    told: list[Any] = [{"prompt_tokens": 90, "completion_tokens": 4}] * 2
    told[silent] = None
    result = {"source_call_id": "c", "content": "Ada built it."}
    steps: list[dict[str, Any]] = [
        {"source": "user", "message": "Who built it?"},
        {
            "source": "agent",
            "message": "",
            "tool_calls": [
                {"tool_call_id": "c", "function_name": "search", "arguments": {"query": "builder"}}
            ],
            "observation": {"results": [result]},
            "metrics": told[0],
        },
        {"source": "agent", "message": "Ada", "metrics": told[1]},
    ]
    log = {
        "schema_version": "ATIF-v1.7",
        "session_id": "s",
        "agent": {"name": "a", "version": "1"},
        "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
    }
    (tmp_path / "log.json").write_text(json.dumps(log), "utf-8")
    import_traces(tmp_path / "log.json", tmp_path / "out.parquet", format="atif")
    (round_,) = next(iter(read_traces(tmp_path / "out.parquet").records())).rounds
    assert round_.usage.llm_calls == 2
    assert _told(round_.usage) == [None, None, None]


@pytest.mark.parametrize("reported", [None, 3, "x", [1], object(), b"x", float("nan"), type])
def test_what_is_no_usage_is_unknown(reported: Any) -> None:
    assert read_counts(reported).prompt is None


def test_an_object_that_fails_is_unknown() -> None:
    class Failing:
        def model_dump(self) -> dict[str, Any]:
            raise RuntimeError

    assert read_counts(Failing()).completion is None


def test_deep_documents_end() -> None:
    deep: dict[str, Any] = {}
    deep["usage"] = deep
    assert read_counts(deep).prompt is None
