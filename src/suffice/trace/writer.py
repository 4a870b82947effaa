"""Add records to a trace set so that a kill at any moment loses none that is finished and duplicates none.

A directory is written shard by shard. Every finished record rewrites the current shard aside and renames it
over the old one, so a reader always sees whole records, each once.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, TypeVar

import pyarrow as pa

from suffice.errors import DataError, UsageError
from suffice.trace.durable import (
    FailureFile,
    Shard,
    check_same_run,
    is_written,
    locked,
    replace_file,
)
from suffice.trace.parquet import opened, parquet_writer, readable
from suffice.trace.schema import RUN_KEY, TableSchema

_Record = TypeVar("_Record")
RecordKey = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class RowSet(Generic[_Record]):
    """How records of one kind are kept as rows.

    ``key`` are the columns that tell records apart, ``key_of`` gives their values of a record, ``rows`` its
    rows by column. ``place`` names a row in messages, ``noun`` a record.
    """

    schema: TableSchema
    rows: Callable[[_Record], Sequence[Mapping[str, Any]]]
    key: tuple[str, ...]
    key_of: Callable[[_Record], RecordKey]
    place: Callable[[Mapping[str, Any]], str]
    noun: str

    def stamped(self, run: Mapping[str, Any]) -> pa.Schema:
        """The Arrow schema with the metadata of a file."""
        return self.schema.arrow.with_metadata(
            {
                self.schema.key: str(self.schema.version).encode(),
                RUN_KEY: json.dumps(run, sort_keys=True).encode(),
            }
        )

    def table(self, records: Iterable[_Record], run: Mapping[str, Any]) -> pa.Table:
        """Rows of the records in the schema, with its metadata."""
        rows = [row for record in records for row in self.rows(record)]
        try:
            return pa.Table.from_pylist(rows, schema=self.stamped(run))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise self._unstorable(rows, error) from error

    def _unstorable(self, rows: Sequence[Mapping[str, Any]], error: Exception) -> DataError:
        for row in rows:
            for column in self.schema.columns:
                try:
                    pa.array([row.get(column.name)], column.type)
                except (pa.ArrowException, ValueError, TypeError, OverflowError) as reason:
                    return DataError(
                        f"{self.place(row)}: cannot be stored as {column.type}: {reason}",
                        column=column.name,
                    )
        return DataError(f"cannot be stored: {error}")


GROUP_ROWS = 16_384
"""Rows in a row group of what is written, so that a part of a file can be read by itself."""


def write_table(table: pa.Table, path: Path) -> None:
    """Write one Parquet file, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sink = io.BytesIO()
    with parquet_writer(sink, table.schema) as writer:
        writer.write_table(table, row_group_size=GROUP_ROWS)
    replace_file(path, sink.getvalue())


def write_set(table: pa.Table, path: str | Path) -> Path:
    """Write a whole set to a ``.parquet`` path, or as the only file of a directory; the file written."""
    target = only_file(path)
    write_table(table, target)
    return target


def only_file(path: str | Path) -> Path:
    """Where a whole set is written: a ``.parquet`` path itself, the first file of an empty directory."""
    root = Path(path)
    if root.suffix != ".parquet" and any(root.glob("*.parquet")):
        raise UsageError(f"{root} holds trace files already; choose another --out")
    return root if root.suffix == ".parquet" else root / shard_name(0)


def add_part(
    kind: RowSet[_Record], rows: pa.Table, path: str | Path, recorded: Callable[[Path], Recorded]
) -> Path:
    """Write rows as the file ``path``, or add them to the directory as a part of its own; the file written.

    A ``.parquet`` path is replaced. Files that a directory holds stay as they are.
    """
    root = Path(path)
    if root.suffix == ".parquet":
        write_table(rows, root)
        return root
    keys = [
        tuple(row.values())
        for row in rows.select(kind.key).group_by(kind.key).aggregate([]).to_pylist()
    ]
    with locked(root, needed=False):
        if any(root.glob("*.parquet")):
            there = recorded(root).keys
            repeated = sorted(
                str(key[0]) if len(key) == 1 else str(key) for key in keys if key in there
            )
            if repeated:
                raise UsageError(
                    f"{root} holds {len(repeated)} of these {kind.noun}s already, the first {repeated[0]!r}; "
                    "nothing was written: leave them out, or write to another place"
                )
        shards = shards_of(root)
        target = root / shard_name(shards[-1][0] + 1 if shards else 0)
        write_table(rows, target)
        FailureFile(root, kind.key).clear(keys)
    return target


def shard_name(number: int, shard: Shard | None = None) -> str:
    """What a directory calls this file, of all recorders or of one ``shard`` of them."""
    return f"{_begin(shard)}{number:05d}.parquet"


def shards_of(root: Path, shard: Shard | None = None) -> list[tuple[int, Path]]:
    """The numbered files of a directory, in order; of one ``shard`` of its recorders its own."""
    numbered = re.compile(rf"{_begin(shard)}(\d{{5}})\.parquet")
    named = ((numbered.fullmatch(file.name), file) for file in root.glob("part-*.parquet"))
    return sorted((int(match.group(1)), file) for match, file in named if match)


def _begin(shard: Shard | None) -> str:
    return "part-" if shard is None else f"part-{shard.name}-"


class _Shards:
    """The files of a trace set, of which the last one grows."""

    def __init__(
        self,
        root: Path,
        schema: pa.Schema,
        key: Sequence[str],
        *,
        shard_records: int,
        shard: Shard | None,
    ) -> None:
        self._root, self._shard = root, shard
        self._single = root.suffix == ".parquet"
        self._limit = sys.maxsize if self._single else shard_records
        self._number, self._table, self._count = 0, schema.empty_table(), 0
        self._remove_leftovers()
        there = [(0, root)] if self._single and root.exists() else shards_of(root, shard)
        if there:
            self._go_on(*there[-1], key)

    def _go_on(self, number: int, file: Path, key: Sequence[str]) -> None:
        """Let this file grow, or where it is full or another's the next."""
        with readable(file), opened(file) as parquet:
            table = parquet.read().replace_schema_metadata(self._table.schema.metadata)
        alike = table.schema == self._table.schema
        if self._single and not alike:
            raise DataError(
                "the file was not written by this recorder, so it is not added to; choose another --out",
                file=str(file),
            )
        count = table.group_by(list(key)).aggregate([]).num_rows if alike else self._limit
        if count < self._limit:
            self._number, self._table, self._count = number, table, count
        else:
            self._number = number + 1

    def _remove_leftovers(self) -> None:
        """Files written aside by a run that was killed."""
        folder, patterns = self._root, [".*.tmp"]
        if self._shard is not None:
            patterns = [f".{_begin(self._shard)}*.tmp", f".failures-{self._shard.name}.*.tmp"]
        elif self._single:
            folder, patterns = self._root.parent, [f".{self._root.name}.*.tmp"]
        for leftover in (file for pattern in patterns for file in folder.glob(pattern)):
            if not is_written(leftover):
                leftover.unlink(missing_ok=True)

    def add(self, records: Sequence[pa.Table]) -> None:
        """Make records durable, each the rows of one."""
        if not records:
            return
        table = pa.concat_tables([self._table, *records])
        name = shard_name(self._number, self._shard)
        write_table(table.combine_chunks(), self._root if self._single else self._root / name)
        self._table, self._count = table, self._count + len(records)
        if self._count >= self._limit:
            self._number, self._table, self._count = self._number + 1, table.slice(0, 0), 0


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record in the form in which a file holds it."""

    key: RecordKey
    rows: pa.Table


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a trace set holds already."""

    run: Mapping[str, Any]
    keys: frozenset[RecordKey]
    runs: Sequence[Mapping[str, Any]] = ()


def recorded_before(
    root: Path,
    recorded: Callable[[Path], Recorded],
    *,
    run: Mapping[str, Any],
    may_differ: frozenset[str],
) -> Recorded | None:
    """What ``recorded`` finds at ``root``; ``None``: nothing stands there."""
    if not (root.exists() if root.suffix == ".parquet" else any(root.glob("*.parquet"))):
        return None
    before = recorded(root)
    if any(own.keys() - before.run.keys() - may_differ for own in before.runs):
        raise UsageError(
            f"{root} holds files of several runs, so no recording goes on there; choose another --out and "
            f"join the two with: suffice traces merge {root} OTHER --out NEW"
        )
    # through JSON, since that is what the files hold: tuples come back as lists
    check_same_run(before.run, json.loads(json.dumps(run)), root, may_differ=may_differ)
    return before


class TraceWriter(Generic[_Record]):
    """Adds finished records to a trace set; a context manager that keeps a second writer out.

    A kill at any moment loses no record that was added and leaves none in part. Called from one
    thread, but for :meth:`stored`.
    """

    def __init__(
        self,
        kind: RowSet[_Record],
        path: str | Path,
        *,
        run: Mapping[str, Any],
        recorded: Callable[[Path], Recorded],
        may_differ: frozenset[str] = frozenset({"version"}),
        shard_records: int = 64,
        shard: Shard | None = None,
    ) -> None:
        root = Path(path)
        if shard is not None:
            shard.check_place(root)
        self._kind = kind
        # through JSON, since that is what the files hold: tuples come back as lists
        self._run = json.loads(json.dumps(run))
        done: frozenset[RecordKey] = frozenset()
        with ExitStack() as stack:
            stack.enter_context(locked(root, shard=shard))
            before = recorded_before(root, recorded, run=self._run, may_differ=may_differ)
            if before is not None:
                done = before.keys
            self._shards = _Shards(
                root, kind.stamped(self._run), kind.key, shard_records=shard_records, shard=shard
            )
            self._failures = FailureFile(root, kind.key, shard=shard)
            # a kill between the rows and the failures leaves a failure that has since been mended
            self._failures.clear(done)
            self._done = set(done)
            self._closing = stack.pop_all()

    @property
    def done(self) -> frozenset[RecordKey]:
        """Keys of the records the trace set holds."""
        return frozenset(self._done)

    @property
    def failed(self) -> frozenset[RecordKey]:
        """Keys of what failed and was not finished since."""
        return self._failures.keys

    def stored(self, record: _Record) -> StoredRecord:
        """The record as it is kept; in any thread."""
        return StoredRecord(self._kind.key_of(record), self._kind.table([record], self._run))

    def add(self, records: Iterable[_Record]) -> None:
        """Make these records durable, as :meth:`add_stored`; nothing is added when one cannot be stored."""
        self.add_stored([self.stored(record) for record in records])

    def add_stored(self, records: Sequence[StoredRecord]) -> None:
        """Make these records durable; on return a kill no longer loses them."""
        keys = [record.key for record in records]
        for position, key in enumerate(keys):
            if key in self._done or key in keys[:position]:
                raise UsageError(
                    f"the {self._kind.noun} {key} is recorded already; leave out the {self._kind.noun}s in "
                    "'done'"
                )
        self._shards.add([record.rows for record in records])
        self._done.update(keys)
        self._failures.clear(keys)

    def fail(self, key: RecordKey, reason: str) -> None:
        """Note in ``failures.jsonl`` what could not be finished; the next recording tries it again."""
        self._failures.add(key, reason)

    def close(self) -> None:
        """Let other writers in."""
        self._closing.close()

    def __enter__(self) -> TraceWriter[_Record]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
