"""Ended questions and who hears of them: each one as spans of OpenTelemetry."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from suffice._optional import require
from suffice._version import VERSION
from suffice.contracts import Decision
from suffice.errors import UsageError
from suffice.live.answering import Tokens
from suffice.live.privacy import Privacy
from suffice.trace.export import agent_attributes, decision_of, known, steps_of
from suffice.trace.rounds.records import Gold, Question, Round, StoppedBy

if TYPE_CHECKING:
    from suffice.live.loop import Loop
    from suffice.live.watching import Watching

Endpoint = Literal["chat", "decisions", "loops", "watch"]
_LOG = logging.getLogger("suffice")
_SECOND = 1_000_000_000
_SAID = ("endpoint", "mode", "stopped_by", "would_stop", "whole", "declined")
_TOKENS = ("prompt", "cached", "completion")  # not by GenAI's names: viewers would count them twice
_LEAST_NS = 1_000_000  # of a span, since viewers order them by milliseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEnded:
    """A round and its decision. It ended ``at`` (nanoseconds since 1970) and took ``took_s`` seconds."""

    number: int
    round: Round = field(repr=False)
    decision: Decision
    took_s: float
    score: float | None = None
    at: int = field(default_factory=time.time_ns)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionEnded:
    """An ended question: its endpoint, policy, rounds and end, ``at`` in nanoseconds.

    ``answer`` is the returned one; ``whole``: the loop ran its full budget.
    """

    trace_id: str
    endpoint: Endpoint
    policy: str
    policy_hash: str | None
    mode: str = "live"
    model: str = ""
    text: str = field(repr=False)
    answer: str | None = field(default=None, repr=False)
    rounds: tuple[RoundEnded, ...]
    stopped_by: StoppedBy | Literal["gone", "refused", "goes-on"]
    reason: str = ""
    whole: bool = False
    would_stop: int | None = None
    declined: bool = False
    took_s: float
    tokens: Tokens = field(default_factory=Tokens)
    usd: float | None = None
    at: int = field(default_factory=time.time_ns)

    @property
    def error(self) -> str:
        """The failure; empty: there is none."""
        return self.reason if self.stopped_by in ("error", "gone", "refused") else ""


class Observer(Protocol):
    """Hears of every ended question, from any thread; must be quick and not fail."""

    def on(self, ended: QuestionEnded) -> None: ...


def tell(observers: Iterable[Observer], ended: Callable[[], QuestionEnded]) -> None:
    for observer in observers:
        try:
            observer.on(ended())
        except Exception:  # noqa: BLE001
            _LOG.exception("an observer failed")


def ended_of(
    loop: Loop,
    watch: Watching,
    ran: Sequence[RoundEnded],
    took_s: float,
    whole: bool,  # noqa: FBT001
) -> QuestionEnded:
    """Return the end of a watch's loop."""
    policy, spending = watch.policy, loop.spending
    pairs = zip(ran, loop.rounds, strict=False)  # the last may have got its answer at the end
    return QuestionEnded(
        trace_id=loop.question_id,
        endpoint="watch",
        policy="" if policy is None else policy.facts.summary or policy.kind,
        policy_hash=loop.policy_hash,
        mode=watch.mode,
        text=loop.question,
        answer=loop.answer,
        rounds=tuple(replace(one, round=round_) for one, round_ in pairs),
        stopped_by=loop.stopped_by or "end",
        reason=loop.reason,
        would_stop=loop.would_stop,
        tokens=Tokens.of(loop.rounds),
        usd=None if spending is None else spending.usd,
        took_s=took_s,
        whole=whole,
    )


class Spans:
    """Sends an ended question as spans of a tracer provider; ``None``: the process's own."""

    def __init__(self, provider: Any = None, privacy: Privacy | None = None) -> None:
        self._api = require("opentelemetry.trace", purpose="sending spans", extra="otel")
        if provider is not None and not callable(getattr(provider, "get_tracer", None)):
            raise UsageError(
                f"spans is True, or a tracer provider of OpenTelemetry, found {provider!r:.60}"
            )
        self._tracer = self._api.get_tracer("suffice", VERSION, tracer_provider=provider)
        self._privacy = privacy

    def on(self, ended: QuestionEnded) -> None:
        now = ended.at - int(ended.took_s * _SECOND)
        root = self._tracer.start_span("invoke_agent", start_time=now)
        if not root.is_recording():
            return
        within, privacy = self._api.set_span_in_context(root), self._privacy
        question, answer = Question(id=ended.trace_id, text=ended.text), ended.answer
        names = None if privacy is None else privacy.question(question, Gold())
        if names is not None:
            question, answer = names.question, None
        common: dict[str, Any] = {
            "suffice.policy": ended.policy,
            "suffice.policy_hash": ended.policy_hash,
        }
        for ran in ended.rounds:
            held = ran.round if names is None else names.named(ran.round)
            if ended.answer in (None, ran.round.answer):  # None: the latest
                answer = held.answer
            began, now = now, max(now + 3 * _LEAST_NS, ran.at)
            began = min(max(began, ran.at - int(ran.took_s * _SECOND)), now - 3 * _LEAST_NS)
            over = now - _LEAST_NS
            reason = ran.decision.reason if names is None else None
            common["suffice.round"] = ran.number
            for step in (
                *steps_of(held, began, over, model=ended.model or None),
                decision_of(ran.decision, held.answer, (over, now), reason, ran.score),
            ):
                attributes = known({**common, **step.attributes})
                span = self._tracer.start_span(
                    step.name, within, start_time=step.start, attributes=attributes
                )
                for event in step.events:
                    span.add_event("gen_ai.evaluation.result", event, timestamp=step.end)
                span.end(step.end)
        said = {
            **agent_attributes(question.text, answer),
            **common,
            "suffice.round": None,
            "suffice.question_id": ended.trace_id,
            **{f"suffice.{name}": getattr(ended, name) for name in _SAID},
            **{f"suffice.{part}_tokens": getattr(ended.tokens, part) for part in _TOKENS},
            "suffice.cost_usd": ended.usd,
            "suffice.rounds": len(ended.rounds),
            "suffice.reason": ended.reason if names is None else None,
        }
        root.set_attributes(known(said))
        if ended.error:
            told = ended.error if names is None else None
            root.set_status(self._api.Status(self._api.StatusCode.ERROR, told))
        root.end(max(now, ended.at))
