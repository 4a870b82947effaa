"""Plan traces: the runs of a planning agent as frozen records, one per row, as JSON."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Container, Mapping
from dataclasses import dataclass, field
from functools import partial
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from suffice.contracts import strict_json
from suffice.errors import DataError, SufficeWarning
from suffice.trace.parquet import INT64, TEXT, Column, RowSet, TableSchema
from suffice.trace.recording import RecordWriter, count_failures
from suffice.trace.rounds.reader import parts_of
from suffice.trace.rounds.records import Passage, Usage, as_document, record_of_document
from suffice.trace.stored_file import first_error, nothing_read
from suffice.trace.values import (
    MOST_INT16,
    Check,
    Checked,
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
    for name, value in values.items():
        if not isinstance(value, Real) or not math.isfinite(value):
            raise DataError(
                f"{name} must be a finite number, found {value!r:.60}; leave out what is undefined",
                column="signals",
            )
    return {name: float(value) for name, value in values.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTask(Checked):
    """A task as the agent sees it, apart from :class:`PlanGold`; ``total_steps`` are expected."""

    _checks: ClassVar[Mapping[str, Check]] = {
        "id": lambda value, _: not_empty(value, "task_id"),
        "total_steps": partial(whole, MOST_INT16, least=1),
    }
    id: str
    goal: str
    context: str
    total_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanGold(Checked):
    """The task's hidden constraint tokens and the documents that carry them; only scoring reads it."""

    _prefix: ClassVar[str] = "gold_"
    constraints: tuple[str, ...] = ()
    passage_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate(Checked):
    """A next step proposed by the model; empty text: none. ``response`` is the raw generation."""

    _prefix: ClassVar[str] = "candidates."
    text: str
    response: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep(Checked):
    """One decision of an agent and its result."""

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

    @property
    def retrievals(self) -> int:
        """Queries sent to the retriever: as recorded in ``usage``, else 1 if there is a query."""
        if self.usage.retrievals is not None:
            return self.usage.retrievals
        return int(self.query is not None and self.blocked is None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstraintDecision(Checked):
    """The agent's intention about a constraint that it found."""

    _prefix: ClassVar[str] = "decisions."
    constraint: str
    enforced: bool
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOutcome(Checked):
    """The end of a run."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecord(Checked):
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
        Checked.__post_init__(self)
        for expected, step in enumerate(self.steps, start=1):
            if step.number != expected:
                raise DataError(
                    f"task {self.task.id!r}: found step {step.number} where step {expected} belongs; "
                    "steps run from 1 without gaps",
                    column="step",
                )

    @property
    def key(self) -> PlanKey:
        return self.task.id, self.agent, self.retriever, self.seed


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanSet:
    """Recorded runs, sorted by task, agent, retriever and seed."""

    records: tuple[PlanRecord, ...]
    source: str = "memory"
    run: Mapping[str, Any] = field(default_factory=dict)
    skipped: tuple[DataError, ...] = ()
    failures: int = 0


# --- their files ---------------------------------------------------------------------------------
PLANS = TableSchema(
    name="plan trace",
    rows="one row per run",
    reader="suffice.planning.read_plans",
    key=b"suffice.plan_schema",
    version=2,
    oldest=2,
    columns=(
        Column(PlanRecord, "task_id", TEXT, "the task's key", required=True),
        Column(PlanRecord, "agent", TEXT, "which agent ran", required=True),
        Column(PlanRecord, "retriever", TEXT, "which retriever it asked; null: none"),
        Column(PlanRecord, "seed", INT64, "of its random numbers", required=True),
        Column(PlanRecord, "run", TEXT, "the run as JSON, without defaults", required=True),
    ),
)
_KEY_COLUMNS = ("task_id", "agent", "retriever", "seed")


def _rows(record: PlanRecord) -> list[dict[str, Any]]:
    key = dict(zip(_KEY_COLUMNS, record.key, strict=True))
    return [key | {"run": json.dumps(as_document(record), ensure_ascii=False)}]


PLAN_ROWS = RowSet(schema=PLANS, rows=_rows, key=_KEY_COLUMNS, key_of=lambda record: record.key)


def read_plans(path: str | Path, *, skip_invalid: bool = False) -> PlanSet:
    """Read a plan trace: a Parquet file, or every ``*.parquet`` of a directory.

    The first problem is a DataError that names file, row and column; so is an empty trace. With
    ``skip_invalid``, unreadable files and invalid runs are skipped and stand in ``PlanSet.skipped``.
    """
    plans = inspect_plans(path)
    if plans.skipped and not skip_invalid:
        raise first_error(plans.skipped)
    if not plans.records:
        raise nothing_read(path, plans.skipped, "the plan trace is empty: no run to read")
    return plans


def inspect_plans(path: str | Path) -> PlanSet:
    """Read the valid runs; ``skipped`` names the first problem of each other file and run."""
    root = Path(path)
    errors: list[DataError] = []
    records: dict[PlanKey, PlanRecord] = {}
    run: dict[str, Any] = {}
    for part, table in parts_of(root, {*PLANS.arrow.names}, PLANS, errors):
        run = run or part.run
        for remark in part.remarks:
            warnings.warn(f"{part.file}: {remark}", SufficeWarning, stacklevel=3)
        for index, row in enumerate(table.to_pylist()):
            try:
                record = _record(row, records)
            except DataError as error:
                errors.append(
                    DataError(error.message, file=str(part.file), row=index, column=error.column)
                )
            else:
                records[record.key] = record
    ordered = sorted(records, key=lambda key: (key[0], key[1], key[2] or "", key[3]))
    return PlanSet(
        records=tuple(records[key] for key in ordered),
        source=str(root),
        run=run,
        skipped=tuple(errors),
        failures=count_failures(root),
    )


def _record(row: Mapping[str, Any], others: Container[PlanKey]) -> PlanRecord:
    try:
        document = strict_json(row["run"])
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"not JSON ({error})", column="run") from error
    record = record_of_document(PlanRecord, document, column="run")
    for name, value in zip(_KEY_COLUMNS, record.key, strict=True):
        if row.get(name) != value:
            raise DataError(f"found {row.get(name)!r}, the run says {value!r}", column=name)
    if record.key in others:
        raise DataError(f"run {record.key} appears twice", column="task_id")
    return record


def plan_writer(path: str | Path, *, run: Mapping[str, Any]) -> RecordWriter[PlanRecord]:
    return RecordWriter(PLAN_ROWS, path, run=run)
