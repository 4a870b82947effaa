"""What happens to a question that is answered or followed here, told to whoever counts, traces or logs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from suffice.protocols import Decision
from suffice.trace.rounds.records import Round, StoppedBy

Endpoint = Literal["chat", "responses", "decisions", "loops"]


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfQuestion:
    """Which question it is of, where it came in, and under which policy."""

    trace_id: str
    endpoint: Endpoint
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionBegun(_OfQuestion):
    """A question came in."""

    policy_hash: str | None
    model: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEnded(_OfQuestion):
    """A round was decided about; ``number`` from 1, ``took_s`` seconds since the one before."""

    number: int
    round: Round = field(repr=False)
    decision: Decision
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionEnded(_OfQuestion):
    """A question is over."""

    rounds: int
    stopped_by: StoppedBy | Literal["gone", "refused", "goes-on"]
    reason: str = ""
    declined: bool = False
    took_s: float
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    usd: float | None = None
    error: str = ""


Event = QuestionBegun | RoundEnded | QuestionEnded


class Observer(Protocol):
    """Is told of events, in the order of each question, from any thread; must be quick and not fail."""

    def on(self, event: Event) -> None:
        """Take it in."""
        ...
