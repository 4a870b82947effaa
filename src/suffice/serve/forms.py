"""OpenAI's chat completions: the question, the answer, and the stream."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import AfterValidator, BaseModel, Field

from suffice.contracts import Message
from suffice.live.answering import Answered, Tokens
from suffice.live.observing import RoundEnded
from suffice.serve.guard import Refusal
from suffice.serve.service import PREFIX, Served, Service, Wanted
from suffice.serve.under_way import Searching, Text, Told, UnderWay

_MOST_HEADER = 400  # letters of a value
_SYSTEM_UNREAD = "system messages were not read"


class Open(BaseModel, extra="allow", strict=True):
    """A part of a request; unknown fields are allowed and have no effect."""


class Part(Open):
    """A part of a message."""

    type: str = ""
    text: str | None = None


class Turn(Open):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part] | None = None


class PlainText(Open):
    """The only form of answers: text."""

    type: Literal["text"]


def _empty(value: Any) -> Any:
    if value:
        raise ValueError("must be left out: this service answers with texts from its own corpus")
    return value


Empty = Annotated[Any, AfterValidator(_empty)]


class StreamOptions(Open):
    """Options of a stream's end."""

    include_usage: bool | None = None


_EXAMPLE = {"messages": [{"role": "user", "content": "Where was Ibsen born?"}]}


class ChatRequest(Open, json_schema_extra={"example": _EXAMPLE}):
    """A conversation; the user's last message is the question."""

    model: str | None = Field(
        None, description="suffice/ and the policy's name; left out: the first"
    )
    stream: bool | None = Field(None, description="whether the answer comes in pieces")
    messages: list[Turn] = Field(min_length=1)
    stream_options: StreamOptions | None = None
    n: Literal[1] | None = None
    tools: Empty = None
    functions: Empty = None
    tool_choice: Literal["none", "auto"] | None = None
    logprobs: Literal[False] | None = None
    top_logprobs: Literal[0] | None = None
    response_format: PlainText | None = None
    stop: Empty = None
    logit_bias: Empty = None
    audio: None = None
    modalities: list[Literal["text"]] | None = None
    prediction: None = None
    web_search_options: None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question read from a request, with notes on parts without effect."""

    question: str
    earlier: tuple[Message, ...] = ()
    notes: tuple[str, ...] = ()


def model_id(served: Served) -> str:
    return f"{PREFIX}{served.name}"


def _asked(body: ChatRequest) -> Asked:
    """Return the question (the last user message) and the messages before it."""
    further = sorted(body.model_extra or ())
    notes = (f"without effect: {', '.join(further)[:200]}",) if further else ()
    said: list[Message] = []
    for number, turn in enumerate(body.messages):
        if turn.role == "user":
            text = _text_of(turn.content, f"messages[{number}].content")
            said.append(Message(role="user", content=text))
        elif turn.role == "assistant":
            parts = turn.content if isinstance(turn.content, list) else [Part(text=turn.content)]
            texts = [part.text for part in parts if part.text is not None]
            said.append(Message(role="assistant", content="\n".join(texts)))
        elif _SYSTEM_UNREAD not in notes:
            notes = (_SYSTEM_UNREAD, *notes)
    last = max((at for at, turn in enumerate(said) if turn.role == "user"), default=None)
    if last is None:
        raise Refusal(
            400, "messages has no message with the role user; the last one is the question"
        )
    earlier = tuple(turn for turn in said[:last] if turn.content.strip())
    return Asked(question=said[last].content, earlier=earlier, notes=notes)


def _text_of(content: str | list[Part] | None, where: str) -> str:
    if isinstance(content, str):
        return content
    for part in content or [Part()]:
        if part.type != "text" or part.text is None:
            said = f"{where}: only texts and parts of type text are read, found {part.type!r:.40}"
            raise Refusal(400, said, param=where)
    return "\n".join(part.text or "" for part in content or ())


# --- facts of an answer -----------------------------------------------------------------------------
def headers_of(under_way: UnderWay, answered: Answered | None = None) -> dict[str, str]:
    """Return response headers; without an answer those known before it."""
    served = under_way.served
    facts = {"trace-id": under_way.trace_id, "policy": served.name}
    facts["policy-hash"] = served.hash or ""
    if answered is not None:
        facts["rounds"] = str(len(answered.rounds))
        facts["stopped-by"] = answered.stopped_by
        facts["stop-reason"] = answered.reason
        if answered.usd is not None:
            facts["cost-usd"] = f"{answered.usd:.8g}"
    texts = {name: " ".join(text.split())[:_MOST_HEADER] for name, text in facts.items()}
    return {
        f"x-suffice-{name}": text.encode("ascii", "replace").decode()
        for name, text in texts.items()
    }


def suffice_object(under_way: UnderWay, answered: Answered, asked: Asked) -> dict[str, Any]:
    return {
        "trace_id": under_way.trace_id,
        "policy": under_way.served.name,
        "policy_hash": under_way.served.hash,
        "rounds": len(answered.rounds),
        "answer_round": answered.answer_round,
        "stopped_by": answered.stopped_by,
        "stop_reason": answered.reason,
        "explored": under_way.watched.explored,
        "confidence": answered.confidence,
        "abstained": answered.declined,
        "answer_set": None if answered.answer_set is None else answered.answer_set.to_json(),
        "cost_usd": answered.usd,
        "saved_rounds": answered.saved_rounds,
        "passages": [
            {"id": passage.id, "title": passage.title, "round": number}
            for number, finished in enumerate(answered.rounds, start=1)
            for passage in finished.passages or ()
        ],
        "question": under_way.question,
        "notes": list(asked.notes),
    }


def usage_object(answered: Answered) -> dict[str, Any] | None:
    """Return the usage of all rounds; ``None``: not all is known."""
    tokens = Tokens.of(answered.rounds)
    if tokens.prompt is None or tokens.completion is None:
        return None
    details = {"prompt_tokens_details": {"cached_tokens": tokens.cached}}
    return {
        "prompt_tokens": tokens.prompt,
        **({} if tokens.cached is None else details),
        "completion_tokens": tokens.completion,
        "total_tokens": tokens.prompt + tokens.completion,
    }


as_line: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Completion:
    """A chat completion: whole, or as events while it comes about."""

    def __init__(self, under_way: UnderWay, body: ChatRequest, asked: Asked) -> None:
        self._under_way, self._body, self._asked = under_way, body, asked
        self._frame = {
            "id": f"chatcmpl-{under_way.trace_id}",
            "object": "chat.completion.chunk" if body.stream else "chat.completion",
            "created": int(time.time()),
            "model": model_id(under_way.served),
        }

    @classmethod
    async def answer(
        cls, service: Service, request: Request, body: ChatRequest, headers: Wanted
    ) -> Response:

        async def hung_up() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        asked = _asked(body)
        under_way = await service.ask(
            asked.question,
            headers.model_copy(update={"policy": headers.policy or body.model}),
            earlier=asked.earlier,
            streams=bool(body.stream),
            hung_up=hung_up,
        )
        form = cls(under_way, body, asked)
        if body.stream:
            said = {**headers_of(under_way), "cache-control": "no-store", "x-accel-buffering": "no"}
            return StreamingResponse(form.events(), media_type="text/event-stream", headers=said)
        try:
            answered = await under_way.done()
        finally:
            under_way.leave()
        return JSONResponse(form.document(answered), headers=headers_of(under_way, answered))

    def document(self, answered: Answered) -> Mapping[str, Any]:
        message = {"role": "assistant", "content": answered.answer, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return {
            **self._frame,
            "choices": [choice],
            "usage": usage_object(answered),
            "suffice": suffice_object(self._under_way, answered, self._asked),
        }

    async def events(self) -> AsyncIterator[str]:
        """Yield the server-sent events of a question, and leave it at their end."""
        try:
            yield self._chunk({"role": "assistant", "content": ""})
            try:
                async for told in self._under_way:
                    for event in self._on(told):
                        yield event
            except Refusal as refusal:
                yield f"data: {as_line(refusal.document)}\n\n"
            yield "data: [DONE]\n\n"
        finally:
            self._under_way.leave()

    def _on(self, told: Told) -> Iterable[str]:
        """Return the events of a step; while rounds run, comments keep the connection alive."""
        if isinstance(told, Text):
            return [self._chunk({"content": told.piece})]
        if isinstance(told, RoundEnded):
            return [f": round {told.number} {told.decision.action.value}\n\n"]
        if not isinstance(told, Answered):
            return [f": {'searching' if isinstance(told, Searching) else 'waiting'}\n\n"]
        said = suffice_object(self._under_way, told, self._asked)
        options = self._body.stream_options
        if options is None or not options.include_usage:
            return [self._chunk({}, "stop", suffice=said)]
        usage = usage_object(told)
        return [self._chunk({}, "stop"), self._event([], usage=usage, suffice=said)]

    def _event(self, choices: list[Mapping[str, Any]], **further: Any) -> str:
        return f"data: {as_line({**self._frame, 'choices': choices, **further})}\n\n"

    def _chunk(self, delta: Mapping[str, str], finish: str | None = None, **further: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._event([choice], **further)
