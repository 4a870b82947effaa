"""LiteLLM's own replies and usage in a loop; it speaks Anthropic's and OpenAI's dialect to a server."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.server import Body, Server

import suffice

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # else it asks the network for prices
litellm = pytest.importorskip(
    "litellm", reason="runs in its own environment: make test-integrations"
)

USAGE = {
    "input_tokens": 3,
    "cache_read_input_tokens": 1000,
    "cache_creation_input_tokens": 200,
    "output_tokens": 50,
}
TOOLS = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]


def messages_api(body: Body) -> Any:
    """Anthropic's Messages API, of a model that calls a tool whatever it is offered, and thinks first."""
    call = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {"query": "founder"}}
    blocks = [{"type": "text", "text": "Lina Perez"}, call]
    reply = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"]}
    if not body.get("stream"):
        ended = {"stop_reason": "tool_use", "stop_sequence": None}
        return 200, {}, {**reply, **ended, "content": blocks, "usage": USAGE}
    begun = {**reply, "content": [], "stop_reason": None, "usage": {**USAGE, "output_tokens": 1}}
    delta = {"type": "text_delta", "text": "Lina Perez"}
    events: list[Body] = [
        {"type": "message_start", "message": begun},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": USAGE},
        {"type": "message_stop"},
    ]
    lines = "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events)
    return 200, {"content-type": "text/event-stream"}, lines.encode()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server(messages_api)
    yield made
    made.close()


def asked(server: Server, **settings: Any) -> Any:
    made = {"model": "anthropic/claude-sonnet-4-5", "api_base": server.url.removesuffix("/v1")}
    messages = [{"role": "user", "content": "Who founded it?"}]
    return litellm.completion(messages=messages, api_key="none", **{**made, **settings})


def used(folder: Path) -> list[tuple[Any, ...]]:
    (record,) = suffice.read(folder).records()
    usages = [held.usage for held in record.rounds]
    return [(one.prompt_tokens, one.cached_tokens, one.completion_tokens) for one in usages]


def test_a_model_that_calls_tools_unasked_is_stopped_and_its_tokens_counted_once(
    server: Server, tmp_path: Path
) -> None:
    """Of Anthropic's usage LiteLLM makes an object that holds cached tokens twice, and in the prompt."""
    with suffice.Watch("fixed-2", record=tmp_path, mode="live", max_rounds=4) as watch:
        loop = watch.question("Who founded it?").begin()
        while not loop.done:
            reply = asked(server, tools=TOOLS)
            (call,) = reply.choices[0].message.tool_calls
            query = json.loads(call.function.arguments)["query"]
            loop.observe(passages=[f"Found {len(server.bodies)}."], query=query, usage=reply.usage)
        last = asked(server, tools=TOOLS, tool_choice="none")
        loop.answered(last.choices[0].message.content, usage=last.usage)
        loop.end()
    assert (len(loop.rounds), loop.stopped_by, loop.answer) == (2, "policy", "Lina Perez")
    assert len(server.bodies) == 3
    assert used(tmp_path) == [(1203, 1000, 50), (2406, 2000, 100)]


@pytest.mark.parametrize("whole", [False, True])
def test_replies_and_streams_are_read_as_they_are(
    server: Server, whole: bool, tmp_path: Path
) -> None:
    if whole:
        reply = asked(server)
    else:
        chunks = list(asked(server, stream=True, stream_options={"include_usage": True}))
        reply = litellm.stream_chunk_builder(chunks)
    with suffice.Watch(record=tmp_path) as watch:
        loop = watch.question("Who founded it?").begin()
        loop.observe(passages=["Found."], answer=reply.choices[0].message.content, usage=reply)
        loop.end()
    assert loop.answer == "Lina Perez"
    assert used(tmp_path) == [(1203, 1000, 50)]


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": None, "completion_tokens": None}])
def test_a_server_that_tells_no_usage_ends_no_loop(
    server: Server, usage: Any, tmp_path: Path
) -> None:
    message = {"role": "assistant", "content": "Lina Perez"}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    body = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    server.answers((200, {}, {**body, "choices": choices, "usage": usage}))
    with suffice.Watch("fixed-2", record=tmp_path, mode="live") as watch:
        loop = watch.question("Who founded it?").begin()
        while not loop.done:
            reply = asked(server, model="hosted_vllm/m", api_base=server.url)
            loop.observe(passages=["Found."], answer=reply.choices[0].message.content, usage=reply)
        loop.end()
    assert (len(loop.rounds), loop.answer) == (2, "Lina Perez")
