"""What the service counts, for Prometheus: an observer of events, and the page that is scraped."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

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
from starlette.requests import Request
from starlette.responses import Response

from suffice.serve.events import Event, QuestionBegun, QuestionEnded, RoundEnded
from suffice.serve.openapi import Operation, described

OTHER = "other"
"""The label of a policy that is not in force any more, so that labels are as many as policies."""

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
_ROUNDS = (1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30)
_MOST_OPEN = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """What is asked when the page is scraped."""

    waiting: Callable[[], int]
    lost_rounds: Callable[[], int]
    record_failing: Callable[[], bool]


class Metrics:
    """Counts events; names begin with ``suffice_``, and policies that are not in force are ``other``."""

    def __init__(self, policies: Callable[[], Iterable[str]], levels: Levels | None = None) -> None:
        self.registry = registry = CollectorRegistry()
        self._policies = policies
        self._open: dict[str, tuple[str, str]] = {}
        self._lock = threading.Lock()
        by = ("policy", "endpoint")
        self._requests = Counter(
            "suffice_requests",
            "Questions that ended, by what ended them.",
            (*by, "stopped_by"),
            registry=registry,
        )
        self._rounds = Histogram(
            "suffice_question_rounds", "Rounds a question.", by, buckets=_ROUNDS, registry=registry
        )
        self._seconds = Histogram(
            "suffice_question_seconds",
            "Seconds from a question to its end.",
            by,
            buckets=_SECONDS,
            registry=registry,
        )
        self._round_seconds = Histogram(
            "suffice_round_seconds", "Seconds a round.", by, buckets=_SECONDS, registry=registry
        )
        self._tokens = Counter(
            "suffice_tokens",
            "Tokens of all calls; those cached are among the prompt's.",
            (*by, "kind"),
            registry=registry,
        )
        self._usd = Counter("suffice_cost_usd", "US dollars, as known.", by, registry=registry)
        self._unpriced = Counter(
            "suffice_unpriced_requests", "Questions whose cost is unknown.", by, registry=registry
        )
        self._declined = Counter("suffice_abstentions", "Answers withheld.", by, registry=registry)
        self._failed = Counter(
            "suffice_errors", "Questions in which something failed.", by, registry=registry
        )
        self._in_flight = Gauge(
            "suffice_in_flight", "Questions under way.", ("endpoint",), registry=registry
        )
        self._alarms = Gauge(
            "suffice_alarm",
            "1 once the watch in production raised an alarm of this kind.",
            ("policy", "kind"),
            registry=registry,
        )
        self._reloads = Counter(
            "suffice_policy_reloads", "Policy files taken up anew.", ("outcome",), registry=registry
        )
        if levels is not None:
            self._ask(levels)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

    def _ask(self, levels: Levels) -> None:
        registry = self.registry
        waiting = Gauge("suffice_queue", "Questions that wait for a place.", registry=registry)
        waiting.set_function(levels.waiting)
        lost = Gauge(
            "suffice_record_lost_rounds",
            "Rounds that could not be recorded since the start.",
            registry=registry,
        )
        lost.set_function(levels.lost_rounds)
        failing = Gauge(
            "suffice_record_failing",
            "1 while the record cannot be written; what waits for room is in memory.",
            registry=registry,
        )
        failing.set_function(lambda: float(levels.record_failing()))

    # --- events ------------------------------------------------------------------------------------
    def on(self, event: Event) -> None:
        """Count it."""
        if isinstance(event, QuestionBegun):
            policy = event.policy if event.policy in {*self._policies()} else OTHER
            with self._lock:
                if len(self._open) >= _MOST_OPEN:
                    self._open.pop(next(iter(self._open)))
                self._open[event.trace_id] = (policy, event.endpoint)
            self._in_flight.labels(event.endpoint).inc()
        elif isinstance(event, RoundEnded):
            labels = self._open.get(event.trace_id)
            if labels is not None:
                self._round_seconds.labels(*labels).observe(event.took_s)
        else:
            self._end(event)

    def _end(self, event: QuestionEnded) -> None:
        with self._lock:
            labels = self._open.pop(event.trace_id, None)
        if labels is None:
            return
        self._in_flight.labels(labels[1]).dec()
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

    # --- what others tell ----------------------------------------------------------------------------
    def alarm(self, policy: str, kind: str, *, raised: bool) -> None:
        """A kind of alarm of the watch in production, of a fixed list."""
        self._alarms.labels(policy, kind).set(float(raised))

    def reloaded(self, *, taken: int, refused: int) -> None:
        """Policy files were read again."""
        self._reloads.labels("taken").inc(taken)
        self._reloads.labels("refused").inc(refused)

    # --- the page ------------------------------------------------------------------------------------
    def text(self) -> bytes:
        """All of it in Prometheus' text format."""
        return bytes(generate_latest(self.registry))

    @described(Operation(gives={200: "text/plain"}))
    async def page(self, _: Request) -> Response:
        """What was counted, in Prometheus' text format."""
        return Response(self.text(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
