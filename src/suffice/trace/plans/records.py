"""What a planning agent leaves behind, as frozen records: its steps, its decisions and its plan.

As in :mod:`suffice.trace.rounds.records` every number is rounded to the type of its trace column when a
record is built, so that a live step and the same step read back carry the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from numbers import Real

import numpy as np

from suffice.errors import DataError
from suffice.trace.rounds.records import MOST_INT16, Passage, Usage, items, whole

ACTIONS = ("EXECUTE", "RETRIEVE", "REPLAN", "ASK", "STOP")
BLOCKS = ("budget", "cool-down")
ENDS = ("complete", "stop", "max-steps")
PARSES = ("json", "repaired", "salvaged")
# what a gate computes; a step may carry values of other names
STEP_VALUES = ("candidate_agreement", "contradiction", "remaining_share", "risk", "confidence")

# task id, agent, retriever, seed
PlanKey = tuple[str, str, str | None, int]

_MOST_SEED = int(np.iinfo(np.int64).max)


def _text(value: object, column: str) -> None:
    if not isinstance(value, str):
        raise DataError(f"must be text, found {value!r:.60}", column=column)


def _optional_text(record: object, names: Sequence[str], prefix: str = "") -> None:
    for name in names:
        if getattr(record, name) is not None:
            _text(getattr(record, name), prefix + name)


def _name(value: object, column: str) -> None:
    _text(value, column)
    if not value:
        raise DataError("must not be empty", column=column)


def _one_of(value: str | None, allowed: Sequence[str | None], column: str) -> None:
    if value not in allowed:
        named = ", ".join("none" if name is None else name for name in allowed)
        raise DataError(f"must be one of {named}; found {value!r:.60}", column=column)


def _kind(value: object, kind: type, column: str) -> None:
    if not isinstance(value, kind):
        raise DataError(f"must be a {kind.__name__}, found {value!r:.60}", column=column)


def _values(values: Mapping[str, float]) -> dict[str, float]:
    """The step's values as the map column holds them: float64, each defined."""
    for name, value in values.items():
        if not isinstance(value, Real) or not math.isfinite(value):
            raise DataError(
                f"{name} must be a finite number, found {value!r:.60}; leave out what is undefined",
                column="signals",
            )
    return {name: float(value) for name, value in values.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTask:
    """All an agent may see of a task. What it is scored by is kept apart, in :class:`PlanGold`.

    Parameters
    ----------
    id
        Unique key.
    goal
        What the plan is to reach.
    context
        What is known of the situation; may be empty.
    total_steps
        Steps a plan is expected to take, at least 1.
    """

    id: str
    goal: str
    context: str
    total_steps: int

    def __post_init__(self) -> None:
        _name(self.id, "task_id")
        _text(self.goal, "goal")
        _text(self.context, "context")
        steps = whole(self.total_steps, MOST_INT16, "total_steps")
        if steps < 1:
            raise DataError("a task takes at least 1 step, found 0", column="total_steps")
        object.__setattr__(self, "total_steps", steps)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanGold:
    """The task's hidden constraint tokens and the documents that carry them; only scoring reads it."""

    constraints: tuple[str, ...] = ()
    passage_ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("constraints", "passage_ids"):
            object.__setattr__(self, name, items(getattr(self, name), str, f"gold_{name}"))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A next step the model proposed; empty text: it gave none. ``response`` is the raw generation."""

    text: str
    response: str | None = None

    def __post_init__(self) -> None:
        _text(self.text, "candidates.text")
        _optional_text(self, ("response",), "candidates.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One decision of an agent and what came of it."""

    number: int
    action: str
    candidates: tuple[Candidate, ...] = ()
    reason: str = ""
    values: Mapping[str, float] = field(default_factory=dict)
    k: int = 0
    query: str | None = None
    passages: tuple[Passage, ...] = ()
    redrawn: tuple[Candidate, ...] = ()
    chosen: str | None = None
    dropped: str | None = None
    sampled_again: int = 0
    blocked: str | None = None
    question: str | None = None
    reply: str | None = None
    verdict: str | None = None
    usage: Usage = field(default_factory=Usage)

    def __post_init__(self) -> None:
        number = whole(self.number, MOST_INT16, "step")
        if number < 1:
            raise DataError("steps count from 1, found 0", column="step")
        object.__setattr__(self, "number", number)
        for name in ("k", "sampled_again"):
            object.__setattr__(self, name, whole(getattr(self, name), MOST_INT16, name))
        _one_of(self.action, ACTIONS, "action")
        _one_of(self.blocked, (None, *BLOCKS), "blocked")
        _text(self.reason, "reason")
        _optional_text(self, ("query", "chosen", "dropped", "question", "reply", "verdict"))
        for name in ("candidates", "redrawn"):
            object.__setattr__(self, name, items(getattr(self, name), Candidate, name))
        object.__setattr__(self, "passages", items(self.passages, Passage, "passages"))
        object.__setattr__(self, "values", _values(self.values))
        _kind(self.usage, Usage, "usage")

    @property
    def retrievals(self) -> int:
        """Queries sent to the retriever: as recorded in ``usage``, else 1 where there is a query."""
        if self.usage.retrievals is not None:
            return self.usage.retrievals
        return int(self.query is not None and self.blocked is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintDecision:
    """What the agent says it will do about a constraint it found."""

    constraint: str
    enforced: bool
    reason: str = ""

    def __post_init__(self) -> None:
        _text(self.constraint, "decisions.constraint")
        _kind(self.enforced, bool, "decisions.enforced")
        _text(self.reason, "decisions.reason")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome:
    """What a run ended with."""

    plan: str
    ended: str
    constraints: tuple[str, ...] = ()
    decisions: tuple[ConstraintDecision, ...] = ()
    response: str | None = None
    attempts: int = 1
    parsed: str | None = None
    parse_failure: str | None = None
    usage: Usage = field(default_factory=Usage)
    semantic: bool | None = None
    verdict: str | None = None

    def __post_init__(self) -> None:
        _text(self.plan, "plan")
        _one_of(self.ended, ENDS, "ended")
        object.__setattr__(self, "constraints", items(self.constraints, str, "constraints"))
        decisions = items(self.decisions, ConstraintDecision, "decisions")
        object.__setattr__(self, "decisions", decisions)
        object.__setattr__(self, "attempts", whole(self.attempts, MOST_INT16, "attempts"))
        _one_of(self.parsed, (None, *PARSES), "parsed")
        _optional_text(self, ("response", "parse_failure"))
        _optional_text(self, ("verdict",), "semantic_")
        _kind(self.usage, Usage, "usage")
        if self.semantic is not None:
            _kind(self.semantic, bool, "semantic")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """One run of an agent on a task: ``steps[n - 1]`` is step n. A run may have no step."""

    task: PlanTask
    agent: str
    retriever: str | None
    seed: int
    steps: tuple[PlanStep, ...]
    outcome: PlanOutcome
    gold: PlanGold | None = None

    def __post_init__(self) -> None:
        _kind(self.task, PlanTask, "task_id")
        _name(self.agent, "agent")
        if self.retriever is not None:
            _name(self.retriever, "retriever")
        object.__setattr__(self, "seed", whole(self.seed, _MOST_SEED, "seed"))
        object.__setattr__(self, "steps", items(self.steps, PlanStep, "steps"))
        for expected, step in enumerate(self.steps, start=1):
            if step.number != expected:
                raise DataError(
                    f"task {self.task.id!r}: found step {step.number} where step {expected} belongs; "
                    "steps run from 1 without gaps",
                    column="step",
                )
        _kind(self.outcome, PlanOutcome, "outcome")
        if self.gold is not None:
            _kind(self.gold, PlanGold, "gold")

    @property
    def key(self) -> PlanKey:
        """What no two runs share: task id, agent, retriever, seed."""
        return self.task.id, self.agent, self.retriever, self.seed

    @property
    def documents_read(self) -> int:
        """Passages retrieved over all steps, repeats included."""
        return sum(len(step.passages) for step in self.steps)

    @property
    def documents_distinct(self) -> int:
        """Passages retrieved over all steps, each id once."""
        return len({passage.id for step in self.steps for passage in step.passages})

    @property
    def retrievals(self) -> int:
        """Queries sent to the retriever over all steps."""
        return sum(step.retrievals for step in self.steps)

    @property
    def usage(self) -> Usage:
        """The sum over steps and outcome; an amount that any of them does not state is unknown."""
        parts = [*(step.usage for step in self.steps), self.outcome.usage]
        sums: dict[str, int | float | None] = {}
        for amount in fields(Usage):
            amounts = [getattr(part, amount.name) for part in parts]
            sums[amount.name] = None if None in amounts else sum(amounts)
        return Usage(**sums)  # type: ignore[arg-type]
