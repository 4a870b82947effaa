"""What happens to a question that is answered or followed here, told to whoever counts, traces or logs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from suffice.contracts import Decision
from suffice.live.ask import total_usage
from suffice.trace.rounds.records import Round, StoppedBy

Endpoint = Literal["chat", "responses", "decisions", "loops"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """What all calls of a question took; ``None``: not known of all of them."""

    prompt: int | None = None
    cached: int | None = None
    completion: int | None = None

    @classmethod
    def of(cls, rounds: Sequence[Round]) -> Tokens:
        """Those of rounds: answers, samples and judges."""
        usage = total_usage(rounds)

        def total(part: str) -> int | None:
            plain = usage[f"{part}_tokens"]
            further = (usage.get(f"{kind}_{part}_tokens") for kind in ("sample", "judge"))
            return None if plain is None else plain + sum(known or 0 for known in further)

        return cls(prompt=total("prompt"), cached=total("cached"), completion=total("completion"))


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
    tokens: Tokens = Tokens()
    usd: float | None = None

    @property
    def error(self) -> str:
        """What failed; empty: nothing did."""
        return self.reason if self.stopped_by in ("error", "gone", "refused") else ""


Event = QuestionBegun | RoundEnded | QuestionEnded


class Observer(Protocol):
    """Is told of events, in the order of each question, from any thread; must be quick and not fail."""

    def on(self, event: Event) -> None:
        """Take it in."""
        ...
