"""What a planning agent leaves behind, as frozen records: its steps, its decisions and its plan."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from typing import Any, ClassVar

import numpy as np

from suffice.errors import DataError
from suffice.trace.rounds.records import Passage, Usage
from suffice.trace.values import (
    MOST_INT16,
    Check,
    checked,
    instance,
    not_empty,
    one_of,
    text,
    whole,
)

ACTIONS = ("EXECUTE", "RETRIEVE", "REPLAN", "ASK", "STOP")
BLOCKS = ("budget", "cool-down")
ENDS = ("complete", "stop", "max-steps")
PARSES = ("json", "repaired", "salvaged")

# task id, agent, retriever, seed
PlanKey = tuple[str, str, str | None, int]

_MOST_SEED = int(np.iinfo(np.int64).max)


def _finite(values: Mapping[str, float], _: str) -> dict[str, float]:
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

    ``total_steps`` are those that a plan is expected to take; ``context`` may be empty.
    """

    _checks: ClassVar[Mapping[str, Check]] = {
        "id": lambda value, _: not_empty(value, "task_id"),
        "total_steps": partial(whole, MOST_INT16, least=1),
    }
    id: str
    goal: str
    context: str
    total_steps: int

    def __post_init__(self) -> None:
        checked(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanGold:
    """The task's hidden constraint tokens and the documents that carry them; only scoring reads it."""

    _prefix: ClassVar[str] = "gold_"
    constraints: tuple[str, ...] = ()
    passage_ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        checked(self)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A next step the model proposed; empty text: it gave none. ``response`` is the raw generation."""

    _prefix: ClassVar[str] = "candidates."
    text: str
    response: str | None = None

    def __post_init__(self) -> None:
        checked(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One decision of an agent and what came of it."""

    _checks: ClassVar[Mapping[str, Check]] = {
        "number": lambda value, _: whole(MOST_INT16, value, "step", least=1),
        "action": partial(one_of, ACTIONS),
        "blocked": partial(one_of, ("none", *BLOCKS)),
        "values": _finite,
    }
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
        checked(self)

    @property
    def retrievals(self) -> int:
        """Queries sent to the retriever: as recorded in ``usage``, else 1 where there is a query."""
        if self.usage.retrievals is not None:
            return self.usage.retrievals
        return int(self.query is not None and self.blocked is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintDecision:
    """What the agent says it will do about a constraint it found."""

    _prefix: ClassVar[str] = "decisions."
    constraint: str
    enforced: bool
    reason: str = ""

    def __post_init__(self) -> None:
        checked(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome:
    """What a run ended with."""

    _checks: ClassVar[Mapping[str, Check]] = {
        "ended": partial(one_of, ENDS),
        "parsed": partial(one_of, ("none", *PARSES)),
        "verdict": lambda value, column: text(value, f"semantic_{column}"),
    }
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
        checked(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord:
    """One run of an agent on a task: ``steps[n - 1]`` is step n. A run may have no step."""

    _checks: ClassVar[Mapping[str, Check]] = {
        "task": lambda value, _: instance(PlanTask, value, "task_id"),
        "agent": not_empty,
        "retriever": not_empty,
        "seed": partial(whole, _MOST_SEED),
    }
    task: PlanTask
    agent: str
    retriever: str | None
    seed: int
    steps: tuple[PlanStep, ...]
    outcome: PlanOutcome
    gold: PlanGold | None = None

    def __post_init__(self) -> None:
        checked(self)
        for expected, step in enumerate(self.steps, start=1):
            if step.number != expected:
                raise DataError(
                    f"task {self.task.id!r}: found step {step.number} where step {expected} belongs; "
                    "steps run from 1 without gaps",
                    column="step",
                )

    @property
    def key(self) -> PlanKey:
        """What no two runs share: task id, agent, retriever, seed."""
        return self.task.id, self.agent, self.retriever, self.seed


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSet:
    """Recorded runs, sorted by task, agent, retriever and seed."""

    records: tuple[PlanRecord, ...]
    source: str = "memory"
    run: Mapping[str, Any] = field(default_factory=dict)
    skipped: tuple[DataError, ...] = ()
    failures: int = 0

    @property
    def n_steps(self) -> int:
        """Steps of all runs together."""
        return sum(len(record.steps) for record in self.records)
