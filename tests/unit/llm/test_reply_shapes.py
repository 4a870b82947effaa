"""Replies as servers send them: the text, the answer that loops read, and the pieces that are told."""

from __future__ import annotations

import gzip
import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.server import Answer, Server

import suffice
from suffice.contracts import GenerationRequest, Message
from suffice.llm.endpoint import OpenAISettings
from suffice.llm.openai_compatible import OpenAICompatibleModel
from suffice.llm.replies import EventReply
from suffice.llm.wire import BrokenReply
from suffice.loops import LOOPS
from suffice.loops.calls import ComingAnswer, parse_reply
from suffice.signals.model_confidence import ANSWER_TOKEN_MARGIN
from suffice.trace.rounds.records import LoopView, Passage

SHAPES = json.loads(
    (Path(__file__).parents[2] / "world/replies/shapes.json").read_text(encoding="utf-8")
)


@pytest.mark.parametrize("shape", SHAPES, ids=[shape["name"] for shape in SHAPES])
def test_a_reply_is_read_whole_or_is_broken(shape: dict[str, Any]) -> None:
    body = shape.get("plain") or shape["stream"].encode()
    kind = "application/json" if "plain" in shape else "text/event-stream"
    told: list[str] = []
    request = GenerationRequest(
        prompt=(Message(role="user", content="Where?"),),
        tell=told.append if "stream" in shape else None,
    )
    settings = OpenAISettings(max_retries=1, first_pause_s=0)
    with (
        closing(Server(lambda _: (200, {"content-type": kind}, body))) as server,
        OpenAICompatibleModel(server.url, "m", settings=settings) as model,
    ):
        if shape["text"] is None:
            with pytest.raises(BrokenReply):
                model.generate(request)
            return
        (said,) = model.generate(request).completions
    assert said.text == shape["text"]
    assert parse_reply(said.text).answer == shape["answer"]
    if "stream" in shape:
        assert "".join(told) == said.text
        coming = ComingAnswer()
        assert shape["answer"].startswith("".join(map(coming.feed, told)))


STREAMS = [shape for shape in SHAPES if "stream" in shape and shape["text"] is not None]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("shape", STREAMS, ids=[shape["name"] for shape in STREAMS])
def test_a_stream_is_told_whole_wherever_it_is_cut(shape: dict[str, Any], size: int) -> None:
    body, told = shape["stream"].encode(), list[str]()
    reply = EventReply(told.append)
    reply.begin()
    for begin in range(0, len(body), size):
        reply.feed(body[begin : begin + size])
    reply.feed(b"", end=True)
    assert "".join(told) == shape["text"]


@pytest.mark.parametrize("packed", [False, True])
def test_a_reply_of_ten_thousand_events_is_whole(packed: bool) -> None:
    piece = b'data: {"choices": [{"index": 0, "delta": {"content": "word "}}]}\n\n'
    body = 10_000 * piece + b"data: [DONE]\n\n"
    headers = {"content-type": "text/event-stream"} | (
        {"content-encoding": "gzip"} if packed else {}
    )
    told: list[str] = []
    request = GenerationRequest(prompt=(Message(role="user", content="Where?"),), tell=told.append)
    sent = gzip.compress(body) if packed else body
    with (
        closing(Server(lambda _: (200, dict(headers), sent))) as server,
        OpenAICompatibleModel(server.url, "m") as model,
    ):
        (said,) = model.generate(request).completions
    assert said.text == "".join(told) == 10_000 * "word "


def said_by(text: str) -> dict[str, Any]:
    return {
        "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]
    }


ANSWERS = {shape["text"]: shape["answer"] for shape in SHAPES if shape["text"] and shape["answer"]}


@pytest.mark.parametrize("pipeline", sorted(LOOPS))
def test_every_loop_reads_the_answer_behind_the_thoughts(pipeline: str) -> None:
    towns = [Passage(id="p", title="Towns", text="Where? A town of Norway.")]
    with (
        closing(Server(lambda _: (200, {}, {}))) as server,
        OpenAICompatibleModel(server.url, "m") as model,
    ):
        for text, answer in ANSWERS.items():
            server.answers((200, {}, said_by(text)))
            answered = suffice.ask("Where?", towns, model, policy="fixed-1", pipeline=pipeline)
            assert answered.answer == answer, text


@pytest.mark.parametrize("stated", ["<think>Rome? Oslo", "<think>Rome?\n\nOslo", ""])
def test_a_reply_that_ends_in_its_thoughts_is_said_and_room_for_them_helps(stated: str) -> None:
    def reply(body: dict[str, Any]) -> Answer:
        if body["max_tokens"] >= 1024 and "\n\n" not in body.get("stop", []):
            return 200, {}, said_by(f"{stated}</think>Answer: Oslo")
        cut = said_by(stated)
        cut["choices"][0]["finish_reason"] = "length"
        return 200, {}, cut

    towns = [Passage(id="p", title="Towns", text="Where? A town of Norway.")]
    with closing(Server(reply)) as server, OpenAICompatibleModel(server.url, "m") as model:
        with pytest.warns(suffice.SufficeWarning, match="max-tokens"):
            assert not suffice.ask("Where?", towns, model, policy="fixed-1").answer
        roomy = suffice.ask("Where?", towns, model, policy="fixed-1", max_tokens=1024)
    assert roomy.answer == "Oslo"


def test_the_margin_is_that_of_the_answer_behind_the_thoughts() -> None:
    pieces = ["<think>", "Answer:", " Rome", "</think>", "Answer :", " Oslo", "\n", "Confidence: 4"]
    body = said_by("".join(pieces))
    gaps = {" Rome": 9.0, " Oslo": 2.0}
    body["choices"][0]["logprobs"] = {
        "content": [
            {
                "token": piece,
                "logprob": -0.1,
                "top_logprobs": [
                    {"token": piece, "logprob": -0.1},
                    {"token": "x", "logprob": -0.1 - gaps.get(piece, 5.0)},
                ],
            }
            for piece in pieces
        ]
    }
    towns = [Passage(id="p", title="Towns", text="Where? A town of Norway.")]
    with (
        closing(Server(lambda _: (200, {}, body))) as server,
        OpenAICompatibleModel(server.url, "m") as model,
    ):
        policy = "answer_token_margin > 1.9"
        answered = suffice.ask("Where?", towns, model, policy=policy, prompt="answer-first")
    (last,) = answered.rounds
    assert last.answer == "Oslo"
    assert ANSWER_TOKEN_MARGIN(LoopView("q", (last,))) == pytest.approx(2.0)


def test_a_stream_of_another_interface_gives_way_to_a_plain_request() -> None:
    def reply(body: dict[str, Any]) -> Answer:
        if not body.get("stream"):
            return 200, {}, said_by("Answer: Oslo")
        return 200, {"content-type": "text/event-stream"}, b'data: {"type": "message_start"}\n\n'

    told: list[str] = []
    request = GenerationRequest(prompt=(Message(role="user", content="Where?"),), tell=told.append)
    settings = OpenAISettings(max_retries=1, first_pause_s=0)
    with (
        closing(Server(reply)) as server,
        OpenAICompatibleModel(server.url, "m", settings=settings) as model,
    ):
        texts = [model.generate(request).completions[0].text for _ in range(2)]
        assert [bool(body.get("stream")) for body in server.bodies] == [True, True, False, False]
    assert (texts, told) == (["Answer: Oslo"] * 2, [])
