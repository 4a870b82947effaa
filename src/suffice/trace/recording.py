"""The recorder's database: it keeps finished questions at once and writes Parquet at the end."""

from __future__ import annotations

import json
import math
import os
import platform
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

import pyarrow as pa

from suffice.contracts import whole_text
from suffice.errors import DataError, StorageError, UsageError, read_plain
from suffice.trace.durable import Shard, is_written, process_of
from suffice.trace.parquet import RecordKey, RowSet, opened, readable, run_document, write_table
from suffice.trace.rounds.trace_set import steps
from suffice.trace.store import NAME, OF_RECORDERS, RECORDER, Store, exported, store_at
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
    "INSERT INTO failures (key, reason, attempts) VALUES (?, ?, 1) ON CONFLICT (key) DO UPDATE SET "
    "reason = excluded.reason, attempts = failures.attempts + 1"
)


# --- reading ---------------------------------------------------------------------------------------
def stores_at(root: Path) -> list[Path]:
    """Return the databases of a record: the named one, or those in a folder, with its shards."""
    whole = store_at(root)
    shards = sorted(root.glob("record-*of*.db")) if root.is_dir() else []
    found = [*([] if whole is None else [whole]), *shards]
    return [file for file in found if not file.is_file() or file.stat().st_size]


def live_store(path: str | Path) -> Store | None:
    """Return the store of live loops at a path; ``None``: none, or it is a recorder's."""
    file = store_at(path)
    return None if file is None or (store := Store(file)).is_recorders() else store


def is_exported(root: Path, files: Iterable[Path]) -> bool:
    """Whether the Parquet files hold everything of the recorders' databases; false for live loops."""
    after = exported(files)
    return all(
        store.is_recorders() and not any(run.rows for run in store.runs(after, most=1))
        for store in map(Store, stores_at(root))
    )


def export_records(file: Path, folder: Path) -> Iterator[pa.Table]:
    """Write what ended since the last export to a folder, some questions per file; yield the rows of each."""
    while True:
        after = exported(folder.glob("store-*.parquet"))
        runs = Store(file).runs(after, dead=False, most=_IN_A_FILE)
        if not any(run.rows for run in runs):
            return
        for run in (run for run in runs if run.rows):
            table = run.rows.replace_schema_metadata(run.metadata)
            write_table(table, folder / f"store-{run.token}-{run.turn:09d}.parquet")
            yield table


# --- retention -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """Removed (or removable) questions, the bytes of their rounds, and the bytes left."""

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
    """Remove questions that ended some days ago, then the oldest ones until the rest fits."""
    if not all(limit is None or limit > 0 for limit in (days, gigabytes)):
        raise UsageError("days and gigabytes to keep must be above 0")
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
def _stores_of(root: Path) -> list[Path]:
    if root.suffix != ".parquet":
        return [file for file in stores_at(root) if Store(file).is_recorders()]
    with suppress(DataError, StorageError):  # a database of the same name may be anybody's
        return [file for file in stores_at(root.with_suffix(".db")) if Store(file).is_recorders()]
    return []


def count_failures(root: Path) -> int:
    """Count the questions, or runs, that a recorder could not finish; a folder may list some in a file."""
    listed = root / "failures.jsonl"
    lines = read_plain(listed).splitlines() if listed.exists() else []
    return sum(bool(line.strip()) for line in lines) + len(_failures_in(_stores_of(root)))


def failures_of(root: Path) -> dict[str, tuple[str, int]]:
    """Return why each question could not be finished, and after how many attempts."""
    return {str(key[0]): why for key, why in _failures_in(_stores_of(root)).items()}


def _failures_in(files: Iterable[Path]) -> dict[RecordKey, tuple[str, int]]:
    failed: dict[str, tuple[str, int]] = {}
    stores = [Store(file) for file in files]
    for store in stores:
        with store.transaction(write=False) as connection:
            rows = connection.execute("SELECT key, reason, attempts FROM failures ORDER BY key")
            for key, reason, attempts in rows.fetchall():
                said, before = failed.get(key, (reason, 0))
                failed[key] = said, before + attempts
    for store in stores if failed else ():
        with store.transaction(write=False) as connection:
            for key in [*failed]:
                if connection.execute("SELECT 1 FROM records WHERE key = ?", (key,)).fetchone():
                    del failed[key]
    return {tuple(json.loads(key)): why for key, why in failed.items()}


# --- writing ---------------------------------------------------------------------------------------
Recorded = tuple[Mapping[str, Any], frozenset[RecordKey]]
"""What a Parquet file, or a run in a database, says of its run, and the keys of its records."""


def recorded_before(root: Path, kind: RowSet[Any], shard: Shard | None = None) -> list[Recorded]:
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
                parts += [(run_document(document, file), held)] if held else []
    return parts


def check_goes_on(
    root: Path, before: Sequence[Recorded], now: Mapping[str, Any], *, may_differ: frozenset[str]
) -> None:
    """Refuse to resume with other settings; name every entry that changed and must not."""
    runs = [_entries(stated, may_differ) for stated, _ in before]
    if not runs:
        return
    if runs.count(runs[0]) < len(runs):
        raise UsageError(
            f"{root} holds files of several runs, so no recording can resume there; choose another --out and "
            f"join the two with: suffice traces merge {root} OTHER --out NEW"
        )
    # through JSON, since that is what is kept: tuples come back as lists
    stated, wanted = runs[0], _entries(json.loads(json.dumps(now)), may_differ)
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


def _entries(run: Mapping[str, Any], without: frozenset[str]) -> dict[str, Any]:
    own = {name: value for name, value in run.items() if name not in {*without, "derived"}}
    made = enumerate(steps(run))
    return own | {f"derived.{at}.{name}": held for at, step in made for name, held in step.items()}


_here: set[Path] = set()  # the databases that recorders of this process write


class RecordWriter(Generic[_Record]):
    """Keeps finished records in a database, and writes them to Parquet when it closes.

    A kill loses no added record and leaves none in part. A folder holds ``record.db``, or ``record-3of8.db``
    of a shard; ``FILE.db`` lies beside ``FILE.parquet``. A second writer is refused, but recorders of
    different shards may share a folder. Call it from one thread, except :meth:`stored`.
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
                    "another program wrote the file, so nothing is added to it; choose another --out",
                    file=str(self._root),
                )
        self.done: set[RecordKey] = {key for _, keys in before for key in keys}
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"{file.parent} cannot be written: {error.strerror or error}; choose another --out"
            ) from error
        self.file = file
        self._store = Store(file, durable=True, stays=True)
        self._run = self._begin(json.dumps(run, sort_keys=True))
        _here.add(file.resolve())
        try:
            # shards of as many may be written at once; all else is one recorder's
            for store in map(Store, self._beside()):
                if shard is None or not shard.is_sister(store.file):
                    with store.transaction(write=False) as connection:
                        self._refuse_writer(store, connection)
            files = [file] if shard else [file, *self._beside()]
            self.failed: set[RecordKey] = {*_failures_in(files)} - self.done
        except BaseException:
            self._end()
            raise

    def stored(self, record: _Record) -> StoredRecord:
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
        """Store these records, safe from a kill on return. A record that is stored already stays."""
        if not records:
            return
        with self._written() as connection:
            for key, rows in records:
                connection.execute(_ADD, (self._run, json.dumps(key), rows))
        keys = {key for key, _ in records}
        self.done |= keys
        self.failed -= keys

    def fail(self, key: RecordKey, reason: str) -> None:
        """Note a failure; the next recording tries again."""
        with self._written() as connection:
            connection.execute(_FAIL, (json.dumps(key), whole_text(reason)))
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
        self.done |= {tuple(json.loads(key)) for (key,) in keys}
        return int(run)

    def _refuse_writer(self, store: Store, connection: Any) -> None:
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

    @contextmanager
    def _written(self) -> Iterator[Any]:
        if (old := self._store.engine.removed()) is not None:
            old.close()
            raise StorageError(
                f"{self.file} was removed during the recording; run the same command again: it starts over"
            )
        try:
            with self._store.transaction() as connection:
                yield connection
        except StorageError as error:
            raise StorageError(
                f"{error}; what was recorded is kept, run the same command again"
            ) from error

    def _export_file(self) -> None:
        tables, turns = list[pa.Table](), dict[str, int]()
        if self._root.exists():
            with readable(self._root), opened(self._root) as parquet:
                turns = json.loads((parquet.schema_arrow.metadata or {}).get(_WATERMARK, b"{}"))
                tables = [parquet.read()]
        runs = [run for run in Store(self.file).runs(lambda token: turns.get(token, 0)) if run.rows]
        if runs:
            turns |= {run.token: run.turn for run in runs}
            tables += [run.rows for run in runs]
            rows = pa.concat_tables([rows.replace_schema_metadata(None) for rows in tables])
            metadata = runs[-1].metadata | {_WATERMARK: json.dumps(turns).encode()}
            write_table(rows.combine_chunks().replace_schema_metadata(metadata), self._root)

    def _end(self) -> None:
        _here.discard(self.file.resolve())
        if self._store.connected:  # not where it was removed, or it would be made again
            with suppress(StorageError, DataError), self._store.transaction() as connection:
                connection.execute("UPDATE runs SET process = '' WHERE number = ?", (self._run,))
        self._store.disconnect()
