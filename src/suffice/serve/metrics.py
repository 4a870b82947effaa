"""What the service counts, for Prometheus: an observer of events, and the page that is scraped."""

from __future__ import annotations

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

from suffice.serve.events import Event, QuestionBegun, RoundEnded
from suffice.serve.service import Service

OTHER = "other"
"""The label of a policy that is not in force any more, so that labels are as many as policies."""

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_ROUNDS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30)


class Metrics:
    """Counts events; names begin with ``suffice_``, and policies that are not in force are ``other``."""

    def __init__(self, service: Service) -> None:
        self._service = service
        registry = CollectorRegistry()
        to: dict[str, Any] = {"registry": registry}
        by = ("policy", "endpoint")
        self._requests = Counter(
            "suffice_requests",
            "Questions that ended, by what ended them.",
            (*by, "stopped_by"),
            **to,
        )
        self._rounds = Histogram(
            "suffice_question_rounds", "Rounds a question.", by, buckets=_ROUNDS, **to
        )
        self._seconds = Histogram(
            "suffice_question_seconds",
            "Seconds from a question to its end.",
            by,
            buckets=_SECONDS,
            **to,
        )
        self._round_seconds = Histogram(
            "suffice_round_seconds", "Seconds a round.", by, buckets=_SECONDS, **to
        )
        self._tokens = Counter(
            "suffice_tokens",
            "Tokens of all calls; those cached are among the prompt's.",
            (*by, "kind"),
            **to,
        )
        self._usd = Counter("suffice_cost_usd", "US dollars, as known.", by, **to)
        self._unpriced = Counter(
            "suffice_unpriced_requests", "Questions whose cost is unknown.", by, **to
        )
        self._declined = Counter("suffice_abstentions", "Answers withheld.", by, **to)
        self._failed = Counter("suffice_errors", "Questions in which something failed.", by, **to)
        self._in_flight = Gauge("suffice_in_flight", "Questions under way.", ("endpoint",), **to)
        self._alarms = Gauge(
            "suffice_alarm",
            "1 once the watch in production raised an alarm of this kind.",
            ("policy", "kind"),
            **to,
        )
        self._reloads = Counter(
            "suffice_policy_reloads", "Policy files taken up anew.", ("outcome",), **to
        )
        for name, said, level in (
            ("queue", "Questions that wait for a place.", lambda: service.places.waiting),
            ("record_lost_rounds", "Rounds that are not in the record.", lambda: service.lost[0]),
            ("record_failing", "1 while the record cannot be written.", lambda: service.failing),
        ):
            Gauge(f"suffice_{name}", said, **to).set_function(level)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)
        self.registry = registry

    def on(self, event: Event) -> None:
        """Count it."""
        policy = event.policy if event.policy in self._service.policies else OTHER
        labels = policy, event.endpoint
        if isinstance(event, QuestionBegun):
            self._in_flight.labels(event.endpoint).inc()
            return
        if isinstance(event, RoundEnded):
            self._round_seconds.labels(*labels).observe(event.took_s)
            return
        self._in_flight.labels(event.endpoint).dec()
        self._requests.labels(*labels, event.stopped_by).inc()
        self._rounds.labels(*labels).observe(event.rounds)
        self._seconds.labels(*labels).observe(event.took_s)
        for kind in ("prompt", "cached", "completion"):
            count = getattr(event, f"{kind}_tokens")
            if count is not None:
                self._tokens.labels(*labels, kind).inc(count)
        if event.usd is None:
            self._unpriced.labels(*labels).inc()
        else:
            self._usd.labels(*labels).inc(max(0.0, event.usd))
        if event.declined:
            self._declined.labels(*labels).inc()
        if event.error:
            self._failed.labels(*labels).inc()

    def alarm(self, policy: str, kind: str, *, raised: bool) -> None:
        """A kind of alarm of the watch in production, of a fixed list."""
        self._alarms.labels(policy, kind).set(float(raised))

    def reloaded(self, *, taken: int, refused: int) -> None:
        """Policy files were read again."""
        self._reloads.labels("taken").inc(taken)
        self._reloads.labels("refused").inc(refused)

    @property
    def router(self) -> APIRouter:
        """The page."""
        router = APIRouter(tags=["operation"])

        @router.get("/metrics", response_class=Response)
        def metrics() -> Response:
            """What was counted, in Prometheus' text format."""
            return Response(generate_latest(self.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

        return router
