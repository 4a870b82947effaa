"""Prometheus metrics of the service, and questions as OpenTelemetry spans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Response
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4

from suffice._optional import require
from suffice.live.observing import QuestionEnded, Spans
from suffice.live.privacy import Privacy
from suffice.serve.service import Service

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_ROUNDS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30)


class Metrics:
    """Prometheus metrics of ended questions; names begin with ``suffice_``."""

    def __init__(self, service: Service) -> None:
        registry = CollectorRegistry()
        self.registry: CollectorRegistry = registry
        by = ("policy", "endpoint")

        def made(kind: Any, name: str, said: str, labels: Sequence[str] = by, **how: Any) -> Any:
            return kind(f"suffice_{name}", said, labels, registry=registry, **how)

        self._requests = made(
            Counter, "requests", "Questions that ended, by what ended them.", (*by, "stopped_by")
        )
        self._rounds = made(Histogram, "question_rounds", "Rounds a question.", buckets=_ROUNDS)
        said = "Seconds from a question to its end."
        self._seconds = made(Histogram, "question_seconds", said, buckets=_SECONDS)
        self._round_seconds = made(Histogram, "round_seconds", "Seconds a round.", buckets=_SECONDS)
        said = "Tokens of all calls; those cached are among the prompt's."
        self._tokens = made(Counter, "tokens", said, (*by, "kind"))
        self._usd = made(Counter, "cost_usd", "US dollars, as known.")
        self._unpriced = made(Counter, "unpriced_requests", "Questions whose cost is unknown.")
        self._declined = made(Counter, "abstentions", "Answers withheld.")
        self._failed = made(Counter, "errors", "Questions in which something failed.")
        said = "1 once the watch in production raised an alarm of this kind."
        self._alarms = made(Gauge, "alarm", said, ("policy", "kind"))
        for name, said, level in (
            ("in_flight", "Questions that are answered now.", lambda: service.places.taken),
            ("queue", "Questions that wait for a place.", lambda: service.places.waiting),
            ("record_lost_rounds", "Rounds that are not in the record.", lambda: service.lost[0]),
            ("record_failing", "1 while the record cannot be written.", lambda: service.failing),
        ):
            made(Gauge, name, said, ()).set_function(level)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

    def on(self, ended: QuestionEnded) -> None:
        labels = ended.policy, ended.endpoint
        self._requests.labels(*labels, ended.stopped_by).inc()
        self._rounds.labels(*labels).observe(len(ended.rounds))
        self._seconds.labels(*labels).observe(ended.took_s)
        for ran in ended.rounds:
            self._round_seconds.labels(*labels).observe(ran.took_s)
        for kind in ("prompt", "cached", "completion"):
            count = getattr(ended.tokens, kind)
            if count is not None:
                self._tokens.labels(*labels, kind).inc(count)
        if ended.usd is None:
            self._unpriced.labels(*labels).inc()
        else:
            self._usd.labels(*labels).inc(max(0.0, ended.usd))
        if ended.declined:
            self._declined.labels(*labels).inc()
        if ended.error:
            self._failed.labels(*labels).inc()

    def alarms(self, policy: str, gauges: Mapping[str, float]) -> None:
        """Show which kinds of alarms the watch of a policy raised (above 0)."""
        for kind, gauge in gauges.items():
            self._alarms.labels(policy, kind).set(float(gauge > 0))

    @property
    def router(self) -> APIRouter:
        router = APIRouter(tags=["operation"])

        @router.get("/metrics", response_class=Response)
        def metrics() -> Response:
            """Show the metrics in Prometheus' text format."""
            return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

        return router


# --- spans ---------------------------------------------------------------------------------------
class SpanSender:
    """Spans of questions to the collector, or to ``exporter``; without ``texts`` numbers replace them.

    ``at_once``: export each span when it ends, not in batches.
    """

    def __init__(self, exporter: Any = None, *, texts: bool = False, at_once: bool = False) -> None:
        wanted = {"purpose": "sending spans", "extra": "otel"}
        sdk = require("opentelemetry.sdk.trace", **wanted)
        export = require("opentelemetry.sdk.trace.export", **wanted)
        resource = require("opentelemetry.sdk.resources", **wanted).Resource
        if exporter is None:
            http = require("opentelemetry.exporter.otlp.proto.http.trace_exporter", **wanted)
            exporter = http.OTLPSpanExporter()
        processor = export.SimpleSpanProcessor if at_once else export.BatchSpanProcessor
        self._provider = sdk.TracerProvider(
            resource=resource.create({"service.name": "suffice"}), shutdown_on_exit=False
        )
        self._provider.add_span_processor(processor(exporter))
        self._spans = Spans(self._provider, None if texts else Privacy("no-texts"))

    def on(self, ended: QuestionEnded) -> None:
        self._spans.on(ended)

    def close(self) -> None:
        self._provider.shutdown()
