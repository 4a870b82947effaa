"""``/v1/chat/completions``: the last message of the user is answered adaptively."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ConfigDict, Field

from suffice.serve.forms import (
    Asked,
    Asking,
    Form,
    Open,
    Turn,
    as_line,
    check_extras,
    conversation_of,
    model_id,
    suffice_object,
    usage_object,
)
from suffice.serve.replies import Refusal
from suffice.serve.under_way import Done, Text, Told, UnderWay

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

    def asked(self) -> Asked:
        """The question; an answer in another form than text is refused."""
        notes = check_extras(self.model_extra or {}, _ALLOWED)
        return conversation_of(self.messages, "messages", ("text",), notes)


class Completion(Form):
    """A chat completion; while rounds run, comments keep the connection alive."""

    endpoint = "chat"
    end = "data: [DONE]\n\n"

    def __init__(self, under_way: UnderWay, body: ChatRequest, asked: Asked) -> None:
        super().__init__(under_way, body, asked)
        self._frame = {
            "id": f"chatcmpl-{under_way.trace_id}",
            "object": "chat.completion.chunk" if body.stream else "chat.completion",
            "created": int(time.time()),
            "model": model_id(under_way.served),
        }
        self._before = as_line(self._frame)[:-1]

    def document(self, done: Done) -> Mapping[str, Any]:
        """The whole completion."""
        message = {"role": "assistant", "content": done.answered.answer, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return {
            **self._frame,
            "choices": [choice],
            "usage": usage_object(done.tokens),
            "suffice": suffice_object(self.under_way, done.answered, self.asked),
        }

    def begin(self) -> Iterable[str]:
        """Who speaks."""
        return [self._chunk({"role": "assistant", "content": ""})]

    def on(self, told: Told) -> Iterable[str]:
        """Pieces of the answer, and at its end what is said of it."""
        if isinstance(told, Text):
            return [self._chunk({"content": told.piece})]
        if not isinstance(told, Done):
            return super().on(told)
        said = suffice_object(self.under_way, told.answered, self.asked)
        options = self.body.stream_options
        if options is None or not options.include_usage:
            return [self._chunk({}, "stop", suffice=said)]
        usage = usage_object(told.tokens)
        return [self._chunk({}, "stop"), self._event([], usage=usage, suffice=said)]

    def failed(self, refusal: Refusal) -> Iterable[str]:
        """The error in place of a chunk."""
        return [f"data: {as_line(refusal.document)}\n\n"]

    def _event(self, choices: list[Mapping[str, Any]], **further: Any) -> str:
        return f"data: {self._before},{as_line({'choices': choices, **further})[1:]}\n\n"

    def _chunk(self, delta: Mapping[str, str], finish: str | None = None, **further: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._event([choice], **further)
