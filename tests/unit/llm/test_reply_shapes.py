"""Replies as servers send them: the text, the answer that loops read, and the pieces that are told."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.server import Server

from suffice.contracts import GenerationRequest, Message
from suffice.llm.endpoint import OpenAISettings
from suffice.llm.openai_compatible import OpenAICompatibleModel
from suffice.llm.wire import BrokenReply
from suffice.loops.calls import ComingAnswer, parse_reply

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
