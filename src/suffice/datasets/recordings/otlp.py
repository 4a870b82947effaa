"""Spans in OTLP JSON: runs of agents by the GenAI conventions of OpenTelemetry, or by OpenInference's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from suffice.datasets.files import Row, json_documents
from suffice.datasets.recordings.runs import (
    ANSWERING,
    Call,
    Search,
    Step,
    action_of,
    loaded,
    passage_of,
    passages_of,
    query_of,
    read_run,
    text_of,
)
from suffice.errors import DataError
from suffice.trace.rounds.records import Passage, Question, QuestionRecord
from suffice.trace.rounds.spans import DOCUMENTS, QUESTION, ROUND, record_of_spans
from suffice.trace.values import MOST_INT32

_DEEPEST = 16
_MOST_NS = 4_000_000_000_000_000_000  # of the year 2096

_Kind = Literal["agent", "chain", "search", "call"]
_OPERATIONS: Mapping[str, _Kind] = {
    "invoke_agent": "agent",
    "invoke_workflow": "chain",
    "retrieval": "search",
    "execute_tool": "search",
    "chat": "call",
    "text_completion": "call",
    "generate_content": "call",
}
_SPAN_KINDS: Mapping[str, _Kind] = {
    "AGENT": "agent",
    "CHAIN": "chain",
    "RETRIEVER": "search",
    "TOOL": "search",
    "LLM": "call",
}
_AMOUNTS: Mapping[str, tuple[str, ...]] = {
    "prompt_tokens": (
        "gen_ai.usage.input_tokens",
        "gen_ai.usage.prompt_tokens",
        "llm.token_count.prompt",
    ),
    "cached_tokens": (
        "gen_ai.usage.cache_read.input_tokens",
        "llm.token_count.prompt_details.cache_read",
    ),
    "completion_tokens": (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
    ),
}
_ASKING = re.compile(r"tool|function_call", re.IGNORECASE)
_DOCUMENT = re.compile(r"retrieval\.documents\.(\d{1,6})\.document\.(id|content|score|metadata)")
_MESSAGE = re.compile(r"llm\.(input|output)_messages\.(\d{1,6})\.message\.(.{1,200})")


def read_otlp(path: Path) -> tuple[QuestionRecord, ...]:
    """Records of the agents in a file of exported traces: one document, a list, or one a line.

    The outermost span of an agent (``invoke_agent``, AGENT; or of a chain, which has a question of its own)
    is a question. The i-th search below it (``retrieval``, ``execute_tool``; RETRIEVER, TOOL) opens round i;
    those that overlap share one, and what happens within a search belongs to it.
    """
    spans = _Spans(str(path))
    for row in json_documents(path):
        spans.add(row)
    roots = spans.roots()
    traces = Counter(root.trace for root in roots)
    return tuple(_record(spans, root, alone=traces[root.trace] == 1) for root in roots)


@dataclass(slots=True)
class _Span:
    """A span as far as it is read; ``place`` is its number in the file."""

    trace: str
    id: str
    parent: str
    name: str
    start: int
    end: int
    failed: bool
    attributes: Mapping[str, Any]
    row: int
    children: list[_Span] = field(default_factory=list, compare=False)

    @property
    def kind(self) -> _Kind | None:
        """What it is of, by either convention."""
        operation = self.attributes.get("gen_ai.operation.name")
        named = self.attributes.get("openinference.span.kind")
        kind = _OPERATIONS.get(operation) if isinstance(operation, str) else None
        return kind or (_SPAN_KINDS.get(named.upper()) if isinstance(named, str) else None)

    @property
    def question(self) -> str | None:
        """What it was asked, as far as it says."""
        return self._told("input", ("user", "human"))

    @property
    def output(self) -> str | None:
        """What it gave, as far as it says."""
        return self._told("output", ("assistant", "model", "ai"))

    def _told(self, which: str, roles: Sequence[str]) -> str | None:
        messages = [self.attributes.get(f"gen_ai.{which}.messages"), self.messages(which)]
        # of a call that tells its messages, the value is the same as a library's own object
        told = self.kind == "call" and any(messages)
        values = messages if told else [*messages, self.attributes.get(f"{which}.value")]
        return next((text for value in values if value and (text := _said(value, roles))), None)

    @property
    def tool(self) -> str | None:
        """The name of the tool that was used."""
        name = self.attributes.get("gen_ai.tool.name", self.attributes.get("tool.name"))
        return name if isinstance(name, str) else None

    @property
    def asked(self) -> Any:
        """What a tool was asked."""
        return self.attributes.get("gen_ai.tool.call.arguments", self.attributes.get("input.value"))

    def messages(self, which: str) -> list[dict[str, Any]]:
        """OpenInference's flattened messages."""
        found: dict[int, dict[str, Any]] = {}
        for name, value in self.attributes.items():
            match = _MESSAGE.fullmatch(name)
            if match and match[1] == which:
                part = "content" if match[3].endswith("message_content.text") else match[3]
                found.setdefault(int(match[2]), {})[part] = value
        return [found[number] for number in sorted(found)]

    @property
    def asks(self) -> bool:
        """Whether the call ended by asking for a tool."""
        reasons = self.attributes.get("gen_ai.response.finish_reasons")
        said = [*(reasons if isinstance(reasons, list) else [reasons])]
        said.append(self.attributes.get("llm.finish_reason"))
        if any(isinstance(reason, str) and _ASKING.search(reason) for reason in said):
            return True
        if any("tool_calls" in part for message in self.messages("output") for part in message):
            return True
        stated = self.attributes.get("gen_ai.output.messages")
        stated = loaded(stated) if isinstance(stated, str) else stated
        return any(
            isinstance(part, dict) and part.get("type") == "tool_call"
            for message in (stated if isinstance(stated, list) else ())
            if isinstance(message, dict)
            for part in (message["parts"] if isinstance(message.get("parts"), list) else ())
        )


class _Spans:
    """All spans of a file, as trees."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._spans: dict[tuple[str, str], _Span] = {}

    def error(self, span: _Span, message: str) -> DataError:
        """What is wrong with a span."""
        return DataError(
            f"span {span.id} ({span.name!r:.60}) of trace {span.trace}: {message}",
            file=self._file,
            row=span.row,
        )

    def add(self, row: Row) -> None:
        """The spans of an exported document; one that stands there already is passed over."""
        if _get(row.values, "resourceSpans") is None:
            raise row.error(
                "is no OTLP JSON: it has no resourceSpans; export traces as OTLP in JSON, one document or "
                f"one a line; found {', '.join(map(repr, list(row.values)[:8])) or 'nothing'}"
            )
        for resource in _objects(row, row.values, "resourceSpans"):
            old = _objects(row, resource, "instrumentationLibrarySpans")
            for scope in _objects(row, resource, "scopeSpans") or old:
                for values in _objects(row, scope, "spans"):
                    self._add(_span(row, values))

    def _add(self, span: _Span) -> None:
        known = self._spans.setdefault((span.trace, span.id), span)
        if replace(known, row=span.row, failed=span.failed) != span:
            raise self.error(
                span, f"stands there twice, otherwise in row {known.row}; keep the finished one"
            )

    def roots(self) -> list[_Span]:
        """The outermost spans of agents, in the order in which they began."""
        if not self._spans:
            raise DataError("holds no span", file=self._file)
        for span in self._spans.values():
            parent = self._spans.get((span.trace, span.parent)) if span.parent else None
            if parent is not None:
                parent.children.append(span)
        tops = [s for s in self._spans.values() if (s.trace, s.parent) not in self._spans]
        roots: dict[str, list[_Span]] = {}
        strays: list[_Span] = []
        reached = {id(span) for top in tops for span in _below(top)}
        for top in tops:
            found = list(_outermost(top))
            for span in found:
                roots.setdefault(span.trace, []).append(span)
            inside = any(span.kind in ("search", "call") for span in _below(top))
            if not found and inside and top.parent:
                strays.append(top)
        lost = next((span for span in self._spans.values() if id(span) not in reached), None)
        if lost is not None:
            raise self.error(lost, "its parents form a circle; export the trace again")
        for stray in strays:
            self._take_in(stray, roots.get(stray.trace, []))
        if not roots:
            raise DataError(
                "holds no span of an agent: gen_ai.operation.name invoke_agent (or invoke_workflow), or "
                "openinference.span.kind AGENT or CHAIN; instrument the agent too, or write its rounds as "
                "rows and import them with --format columns",
                file=self._file,
            )
        every = [span for spans in roots.values() for span in spans]
        return sorted(every, key=lambda span: (span.start, span.row, span.id))

    def _take_in(self, stray: _Span, agents: Sequence[_Span]) -> None:
        """A span whose parent is missing goes to the only agent of its trace."""
        if len(agents) == 1:
            agents[0].children.append(stray)
        else:
            among = f"{len(agents)} agents" if agents else "no agent"
            raise self.error(
                stray,
                f"its parent {stray.parent} is not in the file, and its trace has {among} there; export "
                "whole traces, in one file",
            )


def _below(top: _Span) -> Iterator[_Span]:
    """The span and all under it, a parent before its children."""
    waiting = [top]
    while waiting:
        span = waiting.pop()
        yield span
        waiting += reversed(span.children)


def _outermost(top: _Span) -> Iterator[_Span]:
    """Agents that no other contains; a chain that was asked nothing itself only holds others."""
    waiting = [top]
    while waiting:
        span = waiting.pop()
        kind = span.kind
        if kind == "agent" or (kind == "chain" and (span.question or not _agents_in(span))):
            yield span
        else:
            waiting += reversed(span.children)


def _agents_in(top: _Span) -> bool:
    return any(
        span.kind == "agent" or (span.kind == "chain" and span.question is not None)
        for span in _below(top)
        if span is not top
    )


def _get(held: Mapping[str, Any], name: str) -> Any:
    """A field by its name in JSON, or by protobuf's own."""
    return held.get(name, held.get(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()))


def _objects(row: Row, held: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    values = _get(held, name)
    if values is None:
        return []
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise row.error(f"must be a list of objects, found {values!r:.60}", name)
    return values


def _span(row: Row, values: Mapping[str, Any]) -> _Span:
    own, trace, parent = (
        _get(values, name) or "" for name in ("spanId", "traceId", "parentSpanId")
    )
    if not (own and trace and all(isinstance(text, str) for text in (own, trace, parent))):
        raise row.error(
            f"a span without spanId or traceId, or with a parentSpanId that is no text: {values!r:.80}",
            "spans",
        )
    start = _nanoseconds(row, own, _get(values, "startTimeUnixNano"))
    ended, status = _get(values, "endTimeUnixNano"), values.get("status")
    events = _objects(row, values, "events")
    operations = [e for e in events if e.get("name") == "gen_ai.client.inference.operation.details"]
    return _Span(
        trace=trace,
        id=own,
        parent=parent,
        name=str(values.get("name") or ""),
        start=start,
        end=start if ended is None else max(start, _nanoseconds(row, own, ended)),
        failed=isinstance(status, dict) and status.get("code") in (2, "2", "STATUS_CODE_ERROR"),
        attributes={
            name: _value(row, own, pair.get("value"))
            for source in (*operations, values)
            for pair in _objects(row, source, "attributes")
            if isinstance(name := pair.get("key"), str)
        },
        row=row.number,
    )


def _nanoseconds(row: Row, span: str, value: Any) -> int:
    """A moment, which JSON writes as a text since it is too long for a number there."""
    if isinstance(value, str) and value.isdecimal() and len(value) <= len(str(_MOST_NS)):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _MOST_NS:
        raise row.error(
            f"span {span}: its times, which order the rounds, must be nanoseconds since 1970, found "
            f"{value!r:.40}",
            "startTimeUnixNano",
        )
    return value


def _value(row: Row, span: str, value: Any, depth: int = 0) -> Any:
    """What an attribute holds."""
    if not isinstance(value, dict) or len(value) != 1:
        return None
    ((kind, held),) = value.items()
    if kind in ("intValue", "int_value") and isinstance(held, str):
        return int(held) if re.fullmatch(r"-?\d{1,19}", held) else None
    if not kind.startswith(("array", "kvlist")):
        return held
    items = (held.get("values") if isinstance(held, dict) else None) or []
    if not isinstance(items, list) or depth > _DEEPEST:
        raise row.error(
            f"span {span}: the values of an attribute must be a list, at most {_DEEPEST} levels deep; write "
            f"it as JSON text; found {items!r:.40}",
            "attributes",
        )
    if kind.startswith("array"):
        return [_value(row, span, item, depth + 1) for item in items]
    pairs = [pair for pair in items if isinstance(pair, dict)]
    return {str(pair.get("key")): _value(row, span, pair.get("value"), depth + 1) for pair in pairs}


def _unwrapped(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """A message; LangChain's own forms have it one level below."""
    inner = (message[name] for name in ("kwargs", "data") if isinstance(message.get(name), dict))
    return next(inner, message)


_SAID = (
    *("question", "query", "input", "prompt"),
    *("answer", "output", "result", "response", "content"),
)


def _said(value: Any, roles: Sequence[str]) -> str | None:
    """The text of a value: plain, the last message of one of the roles, or under an object's usual name."""
    for _ in range(_DEEPEST):
        if isinstance(value, str):
            whole = loaded(value)
            if isinstance(whole, str):
                return value.strip() or None
            inner = _inner(whole, roles)
            if inner is None:
                return value.strip()
            value = inner
        else:
            value = _inner(value, roles)
            if value is None:
                return None
    return None


def _inner(value: Any, roles: Sequence[str]) -> Any:
    """One level below: of messages the last of one of the roles, of a message its texts."""
    if isinstance(value, list):
        messages = [_unwrapped(item) for item in value if isinstance(item, dict)]
        of_role = [m for m in messages if str(m.get("role", m.get("type", ""))).lower() in roles]
        unnamed = [m for m in messages if "role" not in m and "type" not in m]
        chosen = of_role or unnamed
        return chosen[-1] if chosen else (text_of(value) or None)
    if not isinstance(value, dict):
        return None
    value = _unwrapped(value)
    parts = value.get("parts", value.get("content"))
    if isinstance(parts, list):
        texts = [
            part.get("content", part.get("text"))
            for part in parts
            if isinstance(part, dict) and part.get("type", "text") == "text"
        ]
        return "\n".join(text for text in texts if isinstance(text, str)) or None
    if isinstance(value.get("messages"), list):
        return value["messages"]
    return next((value[name] for name in _SAID if value.get(name)), None)


# --- a question -------------------------------------------------------------------------------------
def _record(spans: _Spans, root: _Span, *, alone: bool) -> QuestionRecord:
    try:
        return _exported(root) or _question(spans, root, alone=alone)
    except DataError as error:
        if error.file:
            raise
        raise spans.error(root, str(error)) from error


def _exported(root: _Span) -> QuestionRecord | None:
    """The record where all of it comes from our own export; ``None``: read it by its names."""
    question = root.attributes.get(QUESTION)
    searches = [span for span, within in _in_order(root) if span.kind == "search" and not within]
    rounds = [(s.attributes.get(ROUND), s.attributes.get(DOCUMENTS)) for s in searches]
    told = [
        (rest, loaded(documents) if isinstance(documents, str) else None)
        for rest, documents in rounds
        if isinstance(rest, str)
    ]
    if not isinstance(question, str) or not told or len(told) < len(rounds):
        return None
    return record_of_spans(question, told)


def _question(spans: _Spans, root: _Span, *, alone: bool) -> QuestionRecord:
    steps: list[Step] = []
    calls: list[_Span] = []
    handed: str | None = None
    until = 0  # the end of the searches that share the round
    for span, within in _in_order(root):
        if span.kind == "call":
            calls.append(span)
            steps.append(_call(spans, span, within=within is not None))
        elif within is None and span.tool in ANSWERING:
            handed = query_of(span.asked)
            if steps and isinstance(last := steps[-1], Call):
                steps[-1] = replace(last, searches=False)
        elif within is None:
            steps.append(_search(spans, span, joined=span.start < until))
            until = max(until, span.end) if span.start < until else span.end
    answer = handed if root.output is None else root.output
    if answer is None and calls and not calls[-1].asks:
        answer = calls[-1].output
    question = root.question or next((text for span in calls if (text := span.question)), None)
    return QuestionRecord(
        question=Question(
            id=root.trace if alone else f"{root.trace}:{root.id}", text=question or ""
        ),
        rounds=read_run(steps, answer, began=_moment(root.start)).rounds,
        stopped_by="error" if root.failed else None if answer is None else "end",
    )


def _in_order(root: _Span) -> list[tuple[_Span, _Span | None]]:
    """Searches and calls under an agent as they began, each with the search that it belongs to."""
    found: list[tuple[_Span, _Span | None]] = []
    waiting: list[tuple[_Span, _Span | None]] = [(child, None) for child in root.children]
    while waiting:
        span, within = waiting.pop()
        if span.kind in ("search", "call"):
            found.append((span, within))
        inner = within or (span if span.kind == "search" else None)
        waiting += [(child, inner) for child in span.children]
    return sorted(found, key=lambda one: (one[0].start, one[0].kind == "call", one[0].end))


def _call(spans: _Spans, span: _Span, *, within: bool) -> Call:
    amounts: dict[str, Any] = {}
    for name, places in _AMOUNTS.items():
        place = next((place for place in places if span.attributes.get(place) is not None), None)
        amount = None if place is None else span.attributes[place]
        if isinstance(amount, float) and amount.is_integer():
            amount = int(amount)
        whole = isinstance(amount, int) and not isinstance(amount, bool)
        if amount is not None and not (whole and 0 <= amount <= MOST_INT32):
            raise spans.error(span, f"{place} must be a whole number from 0, found {amount!r:.40}")
        amounts[name] = amount
    cost = span.attributes.get("llm.cost.total")
    return Call(
        text=span.output,
        **amounts,
        cost_usd=float(cost) if isinstance(cost, float | int) and 0 <= cost < _MOST_NS else None,
        searches=not within and span.asks,
        ended=_moment(span.end),
    )


def _search(spans: _Spans, span: _Span, *, joined: bool) -> Search:
    """A search with the documents of all that happened within it."""
    passages = [
        passage
        for inner in _below(span)
        if inner is span or inner.kind == "search"
        for passage in _documents(spans, inner)
    ]
    if not passages and span.kind == "search":
        result = span.attributes.get("gen_ai.tool.call.result", span.attributes.get("output.value"))
        result = loaded(result) if isinstance(result, str) else result
        result = _unwrapped(result) if isinstance(result, dict) else result
        if isinstance(result, dict) and result.get("type") == "tool":
            result = result.get("content")
        passages = [] if result is None else list(passages_of(result))
    held = span.attributes
    query = held.get("gen_ai.retrieval.query.text")
    return Search(
        query=query if isinstance(query, str) else query_of(span.asked),
        action=action_of(span.tool, span.asked),
        passages=tuple(passages),
        joined=joined,
        ended=_moment(span.end),
    )


def _documents(spans: _Spans, span: _Span) -> Iterator[Passage]:
    """Of either convention; what is no document is said."""
    stated = span.attributes.get(DOCUMENTS)
    documents = loaded(stated) if isinstance(stated, str) else stated
    if documents is not None:
        if not isinstance(documents, list) or not all(isinstance(d, dict) for d in documents):
            raise spans.error(
                span,
                f"{DOCUMENTS} must be a list of objects with id, found {documents!r:.60}",
            )
        yield from (passage_of(document) for document in documents)
        return
    numbered: dict[int, dict[str, Any]] = {}
    for name, value in span.attributes.items():
        match = _DOCUMENT.fullmatch(name)
        if match:
            packed = match[2] == "metadata" and isinstance(value, str)
            numbered.setdefault(int(match[1]), {})[match[2]] = loaded(value) if packed else value
    yield from (passage_of(numbered[number]) for number in sorted(numbered))


def _moment(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC).replace(
        microsecond=nanoseconds // 1000 % 1_000_000
    )
