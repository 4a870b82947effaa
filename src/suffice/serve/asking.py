"""What the answering endpoints read of a request and say with an answer, whichever form they speak."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import StreamingResponse
from starlette.types import Message as Sent
from starlette.types import Receive, Scope, Send

from suffice.errors import unknown_name
from suffice.live.answering import Answered
from suffice.protocols import Message
from suffice.serve.events import RoundEnded
from suffice.serve.service import Served, Service, Wanted
from suffice.serve.under_way import Searching, Told, UnderWay
from suffice.web.replies import Refusal

PREFIX = "suffice/"
_MOST_HEADER = 400  # letters of a value
SYSTEM_UNREAD = "system messages and instructions were not read"


ROLES = ("system", "developer", "user", "assistant")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question read from a request, and what of the request was not taken into account."""

    question: str
    earlier: tuple[Message, ...] = ()
    notes: tuple[str, ...] = ()


def model_id(served: Served) -> str:
    """What a client names a policy by."""
    return f"{PREFIX}{served.name}"


def wanted_of(request: Request, body: Mapping[str, Any], service: Service) -> Wanted:
    """Policy and limits that a request asks for: in its model, its ``suffice`` object, its headers.

    Headers hold before the object, both before the model.
    """
    wanted = Wanted(policy=_policy_of(body.get("model"), service))
    stated = body.get("suffice")
    if stated is not None:
        if not isinstance(stated, dict):
            raise Refusal(400, "suffice must be an object", param="suffice")
        for name in stated:
            if name not in ("policy", "max_rounds", "budget_usd"):
                known = ("policy", "max_rounds", "budget_usd")
                raise Refusal(400, unknown_name("field", name, known), param="suffice")
        wanted = _with(wanted, stated, "suffice.")
    headers = {
        name: request.headers[header]
        for name in ("policy", "max_rounds", "budget_usd")
        if (header := f"x-suffice-{name.replace('_', '-')}") in request.headers
    }
    return _with(wanted, {name: _number(name, text) for name, text in headers.items()}, "header ")


def _number(name: str, text: str) -> object:
    """A header's value as JSON would hold it."""
    try:
        if name == "max_rounds":
            return int(text)
        return float(text) if name == "budget_usd" else text
    except ValueError:
        return text


def _with(wanted: Wanted, stated: Mapping[str, Any], where: str) -> Wanted:
    policy, rounds, usd = (stated.get(name) for name in ("policy", "max_rounds", "budget_usd"))
    if policy is not None:
        if not isinstance(policy, str):
            raise Refusal(400, f"{where}policy must be a name", param="policy")
        wanted = replace(wanted, policy=policy.removeprefix(PREFIX))
    if rounds is not None:
        if not isinstance(rounds, int) or isinstance(rounds, bool):
            raise Refusal(
                400,
                f"{where}max_rounds must be a whole number, found {rounds!r:.40}",
                param="max_rounds",
            )
        wanted = replace(wanted, max_rounds=rounds)
    if usd is not None:
        if not isinstance(usd, int | float) or isinstance(usd, bool) or not 0 < usd < 1e9:
            raise Refusal(
                400, f"{where}budget_usd must be above 0, found {usd!r:.40}", param="budget_usd"
            )
        wanted = replace(wanted, budget_usd=float(usd))
    return wanted


def _policy_of(model: object, service: Service) -> str | None:
    if model is None or model in ("", PREFIX.rstrip("/")):
        return None
    if not isinstance(model, str):
        raise Refusal(400, "model must be a name", param="model")
    name = model.removeprefix(PREFIX)
    if name not in service.policies:
        raise Refusal(
            404,
            unknown_name("model", model, [f"{PREFIX}{known}" for known in service.policies]),
            code="model_not_found",
            param="model",
        )
    return name


def text_of(content: object, where: str, *, kinds: tuple[str, ...]) -> str:
    """A message's text: itself, or its parts of these types; others are refused."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise Refusal(400, f"{where}.content must be a text or a list of parts", param=where)
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in kinds or not isinstance(part.get("text"), str):
            raise Refusal(
                400,
                f"{where}.content: only parts of type {' or '.join(kinds)} are read, found {kind!r:.40}",
                param=where,
            )
        texts.append(part["text"])
    return "\n".join(texts)


def conversation_of(
    messages: object, name: str, *, kinds: tuple[str, ...], passed_over: str = ""
) -> Asked:
    """The question, the text of the last message of the user, and what was said before it.

    Items of the type ``passed_over`` are no messages.
    """
    if not isinstance(messages, list) or not messages:
        raise Refusal(400, f"{name} must be a list of at least one message", param=name)
    said: list[Message] = []
    unread = False
    for number, message in enumerate(messages):
        where = f"{name}[{number}]"
        held = message if isinstance(message, dict) else {}
        kind, role = held.get("type", "message"), held.get("role")
        if passed_over and kind == passed_over:
            continue
        if kind != "message" or role not in ROLES:
            raise Refusal(
                400, f"{where} must be a message with a role of {', '.join(ROLES)}", param=where
            )
        if role == "user":
            said.append(
                Message(role="user", content=text_of(held.get("content"), where, kinds=kinds))
            )
        elif role == "assistant":
            said.append(Message(role="assistant", content=_said(held.get("content"))))
        else:
            unread = True
    last = max((at for at, turn in enumerate(said) if turn.role == "user"), default=None)
    if last is None:
        raise Refusal(400, "no message of the role user, whose last one is the question")
    earlier = tuple(turn for turn in said[:last] if turn.content.strip())
    return Asked(
        question=said[last].content, earlier=earlier, notes=(SYSTEM_UNREAD,) if unread else ()
    )


def _said(content: object) -> str:
    """What an assistant said, as far as it is text."""
    parts = content if isinstance(content, list) else [{"text": content}]
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "\n".join(text for text in texts if isinstance(text, str))


def flag(body: Mapping[str, Any], name: str) -> bool:
    """A field that is true, or false where it is not there."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise Refusal(400, f"{name} must be true or false", param=name)
    return bool(value)


def refuse_any(asked_for: Mapping[str, bool]) -> None:
    """Refuse what would change the answer's form or source and is not done here, by the field's name."""
    name = next((name for name, there in asked_for.items() if there), None)
    if name is not None:
        raise Refusal(
            400,
            f"{name} cannot be honoured: questions are answered in text from what is searched here; leave "
            "it out",
            code="unsupported_parameter",
            param=name,
        )


def without_effect(body: Mapping[str, Any], known: Set[str]) -> list[str]:
    """A note of fields that nobody knows here; none where there are none."""
    further = sorted(body.keys() - known)
    return [f"without effect: {', '.join(further)[:200]}"] if further else []


# --- what is said of an answer ----------------------------------------------------------------------
def headers_of(under_way: UnderWay, answered: Answered | None = None) -> dict[str, str]:
    """Response headers: those known before the answer, and with it the others."""
    headers = {
        "x-suffice-trace-id": under_way.trace_id,
        "x-suffice-policy": under_way.served.name,
        "x-suffice-policy-hash": under_way.served.hash,
    }
    if answered is not None:
        headers["x-suffice-rounds"] = str(len(answered.rounds))
        headers["x-suffice-stopped-by"] = answered.stopped_by
        headers["x-suffice-stop-reason"] = answered.reason
        if answered.usd is not None:
            headers["x-suffice-cost-usd"] = f"{answered.usd:.8g}"
    return {name: _one_line(value) for name, value in headers.items()}


def _one_line(text: str) -> str:
    """What a header can hold."""
    return " ".join(text.split())[:_MOST_HEADER].encode("ascii", "replace").decode()


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


as_line: Callable[[Mapping[str, Any]], str] = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":")
).encode
"""JSON in a line."""


def comment(told: Told) -> str:
    """A line of an event stream that no client reads, for what happened or did not."""
    if isinstance(told, RoundEnded):
        return f": round {told.number} {told.decision.action.value}\n\n"
    return f": {'searching' if isinstance(told, Searching) else 'waiting'}\n\n"


def hung_up(request: Request) -> Callable[[], Awaitable[object]]:
    """What returns when the client of a request that was read hung up."""

    async def wait() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    return wait


class Stream(StreamingResponse):
    """Server-sent events of a question, which is left when they end, however they do."""

    def __init__(self, under_way: UnderWay, events: AsyncIterator[str]) -> None:
        headers = {**headers_of(under_way), "cache-control": "no-store", "x-accel-buffering": "no"}
        super().__init__(events, media_type="text/event-stream", headers=headers)
        self._under_way = under_way
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them; what is said at once is sent at once. The question knows when its client hangs up."""
        del scope, receive
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            held = ""
            async for event in self._events:
                held += event
                if not self._under_way.goes_on_at_once:
                    await send(_body(held))
                    held = ""
            await send({**_body(held), "more_body": False})
        except OSError as error:
            raise ClientDisconnect from error
        finally:
            self._under_way.leave()


def _body(text: str) -> Sent:
    return {"type": "http.response.body", "body": text.encode(), "more_body": True}
