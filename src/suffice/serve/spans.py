"""Questions as spans of OpenTelemetry while they are answered, by the names of its GenAI conventions.

A span of what the whole question took, ``invoke_agent``, and for each round one of its search and one of its
calls: the same as ``suffice traces export --format otlp`` writes, so that ``traces import --format otlp``
reads them back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from suffice._optional import require
from suffice.live.privacy import Privacy, Veiled
from suffice.serve.events import Event, QuestionBegun, QuestionEnded, RoundEnded
from suffice.trace.rounds.records import (
    STOPPED_BY,
    Gold,
    Question,
    QuestionRecord,
    Round,
    StoppedBy,
)
from suffice.trace.rounds.spans import OPERATION, Step, agent_attributes, steps_of

_SECOND = 1_000_000_000
_MOST_OPEN = 10_000


@dataclass(slots=True, kw_only=True)
class _Open:
    span: Any
    question: Question
    veiled: Veiled | None
    model: str | None
    policy_hash: str | None
    now: int
    rounds: list[Round] = field(default_factory=list)


class Spans:
    """An observer that makes spans, for ``exporter`` or the collector of ``OTEL_EXPORTER_OTLP_ENDPOINT``.

    Without ``texts`` numbers stand in their place, which are equal where texts are. ``at_once``: each is
    exported when it ends, not with others in a thread of its own.
    """

    def __init__(
        self,
        exporter: Any = None,
        *,
        texts: bool = False,
        at_once: bool = False,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        purpose = "sending spans"
        sdk = require("opentelemetry.sdk.trace", purpose=purpose, extra="otel")
        export = require("opentelemetry.sdk.trace.export", purpose=purpose, extra="otel")
        resources = require("opentelemetry.sdk.resources", purpose=purpose, extra="otel")
        if exporter is None:
            http = require(
                "opentelemetry.exporter.otlp.proto.http.trace_exporter",
                purpose=purpose,
                extra="otel",
            )
            exporter = http.OTLPSpanExporter()
        processor = export.SimpleSpanProcessor if at_once else export.BatchSpanProcessor
        self._provider = sdk.TracerProvider(
            resource=resources.Resource.create({"service.name": "suffice"}), shutdown_on_exit=False
        )
        self._provider.add_span_processor(processor(exporter))
        self._tracer = self._provider.get_tracer("suffice")
        self._api = require("opentelemetry.trace", purpose=purpose, extra="otel")
        self._privacy = None if texts else Privacy("no-texts")
        self._clock = clock
        self._open: dict[str, _Open] = {}
        self._lock = threading.Lock()

    def on(self, event: Event) -> None:
        """Begin a span, or end some."""
        if isinstance(event, QuestionBegun):
            self._begin(event)
        elif isinstance(event, RoundEnded):
            self._round(event)
        else:
            self._end(event)

    def close(self) -> None:
        """Export what is finished."""
        self._provider.shutdown()

    def _begin(self, begun: QuestionBegun) -> None:
        now = self._clock()
        question = Question(id=begun.trace_id, text=begun.text)
        veiled = None if self._privacy is None else self._privacy.question(question, Gold())
        attributes = {
            OPERATION: "invoke_agent",
            "suffice.trace_id": begun.trace_id,
            "suffice.endpoint": begun.endpoint,
            "suffice.policy": begun.policy,
        }
        if begun.model:
            attributes["gen_ai.request.model"] = begun.model
        span = self._tracer.start_span("invoke_agent", start_time=now, attributes=attributes)
        held = _Open(
            span=span,
            question=question if veiled is None else veiled.question,
            veiled=veiled,
            model=begun.model or None,
            policy_hash=begun.policy_hash,
            now=now,
        )
        with self._lock:
            if len(self._open) >= _MOST_OPEN:
                self._open.pop(next(iter(self._open))).span.end()
            self._open[begun.trace_id] = held

    def _round(self, ended: RoundEnded) -> None:
        held = self._open.get(ended.trace_id)
        if held is None:
            return
        now = max(self._clock(), held.now)  # the clock may have been set back
        began = max(held.now, now - int(ended.took_s * _SECOND))
        shown = ended.round if held.veiled is None else held.veiled.named(ended.round)
        held.rounds.append(shown)
        for step in steps_of(shown, began, now, model=held.model):
            self._add(held, step)
        held.now = now

    def _add(self, held: _Open, step: Step) -> None:
        span = self._tracer.start_span(
            step.name,
            context=self._api.set_span_in_context(held.span),
            start_time=step.start,
            attributes=dict(step.attributes),
        )
        span.end(step.end)

    def _end(self, ended: QuestionEnded) -> None:
        with self._lock:
            held = self._open.pop(ended.trace_id, None)
        if held is None:
            return
        span, stopped_by = held.span, ended.stopped_by
        if held.rounds:
            record = QuestionRecord(
                question=held.question,
                rounds=tuple(held.rounds),
                stopped_by=_as_recorded(stopped_by),
                policy_hash=held.policy_hash,
            )
            span.set_attributes(agent_attributes(record))
        told = {
            "suffice.rounds": ended.rounds,
            "suffice.stopped_by": stopped_by,
            "suffice.declined": ended.declined,
            "suffice.cost_usd": ended.usd,
            "gen_ai.usage.input_tokens": ended.prompt_tokens,
            "gen_ai.usage.cache_read.input_tokens": ended.cached_tokens,
            "gen_ai.usage.output_tokens": ended.completion_tokens,
        }
        span.set_attributes({name: value for name, value in told.items() if value is not None})
        if ended.error:
            said = ended.error if held.veiled is None else None
            span.set_status(self._api.Status(self._api.StatusCode.ERROR, said))
        span.end(max(self._clock(), held.now))


def _as_recorded(stopped_by: str) -> StoppedBy | None:
    """What a record says of what ended a question."""
    if stopped_by == "gone":
        return "user"
    known = next((known for known in STOPPED_BY if known == stopped_by), None)
    return "error" if known is None and stopped_by == "refused" else known
