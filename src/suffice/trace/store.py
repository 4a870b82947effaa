"""The database of live loops: questions, rounds, labels and runs."""

from __future__ import annotations

import json
import os
import platform
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from suffice.errors import DataError, StorageError, UsageError, at_most, most_unpacked
from suffice.trace.durable import process_of
from suffice.trace.engines import (
    STORE,
    Address,
    FileKind,
    NothingThere,
    PostgreSQL,
    SQLite,
    as_place,
)
from suffice.trace.parquet import RUN_KEY, run_document
from suffice.trace.rounds.records import (
    Gold,
    Question,
    QuestionRecord,
    StoppedBy,
    round_of_document,
)
from suffice.trace.rounds.schema import records_to_table

if TYPE_CHECKING:
    from suffice.trace.rounds.labels import Label

SUFFIXES = (".db", ".sqlite", ".sqlite3")
NAME = "record.db"
"""What a folder calls its store."""
BUSY_S = 10.0
RESUMED_S = 7 * 86_400.0  # as long as another process may resume a question
ALL = 1 << 62
"""As many as there are."""

# a statement holds for both engines
Connection = Any
RECORDER = "r"
"""Begins the tokens of a recorder's runs; those of live loops are hexadecimal digits."""
OF_RECORDERS = f"token LIKE '{RECORDER}%'"


def store_at(path: str | Path) -> Path | None:
    """Return the store at a path: a database, or the one in a folder; ``None``: none."""
    place = as_place(path)
    if isinstance(place, Address):
        return place
    if place.is_dir():
        return place / NAME if (place / NAME).exists() else None
    return place if place.suffix in SUFFIXES and place.exists() else None


def store_place(record: str | Path) -> Path:
    """Return the place of the record: a server, ``FILE.db``, or ``record.db`` in a folder."""
    place = as_place(record)
    there = store_at(place)
    if there is not None and Store(there).is_recorders():
        raise UsageError(
            f"{there} was written by suffice record, not by live loops; record into another place"
        )
    if isinstance(place, Address) or (place.suffix in SUFFIXES and not place.is_dir()):
        return place
    if place.suffix == ".parquet" or place.is_file():
        raise UsageError(
            f"loops are recorded into a database; write record={place.with_suffix('.db')}, or a folder, "
            f"which then holds {NAME}"
        )
    other = next(place.glob("[!.]*.parquet"), None)
    if other is not None and not (place / NAME).exists():
        raise UsageError(
            f"{place} holds another record ({other.name}); record={place}.db goes beside it, or name another "
            "folder"
        )
    return place / NAME


_EXPORTED = re.compile(r"store-(\w+)-(\d+)")


def exported(files: Iterable[Path]) -> Callable[[str], int]:
    """Return the last exported turn of each run in the Parquet files, by the run's token."""
    turns: dict[str, int] = {}
    for named in filter(None, (_EXPORTED.fullmatch(file.stem) for file in files)):
        turns[named[1]] = max(int(named[2]), turns.get(named[1], 0))
    return lambda token: turns.get(token, 0)


def free_id(wanted: str, taken: Callable[[str], object], *, mark: str = "#") -> str:
    """Return the id, with a number if it is taken, so that no question replaces another."""
    number, name = 1, wanted
    while taken(name):
        number += 1
        name = f"{wanted}{mark}{number}"
    return name


# --- connections -----------------------------------------------------------------------------------
_OPEN: weakref.WeakSet[Store] = weakref.WeakSet()
_forking: list[Any] = []
_one_fork = threading.Lock()


def _before_fork() -> None:
    """Disconnect before a fork: neither SQLite's locks nor a socket survive one."""
    _one_fork.acquire()
    for store in list(_OPEN):
        store.lock.acquire()
        _forking.append(store)
        store.disconnect()


def _after_fork() -> None:
    while _forking:
        _forking.pop().lock.release()
    _one_fork.release()


@cache
def _hook_forks() -> None:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
        )


class Store:
    """A database of questions, rounds and labels for many threads and processes; threads take turns."""

    def __init__(
        self,
        file: str | Path,
        *,
        durable: bool = False,
        stays: bool = False,
        kind: FileKind = STORE,
    ) -> None:
        self.file: Path = as_place(file)
        self.lock: threading.RLock = threading.RLock()
        self.wait_s = BUSY_S
        self._stays = stays
        self.engine: SQLite | PostgreSQL = (
            PostgreSQL(self.file, durable=durable)
            if isinstance(self.file, Address)
            else SQLite(self.file, durable=durable, kind=kind)
        )
        _hook_forks()
        _OPEN.add(self)

    def disconnect(self) -> None:
        """Close the connection; the next transaction opens another."""
        with self.lock:
            self.engine.close()

    @contextmanager
    def transaction(self, *, write: bool = True, alone: bool = True) -> Iterator[Connection]:
        """Begin a transaction: writes succeed together or not at all, reads see one moment."""
        with self.lock, self._named():
            try:
                connection = self.engine.begin(write=write, alone=alone, wait_s=self.wait_s)
                try:
                    yield connection
                    self.engine.commit()
                except BaseException:
                    with suppress(Exception):
                        connection.execute("ROLLBACK")
                    raise
            finally:
                if not self._stays:
                    self.disconnect()

    @property
    def connected(self) -> bool:
        """Whether there was a read or write since a fork."""
        return self.engine.connection is not None

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            with self.engine.named():
                yield
        except DataError as error:
            if error.file is not None:
                raise
            raise DataError(error.message, file=str(self.file), column=error.column) from error
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise DataError(f"is damaged: {error!r:.200}", file=str(self.file)) from error
        except OSError as error:
            raise StorageError(f"{self.file}: {error.strerror or error}") from error

    # --- reading -----------------------------------------------------------------------------------
    def runs(
        self, after: Callable[[str], int] = lambda _: 0, *, dead: bool = True, most: int = ALL
    ) -> list[StoredRun]:
        """Return the questions of each run after some ends, by its token; at most ``most`` per run.

        Unfinished questions of ``dead`` processes come last, and again once somebody ends them.
        """
        with self.transaction(write=False) as connection:
            found = connection.execute("SELECT * FROM runs ORDER BY number").fetchall()
            return [self._run_of(connection, run, after(run[1]), most, dead=dead) for run in found]

    def labels(self, after: int = 0) -> tuple[list[Label], int]:
        """Return the labels after some others, and their number now."""
        from suffice.trace.rounds.labels import read_label

        with self.transaction(write=False) as connection:
            rows = connection.execute(
                "SELECT number, content FROM labels WHERE number > ? ORDER BY number", (after,)
            ).fetchall()
        labels = [read_label(json.loads(content), str(self.file)) for _, content in rows]
        return labels, rows[-1][0] if rows else after

    def run_documents(self) -> list[Mapping[str, Any]]:
        """Return the documents of the runs, the first one first; empty: nothing recorded."""
        rows: list[tuple[str]] = []
        with suppress(NothingThere), self.transaction(write=False) as connection:
            rows = connection.execute("SELECT document FROM runs ORDER BY number").fetchall()
        return [run_document(document, self.file) for (document,) in rows]

    def is_recorders(self) -> bool:
        """Whether a recorder wrote it, and not live loops."""
        if not (self.file.is_file() and self.file.stat().st_size):
            return False
        with self.transaction(write=False) as connection:
            found = connection.execute(f"SELECT 1 FROM runs WHERE {OF_RECORDERS}")  # noqa: S608
            return found.fetchone() is not None

    def label(self, label: Label, instead: str = "keep the right one") -> None:
        """Store a label, unless it says nothing new."""
        from suffice.trace.rounds.labels import Labels, line_of, read_label

        with self.transaction() as connection:
            row = connection.execute(
                f"{_QUESTIONS} WHERE id = ? AND begun IS NOT NULL", (label.question_id,)
            ).fetchone()
            record = None if row is None else _record_of(connection, row, None)
            if record is None:
                raise DataError(
                    f"no round of question {label.question_id!r:.60} is recorded; a loop tells under which "
                    "id its question is recorded (question_id)",
                    column="question_id",
                )
            label = replace(label, question_id=record.question.id)
            rows = records_to_table([record])
            before = connection.execute(
                "SELECT content FROM labels WHERE question = ? ORDER BY number",
                (label.question_id,),
            ).fetchall()
            held = [read_label(json.loads(content), "the record") for (content,) in before]
            known, both = Labels.of(held), Labels.of([*held, label])
            for _, conflict in both.fitted_to(rows).conflicts(rows, "the record", instead):
                raise conflict
            if both.entries.keys() > known.entries.keys():
                connection.execute(
                    "INSERT INTO labels (question, content) VALUES (?, ?)",
                    (label.question_id, line_of(label)),
                )

    # --- whether a process lives -----------------------------------------------------------------------
    def end_the_dead(self, connection: Connection) -> None:
        """End the unfinished questions of dead processes with an error."""
        runs = connection.execute(
            "SELECT DISTINCT r.number, host, process FROM runs r JOIN questions q ON q.run = r.number "
            "WHERE turn IS NULL"
        ).fetchall()
        for number, host, process in runs:
            if not self._lives(connection, number, host, process):
                end_all(connection, number)

    def _lives(self, connection: Connection, run: int, host: str, process: str) -> bool:
        """Whether the process of a run may still run; on other machines, for a time after its last round."""
        if self.engine.holds(run):
            return True
        here = host == platform.node() and os.name == "posix"
        if self.engine.shared:  # machines may have one name, but no boot in common
            here = here and process.split()[1:2] == process_of(os.getpid()).split()[1:2]
        if here:
            return process_of(int(process.split(maxsplit=1)[0])) == process
        (last,) = connection.execute(
            "SELECT max(r.time) FROM rounds r JOIN questions q ON q.number = r.question WHERE q.run = ? "
            "AND q.turn IS NULL",
            (run,),
        ).fetchone()
        return last is None or time.time() - last < self.engine.silent_s

    def _rows_of(self, cell: bytes) -> pa.Table:
        stream = pa.CompressedInputStream(pa.BufferReader(cell), "zstd")
        return pa.ipc.open_stream(at_most(stream, self.file, most_unpacked(len(cell)))).read_all()

    def _run_of(
        self, connection: Connection, run: Sequence[Any], after: int, most: int, *, dead: bool
    ) -> StoredRun:
        number, token, text, host, process = run
        document = run_document(text, self.file)
        if token.startswith(RECORDER):
            cells = connection.execute(
                "SELECT number, rows FROM records WHERE run = ? AND number > ? ORDER BY number LIMIT ?",
                (number, after, most),
            ).fetchall()
            tables = [self._rows_of(cell) for _, cell in cells]
            held = pa.concat_tables(tables).combine_chunks() if cells else pa.table({})
            turn = cells[-1][0] if cells else after
            return StoredRun(token=token, document=document, rows=held, turn=turn)
        rows = connection.execute(
            f"{_QUESTIONS} WHERE run = ? AND turn > ? ORDER BY turn LIMIT ?", (number, after, most)
        ).fetchall()
        turn = rows[-1][-1] if rows else after
        records = [_record_of(connection, row, row[-2]) for row in rows]
        left = connection.execute(f"{_QUESTIONS} WHERE run = ? AND turn IS NULL", (number,))
        under_way = left.fetchall() if dead else []
        if under_way and not self._lives(connection, number, host, process):
            records += [_record_of(connection, row, "error") for row in under_way]
        held = records_to_table(filter(None, records), document)
        return StoredRun(token=token, document=document, rows=held, turn=turn)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A stored run: its document, its questions in order of their end, and the last one's turn.

    The metadata of ``rows`` tell which kind of trace they are.
    """

    token: str
    document: Mapping[str, Any]
    rows: pa.Table
    turn: int

    @property
    def metadata(self) -> dict[bytes, bytes]:
        stated = self.rows.schema.metadata or {}
        return {**stated, RUN_KEY: json.dumps(self.document, sort_keys=True).encode()}


_QUESTIONS = (
    'SELECT number, id, text, type, split, "group", gold_answers, gold_passage_ids, policy_hash, propensity, '
    "stopped_by, turn FROM questions"
)


def _record_of(
    connection: Connection, row: Sequence[Any], stopped_by: StoppedBy | None
) -> QuestionRecord | None:
    number, name, text, kind, split, group, answers, passages, policy, propensity, *_ = row
    rounds = connection.execute(
        "SELECT round, content, score FROM rounds WHERE question = ? ORDER BY round", (number,)
    ).fetchall()
    numbered = {round_: round_of_document(json.loads(content)) for round_, content, _ in rounds}
    closed_book = numbered.pop(0, None)
    if not numbered:
        return None
    return QuestionRecord(
        question=Question(id=name, text=text, type=kind, split=split, group=group),
        gold=Gold(
            answers=tuple(json.loads(answers or "[]")),
            passage_ids=tuple(json.loads(passages or "[]")),
        ),
        rounds=tuple(numbered.values()),
        closed_book=closed_book,
        scores={round_: score for round_, _, score in rounds if score is not None},
        propensity=propensity,
        stopped_by=stopped_by,
        policy_hash=policy,
    )


def resumed(connection: Connection, name: str, run: int, terms: Any) -> QuestionRecord | None:
    """Give a run a question that may be resumed; ``None``: none has that id, policy and propensity."""
    row = connection.execute(
        f"{_QUESTIONS} WHERE id = ? AND turn IS NULL AND ended IS NOT NULL", (name,)
    ).fetchone()
    if row is None or tuple(row[8:10]) != terms:
        return None
    now = (run, time.time(), name)
    connection.execute("UPDATE questions SET run = ?, ended = ? WHERE id = ?", now)
    return _record_of(connection, row, None)


END = (
    "UPDATE questions SET ended = ?, stopped_by = ?, turn = (SELECT coalesce(max(turn), 0) + 1 FROM "
    "questions) WHERE id = ? AND run = ? AND turn IS NULL"
)


def end_all(connection: Connection, run: int) -> None:
    """End the unfinished questions of a run with an error, but those that another process may resume."""
    connection.execute("DELETE FROM questions WHERE run = ? AND begun IS NULL", (run,))
    left = connection.execute(
        "SELECT id FROM questions WHERE run = ? AND turn IS NULL AND (ended IS NULL OR ended < ?)",
        (run, time.time() - RESUMED_S),
    )
    for (name,) in left.fetchall():
        connection.execute(END, (time.time(), "error", name, run))
