"""Read and write plan traces."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from suffice.errors import DataError, SufficeWarning
from suffice.trace.parquet import write_set
from suffice.trace.plans.records import (
    PlanGold,
    PlanOutcome,
    PlanRecord,
    PlanSet,
    PlanStep,
    PlanTask,
)
from suffice.trace.plans.schema import (
    GOLD_COLUMNS,
    NEVER_NULL,
    OUTCOME_COLUMNS,
    OUTCOME_COSTS,
    OUTCOME_PREFIX,
    PLAN_COLUMNS,
    PLAN_ROWS,
    PLANS,
    RUN_COLUMNS,
    RUN_KEY_COLUMNS,
    STEP_COLUMNS,
    STEP_COSTS,
    TASK_COLUMNS,
)
from suffice.trace.reader import (
    StoredFile,
    first_error,
    nothing_read,
    parquet_files,
    stated_version,
)
from suffice.trace.recording import (
    RecordWriter,
    count_failures,
    recorded_rows,
    stores_at,
)
from suffice.trace.rounds.records import Usage
from suffice.trace.schema import from_cells
from suffice.trace.store import exported


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

    def take(table: pa.Table, file: Path) -> None:
        for index, values in enumerate(table.to_pylist()):
            key = tuple(values.get(name) for name in RUN_KEY_COLUMNS)
            runs.setdefault(key, []).append(_Row(values, str(file), index))

    wanted = {column.name for column in PLAN_COLUMNS}
    files = parquet_files(root)
    for file in files:
        try:
            part, table = StoredFile.read_whole(file, wanted, PLANS)
        except DataError as error:
            errors.append(error)
            continue
        run = run or part.run
        misspelt.update(dict.fromkeys(part.remarks, str(file)))
        take(table, file)
    after = exported(files)
    for store in stores_at(root):
        for held in recorded_rows(store, after):
            stated_version(held.table.schema.metadata or {}, store, PLANS)
            run = run or dict(held.run)
            take(held.table, store)
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
