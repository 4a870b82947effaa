"""Shared code of OpenAI's two request forms: the question, the answer, and the stream."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from fastapi import Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import AfterValidator, BaseModel, Field

from suffice.contracts import Message
from suffice.live.answering import Answered, Tokens
from suffice.live.observing import Endpoint, RoundEnded
from suffice.serve.guard import Refusal
from suffice.serve.service import PREFIX, Served, Service, Wanted
from suffice.serve.under_way import Searching, Text, Told, UnderWay
from suffice.trace.rounds.records import Passage, Round

_MOST_HEADER = 400  # letters of a value
SYSTEM_UNREAD = "system messages and instructions were not read"


class Open(BaseModel, extra="allow", strict=True):
    """A part of a request; unknown fields are allowed and have no effect."""


class Part(Open):
    """A part of a message."""

    type: str = ""
    text: str | None = None


class Turn(Open):
    """A message of a conversation."""

    type: Literal["message"] = "message"
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


class Asking(Open):
    """Fields of both endpoints beside the question."""

    model: str | None = Field(
        None, description="suffice/ and the policy's name; left out: the first"
    )
    stream: bool | None = Field(None, description="whether the answer comes in pieces")

    def asked(self) -> Asked:
        """Read the question; refuse a request that cannot be honored."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question read from a request, with notes on parts without effect."""

    question: str
    earlier: tuple[Message, ...] = ()
    notes: tuple[str, ...] = ()


def model_id(served: Served) -> str:
    return f"{PREFIX}{served.name}"


def conversation_of(
    turns: Sequence[Turn], name: str, kinds: tuple[str, ...], notes: tuple[str, ...]
) -> Asked:
    """Return the question (the last user message) and the messages before it."""
    said: list[Message] = []
    for number, turn in enumerate(turns):
        if turn.role == "user":
            text = _text_of(turn.content, f"{name}[{number}].content", kinds)
            said.append(Message(role="user", content=text))
        elif turn.role == "assistant":
            parts = turn.content if isinstance(turn.content, list) else [Part(text=turn.content)]
            texts = [part.text for part in parts if part.text is not None]
            said.append(Message(role="assistant", content="\n".join(texts)))
        elif SYSTEM_UNREAD not in notes:
            notes = (SYSTEM_UNREAD, *notes)
    last = max((at for at, turn in enumerate(said) if turn.role == "user"), default=None)
    if last is None:
        raise Refusal(
            400, f"{name} has no message with the role user; the last one is the question"
        )
    earlier = tuple(turn for turn in said[:last] if turn.content.strip())
    return Asked(question=said[last].content, earlier=earlier, notes=notes)


def _text_of(content: str | list[Part] | None, where: str, kinds: tuple[str, ...]) -> str:
    if isinstance(content, str):
        return content
    for part in content or [Part()]:
        if part.type not in kinds or part.text is None:
            allowed = " or ".join(kinds)
            said = (
                f"{where}: only texts and parts of type {allowed} are read, found {part.type!r:.40}"
            )
            raise Refusal(400, said, param=where)
    return "\n".join(part.text or "" for part in content or ())


def _unread(asking: Asking) -> tuple[str, ...]:
    further = sorted(asking.model_extra or ())
    return (f"without effect: {', '.join(further)[:200]}",) if further else ()


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


def usage_object(
    answered: Answered, read: str = "prompt", made: str = "completion"
) -> dict[str, Any] | None:
    """Return the usage of all rounds; ``None``: not all is known."""
    tokens = Tokens.of(answered.rounds)
    if tokens.prompt is None or tokens.completion is None:
        return None
    return {
        f"{read}_tokens": tokens.prompt,
        f"{read}_tokens_details": {"cached_tokens": tokens.cached or 0},
        f"{made}_tokens": tokens.completion,
        "total_tokens": tokens.prompt + tokens.completion,
    }


as_line: Callable[[Any], str] = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Form:
    """An answer in one of OpenAI's forms: whole, or as events while it comes about."""

    endpoint: ClassVar[Endpoint]
    end: ClassVar[str] = ""

    def __init__(self, under_way: UnderWay, body: Any, asked: Asked) -> None:
        self._under_way, self._body, self._asked = under_way, body, asked

    @classmethod
    async def answer(
        cls, service: Service, request: Request, body: Asking, headers: Wanted
    ) -> Response:

        async def hung_up() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        asked = body.asked()
        under_way = await service.ask(
            asked.question,
            headers.model_copy(update={"policy": headers.policy or body.model}),
            endpoint=cls.endpoint,
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

    async def events(self) -> AsyncIterator[str]:
        """Yield the server-sent events of a question, and leave it at their end."""
        try:
            for event in self.begin():
                yield event
            try:
                async for told in self._under_way:
                    for event in self.on(told):
                        yield event
            except Refusal as refusal:
                for event in self.failed(refusal):
                    yield event
            yield self.end
        finally:
            self._under_way.leave()

    def document(self, answered: Answered) -> Mapping[str, Any]:
        raise NotImplementedError

    def begin(self) -> Iterable[str]:
        raise NotImplementedError

    def on(self, told: Told) -> Iterable[str]:
        """Return the events of a step: here a comment, which keeps the connection alive."""
        if isinstance(told, RoundEnded):
            return [f": round {told.number} {told.decision.action.value}\n\n"]
        return [f": {'searching' if isinstance(told, Searching) else 'waiting'}\n\n"]

    def failed(self, refusal: Refusal) -> Iterable[str]:
        raise NotImplementedError


# --- /v1/chat/completions -------------------------------------------------------------------------
class StreamOptions(Open):
    """Options of a stream's end."""

    include_usage: bool | None = None


_EXAMPLE = {"messages": [{"role": "user", "content": "Where was Ibsen born?"}]}


class ChatRequest(Asking, json_schema_extra={"example": _EXAMPLE}):
    """A conversation; the user's last message is the question."""

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

    def asked(self) -> Asked:
        return conversation_of(self.messages, "messages", ("text",), _unread(self))


class Completion(Form):
    """A chat completion; while rounds run, comments keep the connection alive."""

    endpoint: ClassVar[Endpoint] = "chat"
    end = "data: [DONE]\n\n"

    def __init__(self, under_way: UnderWay, body: ChatRequest, asked: Asked) -> None:
        super().__init__(under_way, body, asked)
        self._frame = {
            "id": f"chatcmpl-{under_way.trace_id}",
            "object": "chat.completion.chunk" if body.stream else "chat.completion",
            "created": int(time.time()),
            "model": model_id(under_way.served),
        }

    def document(self, answered: Answered) -> Mapping[str, Any]:
        message = {"role": "assistant", "content": answered.answer, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return {
            **self._frame,
            "choices": [choice],
            "usage": usage_object(answered),
            "suffice": suffice_object(self._under_way, answered, self._asked),
        }

    def begin(self) -> Iterable[str]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def on(self, told: Told) -> Iterable[str]:
        if isinstance(told, Text):
            return [self._chunk({"content": told.piece})]
        if not isinstance(told, Answered):
            return super().on(told)
        said = suffice_object(self._under_way, told, self._asked)
        options = self._body.stream_options
        if options is None or not options.include_usage:
            return [self._chunk({}, "stop", suffice=said)]
        usage = usage_object(told)
        return [self._chunk({}, "stop"), self._event([], usage=usage, suffice=said)]

    def failed(self, refusal: Refusal) -> Iterable[str]:
        return [f"data: {as_line(refusal.document)}\n\n"]

    def _event(self, choices: list[Mapping[str, Any]], **further: Any) -> str:
        return f"data: {as_line({**self._frame, 'choices': choices, **further})}\n\n"

    def _chunk(self, delta: Mapping[str, str], finish: str | None = None, **further: Any) -> str:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return self._event([choice], **further)


# --- /v1/responses --------------------------------------------------------------------------------
_RESULTS = "file_search_call.results"


class TextForm(Open):
    """The form of the answer."""

    format: PlainText | None = None


class Search(Open):
    """A search of an earlier answer in the conversation."""

    type: Literal["file_search_call"]


class Tool(Open):
    """The service's own search."""

    type: Literal["file_search"]


class ResponseRequest(Asking, json_schema_extra={"example": {"input": "Where was Ibsen born?"}}):
    """A question, or a conversation whose last message of the user is the question."""

    input: str | list[Turn | Search] = Field(min_length=1)
    instructions: str | None = None
    include: list[str] | None = None
    tools: list[Tool] | None = None
    text: TextForm | None = None
    previous_response_id: None = None
    conversation: None = None
    prompt: None = None
    background: Literal[False] | None = None
    top_logprobs: Literal[0] | None = None

    def asked(self) -> Asked:
        notes = _unread(self)
        if self.instructions:
            notes = (SYSTEM_UNREAD, *notes)
        if isinstance(self.input, str):
            return Asked(question=self.input, notes=notes)
        turns = [item for item in self.input if isinstance(item, Turn)]
        return conversation_of(turns, "input", ("input_text", "output_text", "text"), notes)


class SearchedResponse(Form):
    """A response; its events are in the order and form of OpenAI's."""

    endpoint: ClassVar[Endpoint] = "responses"

    def __init__(self, under_way: UnderWay, body: ResponseRequest, asked: Asked) -> None:
        super().__init__(under_way, body, asked)
        self._results = _RESULTS in (body.include or ())
        self._created = time.time()
        self._output: list[dict[str, Any]] = []
        self._number = -1
        self._searching = self._speaking = False

    def document(self, answered: Answered) -> Mapping[str, Any]:
        searches = [
            self._search(number, found, "completed")
            for number, found in enumerate(answered.rounds, start=1)
        ]
        output = [*searches, self._message(answered.answer, "completed")]
        return self._document("completed", output, answered)

    def _document(
        self, status: str, output: Sequence[Mapping[str, Any]], answered: Answered | None = None
    ) -> dict[str, Any]:
        document: dict[str, Any] = {
            "id": f"resp_{self._under_way.trace_id}",
            "object": "response",
            "created_at": self._created,
            "status": status,
            "model": model_id(self._under_way.served),
            "output": list(output),
            "error": None,
            "incomplete_details": None,
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": False,
            "temperature": None,
            "tool_choice": "auto",
            "tools": [],
            "top_p": None,
            "usage": None if answered is None else _usage(answered),
        }
        if answered is not None:
            document["suffice"] = suffice_object(self._under_way, answered, self._asked)
        return document

    def _search(self, number: int, found: Round | None, status: str) -> dict[str, Any]:
        queries = [] if found is None else [found.query or self._asked.question]
        passages = () if found is None else found.passages or ()
        results = [_result(passage, number) for passage in passages]
        return {
            "id": f"fs_{self._under_way.trace_id}_{number}",
            "type": "file_search_call",
            "status": status,
            "queries": queries,
            "results": results if self._results and found is not None else None,
        }

    def _message(self, text: str | None, status: str) -> dict[str, Any]:
        return {
            "id": f"msg_{self._under_way.trace_id}",
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": [] if text is None else [_part(text)],
        }

    # --- as events -------------------------------------------------------------------------------
    def begin(self) -> Iterable[str]:
        kinds = ("created", "in_progress")
        return [self._event(kind, response=self._document("in_progress", ())) for kind in kinds]

    def on(self, told: Told) -> Iterable[str]:
        if isinstance(told, Searching | RoundEnded):
            if not self._searching:
                yield from self._begin_search()
            self._searching = isinstance(told, Searching)
            if isinstance(told, RoundEnded):
                yield from self._end_search(told.round)
        elif isinstance(told, Text | Answered):
            if not self._speaking:
                if self._searching and isinstance(told, Text):  # it found nothing to show
                    yield from self._end_search(None)
                self._searching, self._speaking = False, True
                yield from self._begin_message()
            if isinstance(told, Text):
                yield self._of_text("output_text.delta", delta=told.piece, logprobs=[])
            else:
                yield from self._end(told)
        else:
            yield from super().on(told)

    def failed(self, refusal: Refusal) -> Iterable[str]:
        error = {"code": "server_error", "message": refusal.document["error"]["message"]}
        failed = {**self._document("failed", self._output), "error": error}
        yield self._event("failed", response=failed)

    def _event(self, kind: str, **fields: Any) -> str:
        self._number += 1
        name = f"response.{kind}"
        line = as_line({"type": name, "sequence_number": self._number, **fields})
        return f"event: {name}\ndata: {line}\n\n"

    def _begin_search(self) -> Iterable[str]:
        search = self._search(len(self._output) + 1, None, "in_progress")
        yield self._of_item("added", search)
        for kind in ("in_progress", "searching"):
            yield self._of_part(f"file_search_call.{kind}", search["id"])

    def _end_search(self, found: Round | None) -> Iterable[str]:
        search = self._search(len(self._output) + 1, found, "completed")
        yield self._of_part("file_search_call.completed", search["id"])
        yield self._of_item("done", search)

    def _begin_message(self) -> Iterable[str]:
        yield self._of_item("added", self._message(None, "in_progress"))
        yield self._of_text("content_part.added", part=_part(""))

    def _end(self, answered: Answered) -> Iterable[str]:
        yield self._of_text("output_text.done", text=answered.answer, logprobs=[])
        yield self._of_text("content_part.done", part=_part(answered.answer))
        yield self._of_item("done", self._message(answered.answer, "completed"))
        yield self._event("completed", response=self._document("completed", self._output, answered))

    def _of_item(self, kind: Literal["added", "done"], item: dict[str, Any]) -> str:
        event = self._event(f"output_item.{kind}", output_index=len(self._output), item=item)
        if kind == "done":
            self._output.append(item)
        return event

    def _of_part(self, kind: str, item_id: str, **fields: Any) -> str:
        return self._event(kind, output_index=len(self._output), item_id=item_id, **fields)

    def _of_text(self, kind: str, **fields: Any) -> str:
        return self._of_part(kind, self._message(None, "")["id"], content_index=0, **fields)


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _result(passage: Passage, number: int) -> dict[str, Any]:
    score = passage.score if passage.rerank_score is None else passage.rerank_score
    return {
        "file_id": passage.id,
        "filename": passage.title,
        "score": score,
        "text": passage.text,
        "attributes": {"round": number},
    }


def _usage(answered: Answered) -> dict[str, Any] | None:
    usage = usage_object(answered, "input", "output")
    if usage is not None:
        usage["input_tokens_details"]["cache_write_tokens"] = 0
        usage["output_tokens_details"] = {"reasoning_tokens": 0}
    return usage
