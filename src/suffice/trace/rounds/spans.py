"""Recorded questions as spans of OpenTelemetry, by the names of its GenAI conventions, and back.

What the conventions have no name for stands in two attributes as JSON: ``suffice.question`` of the agent's
span and ``suffice.round`` of each search, so that nothing of the schema is lost.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from suffice._version import VERSION
from suffice.contracts import strict_json
from suffice.errors import DataError
from suffice.trace.rounds.records import (
    Gold,
    Passage,
    Question,
    QuestionRecord,
    Round,
    as_document,
    round_of_document,
)

QUESTION, ROUND = "suffice.question", "suffice.round"
DOCUMENTS = "gen_ai.retrieval.documents"
OPERATION = "gen_ai.operation.name"
_SECOND = 1_000_000_000
_UNTIMED = datetime(2000, 1, 1, tzinfo=UTC)


def spans_of(record: QuestionRecord, *, model: str | None = None) -> dict[str, Any]:
    """A question as a document of OTLP JSON: ``invoke_agent``, and a ``retrieval`` and a ``chat`` a round.

    A chat has the calls of its round together. Rounds whose time is not known begin in 2000, and one whose
    duration is not known takes a millisecond.
    """
    key = record.question.id.encode()

    def made(what: str, digits: int = 16) -> str:
        """Of the question's id, so that a second export is the same."""
        return hashlib.sha256(what.encode() + b":" + key).hexdigest()[:digits]

    def span(number: int, step: Step, **more: Any) -> dict[str, Any]:
        return {
            "traceId": made("trace", 32),
            "spanId": made(str(number)),
            **more,
            "name": step.name,
            "kind": 1,
            "startTimeUnixNano": str(step.start),
            "endTimeUnixNano": str(step.end),
            "attributes": _attributes(step.attributes),
        }

    first = record.rounds[0]
    now = began = _nanoseconds(first.time or _UNTIMED) - (_duration(first) if first.time else 0)
    steps: list[Step] = []
    for round_ in record.rounds:
        ended = max(now + _duration(round_), _nanoseconds(round_.time) if round_.time else 0)
        steps += steps_of(round_, now, ended, model=model)
        now = ended
    whole = Step(name="invoke_agent", start=began, end=now, attributes=agent_attributes(record))
    status = {"status": {"code": 2}} if record.stopped_by == "error" else {}
    spans = [span(number, step, parentSpanId=made("1")) for number, step in enumerate(steps, 2)]
    spans.append(span(1, whole, **status))
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes({"service.name": "suffice"})},
                "scopeSpans": [{"scope": {"name": "suffice", "version": VERSION}, "spans": spans}],
            }
        ]
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A span to be: from and to are nanoseconds since 1970."""

    name: str
    start: int
    end: int
    attributes: Mapping[str, Any]


def steps_of(round_: Round, began: int, ended: int, *, model: str | None) -> Iterator[Step]:
    """The search and the calls of a round, as two steps that share its time."""
    middle = (began + ended) // 2
    query = {} if round_.query is None else {"gen_ai.retrieval.query.text": round_.query}
    found = (*(round_.passages or ()), *(round_.refound or ()))
    documents = {} if round_.passages is None else {DOCUMENTS: json.dumps(_documents(found))}
    held = {OPERATION: "retrieval", **query, **documents, ROUND: json.dumps(_rest(round_))}
    yield Step(name="retrieval", start=began, end=middle, attributes=held)
    if round_.usage.llm_calls != 0:
        name = "chat" if model is None else f"chat {model}"
        yield Step(name=name, start=middle, end=ended, attributes=_chat(round_, model))


def _nanoseconds(moment: datetime) -> int:
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * _SECOND + since.microseconds * 1000


def _duration(round_: Round) -> int:
    """In nanoseconds; a millisecond where it is not known."""
    seconds = round_.usage.latency_s
    return int(seconds * _SECOND) if seconds and 0 < seconds < 1e9 else 1_000_000


def _documents(passages: Sequence[Passage]) -> list[dict[str, Any]]:
    """With the text as ``content``, as other exporters name it."""
    return [
        {
            "content" if name == "text" else name: value
            for name, value in as_document(passage).items()
        }
        for passage in passages
    ]


def _rest(round_: Round) -> dict[str, Any]:
    """A round but for its documents, of which it has the numbers."""
    rest: dict[str, Any] = as_document(round_)
    for name in ("passages", "refound"):
        if name in rest:
            rest[name] = len(rest[name])
    return {"answer": None, **rest}


def _message(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])


def _chat(round_: Round, model: str | None) -> dict[str, Any]:
    said = round_.answer if round_.response is None else round_.response
    usage = round_.usage
    held = {
        OPERATION: "chat",
        "gen_ai.request.model": model,
        "gen_ai.usage.input_tokens": usage.prompt_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cached_tokens,
        "gen_ai.usage.output_tokens": usage.completion_tokens,
        "gen_ai.output.messages": None if said is None else _message("assistant", said),
    }
    return {name: value for name, value in held.items() if value is not None}


def agent_attributes(record: QuestionRecord) -> dict[str, Any]:
    """What the span of a whole question says."""
    answer = record.rounds[-1].answer
    said = {} if answer is None else {"gen_ai.output.messages": _message("assistant", answer)}
    whole = as_document(record)
    rest = {name: value for name, value in whole.items() if name != "rounds"}
    return {
        OPERATION: "invoke_agent",
        "gen_ai.input.messages": _message("user", record.question.text),
        **said,
        QUESTION: json.dumps(rest),
    }


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "key": name,
            "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value},
        }
        for name, value in values.items()
    ]


def record_of_spans(question: str, rounds: Sequence[tuple[str, Any]]) -> QuestionRecord:
    """The record of which :func:`spans_of` gave these attributes."""
    try:
        held = strict_json(question)
        closed = held.pop("closed_book", None)
        return QuestionRecord(
            question=Question(**held.pop("question")),
            gold=Gold(**{name: tuple(v) for name, v in held.pop("gold", {}).items()}),
            rounds=tuple(_round(strict_json(rest), documents) for rest, documents in rounds),
            closed_book=None if closed is None else round_of_document(closed),
            scores={int(number): score for number, score in held.pop("scores", {}).items()},
            **held,
        )
    except DataError:
        raise
    except (TypeError, ValueError, AttributeError, KeyError, RecursionError) as error:
        raise DataError(
            f"{QUESTION} and {ROUND} are not what an export writes ({error}); take them out of the spans to "
            "read these by the names of the conventions alone"
        ) from error


def _round(rest: dict[str, Any], documents: Any) -> Round:
    found = [
        {"text" if name == "content" else name: value for name, value in document.items()}
        for document in documents or ()
    ]
    new = rest.get("passages")
    for name, at in (("passages", 0), ("refound", new or 0)):
        if name in rest:
            rest[name] = found[at : at + rest[name]]
    if len(found) != sum(len(rest.get(name, ())) for name in ("passages", "refound")):
        raise ValueError(f"{len(found)} documents")
    return round_of_document(rest)
