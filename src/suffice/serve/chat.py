"""``/v1/chat/completions``: the last message of the user is answered adaptively."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from fastapi import Request, Response
from fastapi.responses import JSONResponse
from pydantic import ConfigDict, Field

from suffice.serve.asking import (
    Asked,
    Asking,
    OfHeaders,
    Open,
    Turn,
    as_line,
    check_extras,
    comment,
    conversation_of,
    headers_of,
    hung_up,
    model_id,
    stream,
    suffice_object,
    usage_object,
    wanted_of,
)
from suffice.serve.replies import Refusal
from suffice.serve.service import Service
from suffice.serve.under_way import Done, Text, UnderWay

_ALLOWED: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "tools": ([],),
    "functions": ([],),
    "tool_choice": ("none", "auto"),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "response_format": ({"type": "text"},),
    "stop": ([], ""),
    "logit_bias": ({},),
    "audio": (),
    "modalities": (["text"],),
    "prediction": (),
    "web_search_options": (),
}


class StreamOptions(Open):
    """What a stream ends with."""

    include_usage: bool | None = None


class ChatRequest(Asking):
    """Messages of which the user's last is the question."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {"messages": [{"role": "user", "content": "Where was Ibsen born?"}]}
        }
    )

    messages: list[Turn] = Field(min_length=1)
    stream_options: StreamOptions | None = None


async def complete(
    service: Service, request: Request, body: ChatRequest, headers: OfHeaders
) -> Response:
    """Answer one request."""
    notes = check_extras(body.model_extra or {}, _ALLOWED)
    asked = conversation_of(body.messages, "messages", kinds=("text",))
    asked = replace(asked, notes=(*asked.notes, *notes))
    under_way = await service.ask(
        asked.question,
        wanted_of(body, headers, service),
        endpoint="chat",
        earlier=asked.earlier,
        streams=bool(body.stream),
        hung_up=hung_up(request),
    )
    if body.stream:
        with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
        return stream(under_way, _chunks(under_way, asked, with_usage=with_usage))
    try:
        done = await under_way.done()
    finally:
        under_way.leave()
    message = {"role": "assistant", "content": done.answered.answer, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    document = {
        **_frame(under_way, "chat.completion"),
        "choices": [choice],
        "usage": usage_object(done.tokens),
        "suffice": suffice_object(under_way, done.answered, asked),
    }
    return JSONResponse(document, headers=headers_of(under_way, done.answered))


def _frame(under_way: UnderWay, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{under_way.trace_id}",
        "object": kind,
        "created": int(time.time()),
        "model": model_id(under_way.served),
    }


async def _chunks(under_way: UnderWay, asked: Asked, *, with_usage: bool) -> AsyncIterator[str]:
    """The events; while rounds run, comments keep the connection alive."""
    frame = as_line(_frame(under_way, "chat.completion.chunk"))[:-1]

    def event(choices: list[Mapping[str, Any]], **further: Any) -> str:
        return f"data: {frame},{as_line({'choices': choices, **further})[1:]}\n\n"

    def chunk(delta: Mapping[str, str], finish: str | None = None, **further: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event([choice], **further)

    yield chunk({"role": "assistant", "content": ""})
    try:
        async for told in under_way:
            if isinstance(told, Text):
                yield chunk({"content": told.piece})
            elif isinstance(told, Done):
                said = suffice_object(under_way, told.answered, asked)
                if with_usage:
                    yield chunk({}, "stop")
                    yield event([], usage=usage_object(told.tokens), suffice=said)
                else:
                    yield chunk({}, "stop", suffice=said)
            else:
                yield comment(told)
    except Refusal as refusal:
        yield f"data: {as_line(refusal.document)}\n\n"
    yield "data: [DONE]\n\n"
