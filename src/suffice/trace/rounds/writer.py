"""Write traces: whole sets at once, or question by question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from suffice.errors import DataError, UsageError
from suffice.trace.durable import Shard, in_turn, written_aside
from suffice.trace.lazy import in_memory
from suffice.trace.parquet import RowSet, part_name, write_set, write_table
from suffice.trace.recording import (
    RecordWriter,
    check_goes_on,
    recorded_before,
    stores_at,
)
from suffice.trace.rounds.checks import find_problems
from suffice.trace.rounds.reader import inspect_traces
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.schema import QUESTION_ROWS, records_to_table
from suffice.trace.rounds.table import TraceSet

_OF_SHARDS = frozenset({"shard", "shards"})
"""Entries of a run document that say which of several recorders a file is of."""


def write_traces(
    records: Iterable[QuestionRecord], path: str | Path, *, run: Mapping[str, Any] | None = None
) -> None:
    """Write a trace set: a ``.parquet`` path as one file, which is replaced; to a directory a part is added.

    Parameters
    ----------
    records
        At least one question; each with at least one round.
    path
        Of a directory that holds questions already, the files there stay as they are.
    run
        The ``suffice.run`` document of the file written.

    Raises
    ------
    DataError
        Naming question, round and column: whatever :func:`~suffice.read_traces` would refuse.
    UsageError
        When the directory holds one of the questions already; nothing is written then.
    """
    rows = records_to_table(records, run)
    _check_rows(rows)
    root = Path(path)
    if root.suffix == ".parquet":
        write_table(rows, root)
        return
    with in_turn(root, "write"):
        if any(root.glob("*.parquet")) or stores_at(root):
            there = set(inspect_traces(root, columns=()).valid(skip_invalid=False).question_ids)
            if repeated := sorted(there & {*rows.column("question_id").to_pylist()}):
                raise UsageError(
                    f"{root} holds {len(repeated)} of these questions already, the first {repeated[0]!r}; "
                    "nothing was written: leave them out, or write to another place"
                )
        parts = [file.stem.removeprefix("part-") for file in root.glob("part-*.parquet")]
        numbers = [int(part) for part in parts if part.isdecimal()]
        write_table(rows, root / part_name(max(numbers, default=-1) + 1))


def write_new(records: Iterable[QuestionRecord], out: Path, run: Mapping[str, Any]) -> None:
    """Write records to a place that is free, a ``.parquet`` file or a directory: whole, or nothing at all."""
    rows = records_to_table(records, run)
    _check_rows(rows)
    with written_aside(out) as aside:
        if out.suffix == ".parquet":
            write_table(rows, aside)
        else:
            write_set(rows, aside)


def _check_rows(rows: pa.Table) -> None:
    """Refuse before writing what reading would refuse after."""
    if rows.num_rows == 0:
        raise DataError("there is no question to write")
    for problem in find_problems(rows):
        row = rows.select(["question_id", "round"]).slice(problem.position, 1).to_pylist()[0]
        said = f"question {row['question_id']!r}, round {row['round']}: {problem.message}"
        raise DataError(said, column=problem.column)


def write_trace_set(traces: TraceSet, path: str | Path) -> Path:
    """Write a trace set with every column it carries; the file written.

    A path ending in ``.parquet`` is a file, any other a directory that gets ``part-00000.parquet``.
    """
    both = (traces.table, traces.closed_book)
    rows = pa.concat_tables(map(in_memory, both), promote_options="default")
    metadata = QUESTION_ROWS.stamped(traces.origin.run).metadata
    return write_set(rows.replace_schema_metadata(metadata), path)


def question_writer(
    path: str | Path,
    *,
    run: Mapping[str, Any],
    may_differ: frozenset[str] = frozenset({"version"}),
    kind: RowSet[Any] = QUESTION_ROWS,
    shard: Shard | None = None,
) -> RecordWriter[Any]:
    """A writer of finished questions; see :class:`suffice.trace.recording.RecordWriter`.

    The run document of a shard says which it is; a recording may go on in other shards.
    """
    own = {} if shard is None else {"shard": shard.number, "shards": shard.of}
    return RecordWriter(
        kind,
        path,
        run={name: run[name] for name in run.keys() - _OF_SHARDS} | own,
        may_differ=may_differ | _OF_SHARDS,
        shard=shard,
    )


def check_settings(path: str | Path, *, run: Mapping[str, Any], may_differ: frozenset[str]) -> None:
    """Refuse a ``path`` recorded with other settings, before what is long in preparing is begun."""
    root = Path(path)
    before = recorded_before(root, QUESTION_ROWS)
    check_goes_on(root, before, run, may_differ=may_differ | _OF_SHARDS)
