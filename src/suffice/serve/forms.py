"""What OpenAI's two forms share: how a question is read, what is said of its answer, its stream."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from fastapi import Depends, Header, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from suffice.contracts import Message
from suffice.errors import unknown_name
from suffice.live.ask import Answered
from suffice.serve.events import Endpoint, RoundEnded, Tokens
from suffice.serve.replies import Refusal
from suffice.serve.service import Served, Service, Wanted
from suffice.serve.under_way import Done, Searching, Told, UnderWay

PREFIX = "suffice/"
_MOST_HEADER = 400  # letters of a value
SYSTEM_UNREAD = "system messages and instructions were not read"


class Open(BaseModel):
    """A part of a request of which further fields may have no effect."""

    model_config = ConfigDict(extra="allow", strict=True)


class Part(Open):
    """A part of a message."""

    type: str = ""
    text: str | None = None


class Turn(Open):
    """A message of a conversation."""

    type: Literal["message"] = "message"
    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[Part] | None = None


class Asking(Open):
    """What both endpoints take beside the question."""

    model: str | None = Field(
        None, description="suffice/ and the policy's name; left out: the first"
    )
    stream: bool | None = Field(None, description="whether the answer comes in pieces")
    suffice: Wanted | None = None

    def asked(self) -> Asked:
        """The question, and what of the request is left out; what cannot be honoured is refused."""
        raise NotImplementedError


class AnswerReply(Open):
    """An answer in OpenAI's form; ``suffice`` says how it came about."""

    id: str
    object: str
    model: str
    suffice: dict[str, Any]


async def _of_headers(
    x_suffice_policy: Annotated[str | None, Header(description="which policy decides")] = None,
    x_suffice_max_rounds: Annotated[
        int | None, Header(ge=1, description="at most so many rounds")
    ] = None,
    x_suffice_budget_usd: Annotated[
        float | None, Header(gt=0, lt=1e9, description="at most so many US dollars")
    ] = None,
) -> Wanted:
    return Wanted(
        policy=x_suffice_policy, max_rounds=x_suffice_max_rounds, budget_usd=x_suffice_budget_usd
    )


OfHeaders = Annotated[Wanted, Depends(_of_headers)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question read from a request, and what of the request was not taken into account."""

    question: str
    earlier: tuple[Message, ...] = ()
    notes: tuple[str, ...] = ()


def model_id(served: Served) -> str:
    """What a client names a policy by."""
    return f"{PREFIX}{served.name}"


def wanted_of(asking: Asking, headers: Wanted, service: Service) -> Wanted:
    """Policy and limits that a request asks for: headers hold before ``suffice``, both before the model."""
    name = None
    if asking.model not in (None, "", PREFIX.rstrip("/")):
        name = str(asking.model).removeprefix(PREFIX)
        if name not in service.policies:
            known = [f"{PREFIX}{policy}" for policy in service.policies]
            said = unknown_name("model", str(asking.model)[:100], known)
            raise Refusal(404, said, code="model_not_found", param="model")
    stated: dict[str, Any] = {"policy": name}
    for wanted in (asking.suffice, headers):
        stated |= {} if wanted is None else wanted.model_dump(exclude_none=True)
    if stated["policy"] is not None:
        stated["policy"] = stated["policy"].removeprefix(PREFIX)
    return Wanted.model_validate(stated)


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
            400, f"{name} has no message of the role user, whose last one is the question"
        )
    earlier = tuple(turn for turn in said[:last] if turn.content.strip())
    return Asked(question=said[last].content, earlier=earlier, notes=notes)


def _text_of(content: str | list[Part] | None, where: str, kinds: tuple[str, ...]) -> str:
    """A message's text: itself, or its parts of these types; others are refused."""
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


def check_extras(
    extras: Mapping[str, Any], allowed: Mapping[str, tuple[Any, ...]]
) -> tuple[str, ...]:
    """A note of fields without effect; refused are those that change an answer's form or source.

    Of these, named in ``allowed``, the values there and ``null`` are let pass.
    """
    for name, values in allowed.items():
        if extras.get(name) is not None and extras[name] not in values:
            raise Refusal(
                400,
                f"{name} cannot be honoured: questions are answered in text from what is searched here; "
                "leave it out",
                code="unsupported_parameter",
                param=name,
            )
    further = sorted(extras.keys() - allowed.keys())
    return (f"without effect: {', '.join(further)[:200]}",) if further else ()


# --- what is said of an answer ----------------------------------------------------------------------
def headers_of(under_way: UnderWay, answered: Answered | None = None) -> dict[str, str]:
    """Response headers: those known before the answer, and with it the others."""
    headers = {
        "x-suffice-trace-id": under_way.trace_id,
        "x-suffice-policy": under_way.served.name,
        "x-suffice-policy-hash": under_way.served.hash or "",
    }
    if answered is not None:
        headers["x-suffice-rounds"] = str(len(answered.rounds))
        headers["x-suffice-stopped-by"] = answered.stopped_by
        headers["x-suffice-stop-reason"] = answered.reason
        if answered.usd is not None:
            headers["x-suffice-cost-usd"] = f"{answered.usd:.8g}"
    return {
        name: " ".join(text.split())[:_MOST_HEADER].encode("ascii", "replace").decode()
        for name, text in headers.items()
    }


def suffice_object(under_way: UnderWay, answered: Answered, asked: Asked) -> dict[str, Any]:
    """What is said of an answer beside its text."""
    return {
        "trace_id": under_way.trace_id,
        "policy": under_way.served.name,
        "policy_hash": under_way.served.hash,
        "rounds": len(answered.rounds),
        "answer_round": answered.answer_round,
        "stopped_by": answered.stopped_by,
        "stop_reason": answered.reason,
        "explored": under_way.explored,
        "confidence": answered.confidence,
        "abstained": answered.declined,
        "answer_set": None if answered.answer_set is None else answered.answer_set.to_json(),
        "cost_usd": answered.usd,
        "saved_rounds": answered.saved.rounds,
        "passages": [
            {"id": passage.id, "title": passage.title, "round": number}
            for number, finished in enumerate(answered.rounds, start=1)
            for passage in finished.passages or ()
        ],
        "question": under_way.question,
        "notes": list(asked.notes),
    }


def usage_object(
    tokens: Tokens, names: tuple[str, str] = ("prompt", "completion")
) -> dict[str, Any] | None:
    """Usage of all rounds; ``None``: not all is known."""
    if tokens.prompt is None or tokens.completion is None:
        return None
    read, made = names
    return {
        f"{read}_tokens": tokens.prompt,
        f"{read}_tokens_details": {"cached_tokens": tokens.cached or 0},
        f"{made}_tokens": tokens.completion,
        "total_tokens": tokens.prompt + tokens.completion,
    }


as_line: Callable[[Mapping[str, Any]], str] = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":")
).encode
"""JSON in a line."""


class Form:
    """An answer in one of OpenAI's forms: whole, or as events while it comes about."""

    endpoint: ClassVar[Endpoint]
    end: ClassVar[str] = ""

    def __init__(self, under_way: UnderWay, body: Any, asked: Asked) -> None:
        self.under_way, self.body, self.asked = under_way, body, asked

    @classmethod
    async def answer(
        cls, service: Service, request: Request, body: Asking, headers: Wanted
    ) -> Response:
        """Answer one request, whose client may hang up."""

        async def hung_up() -> None:
            while (await request.receive())["type"] != "http.disconnect":
                pass

        asked = body.asked()
        under_way = await service.ask(
            asked.question,
            wanted_of(body, headers, service),
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
            done = await under_way.done()
        finally:
            under_way.leave()
        return JSONResponse(form.document(done), headers=headers_of(under_way, done.answered))

    async def events(self) -> AsyncIterator[str]:
        """Server-sent events of a question, which is left when they end, however they do."""
        try:
            for event in self.begin():
                yield event
            try:
                async for told in self.under_way:
                    for event in self.on(told):
                        yield event
            except Refusal as refusal:
                for event in self.failed(refusal):
                    yield event
            yield self.end
        finally:
            self.under_way.leave()

    def document(self, done: Done) -> Mapping[str, Any]:
        """The whole answer."""
        raise NotImplementedError

    def begin(self) -> Iterable[str]:
        """The events before anything happens."""
        raise NotImplementedError

    def on(self, told: Told) -> Iterable[str]:
        """The events of what happened: a comment, which no client reads, keeps the connection alive."""
        if isinstance(told, RoundEnded):
            return [f": round {told.number} {told.decision.action.value}\n\n"]
        return [f": {'searching' if isinstance(told, Searching) else 'waiting'}\n\n"]

    def failed(self, refusal: Refusal) -> Iterable[str]:
        """The events of a question without an answer."""
        raise NotImplementedError
