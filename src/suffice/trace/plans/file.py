"""Read and write plan traces."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from suffice.errors import DataError, SufficeWarning
from suffice.trace.parquet import write_set
from suffice.trace.plans.records import PlanRecord, PlanSet
from suffice.trace.plans.schema import (
    NEVER_NULL,
    PLAN_COLUMNS,
    PLAN_ROWS,
    PLANS,
    RUN_COLUMNS,
    RUN_KEY_COLUMNS,
    gold_from_row,
    outcome_from_row,
    step_from_row,
    task_from_row,
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
    """Read the valid runs, with everything that is wrong in ``skipped``."""
    root = Path(path)
    errors: list[DataError] = []
    rows: list[_Row] = []
    run: dict[str, Any] = {}
    misspelt: dict[str, str] = {}
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
        rows.extend(_rows(table, file))
    after = exported(files)
    for store in stores_at(root):
        for held in recorded_rows(store, after):
            stated_version(held.table.schema.metadata or {}, store, PLANS)
            run = run or dict(held.run)
            rows.extend(_rows(held.table, store))
    for text, name in misspelt.items():
        warnings.warn(f"{name}: {text}", SufficeWarning, stacklevel=3)
    records: list[PlanRecord] = []
    for group in _runs(rows, errors):
        problems = list(_problems(group))
        record = None if problems else _record(group, problems)
        errors.extend(problems)
        if record is not None:
            records.append(record)
    return PlanSet(
        records=tuple(sorted(records, key=_order)),
        source=str(root),
        run=run,
        skipped=tuple(errors),
        failures=count_failures(root),
    )


def _order(record: PlanRecord) -> tuple[str, str, str, int]:
    return record.task.id, record.agent, record.retriever or "", record.seed


@dataclass(frozen=True, slots=True)
class _Row:
    """One row and where it stands."""

    values: dict[str, Any]
    file: str
    index: int

    @property
    def step(self) -> int:
        return cast("int", self.values["step"])

    def error(self, message: str, column: str | None) -> DataError:
        return DataError(message, file=self.file, row=self.index, column=column)


def _rows(table: pa.Table, file: Path) -> Iterator[_Row]:
    return (_Row(row, str(file), index) for index, row in enumerate(table.to_pylist()))


def _runs(rows: Iterable[_Row], errors: list[DataError]) -> list[list[_Row]]:
    """The rows of each run in step order; rows and runs with a null that may not be are left out."""
    groups: dict[tuple[Any, ...], list[_Row]] = {}
    broken: set[tuple[Any, ...]] = set()
    for row in rows:
        key = tuple(row.values.get(name) for name in RUN_KEY_COLUMNS)
        missing = [name for name in NEVER_NULL if row.values[name] is None]
        if missing:
            errors.append(row.error("null where a value is required", missing[0]))
            broken.add(key)
        else:
            groups.setdefault(key, []).append(row)
    return [
        sorted(group, key=lambda row: row.step)
        for key, group in groups.items()
        if key not in broken
    ]


def _named(row: _Row) -> str:
    task, agent, retriever, seed = (row.values.get(name) for name in RUN_KEY_COLUMNS)
    return f"run (task {task!r}, agent {agent!r}, retriever {retriever or 'none'}, seed {seed})"


def _problems(group: Sequence[_Row]) -> Iterator[DataError]:
    """What is wrong with the rows of a run taken together."""
    first, last = group[0], group[-1]
    name = _named(first)
    belongs = 0 if first is last and first.step == 0 else 1  # the one row of a run without steps
    for row in group:
        if row.step != belongs:
            yield row.error(
                f"{name}: found step {row.step} where step {belongs} belongs; steps run from 1 without "
                "gaps, and step 0 is the only row of a run without steps",
                "step",
            )
        belongs = max(row.step, 0) + 1
    for row in group:
        if row is not last and row.values.get("ended") is not None:
            yield row.error(f"{name} ended at step {row.step} and goes on", "ended")
        for column in RUN_COLUMNS:
            if row.values.get(column) != first.values.get(column):
                yield row.error(f"{name} states another {column} in another row", column)


def _record(group: Sequence[_Row], problems: list[DataError]) -> PlanRecord | None:
    """The run's record; ``None`` with the reasons in ``found``."""
    steps = []
    for row in group:
        try:
            if row.step > 0:
                steps.append(step_from_row(row.values))
        except DataError as error:
            problems.append(row.error(error.message, error.column))
    last = group[-1]
    try:
        outcome = outcome_from_row(last.values)
    except DataError as error:
        problems.append(last.error(error.message, error.column))
    if problems:
        return None
    values = group[0].values
    try:
        return PlanRecord(
            task=task_from_row(values),
            agent=values["agent"],
            retriever=values.get("retriever"),
            seed=values["seed"],
            steps=tuple(steps),
            outcome=outcome,
            gold=gold_from_row(values),
        )
    except DataError as error:
        problems.append(group[0].error(error.message, error.column))
        return None


def write_plans(
    records: Iterable[PlanRecord], path: str | Path, *, run: Mapping[str, Any] | None = None
) -> None:
    """Write a plan trace: a ``.parquet`` path as one file, any other as a directory with one shard."""
    write_set(PLAN_ROWS.table(records, run or {}), path)


def plan_writer(path: str | Path, *, run: Mapping[str, Any]) -> RecordWriter[PlanRecord]:
    """A writer of finished runs; see :class:`suffice.trace.recording.RecordWriter`."""
    return RecordWriter(PLAN_ROWS, path, run=run)
