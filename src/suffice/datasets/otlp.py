"""Import of agent spans in OTLP JSON, by OpenTelemetry's GenAI conventions or OpenInference's."""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from suffice.contracts import loaded, strict_json
from suffice.datasets.files import Row, json_documents
from suffice.datasets.runs import (
    ANSWERING,
    Call,
    Noted,
    Search,
    Step,
    action_of,
    child,
    children,
    objects_in,
    passage_of,
    passages_of,
    query_of,
    read_run,
    text_of,
)
from suffice.errors import DataError, SufficeWarning, counted
from suffice.reasoning import without_reasoning
from suffice.trace.export import DOCUMENTS
from suffice.trace.rounds.records import STOPPED_BY, Passage, Question, QuestionRecord
from suffice.trace.usage import Counts, read_counts

_DEEPEST = 16
_SINCE = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_NS = 4_000_000_000_000_000_000  # of the year 2096
_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("invoke_agent", "agent", "ai.generatetext", "ai.streamtext"), "agent"),
    **dict.fromkeys(("invoke_workflow", "chain", "workflow", "task"), "chain"),
    **dict.fromkeys(("retrieval", "execute_tool", "retriever", "tool", "ai.toolcall"), "search"),
    "evaluator": "decision",
    **dict.fromkeys(("chat", "text_completion", "generate_content", "llm", "generation"), "call"),
    **dict.fromkeys(("create_agent", "guardrail", "prompt", "parser"), "other"),
}
"""What a span is of, by its operation (GenAI, Vercel) or its kind (OpenInference, OpenLLMetry, exports)."""
_OTHER = re.compile(r"embed|rerank|moderation", re.IGNORECASE)  # models that answer nothing
_USAGE = re.compile(
    r"(?:gen_ai\.usage|llm\.token_count|llm\.usage|ai\.usage|metrics)\.(?:details\.)?(.{1,100})"
)
_ALSO: Mapping[str, str] = {
    "traceloop.span.kind": "openinference.span.kind",
    **dict.fromkeys(("traceloop.entity.name", "ai.toolCall.name"), "tool.name"),
    **dict.fromkeys(("traceloop.entity.input", "ai.prompt", "ai.toolCall.args"), "input.value"),
    **dict.fromkeys(
        ("traceloop.entity.output", "ai.response.text", "ai.toolCall.result"), "output.value"
    ),
    "ai.operationId": "gen_ai.operation.name",
    "ai.prompt.messages": "gen_ai.input.messages",
    **dict.fromkeys(
        ("ai.response.finishReason", "gen_ai.completion.0.finish_reason"), "llm.finish_reason"
    ),
}
"""Names of OpenLLMetry and the Vercel AI SDK; neither package of conventions knows them."""
_OLD = re.compile(r"gen_ai\.(prompt|completion)\.(\d{1,6})\.")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_ASKING = re.compile(r"tool|function_call", re.IGNORECASE)
_TOOL_CALL = re.compile(r"""['"]type['"]: ?['"]tool_call['"]""")
_NUMBERED = re.compile(r"(.+?)\.(\d{1,6})\.(?:message|document)\.(.{1,200})")
_INPUT, _OUTPUT = ("user", "human"), ("assistant", "model", "ai")
_SAID = (
    *("question", "query", "input", "prompt"),
    *("answer", "output", "result", "response", "content", "text", "message", "args"),
)


def read_otlp(path: Path) -> tuple[QuestionRecord, ...]:
    """Read the agents in a file of exported traces: one document, a list, or one per line.

    Besides OTLP it takes spans as the clients of Phoenix and MLflow give them: an object each with
    ``attributes`` by name, alone, in a list, or as ``spans`` of a trace's ``data``.
    The outermost span of an agent (``invoke_agent``, AGENT; or of a chain with its own question) is a
    question. The i-th search below it (``retrieval``, ``execute_tool``; RETRIEVER, TOOL) opens round i.
    Overlapping searches share a round, and everything inside a search belongs to it.
    """
    spans: dict[tuple[str, str], _Span] = {}
    for row in json_documents(path):
        for span in _spans(row):
            known = spans.setdefault((span.trace, span.id), span)
            if replace(known, row=span.row, failed=span.failed) != span:
                raise span.error(
                    f"appears twice, with other values in row {known.row.number}; keep the finished row"
                )
    if not spans:
        raise DataError("holds no span", file=str(path))
    roots = _roots(spans, str(path))
    _only_innermost(roots, path)
    names = Counter(name for root in roots for name in root.names)
    records = []
    for root in roots:
        try:
            free = (name for name in root.names if names[name] == 1)
            records.append(_question(root, next(free, f"{root.trace}:{root.id}")))
        except DataError as error:
            raise error if error.file else root.error(str(error)) from error
    return tuple(records)


@dataclass(slots=True)
class _Span:
    row: Row
    trace: str
    id: str
    parent: str
    name: str
    start: int
    end: int
    failed: bool
    attributes: Mapping[str, Any]
    kind: str | None
    children: list[_Span] = field(default_factory=list, compare=False)

    def error(self, message: str) -> DataError:
        return self.row.error(
            f"span {self.id} ({self.name!r:.60}) of trace {self.trace}: {message}"
        )

    def first(self, *names: str) -> Any:
        return next((self.attributes[name] for name in names if name in self.attributes), None)

    @property
    def names(self) -> tuple[str, ...]:
        """Names that its question may have, if no other one has them."""
        own = self.attributes.get("suffice.question_id")
        return (own, self.trace) if isinstance(own, str) and own else (self.trace,)

    @property
    def counts(self) -> Counts:
        held = self.attributes.items()
        told = {m[1]: _value_of(v) for name, v in held if (m := _USAGE.fullmatch(name))}
        return read_counts(told, whole=True) if told else read_counts(self.attributes.get("usage"))

    @property
    def tells_usage(self) -> bool:
        return self.counts != Counts()

    @property
    def tool(self) -> str | None:
        name = self.first("gen_ai.tool.name", "tool.name")
        return name if isinstance(name, str) else None

    @property
    def asked(self) -> Any:
        asked = self.first("gen_ai.tool.call.arguments", "input.value")
        whole = loaded(asked) if isinstance(asked, str) else asked
        return _unwrapped(whole) if isinstance(whole, dict) else asked

    def told(self, which: str, roles: Sequence[str]) -> str | None:
        """Return its ``input`` or ``output``, if recorded: the last text of one of the roles."""
        values = [
            self.attributes.get(f"gen_ai.{which}.messages"),
            self.numbered(f"llm.{which}_messages"),
        ]
        # of a call that tells its messages, the value is the same as a library's own object
        if not (self.kind == "call" and any(values)):
            values.append(self.attributes.get(f"{which}.value"))
        return next((text for value in values if value and (text := _said(value, roles))), None)

    def numbered(self, prefix: str) -> list[dict[str, Any]]:
        """Return OpenInference's flattened lists of messages and documents."""
        found: dict[int, dict[str, Any]] = {}
        for name, value in self.attributes.items():
            match = _NUMBERED.fullmatch(name)
            if match and match[1] == prefix:
                part = "content" if match[3].endswith("message_content.text") else match[3]
                found.setdefault(int(match[2]), {})[part] = value
        return [found[number] for number in sorted(found)]

    @property
    def asks(self) -> bool:
        held = self.attributes
        reasons = [held.get("gen_ai.response.finish_reasons"), held.get("llm.finish_reason")]
        messages = self.numbered("llm.output_messages")
        return bool(
            _ASKING.search(str(reasons))
            or any("tool_calls" in part for message in messages for part in message)
            or _TOOL_CALL.search(str(held.get("gen_ai.output.messages")))
        )

    def below(self) -> Iterator[_Span]:
        """Return the span and all below it, a parent before its children."""
        waiting = [self]
        while waiting:
            span = waiting.pop()
            yield span
            waiting += reversed(span.children)


# --- spans of a document ----------------------------------------------------------------------------
def _spans(row: Row) -> Iterator[_Span]:
    resources = row.values.get("resourceSpans")
    plain = _exported(row) or children(child(row.values, "data"), "spans") or [dict(row.values)]
    if resources is None and isinstance(plain[0].get("attributes"), dict):
        yield from (_span(row, _as_otlp(row, values)) for values in plain)
        return
    if not isinstance(resources, list):
        raise row.error(
            "is no OTLP JSON: it has no resourceSpans; export traces as OTLP in JSON, one document or "
            f"one a line; found {', '.join(map(repr, list(row.values)[:8])) or 'nothing'}"
        )
    for resource in objects_in(resources):
        for scope in children(resource, "scopeSpans"):
            for values in children(scope, "spans"):
                yield _span(row, values)


def _exported(row: Row) -> list[dict[str, Any]]:
    """Return the spans of a Langfuse trace or observation or of a LangSmith run, with those inside it."""
    spans: list[dict[str, Any]] = []
    waiting: list[dict[str, Any]] = [dict(row.values)]
    while waiting:
        held = _snaked(waiting.pop())
        trace, below = child(held, "trace") or held, children(held, "observations")
        pages = children(held, "data") or children(held, "runs")
        if "observations" in held:
            if not below:
                raise row.error(
                    "has no observation with its fields; export them too", "observations"
                )
            own = trace.get("id")
            starts = [one.get("startTime", one.get("start_time")) for one in below]
            first = min((text for text in starts if isinstance(text, str)), default=None)
            began = trace.get("timestamp", first)
            spans.append({**trace, "type": "agent", "trace_id": own, "start_time": began})
            outer = {"trace_id": own, "parent_observation_id": own}
            waiting += [outer | {k: v for k, v in _snaked(one).items() if v} for one in below]
        elif "run_type" in held or ("type" in held and "trace_id" in held):
            spans.append(held)
            outer = {"trace_id": held.get("trace_id"), "parent_run_id": held.get("id")}
            waiting += [outer | one for one in children(held, "child_runs")]
        elif pages and not children(child(held, "data"), "spans"):
            waiting += pages
        else:
            return []
    return [_of_export(span) for span in spans]


def _of_export(held: Mapping[str, Any]) -> dict[str, Any]:
    """Return an observation or a run with the names of a client's span."""
    asked, told = (_parsed(held.get(name, held.get(f"{name}s"))) for name in ("input", "output"))
    parent = held.get("parent_run_id") or held.get("parent_observation_id")
    kind = str(held.get("run_type") or held.get("type")).lower()
    if kind == "span":
        kind = "span" if parent else "chain"
    while isinstance(told, dict) and (made := told.get("generations") or told.get("choices")):
        while isinstance(made, list) and made:
            made = made[0]
        told = made.get("message") or made.get("text") if isinstance(made, dict) else made
    reply = _unwrapped(told) if isinstance(told, dict) else {}
    asks = reply.get("tool_calls") or child(reply, "additional_kwargs").get("tool_calls")
    if kind in ("tool", "retriever") and len(reply) == 1 and "output" in reply:
        told = reply["output"]
    usages = (held.get("usage_details"), held.get("usage"), reply.get("usage_metadata"))
    usage = next((whole for one in usages if (whole := _parsed(one))), held)
    attributes = {
        "openinference.span.kind": kind,
        "input.value": asked,
        "output.value": told,
        "tool.name": held.get("name"),
        "usage": usage if kind in ("llm", "generation", "embedding") else None,
        "llm.finish_reason": "tool_calls" if asks else None,
    }
    failed = held.get("error") or str(held.get("level")).upper() == "ERROR"
    return {
        **{name: held.get(name) for name in ("trace_id", "name", "start_time", "end_time")},
        "span_id": held.get("id"),
        "parent_id": parent,
        "attributes": {name: value for name, value in attributes.items() if value is not None},
        "status_code": "ERROR" if failed else "OK",
    }


def _parsed(text: Any) -> Any:
    """Parse JSON of a text, an object or a list; a number or a plain text stays a text."""
    value = _value_of(text)
    return value if isinstance(value, str | dict | list) else text


def _snaked(values: Mapping[str, Any]) -> dict[str, Any]:
    return {_CAMEL.sub("_", name).lower(): value for name, value in values.items()}


def _as_otlp(row: Row, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's span by OTLP's names; MLflow's has values of attributes as JSON texts."""
    held, attributes = {**child(values, "context"), **values}, child(values, "attributes")
    if "start_time_unix_nano" in values:
        attributes = {name: _value_of(value) for name, value in attributes.items()}
    attributes = {"openinference.span.kind": held.get("span_kind"), **attributes}
    status = child(values, "status").get("code", values.get("status_code"))
    said: dict[str, Any] = {
        "spanId": held.get("span_id"),
        "traceId": held.get("trace_id"),
        "parentSpanId": held.get("parent_span_id") or held.get("parent_id"),
        "name": held.get("name"),
        "attributes": attributes,
        "status": {"code": "STATUS_CODE_ERROR" if str(status).endswith("ERROR") else 0},
    }
    for name, key in (("start_time", "startTimeUnixNano"), ("end_time", "endTimeUnixNano")):
        moment = row.inside("", held).moment(name)
        said[key] = held.get(f"{name}_unix_nano")
        if moment is not None:
            said[key] = (moment - _SINCE) // timedelta(microseconds=1) * 1000
    return said


def _value_of(text: Any) -> Any:
    try:
        return strict_json(text) if isinstance(text, str) else text
    except (ValueError, RecursionError):
        return text


def _span(row: Row, values: Mapping[str, Any]) -> _Span:
    own, trace, parent = (values.get(name) or "" for name in ("spanId", "traceId", "parentSpanId"))
    if not (own and trace and all(isinstance(text, str) for text in (own, trace, parent))):
        raise row.error(
            f"a span without spanId or traceId, or with a parentSpanId that is no text: {values!r:.80}",
            "spans",
        )
    start = _nanoseconds(row, own, values.get("startTimeUnixNano"))
    ended = values.get("endTimeUnixNano")
    status = values.get("status")
    events, plain = children(values, "events"), values.get("attributes")
    name = str(values.get("name") or "")
    operations = [e for e in events if e.get("name") == "gen_ai.client.inference.operation.details"]
    held = (
        plain
        if isinstance(plain, dict)
        else {
            str(pair.get("key")): _value(row, own, pair.get("value"))
            for source in (*operations, values)
            for pair in children(source, "attributes")
        }
    )
    told = {k: _parsed(v) if k.startswith("traceloop.") else v for k, v in held.items()}
    held = {_ALSO.get(key) or _OLD.sub(_renamed, key): value for key, value in told.items()} | held
    return _Span(
        row=row,
        trace=trace,
        id=own,
        parent=parent,
        name=name,
        start=start,
        end=start if ended is None else max(start, _nanoseconds(row, own, ended)),
        failed=isinstance(status, dict) and status.get("code") in (2, "2", "STATUS_CODE_ERROR"),
        attributes=held,
        kind=_kind(name, held),
    )


def _renamed(old: re.Match[str]) -> str:
    which = "input" if old[1] == "prompt" else "output"
    return f"llm.{which}_messages.{old[2]}.message."


def _kind(name: str, held: Mapping[str, Any]) -> str | None:
    """Return what a span is of; one of an unknown operation that tells usage or a model is a call."""
    stated = [held.get("gen_ai.operation.name"), held.get("openinference.span.kind")]
    words = [word.lower() for word in stated if isinstance(word, str)]
    known = next((_KINDS[word] for word in words if word in _KINDS), None)
    if known or any(word.startswith("ai.") and ".do" in word for word in words):
        return known or ("other" if _OTHER.search(words[0]) else "call")
    models = [held.get(key) for key in ("gen_ai.request.model", "llm.request.type")]
    told = models[0] is not None or any(map(_USAGE.fullmatch, held))
    return ("other" if _OTHER.search(f"{name} {words} {models}") else "call") if told else None


def _nanoseconds(row: Row, span: str, value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,19}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value < _MOST_NS:
        raise row.error(
            f"span {span}: its times, which order the rounds, must be nanoseconds since 1970, found "
            f"{value!r:.40}",
            "startTimeUnixNano",
        )
    return value


def _value(row: Row, span: str, value: Any, depth: int = 0) -> Any:
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
    pairs = objects_in(items)
    return {str(pair.get("key")): _value(row, span, pair.get("value"), depth + 1) for pair in pairs}


# --- trees ------------------------------------------------------------------------------------------
def _roots(spans: Mapping[tuple[str, str], _Span], file: str) -> list[_Span]:
    tops: list[_Span] = []
    for span in spans.values():
        parent = spans.get((span.trace, span.parent))
        (tops if parent is None else parent.children).append(span)
    reached = {id(span) for top in tops for span in top.below()}
    if lost := next((span for span in spans.values() if id(span) not in reached), None):
        raise lost.error("its parents form a cycle; export the trace again")
    agents = {id(top): list(_outermost(top)) for top in tops}
    roots = [agent for top in tops for agent in agents[id(top)]]
    for top in tops:
        inside = any(span.kind in ("search", "call") for span in top.below())
        if not agents[id(top)] and inside and top.parent:  # it goes to the only agent of its trace
            there = [root for root in roots if root.trace == top.trace]
            if len(there) != 1:
                raise top.error(
                    f"its parent {top.parent} is not in the file, and its trace has {len(there)} agents "
                    "there; export whole traces, in one file"
                )
            there[0].children.append(top)
    if not roots:
        raise DataError(
            "holds no span of an agent: gen_ai.operation.name invoke_agent (or invoke_workflow), or "
            "openinference.span.kind AGENT or CHAIN; instrument the agent too, or write its rounds as "
            "rows and import them with --format columns",
            file=file,
        )
    return sorted(roots, key=lambda span: (span.start, span.row.number, span.id))


def _only_innermost(roots: Sequence[_Span], path: Path) -> None:
    """Leave one call of those around each other: the innermost ones that tell usage."""
    left: Counter[str] = Counter()
    for root in roots:
        inner: dict[int, list[_Span]] = {}
        for span in reversed(list(root.below())):
            calls = [call for below in span.children for call in inner[id(below)]]
            if span.kind == "call" and calls:
                wraps = len(calls) == 1 and span.tells_usage and not calls[0].tells_usage
                away = calls[0] if wraps else span
                away.kind, calls = "other", [span] if wraps else calls
                left[f"{away.name or 'a call'} around or inside another call"] += 1
            elif span.kind == "call":
                calls = [span]
            elif span.tells_usage and not calls:
                left[span.name or "no name"] += 1
            inner[id(span)] = calls
    if left:
        said = ", ".join(f"{count} of {name:.60}" for name, count in left.most_common(6))
        warnings.warn(
            f"{path}: left out the usage of {counted(left.total(), 'span')} that are no calls of the loop, "
            f"or repeat one: {said}",
            SufficeWarning,
            stacklevel=3,
        )


def _outermost(top: _Span) -> Iterator[_Span]:
    """Return agents inside no other agent; a chain without a question of its own only holds others."""
    waiting = [top]
    while waiting:
        span = waiting.pop()
        inner = (one for one in span.below() if one is not span)
        if _is_asked(span) or (span.kind == "chain" and not any(map(_is_asked, inner))):
            yield span
        else:
            waiting += reversed(span.children)


def _is_asked(span: _Span) -> bool:
    return span.kind == "agent" or (span.kind == "chain" and bool(span.told("input", _INPUT)))


# --- what was said ----------------------------------------------------------------------------------
def _unwrapped(message: Mapping[str, Any]) -> Mapping[str, Any]:
    names = ("kwargs", "data", "inputs", "outputs")
    inner = (message[name] for name in names if message.get(name))
    return next((held for held in inner if isinstance(held, dict)), message)


def _said(value: Any, roles: Sequence[str]) -> str | None:
    for _ in range(_DEEPEST):
        if isinstance(value, str):
            whole = loaded(value)
            inner = None if isinstance(whole, str) else _inner(whole, roles)
            if inner is None:
                others = any("role" in message for message in objects_in(whole))
                return None if others else value.strip() or None
            value = inner
        elif (value := _inner(value, roles)) is None:
            return None
    return None


def _inner(value: Any, roles: Sequence[str]) -> Any:
    """Go one level down: from messages to the last one of a role, from a message to its texts."""
    if isinstance(value, list):
        messages = [_unwrapped(item) for item in value if isinstance(item, dict)]
        of_role = [m for m in messages if str(m.get("role", m.get("type", ""))).lower() in roles]
        unnamed = [m for m in messages if "role" not in m and "type" not in m]
        chosen = of_role or unnamed
        parts = [item for item in value if not (isinstance(item, dict) and "role" in item)]
        return chosen[-1] if chosen else (text_of(parts) or None)
    if not isinstance(value, dict):
        return None
    value = _unwrapped(value)
    parts = value.get("parts", value.get("content"))
    if isinstance(parts, list):
        return text_of(parts) or None
    if isinstance(value.get("messages"), list):
        return value["messages"]
    return next((value[name] for name in _SAID if value.get(name)), None)


# --- a question -------------------------------------------------------------------------------------
def _question(root: _Span, name: str) -> QuestionRecord:
    steps: list[Step] = []
    calls: list[_Span] = []
    handed: str | None = None
    until = 0  # the end of the searches that share the round
    for span, within in _in_order(root):
        if span.kind == "decision":
            score, said = span.first("suffice.score"), span.first("suffice.answer")
            steps.append(Noted(score=score, answer=said))
        elif span.kind == "call":
            calls.append(span)
            steps.append(_call(span, within=within is not None))
        elif within is None and span.tool in ANSWERING:
            handed = query_of(span.asked)
            if steps and isinstance(last := steps[-1], Call):
                steps[-1] = replace(last, searches=False)
        elif within is None:
            steps.append(_search(span, joined=span.start < until))
            until = max(until, span.end) if span.start < until else span.end
    decided = any(isinstance(step, Noted) for step in steps)
    given = root.told("output", _OUTPUT)
    answer = handed if given is None else given
    if answer is None and calls and not calls[-1].asks:
        answer = calls[-1].told("output", _OUTPUT)
    answer = None if answer is None else without_reasoning(answer).strip()
    asked = (text for span in (root, *calls) if (text := span.told("input", _INPUT)))
    held, began = root.attributes, _moment(root.start)
    rounds, scores = read_run(steps, None if decided else answer, began=began)
    stopped: Any = "error" if root.failed else None if answer is None else "end"
    if held.get("suffice.stopped_by") in STOPPED_BY:  # our own say it
        stopped = None if held.get("suffice.whole") is True else held["suffice.stopped_by"]
    return QuestionRecord(
        question=Question(id=name, text=next(asked, "")),
        rounds=rounds,
        scores=scores,
        stopped_by=stopped,
        policy_hash=held.get("suffice.policy_hash"),
    )


def _in_order(root: _Span) -> list[tuple[_Span, _Span | None]]:
    found: list[tuple[_Span, _Span | None]] = []
    waiting: list[tuple[_Span, _Span | None]] = [(child, None) for child in root.children]
    while waiting:
        span, within = waiting.pop()
        if span.kind in ("search", "call") or (
            span.kind == "decision" and "suffice.decision" in span.attributes
        ):
            found.append((span, within))
        inner = within or (span if span.kind == "search" else None)
        waiting += [(child, inner) for child in span.children]
    order = ("decision", "search", "call")
    return sorted(found, key=lambda one: (one[0].start, order.index(one[0].kind), one[0].end))


def _call(span: _Span, *, within: bool) -> Call:
    counts, cost = span.counts, span.attributes.get("llm.cost.total")
    return Call(
        text=span.told("output", _OUTPUT),
        prompt_tokens=counts.prompt,
        cached_tokens=counts.cached,
        completion_tokens=counts.completion,
        usd=float(cost) if isinstance(cost, float | int) and 0 <= cost < _MOST_NS else None,
        searches=not within and span.asks,
        ended=_moment(span.end),
    )


def _search(span: _Span, *, joined: bool) -> Search:
    inside = [inner for inner in span.below() if inner is span or inner.kind == "search"]
    passages = [passage for inner in inside for passage in _documents(inner)]
    result = span.first("gen_ai.tool.call.result", "output.value")
    if not passages and result is not None:
        result = loaded(result) if isinstance(result, str) else result
        result = _unwrapped(result) if isinstance(result, dict) else result
        if isinstance(result, dict) and result.get("type") == "tool":
            result = result.get("content")
        passages = list(passages_of(result))
    query = span.attributes.get("gen_ai.retrieval.query.text")
    return Search(
        query=query if isinstance(query, str) else query_of(span.asked),
        action=action_of(span.tool, span.asked),
        passages=tuple(passages),
        joined=joined,
        ended=_moment(span.end),
    )


def _documents(span: _Span) -> list[Passage]:
    stated = span.attributes.get(DOCUMENTS)
    documents = loaded(stated) if isinstance(stated, str) else stated
    if documents is None:
        documents = span.numbered("retrieval.documents")
    if not isinstance(documents, list) or not all(isinstance(d, dict) for d in documents):
        raise span.error(f"{DOCUMENTS} must be a list of objects with id, found {documents!r:.60}")
    return [passage_of(document) for document in documents]


def _moment(nanoseconds: int) -> datetime:
    return _SINCE + timedelta(microseconds=nanoseconds // 1000)
