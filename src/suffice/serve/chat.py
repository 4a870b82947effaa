"""``/v1/chat/completions``: the last message of the user is answered adaptively."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from suffice.serve.asking import (
    Asked,
    Stream,
    as_line,
    comment,
    conversation_of,
    flag,
    headers_of,
    hung_up,
    model_id,
    refuse_any,
    suffice_object,
    wanted_of,
    without_effect,
)
from suffice.serve.service import Service
from suffice.serve.under_way import Done, Text, Tokens, UnderWay
from suffice.web.bodies import read_json
from suffice.web.replies import Refusal

_READ = frozenset({"model", "messages", "stream", "stream_options", "suffice"})
_HARMLESS = frozenset(
    {
        "frequency_penalty",
        "max_completion_tokens",
        "max_tokens",
        "metadata",
        "parallel_tool_calls",
        "presence_penalty",
        "prompt_cache_key",
        "reasoning_effort",
        "safety_identifier",
        "seed",
        "service_tier",
        "store",
        "temperature",
        "top_p",
        "user",
        "verbosity",
    }
)


class ChatCompletions:
    """The endpoint of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def create(self, request: Request) -> Response:
        """Answer one request."""
        body = await read_json(request, self._service.limits.bodies)
        asked, streams = _asked(body), flag(body, "stream")
        with_usage = _with_usage(body)
        under_way = await self._service.ask(
            asked.question,
            wanted_of(request, body, self._service),
            endpoint="chat",
            earlier=asked.earlier,
            streams=streams,
            hung_up=hung_up(request),
        )
        if streams:
            return Stream(under_way, _chunks(under_way, asked, with_usage=with_usage))
        try:
            done = await under_way.done()
        finally:
            under_way.leave()
        return JSONResponse(
            _completion(under_way, asked, done), headers=headers_of(under_way, done.answered)
        )


# --- what is asked ----------------------------------------------------------------------------------
def _asked(body: Mapping[str, Any]) -> Asked:
    """The question, and what of the request is left out; what cannot be honoured is refused."""
    _refuse(body)
    asked = conversation_of(body.get("messages"), "messages", kinds=("text",))
    return replace(asked, notes=(*asked.notes, *without_effect(body, _READ | _HARMLESS)))


def _with_usage(body: Mapping[str, Any]) -> bool:
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise Refusal(400, "stream_options must be an object", param="stream_options")
    return bool((options or {}).get("include_usage"))


def _refuse(body: Mapping[str, Any]) -> None:
    """Refuse what would change the answer's form or source and is not done here."""
    count = body.get("n")
    if count not in (None, 1) or isinstance(count, bool):
        raise Refusal(400, "n must be 1: one answer is given", param="n")
    choice = body.get("tool_choice")
    refused = {
        "tools": bool(body.get("tools")),
        "functions": bool(body.get("functions")),
        "tool_choice": choice not in (None, "none", "auto"),
        "logprobs": bool(body.get("logprobs")) or bool(body.get("top_logprobs")),
        "response_format": _form(body.get("response_format")) not in (None, "text"),
        "stop": bool(body.get("stop")),
        "logit_bias": bool(body.get("logit_bias")),
        "audio": body.get("audio") is not None,
        "modalities": body.get("modalities") not in (None, ["text"]),
        "prediction": body.get("prediction") is not None,
        "web_search_options": body.get("web_search_options") is not None,
    }
    refuse_any(refused)


def _form(asked: object) -> object:
    return asked.get("type") if isinstance(asked, dict) else asked


# --- what is answered -------------------------------------------------------------------------------
def usage_object(tokens: Tokens) -> dict[str, Any] | None:
    """Usage of all rounds, as chat completions state it; ``None``: not all is known."""
    if tokens.prompt is None or tokens.completion is None:
        return None
    return {
        "prompt_tokens": tokens.prompt,
        "completion_tokens": tokens.completion,
        "total_tokens": tokens.prompt + tokens.completion,
        "prompt_tokens_details": {"cached_tokens": tokens.cached or 0},
    }


def _frame(under_way: UnderWay, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{under_way.trace_id}",
        "object": kind,
        "created": int(time.time()),
        "model": model_id(under_way.served),
    }


def _completion(under_way: UnderWay, asked: Asked, done: Done) -> dict[str, Any]:
    message = {"role": "assistant", "content": done.answered.answer, "refusal": None}
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
    return {
        **_frame(under_way, "chat.completion"),
        "choices": [choice],
        "usage": usage_object(done.tokens),
        "suffice": suffice_object(under_way, done.answered, asked),
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
                    usage = usage_object(told.tokens)
                    yield event([], usage=usage, suffice=said)
                else:
                    yield chunk({}, "stop", suffice=said)
            else:
                yield comment(told)
    except Refusal as refusal:
        yield f"data: {as_line(refusal.document)}\n\n"
    yield "data: [DONE]\n\n"
