"""Ended questions and who hears of them: each one as spans of OpenTelemetry."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from suffice._optional import require
from suffice._version import VERSION
from suffice.contracts import Decision
from suffice.errors import UsageError
from suffice.live.answering import Tokens
from suffice.live.privacy import Privacy
from suffice.trace.export import OPERATION, Step, agent_attributes, decision_of, known, steps_of
from suffice.trace.rounds.records import Gold, Question, Round, StoppedBy

if TYPE_CHECKING:
    from suffice.live.loop import Loop
    from suffice.live.watching import Watching

Endpoint = Literal["chat", "responses", "decisions", "loops", "watch"]
_LOG = logging.getLogger("suffice")
_SECOND = 1_000_000_000
_LEAST_NS = 10_000  # of a round, so that stores of microseconds keep the order


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEnded:
    """A round and its decision, ``took_s`` seconds after the one before, ``at`` in nanoseconds."""

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
    summary: str = ""
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


def tell(observers: Iterable[Observer], ended: QuestionEnded) -> None:
    for observer in observers:
        try:
            observer.on(ended)
        except Exception:  # noqa: BLE001
            _LOG.exception("an observer failed")


def tell_of(
    loop: Loop, watch: Watching, ran: Sequence[RoundEnded], *, took_s: float, whole: bool
) -> None:
    """Tell the observers of a watch that a loop of it ended."""
    policy, spending = watch.policy, loop.spending
    try:
        facts = None if policy is None else policy.facts
        named = () if policy is None else (policy.kind, policy.preset)
        pairs = zip(ran, loop.rounds, strict=False)  # the last may have got its answer at the end
        ended = QuestionEnded(
            trace_id=loop.question_id,
            endpoint="watch",
            policy="-".join(filter(None, named)),
            summary="" if facts is None else facts.summary,
            policy_hash=loop.policy_hash,
            mode=watch.mode,
            text=loop.question,
            answer=loop.answer,
            rounds=tuple(replace(one, round=held) for one, held in pairs),
            stopped_by=loop.stopped_by or "end",
            reason=loop.reason,
            whole=whole,
            would_stop=loop.would_stop,
            took_s=took_s,
            tokens=Tokens.of(loop.rounds),
            usd=None if spending is None else spending.usd,
        )
    except Exception:  # noqa: BLE001
        _LOG.exception("no observer hears of a loop")
    else:
        tell(watch.observers, ended)


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
        within = self._api.set_span_in_context(root)
        question, names = Question(id=ended.trace_id, text=ended.text), None
        if self._privacy is not None:
            names = self._privacy.question(question, Gold())
            question = names.question
        answer = ended.answer if names is None else None
        for ran in ended.rounds:
            held = ran.round if names is None else names.named(ran.round)
            if ended.answer in (None, ran.round.answer):  # None: the latest
                answer = held.answer
            began, now = now, max(now + _LEAST_NS, ran.at)
            began = max(began, ran.at - int(ran.took_s * _SECOND))
            for step in self._steps(ended, ran, held, min(began, now - _LEAST_NS), now):
                span = self._tracer.start_span(
                    step.name, within, start_time=step.start, attributes=dict(step.attributes)
                )
                for event in step.events:
                    span.add_event("gen_ai.evaluation.result", event, timestamp=step.end)
                span.end(step.end)
        root.set_attributes(agent_attributes(question.text, answer))
        root.set_attributes(known(self._said(ended)))
        if ended.error:
            said = ended.error if names is None else None
            root.set_status(self._api.Status(self._api.StatusCode.ERROR, said))
        root.end(max(now, ended.at))

    def _steps(
        self, ended: QuestionEnded, ran: RoundEnded, held: Round, began: int, now: int
    ) -> Iterator[Step]:
        common = {"suffice.round": ran.number}
        policy = {"suffice.policy": ended.policy, "suffice.policy_hash": ended.policy_hash}
        for step in steps_of(held, began, now, model=ended.model or None):
            yield step.with_attributes(common)
        reason = None if self._privacy is not None else ran.decision.reason
        step = decision_of(ran.decision, held.answer, now, reason=reason, score=ran.score)
        yield step.with_attributes({**common, **known(policy)})

    def _said(self, ended: QuestionEnded) -> dict[str, Any]:
        tokens = ended.tokens
        return {
            OPERATION: "invoke_agent",
            "gen_ai.request.model": ended.model or None,
            "gen_ai.usage.input_tokens": tokens.prompt,
            "gen_ai.usage.cache_read.input_tokens": tokens.cached,
            "gen_ai.usage.output_tokens": tokens.completion,
            "suffice.question_id": ended.trace_id,
            "suffice.endpoint": ended.endpoint,
            "suffice.policy": ended.policy,
            "suffice.policy_hash": ended.policy_hash,
            "suffice.policy_summary": ended.summary or None,
            "suffice.mode": ended.mode,
            "suffice.rounds": len(ended.rounds),
            "suffice.stopped_by": ended.stopped_by,
            "suffice.reason": None if self._privacy is not None else ended.reason,
            "suffice.whole": ended.whole or None,
            "suffice.would_stop": ended.would_stop,
            "suffice.declined": ended.declined,
            "suffice.cost_usd": ended.usd,
        }
