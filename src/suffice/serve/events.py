"""What happens to a question that is answered or followed here, told to whoever counts, traces or logs it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

from suffice.protocols import Decision
from suffice.trace.rounds.records import Round, StoppedBy

Endpoint = Literal["chat", "responses", "decisions", "loops"]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionBegun:
    """A question came in.

    Parameters
    ----------
    trace_id
        Its id in the record, and of everything that is told of it.
    endpoint
        Where.
    policy, policy_hash
        What decides about it.
    model
        What answers; empty: a loop of somebody else.
    text
        The question; no observer keeps it unless texts are asked for.
    """

    trace_id: str
    endpoint: Endpoint
    policy: str
    policy_hash: str | None
    model: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundEnded:
    """A round was decided about; ``number`` from 1, ``took_s`` seconds since the one before."""

    trace_id: str
    number: int
    round: Round = field(repr=False)
    decision: Decision
    took_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionEnded:
    """A question is over.

    Parameters
    ----------
    rounds
        How many it had.
    stopped_by, reason
        What ended it, as in a record; ``gone``: the client hung up; ``refused``: an error before a round;
        ``goes-on``: nothing, a decision was asked for and it says so.
    declined
        Whether an answer was withheld.
    took_s
        Seconds from beginning to end.
    prompt_tokens, cached_tokens, completion_tokens
        Of all calls; ``None``: not all are known.
    usd
        US dollars; ``None``: unknown.
    error
        What failed, in words; empty: nothing.
    """

    trace_id: str
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
