"""Write traces so that a kill at any moment loses no finished question and duplicates none.

A directory is written shard by shard. Every finished question rewrites the current shard aside and
renames it over the old one, so a reader always sees whole questions, each once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from suffice.errors import DataError, UsageError
from suffice.trace.durable import replace_file
from suffice.trace.rounds.convert import record_to_rows
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.schema import QUESTIONS, RUN_KEY, TableSchema
from suffice.trace.rounds.table import TraceSet

_SHARD = re.compile(r"part-(\d{5})\.parquet")

_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True)
class RowSet(Generic[_Record]):
    """How records of one kind are kept as rows.

    Parameters
    ----------
    schema
        Of the rows.
    rows
        The rows of a record, keyed by column.
    key
        The columns that tell records apart.
    place
        Names a row in messages.
    """

    schema: TableSchema
    rows: Callable[[_Record], Sequence[Mapping[str, Any]]]
    key: tuple[str, ...]
    place: Callable[[Mapping[str, Any]], str]

    def stamped(self, run: Mapping[str, Any]) -> pa.Schema:
        """The Arrow schema with the metadata of a file."""
        return self.schema.arrow.with_metadata(
            {
                self.schema.key: str(self.schema.version).encode(),
                RUN_KEY: json.dumps(run, sort_keys=True).encode(),
            }
        )


QUESTION_ROWS = RowSet(
    schema=QUESTIONS,
    rows=record_to_rows,
    key=("question_id",),
    place=lambda row: f"question {row['question_id']!r}, round {row['round']}",
)


def records_to_table(
    records: Iterable[QuestionRecord], run: Mapping[str, Any] | None = None
) -> pa.Table:
    """Rows of the records in the schema, with its metadata.

    Raises
    ------
    DataError
        Naming the column, when a value cannot be stored in it: text that is not Unicode, another type.
    """
    return rows_to_table(QUESTION_ROWS, records, run or {})


def rows_to_table(
    kind: RowSet[_Record], records: Iterable[_Record], run: Mapping[str, Any]
) -> pa.Table:
    """The same for records of any kind."""
    rows = [row for record in records for row in kind.rows(record)]
    try:
        return pa.Table.from_pylist(rows, schema=kind.stamped(run))
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise _unstorable(kind, rows, error) from error


def _unstorable(
    kind: RowSet[_Record], rows: Sequence[Mapping[str, Any]], error: Exception
) -> DataError:
    for row in rows:
        for column in kind.schema.columns:
            try:
                pa.array([row.get(column.name)], column.type)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as reason:
                return DataError(
                    f"{kind.place(row)}: cannot be stored as {column.type}: {reason}",
                    column=column.name,
                )
    return DataError(f"cannot be stored: {error}")


def write_table(table: pa.Table, path: Path) -> None:
    """Write one Parquet file, atomically."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    replace_file(path, sink.getvalue().to_pybytes())


def write_traces(
    records: Iterable[QuestionRecord], path: str | Path, *, run: Mapping[str, Any] | None = None
) -> None:
    """Write a trace set: a ``.parquet`` path as one file, any other as a directory with one shard."""
    root = Path(path)
    table = records_to_table(records, run)
    if root.suffix == ".parquet":
        root.parent.mkdir(parents=True, exist_ok=True)
        write_table(table, root)
    else:
        root.mkdir(parents=True, exist_ok=True)
        write_table(table, root / "part-00000.parquet")


def write_trace_set(traces: TraceSet, path: str | Path) -> Path:
    """Write a trace set with every column it carries; the file written.

    A path ending in ``.parquet`` is a file, any other a directory that gets ``part-00000.parquet``.

    Raises
    ------
    UsageError
        When the directory holds trace files already.
    """
    target = Path(path)
    if target.suffix != ".parquet":
        if any(target.glob("*.parquet")):
            raise UsageError(f"{target} holds trace files already; choose another --out")
        target = target / "part-00000.parquet"
    target.parent.mkdir(parents=True, exist_ok=True)
    rows = pa.concat_tables([traces.table, traces.closed_book], promote_options="default")
    metadata = QUESTION_ROWS.stamped(traces.origin.run).metadata
    write_table(rows.replace_schema_metadata(metadata), target)
    return target


class Shards(Generic[_Record]):
    """Adds finished records of one kind to a trace set.

    Parameters
    ----------
    kind
        How they are kept.
    path
        A directory, written in shards, or a ``.parquet`` file, which is rewritten as it grows.
    run
        The ``suffice.run`` document.
    shard_records
        Records in a full shard of a directory.
    """

    def __init__(
        self,
        kind: RowSet[_Record],
        path: str | Path,
        *,
        run: Mapping[str, Any],
        shard_records: int = 64,
    ) -> None:
        self._kind = kind
        self._root = Path(path)
        self._run = dict(run)
        self._single = self._root.suffix == ".parquet"
        self._limit = None if self._single else shard_records
        folder = self._root.parent if self._single else self._root
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"cannot make the folder: {error.strerror or error}; choose another --out",
                file=str(folder),
            ) from error
        self._remove_leftovers(folder)
        self._number, self._table, self._count = self._open_last()

    def _remove_leftovers(self, folder: Path) -> None:
        """Files written aside by a run that was killed."""
        pattern = f".{self._root.name}.*.tmp" if self._single else ".*.tmp"
        for leftover in folder.glob(pattern):
            leftover.unlink(missing_ok=True)

    def _open_last(self) -> tuple[int, pa.Table | None, int]:
        shards = self._shards()
        if not shards:
            return 0, None, 0
        number, file = shards[-1]
        table = pq.read_table(file)
        if table.schema.remove_metadata() != self._kind.schema.arrow:
            if self._single:
                raise DataError(
                    "the file was not written by this recorder, so it is not added to; choose another --out",
                    file=str(file),
                )
            return number + 1, None, 0
        count = table.group_by(list(self._kind.key)).aggregate([]).num_rows
        if self._limit is not None and count >= self._limit:
            return number + 1, None, 0
        return number, table.replace_schema_metadata(self._kind.stamped(self._run).metadata), count

    def _shards(self) -> list[tuple[int, Path]]:
        if self._single:
            return [(0, self._root)] if self._root.exists() else []
        found = ((_SHARD.fullmatch(file.name), file) for file in self._root.glob("part-*.parquet"))
        return sorted((int(match.group(1)), file) for match, file in found if match)

    def add(self, records: Sequence[_Record]) -> None:
        """Make these records durable; on return a kill no longer loses them.

        Raises
        ------
        BackendError
            When the disk is full or refuses; the shard before is intact.
        """
        if not records:
            return
        new = rows_to_table(self._kind, records, self._run)
        table = new if self._table is None else pa.concat_tables([self._table, new])
        write_table(table.combine_chunks(), self._file())
        self._table, self._count = table, self._count + len(records)
        if self._limit is not None and self._count >= self._limit:
            self._number, self._table, self._count = self._number + 1, None, 0

    def _file(self) -> Path:
        return self._root if self._single else self._root / f"part-{self._number:05d}.parquet"


class ShardWriter(Shards[QuestionRecord]):
    """Adds finished questions to a trace set.

    Parameters
    ----------
    path
        A directory, written in shards, or a ``.parquet`` file, which is rewritten as it grows.
    run
        The ``suffice.run`` document.
    shard_questions
        Questions in a full shard of a directory.
    """

    def __init__(
        self, path: str | Path, *, run: Mapping[str, Any], shard_questions: int = 64
    ) -> None:
        super().__init__(QUESTION_ROWS, path, run=run, shard_records=shard_questions)
