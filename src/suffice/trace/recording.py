"""Records in a database: what a recorder finished, kept at once and written to Parquet when it ends."""

from __future__ import annotations

import json
import math
import os
import platform
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa

from suffice.contracts import strict_json, whole_text
from suffice.errors import DataError, StorageError, UsageError, plain_file
from suffice.trace.durable import Shard, is_written, process_of
from suffice.trace.parquet import RUN_KEY, RecordKey, RowSet, opened, readable, write_table
from suffice.trace.store import ALL, NAME, OF_RECORDERS, RECORDER, Store, exported, store_at
from suffice.trace.stored_file import StoredFile

_Record = TypeVar("_Record")
StoredRecord = tuple[RecordKey, bytes]
"""A record's key and its rows, as the database keeps them."""

_WATERMARK = b"suffice.store"
_IN_A_FILE = 2_000  # records
_TABLES = (
    "CREATE TABLE IF NOT EXISTS records (number INTEGER PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs, "
    "key TEXT NOT NULL UNIQUE, rows BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS failures (key TEXT PRIMARY KEY, reason TEXT NOT NULL, "
    "attempts INTEGER NOT NULL)",
)
_RUNS = f"SELECT number, token, document FROM runs WHERE {OF_RECORDERS} ORDER BY number"  # noqa: S608
_ADD = (
    "INSERT INTO records (number, run, key, rows) SELECT coalesce(max(number), 0) + 1, ?, ?, ? FROM records "
    "WHERE true ON CONFLICT (key) DO NOTHING"
)
_FAIL = (
    "INSERT INTO failures (key, reason, attempts) VALUES (?, ?, ?) ON CONFLICT (key) DO UPDATE SET "
    "reason = excluded.reason, attempts = failures.attempts + excluded.attempts"
)


# --- reading ---------------------------------------------------------------------------------------
def stores_at(root: Path) -> list[Path]:
    """The databases of a record: the one that is named, or those in a folder, also of its shards."""
    whole = store_at(root)
    shards = sorted(root.glob("record-*of*.db")) if root.is_dir() else []
    found = [*([] if whole is None else [whole]), *shards]
    return [file for file in found if not file.is_file() or file.stat().st_size]


def live_store(path: str | Path) -> Store | None:
    """The store of live loops that a path names; ``None``: there is none, or it is a recorder's."""
    file = store_at(path)
    return None if file is None or (store := Store(file)).is_recorders() else store


@dataclass(frozen=True, slots=True)
class RecordedRows:
    """Rows of records of a run, up to the record of this number; the schema's metadata tell their kind."""

    token: str
    run: Mapping[str, Any]
    number: int
    table: pa.Table

    @property
    def metadata(self) -> dict[bytes, bytes]:
        """Those of a Parquet file."""
        stated = self.table.schema.metadata or {}
        return {**stated, RUN_KEY: json.dumps(self.run, sort_keys=True).encode()}


def recorded_rows(
    file: Path, after: Callable[[str], int] = lambda _: 0, most: int = ALL
) -> list[RecordedRows]:
    """What the runs of a recorder hold after a record, by the run's token; of each ``most``."""
    found = []
    with Store(file).transaction(write=False) as connection:
        for run, token, document in connection.execute(_RUNS).fetchall():
            cells = connection.execute(
                "SELECT number, rows FROM records WHERE run = ? AND number > ? ORDER BY number LIMIT ?",
                (run, after(token), most),
            ).fetchall()
            if cells:
                packed = (
                    pa.CompressedInputStream(pa.BufferReader(rows), "zstd") for _, rows in cells
                )
                tables = [pa.ipc.open_stream(stream).read_all() for stream in packed]
                table = pa.concat_tables(tables).combine_chunks()
                found.append(RecordedRows(token, json.loads(document), cells[-1][0], table))
    return found


def is_exported(root: Path, files: Iterable[Path]) -> bool:
    """Whether recorders' databases hold nothing that the Parquet files do not; false of live loops."""
    after = exported(files)
    return all(
        Store(file).is_recorders() and not recorded_rows(file, after, 1) for file in stores_at(root)
    )


ReadsRows = Callable[[Path, Callable[[str], int], int], list[RecordedRows]]


def export_records(file: Path, folder: Path, read: ReadsRows = recorded_rows) -> Iterator[pa.Table]:
    """Write what came since the last export to a folder, some records a file; the rows of each."""
    while runs := read(file, exported(folder.glob("store-*.parquet")), _IN_A_FILE):
        for run in runs:
            table = run.table.replace_schema_metadata(run.metadata)
            write_table(table, folder / f"store-{run.token}-{run.number:09d}.parquet")
            yield table


# --- retention -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was removed, or would be: questions and the bytes of their rounds, and the bytes that are left."""

    questions: int
    bytes: int
    bytes_left: int


def prune(
    path: str | Path,
    *,
    days: float | None = None,
    gigabytes: float | None = None,
    now: float | None = None,
    dry: bool = False,
) -> Pruned:
    """Remove questions of a store that ended so many days ago, then the oldest until the rest fits."""
    if not all(limit is None or limit > 0 for limit in (days, gigabytes)):
        raise UsageError("days and gigabytes of a record that is kept must be above 0")
    store = live_store(path)
    if store is None:
        raise UsageError(
            f"{path} holds no store of live loops; name a FILE.db, a folder with {NAME}, or postgresql://..."
        )
    before = -math.inf if days is None else (time.time() if now is None else now) - days * 86_400
    gone = held = 0
    with store.transaction(write=not dry) as connection:
        (kept,) = connection.execute("SELECT coalesce(max(turn), 0) FROM questions").fetchone()
        rows = connection.execute(
            "SELECT number, ended, (SELECT sum(length(content)) FROM rounds WHERE question = number) "
            "FROM questions WHERE turn < ? ORDER BY turn",
            (kept,),
        ).fetchall()
        size = store.engine.size(connection)
        over = 0.0 if gigabytes is None else size - gigabytes * 10**9
        for number, ended, taken in rows:
            if ended < before or held < over:
                gone, held = gone + 1, held + (taken or 0)
                if not dry:
                    connection.execute(
                        "DELETE FROM labels WHERE question = (SELECT id FROM questions WHERE number = ?)",
                        (number,),
                    )
                    connection.execute("DELETE FROM questions WHERE number = ?", (number,))
        if gone and not dry:
            store.engine.shrink(connection)
            size = store.engine.size(connection)
    return Pruned(questions=gone, bytes=held, bytes_left=size - (held if dry else 0))


# --- failures --------------------------------------------------------------------------------------
_Failures = dict[str, tuple[str, int]]  # why and how often, by key as JSON


def failures_file(root: Path) -> Path:
    """Where copies of a record, and earlier versions, say what could not be finished."""
    single = root.suffix == ".parquet"
    return root.with_suffix(".failures.jsonl") if single else root / "failures.jsonl"


def _stores_of(root: Path) -> list[Path]:
    """The databases of a record's recorders; that of one file lies beside it."""
    if root.suffix != ".parquet":
        return [file for file in stores_at(root) if Store(file).is_recorders()]
    with suppress(DataError, StorageError):  # a database of the same name may be anybody's
        return [file for file in stores_at(root.with_suffix(".db")) if Store(file).is_recorders()]
    return []


def count_failures(root: Path) -> int:
    """How many questions, or runs, a recorder could not finish."""
    told = sum(bool(line.strip()) for line in _failures_lines(root))
    return told + len({key for file in _stores_of(root) for key in _failures_in(file)})


def failures_of(root: Path) -> dict[str, tuple[str, int]]:
    """Why each question could not be finished, and after how many attempts."""
    failed = _failures_told(root, ("question_id",))
    for file in _stores_of(root):
        failed |= _failures_in(file)
    return {str(json.loads(key)[0]): why for key, why in failed.items()}


def _failures_in(file: Path) -> _Failures:
    with Store(file).transaction(write=False) as connection:
        rows = connection.execute("SELECT key, reason, attempts FROM failures ORDER BY key")
        return {key: (reason, attempts) for key, reason, attempts in rows.fetchall()}


def _failures_told(root: Path, names: Sequence[str]) -> _Failures:
    """Those in a file of lines."""
    told: _Failures = {}
    for row, line in enumerate(_failures_lines(root)):
        try:
            if line.strip():
                entry = strict_json(line.decode())
                key = json.dumps([entry[name] for name in names])
                told[key] = (str(entry["reason"]), int(entry["attempts"]))
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            said = "not a failure record; delete the line to go on"
            raise DataError(said, file=str(failures_file(root)), row=row) from error
    return told


def _failures_lines(root: Path) -> list[bytes]:
    file = failures_file(root)
    return plain_file(file).read_bytes().splitlines() if file.exists() else []


# --- writing ---------------------------------------------------------------------------------------
Recorded = tuple[Mapping[str, Any], frozenset[RecordKey]]
"""What a Parquet file, or a run in a database, says of its run, and the keys of its records."""


def recorded_before(root: Path, kind: RowSet[Any], shard: Shard | None = None) -> list[Recorded]:
    """What stands at a place where a recorder writes."""
    single = root.suffix == ".parquet"
    files = [root] if single else sorted(root.glob("[!.]*.parquet"))
    parts: list[Recorded] = []
    for file in filter(Path.exists, files):
        stored, table = StoredFile.read_whole(file, kind.key, kind.schema)
        rows = table.to_pylist()
        keys = frozenset(tuple(row.get(name) for name in kind.key) for row in rows)
        parts.append((stored.run, keys))
    for file in stores_at(root.with_suffix(".db") if single else root):
        if shard is not None and shard.is_sister(file):
            continue
        with Store(file).transaction(write=False) as connection:
            for run, _, document in connection.execute(_RUNS).fetchall():
                kept = connection.execute("SELECT key FROM records WHERE run = ?", (run,))
                held = frozenset(tuple(json.loads(key)) for (key,) in kept.fetchall())
                parts += [(json.loads(document), held)] if held else []
    return parts


def check_goes_on(
    root: Path, before: Sequence[Recorded], now: Mapping[str, Any], *, may_differ: frozenset[str]
) -> None:
    """Refuse to go on with other settings, naming every entry that changed and must not."""
    runs = [dict(_entries(stated, may_differ)) for stated, _ in before]
    if not runs:
        return
    if runs.count(runs[0]) < len(runs):
        raise UsageError(
            f"{root} holds files of several runs, so no recording goes on there; choose another --out and "
            f"join the two with: suffice traces merge {root} OTHER --out NEW"
        )
    # through JSON, since that is what is kept: tuples come back as lists
    stated, wanted = runs[0], dict(_entries(json.loads(json.dumps(now)), may_differ))
    changed = [
        f"{name} was {stated.get(name)!r}, now {wanted.get(name)!r}"
        for name in sorted({*stated, *wanted})
        if stated.get(name) != wanted.get(name)
    ]
    if changed:
        raise UsageError(
            f"{root} was recorded with other settings ({'; '.join(changed)}); "
            "use the same settings to go on, or choose another --out"
        )


def _entries(run: Mapping[str, Any], without: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """The entries of a run document, and in their place those of its steps: ``derived.0.prompt``."""
    for name, value in run.items():
        if name in without:
            continue
        if name == "derived" and isinstance(value, list):
            for number, step in enumerate(value):
                parts = step.items() if isinstance(step, Mapping) else [("", step)]
                yield from ((f"{name}.{number}.{inner}", held) for inner, held in parts)
        else:
            yield name, value


_here: set[Path] = set()  # the databases that recorders of this process write


class RecordWriter(Generic[_Record]):
    """Keeps finished records in a database, and writes them to Parquet when it closes.

    A kill loses no record that was added and leaves none in part. A folder holds ``record.db``, or
    ``record-3of8.db`` of a shard; beside ``FILE.parquet`` lies ``FILE.db``. A second writer is kept out;
    recorders of different shards of as many may be at one folder together. Called from one thread, but for
    :meth:`stored`.
    """

    def __init__(
        self,
        kind: RowSet[_Record],
        path: str | Path,
        *,
        run: Mapping[str, Any],
        may_differ: frozenset[str] = frozenset({"version"}),
        shard: Shard | None = None,
    ) -> None:
        self._kind, self._root, self._shard = kind, Path(path), shard
        if shard is not None:
            shard.check_place(self._root)
        self._single = self._root.suffix == ".parquet"
        name = NAME if shard is None else f"record-{shard.name}.db"
        file = self._root.with_suffix(".db") if self._single else self._root / name
        before = recorded_before(self._root, kind, shard)
        check_goes_on(self._root, before, run, may_differ=may_differ)
        if self._single and self._root.exists():  # of other columns: said before anything is asked
            with readable(self._root), opened(self._root) as parquet:
                alike = parquet.schema_arrow.remove_metadata() == kind.schema.arrow
            if not alike:
                raise DataError(
                    "the file was not written by this recorder, so it is not added to; choose another --out",
                    file=str(self._root),
                )
        self.done = {key for _, keys in before for key in keys}
        self.failed: set[RecordKey] = set()  # and not finished since
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"{file.parent} cannot be written: {error.strerror or error}; choose another --out"
            ) from error
        self.file, self._store = file, Store(file, durable=True, stays=True)
        self._run = self._begin(json.dumps(run, sort_keys=True))
        _here.add(file.resolve())
        try:
            # shards of as many may be written at once; all else is one recorder's
            for store in map(Store, self._beside()):
                if shard is None or not shard.is_sister(store.file):
                    with store.transaction(write=False) as connection:
                        self._refuse_writer(store, connection)
            self._take_over_failures()
        except BaseException:
            self._end()
            raise

    def stored(self, record: _Record) -> StoredRecord:
        """The record as it is kept; in any thread."""
        schema = self._kind.schema
        stated = {schema.key: str(schema.version).encode()}
        table = self._kind.table([record], {}).replace_schema_metadata(stated)
        sink = pa.BufferOutputStream()
        with (
            pa.CompressedOutputStream(sink, "zstd") as packed,
            pa.ipc.new_stream(packed, table.schema) as stream,
        ):
            stream.write_table(table)
        return self._kind.key_of(record), sink.getvalue().to_pybytes()

    def add(self, records: Sequence[StoredRecord]) -> None:
        """Keep these records; on return a kill no longer loses them. One that is kept already stays."""
        if not records:
            return
        with self._written() as connection:
            for key, rows in records:
                connection.execute(_ADD, (self._run, json.dumps(key), rows))
                connection.execute("DELETE FROM failures WHERE key = ?", (json.dumps(key),))
        keys = {key for key, _ in records}
        self.done |= keys
        self.failed -= keys

    def fail(self, key: RecordKey, reason: str) -> None:
        """Note what could not be finished; the next recording tries it again."""
        with self._written() as connection:
            connection.execute(_FAIL, (json.dumps(key), whole_text(reason), 1))
        self.failed.add(key)

    def close(self) -> None:
        """Write Parquet and let other writers in."""
        try:
            if self._single:
                self._export_file()
            else:
                for leftover in self._root.glob(".store-*.tmp"):
                    if not is_written(leftover):
                        leftover.unlink(missing_ok=True)
                beside = [] if self._shard else self._beside()
                for file in (self.file, *beside):
                    for _ in export_records(file, self._root):
                        pass
        finally:
            self._end()

    def __enter__(self) -> RecordWriter[_Record]:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # what ends it is said, and the database has all
        with suppress(*() if error is None else (StorageError, DataError)):
            self.close()

    def _begin(self, document: str) -> int:
        """Keep others out; the number of the run."""
        with self._written() as connection:
            for statement in _TABLES:
                connection.execute(statement)
            self._refuse_writer(self._store, connection)
            if connection.execute("SELECT 1 FROM questions").fetchone() is not None:
                raise UsageError(f"{self.file} is a record of live loops; choose another --out")
            known = f"FROM runs WHERE document = ? AND {OF_RECORDERS}"
            connection.execute(
                "INSERT INTO runs (token, document, host, process) SELECT ?, ?, '', '' "
                f"WHERE NOT EXISTS (SELECT 1 {known})",
                (f"{RECORDER}{uuid.uuid4().hex}", document, document),
            )
            (run,) = connection.execute(f"SELECT number {known}", (document,)).fetchone()
            connection.execute(
                "UPDATE runs SET host = ?, process = ? WHERE number = ?",
                (platform.node(), process_of(os.getpid()), run),
            )
            keys = connection.execute("SELECT key FROM records").fetchall()
            failed = connection.execute("SELECT key FROM failures").fetchall()
        self.done |= {tuple(json.loads(key)) for (key,) in keys}
        self.failed |= {tuple(json.loads(key)) for (key,) in failed}
        return int(run)

    def _refuse_writer(self, store: Store, connection: Any) -> None:
        """A process of this machine that writes the database goes on alone."""
        rows = connection.execute(
            f"SELECT host, process FROM runs WHERE process <> '' AND {OF_RECORDERS}"  # noqa: S608
        ).fetchall()
        for host, process in rows:
            if host != platform.node():
                continue
            number = int(process.split(maxsplit=1)[0])
            if number == os.getpid():
                writes = store.file.resolve() in _here
            else:
                writes = os.name == "posix" and process_of(number) == process
            if writes:
                raise UsageError(
                    f"another recorder is writing {self._root} ({store.file.name}, process {number}); wait "
                    "for it or choose another --out"
                )

    def _beside(self) -> list[Path]:
        if self._single:
            return []
        return [file for file in stores_at(self._root) if file != self.file]

    def _take_over_failures(self) -> None:
        """Those of earlier versions, and of shards where this recorder is of the whole."""
        shards = [] if self._shard else self._beside()
        told = {} if self._shard else _failures_told(self._root, self._kind.key)
        for file in shards:
            told |= _failures_in(file)
        with self._written() as connection:
            for key, (reason, attempts) in told.items():
                connection.execute(_FAIL, (key, whole_text(reason), attempts))
            self.failed |= {tuple(json.loads(key)) for key in told}
            for finished in self.failed & self.done:
                connection.execute("DELETE FROM failures WHERE key = ?", (json.dumps(finished),))
            self.failed -= self.done
        for file in shards:
            with Store(file).transaction() as connection:
                connection.execute("DELETE FROM failures")
        if not self._shard:
            failures_file(self._root).unlink(missing_ok=True)

    @contextmanager
    def _written(self) -> Iterator[Any]:
        if (old := self._store.engine.removed()) is not None:
            old.close()
            raise StorageError(
                f"{self.file} was removed while it was written; run the same command again, which begins anew"
            )
        try:
            with self._store.transaction() as connection:
                yield connection
        except StorageError as error:
            raise StorageError(
                f"{error}; what was recorded is kept, run the same command again"
            ) from error

    def _export_file(self) -> None:
        """Add what came since to the one file, which says up to where it holds the database."""
        tables, turns = list[pa.Table](), dict[str, int]()
        if self._root.exists():
            with readable(self._root), opened(self._root) as parquet:
                turns = json.loads((parquet.schema_arrow.metadata or {}).get(_WATERMARK, b"{}"))
                tables = [parquet.read()]
        runs = recorded_rows(self.file, lambda token: turns.get(token, 0))
        if runs:
            turns |= {run.token: run.number for run in runs}
            tables += [run.table for run in runs]
            rows = pa.concat_tables([rows.replace_schema_metadata(None) for rows in tables])
            metadata = runs[-1].metadata | {_WATERMARK: json.dumps(turns).encode()}
            write_table(rows.combine_chunks().replace_schema_metadata(metadata), self._root)

    def _end(self) -> None:
        _here.discard(self.file.resolve())
        if self._store.connected:  # not where it was removed, or it would be made again
            with suppress(StorageError, DataError), self._store.transaction() as connection:
                connection.execute("UPDATE runs SET process = '' WHERE number = ?", (self._run,))
        self._store.disconnect()
