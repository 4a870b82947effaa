"""Plan traces: one row per run, which stands there as JSON; their files read and written."""

from __future__ import annotations

import json
import warnings
from collections.abc import Container, Iterable, Mapping
from pathlib import Path
from typing import Any

from suffice.contracts import strict_json
from suffice.errors import DataError, SufficeWarning
from suffice.trace.parquet import INT64, TEXT, Column, RowSet, TableSchema, write_set
from suffice.trace.plans.plan_records import PlanKey, PlanRecord, PlanSet
from suffice.trace.recording import RecordWriter, count_failures
from suffice.trace.rounds.reader import parts_of
from suffice.trace.rounds.records import as_document, record_of_document
from suffice.trace.stored_file import first_error, nothing_read

PLANS = TableSchema(
    name="plan trace",
    rows="one row per run",
    reader="suffice.read_plans",
    key=b"suffice.plan_schema",
    version=2,
    oldest=2,
    columns=(
        Column(
            PlanRecord,
            "task_id",
            TEXT,
            "task key; with agent, retriever and seed the run's key",
            required=True,
        ),
        Column(PlanRecord, "agent", TEXT, "which agent ran", required=True),
        Column(PlanRecord, "retriever", TEXT, "which retriever it asked; null: none"),
        Column(PlanRecord, "seed", INT64, "of its random numbers", required=True),
        Column(
            PlanRecord,
            "run",
            TEXT,
            "the run as JSON, by the fields of its record: task, steps, outcome, gold; defaults left out",
            required=True,
        ),
    ),
)
_KEY_COLUMNS = ("task_id", "agent", "retriever", "seed")


def _rows(record: PlanRecord) -> list[dict[str, Any]]:
    key = dict(zip(_KEY_COLUMNS, record.key, strict=True))
    return [key | {"run": json.dumps(as_document(record), ensure_ascii=False)}]


PLAN_ROWS = RowSet(schema=PLANS, rows=_rows, key=_KEY_COLUMNS, key_of=lambda record: record.key)


def read_plans(path: str | Path, *, skip_invalid: bool = False) -> PlanSet:
    """Read a plan trace: a Parquet file, or every ``*.parquet`` of a directory.

    Parameters
    ----------
    path
        A ``.parquet`` file or a directory.
    skip_invalid
        Leave out files that cannot be read and invalid runs, and report them in
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
        raise DataError(f"run {record.key} is there twice", column="task_id")
    return record


def write_plans(
    records: Iterable[PlanRecord], path: str | Path, *, run: Mapping[str, Any] | None = None
) -> None:
    """Write a plan trace: a ``.parquet`` path as one file, any other as a directory with one shard."""
    write_set(PLAN_ROWS.table(records, run or {}), path)


def plan_writer(path: str | Path, *, run: Mapping[str, Any]) -> RecordWriter[PlanRecord]:
    """A writer of finished runs; see :class:`suffice.trace.recording.RecordWriter`."""
    return RecordWriter(PLAN_ROWS, path, run=run)
