"""The plan trace's schema, version 1: one row per run and step; its files read and written."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from suffice.errors import DataError, SufficeWarning
from suffice.trace.parquet import (
    BOOL,
    INT16,
    INT64,
    SIGNALS,
    TEXT,
    TEXT_OR_NONE,
    TEXTS,
    Column,
    RowSet,
    TableSchema,
    columns_of,
    from_cells,
    sequence_of,
    to_cells,
    write_set,
)
from suffice.trace.plans.records import (
    Candidate,
    ConstraintDecision,
    PlanGold,
    PlanOutcome,
    PlanRecord,
    PlanSet,
    PlanStep,
    PlanTask,
)
from suffice.trace.reader import first_error, nothing_read
from suffice.trace.recording import RecordWriter, count_failures
from suffice.trace.rounds.reader import parts_of
from suffice.trace.rounds.records import Usage
from suffice.trace.rounds.schema import PASSAGES, USAGE_COLUMNS

PLAN_SCHEMA_VERSION = 1
PLAN_SCHEMA_KEY = b"suffice.plan_schema"
# of the columns that say what the final generation cost
OUTCOME_PREFIX = "outcome_"


def _defined(pairs: Sequence[tuple[str, float | None]]) -> dict[str, float]:
    return {name: value for name, value in pairs if value is not None and not math.isnan(value)}


_CANDIDATES = sequence_of(Candidate, text=TEXT_OR_NONE, response=TEXT)
_DECISIONS = sequence_of(
    ConstraintDecision, constraint=TEXT_OR_NONE, enforced=BOOL, reason=TEXT_OR_NONE
)
_VALUES = replace(SIGNALS, read=_defined)

_RUN = (
    Column(
        PlanTask,
        "task_id",
        TEXT,
        "task key; with agent, retriever and seed the run's key",
        required=True,
        field="id",
    ),
    Column(PlanRecord, "agent", TEXT, "which agent ran", required=True),
    Column(PlanRecord, "retriever", TEXT, "which retriever it asked; null: none"),
    Column(PlanRecord, "seed", INT64, "of its random numbers", required=True),
    Column(
        PlanStep,
        "step",
        INT16,
        "1-based; 0 is the only row of a run that made no step",
        required=True,
        field="number",
    ),
    Column(PlanTask, "goal", TEXT, "what the plan is to reach", required=True),
    Column(PlanTask, "context", TEXT, "what is known of the situation"),
    Column(PlanTask, "total_steps", INT16, "steps a plan is expected to take", required=True),
    Column(
        PlanGold,
        "gold_constraints",
        TEXTS,
        "hidden constraint tokens; null: unlabelled",
        field="constraints",
    ),
    Column(
        PlanGold, "gold_passage_ids", TEXTS, "the documents that carry them", field="passage_ids"
    ),
)
_STEP = (
    Column(
        PlanStep,
        "action",
        TEXT,
        "EXECUTE, RETRIEVE, REPLAN, ASK or STOP; null at step 0",
        required=True,
    ),
    Column(PlanStep, "reason", TEXT, "why this action"),
    Column(PlanStep, "candidates", _CANDIDATES, "next steps the model proposed"),
    Column(PlanStep, "signals", _VALUES, "the step's values by name, finite", field="values"),
    Column(PlanStep, "k", INT16, "passages asked for; 0: no retrieval"),
    Column(PlanStep, "query", TEXT, "what was sent to the retriever at this step"),
    Column(PlanStep, "passages", PASSAGES, "passages retrieved at this step, repeats included"),
    Column(PlanStep, "redrawn", _CANDIDATES, "next steps drawn after the decision"),
    Column(PlanStep, "chosen", TEXT, "the step appended to the plan"),
    Column(PlanStep, "dropped", TEXT, "the step a REPLAN took out"),
    Column(PlanStep, "sampled_again", INT16, "empty candidates that were drawn again"),
    Column(PlanStep, "blocked", TEXT, "budget or cool-down: why no retrieval was made"),
    Column(PlanStep, "question", TEXT, "what an ASK asked"),
    Column(PlanStep, "reply", TEXT, "what the user answered"),
    Column(PlanStep, "verdict", TEXT, "a model's raw word on whether it needs evidence"),
)
_OF_A_STEP = {
    "llm_calls": "calls to the model at this step, one a candidate",
    "prompt_tokens": "prompt tokens of those calls",
    "completion_tokens": "generated tokens of those calls",
    "latency_s": "wall seconds of the step",
}
# one cost means the same in a round and in a step
STEP_COSTS = tuple(
    replace(column, meaning=_OF_A_STEP.get(column.name, column.meaning)) for column in USAGE_COLUMNS
)
OUTCOME_COLUMNS = (
    Column(
        PlanOutcome,
        "plan",
        TEXT,
        "the final plan; may be empty; null before the last step",
        required=True,
    ),
    Column(PlanOutcome, "constraints", TEXTS, "constraints the agent names"),
    Column(PlanOutcome, "decisions", _DECISIONS, "what it does about them"),
    Column(PlanOutcome, "response", TEXT, "the raw generation"),
    Column(PlanOutcome, "attempts", INT16, "how often it was asked for"),
    Column(PlanOutcome, "parsed", TEXT, "json, repaired or salvaged; null: unreadable"),
    Column(PlanOutcome, "parse_failure", TEXT, "why it could not be parsed"),
    Column(
        PlanOutcome,
        "ended",
        TEXT,
        "complete, stop or max-steps; null before the last step",
        required=True,
    ),
    Column(PlanOutcome, "semantic", BOOL, "a judge's verdict on the plan; null: not judged"),
    Column(PlanOutcome, "semantic_verdict", TEXT, "what the judge said", field="verdict"),
)
OUTCOME_COSTS = tuple(
    replace(
        column,
        name=OUTCOME_PREFIX + column.name,
        field=column.name,
        meaning=f"`{column.name}` of the final generation alone",
    )
    for column in USAGE_COLUMNS
)
PLAN_COLUMNS: tuple[Column, ...] = (*_RUN, *_STEP, *STEP_COSTS, *OUTCOME_COLUMNS, *OUTCOME_COSTS)
PLANS = TableSchema(
    name="plan trace",
    rows="one row per run and step",
    reader="suffice.read_plans",
    key=PLAN_SCHEMA_KEY,
    version=PLAN_SCHEMA_VERSION,
    columns=PLAN_COLUMNS,
)

RUN_KEY_COLUMNS = ("task_id", "agent", "retriever", "seed")
# without these in every row a run cannot be told
NEVER_NULL = tuple(column.name for column in _RUN if column.required)
# the same in every row of a run
RUN_COLUMNS = tuple(column.name for column in _RUN if column.name not in (*RUN_KEY_COLUMNS, "step"))
TASK_COLUMNS = columns_of(PlanTask, PLAN_COLUMNS)
_RECORD_COLUMNS = columns_of(PlanRecord, PLAN_COLUMNS)
GOLD_COLUMNS = columns_of(PlanGold, PLAN_COLUMNS)
STEP_COLUMNS = columns_of(PlanStep, PLAN_COLUMNS)


def plan_to_rows(record: PlanRecord) -> list[dict[str, Any]]:
    """Rows of one run in step order, keyed by column; the outcome stands in the last."""
    shared = to_cells(record.task, TASK_COLUMNS) | to_cells(record, _RECORD_COLUMNS)
    if record.gold is not None:
        shared |= to_cells(record.gold, GOLD_COLUMNS)
    rows = [
        shared | to_cells(step, STEP_COLUMNS) | to_cells(step.usage, STEP_COSTS)
        for step in record.steps
    ] or [shared | {"step": 0}]
    outcome = record.outcome
    rows[-1] |= to_cells(outcome, OUTCOME_COLUMNS) | to_cells(outcome.usage, OUTCOME_COSTS)
    return rows


PLAN_ROWS = RowSet(
    schema=PLANS, rows=plan_to_rows, key=RUN_KEY_COLUMNS, key_of=lambda record: record.key
)


def read_plans(path: str | Path, *, skip_invalid: bool = False) -> PlanSet:
    """Read a plan trace: a Parquet file, or every ``*.parquet`` of a directory.

    Parameters
    ----------
    path
        A ``.parquet`` file or a directory.
    skip_invalid
        Leave out files that cannot be read and runs with an invalid row, and report them in
        ``PlanSet.skipped``, instead of raising.

    Raises
    ------
    DataError
        Naming file, row and column of the first problem; or when there is no run to read.
    """
    plans = inspect_plans(path)
    if plans.skipped and not skip_invalid:
        raise first_error(plans.skipped)
    if not plans.records:
        raise nothing_read(path, plans.skipped, "the plan trace is empty: no run to read")
    return plans


def inspect_plans(path: str | Path) -> PlanSet:
    """Read the valid runs; ``skipped`` says of each file and run that is not what is wrong first."""
    root = Path(path)
    errors: list[DataError] = []
    runs: dict[tuple[Any, ...], list[_Row]] = {}
    run: dict[str, Any] = {}
    misspelt: dict[str, str] = {}
    for part, table in parts_of(root, {column.name for column in PLAN_COLUMNS}, PLANS, errors):
        run = run or part.run
        misspelt |= dict.fromkeys(part.remarks, str(part.file))
        for index, values in enumerate(table.to_pylist()):
            key = tuple(values.get(name) for name in RUN_KEY_COLUMNS)
            runs.setdefault(key, []).append(_Row(values, str(part.file), index))
    for text, name in misspelt.items():
        warnings.warn(f"{name}: {text}", SufficeWarning, stacklevel=3)
    records: list[PlanRecord] = []
    broken: list[DataError] = []
    for rows in runs.values():
        try:
            records.append(_record(rows))
        except DataError as error:
            broken.append(error)
    errors += sorted(broken, key=lambda error: (error.file or "", error.row or 0))
    return PlanSet(
        records=tuple(
            sorted(records, key=lambda one: (one.task.id, one.agent, one.retriever or "", one.seed))
        ),
        source=str(root),
        run=run,
        skipped=tuple(errors),
        failures=count_failures(root),
    )


@dataclass(frozen=True, slots=True)
class _Row:
    """One row and where it stands."""

    values: dict[str, Any]
    file: str
    index: int

    @contextmanager
    def blamed(self) -> Iterator[None]:
        """What is wrong is so in this row."""
        try:
            yield
        except DataError as error:
            raise DataError(
                error.message, file=self.file, row=self.index, column=error.column
            ) from error


def _record(rows: Sequence[_Row]) -> PlanRecord:
    """The run of these rows; an error names the row that is wrong."""
    for row in rows:
        with row.blamed():
            _refuse_null(row.values, NEVER_NULL, "null where a value is required")
    rows = sorted(rows, key=lambda row: row.values["step"])
    first, last = rows[0].values, rows[-1]
    task, agent, retriever, seed = (first.get(name) for name in RUN_KEY_COLUMNS)
    named = f"run (task {task!r}, agent {agent!r}, retriever {retriever or 'none'}, seed {seed})"
    steps = []
    # the one row of a run without steps
    begins = 0 if len(rows) == 1 and first["step"] == 0 else 1
    for belongs, row in enumerate(rows, start=begins):
        with row.blamed():
            if row.values["step"] != belongs:
                raise DataError(
                    f"{named}: found step {row.values['step']} where step {belongs} belongs; steps run from "
                    "1 without gaps, and step 0 is the only row of a run without steps",
                    column="step",
                )
    for row in rows:
        values = row.values
        with row.blamed():
            if row is not last and values.get("ended") is not None:
                raise DataError(
                    f"{named} ended at step {values['step']} and goes on", column="ended"
                )
            for column in RUN_COLUMNS:
                if values.get(column) != first.get(column):
                    raise DataError(
                        f"{named} states another {column} in another row", column=column
                    )
            if values["step"]:
                _refuse_null(values, ("action",), "null where a value is required")
                usage = Usage(**from_cells(values, STEP_COSTS))
                steps.append(PlanStep(**from_cells(values, STEP_COLUMNS), usage=usage))
    with last.blamed():
        outcome = _outcome(last.values)
    gold = from_cells(first, GOLD_COLUMNS)
    with rows[0].blamed():
        return PlanRecord(
            task=PlanTask(**{"context": "", **from_cells(first, TASK_COLUMNS)}),
            agent=first["agent"],
            retriever=first.get("retriever"),
            seed=first["seed"],
            steps=tuple(steps),
            outcome=outcome,
            gold=PlanGold(**gold) if gold else None,
        )


def _refuse_null(row: Mapping[str, Any], names: Iterable[str], said: str) -> None:
    for name in names:
        if row.get(name) is None:
            raise DataError(said, column=name)


def _outcome(row: Mapping[str, Any]) -> PlanOutcome:
    _refuse_null(row, ("ended", "plan"), "null in the last row of a run, which holds its outcome")
    try:
        usage = Usage(**from_cells(row, OUTCOME_COSTS))
    except DataError as error:
        raise DataError(error.message, column=f"{OUTCOME_PREFIX}{error.column}") from error
    return PlanOutcome(**from_cells(row, OUTCOME_COLUMNS), usage=usage)


def write_plans(
    records: Iterable[PlanRecord], path: str | Path, *, run: Mapping[str, Any] | None = None
) -> None:
    """Write a plan trace: a ``.parquet`` path as one file, any other as a directory with one shard."""
    write_set(PLAN_ROWS.table(records, run or {}), path)


def plan_writer(path: str | Path, *, run: Mapping[str, Any]) -> RecordWriter[PlanRecord]:
    """A writer of finished runs; see :class:`suffice.trace.recording.RecordWriter`."""
    return RecordWriter(PLAN_ROWS, path, run=run)
