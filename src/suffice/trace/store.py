"""The database that keeps what loops did: questions, rounds, labels and the runs that recorded them."""

from __future__ import annotations

import json
import os
import platform
import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffice.errors import DataError, StorageError, UsageError, plain_file
from suffice.trace.rounds.records import (
    Gold,
    Question,
    QuestionRecord,
    StoppedBy,
    round_of_document,
)

if TYPE_CHECKING:
    from suffice.trace.rounds.labels import Label

VERSION = 1
SUFFIXES = (".db", ".sqlite", ".sqlite3")
NAME = "record.db"
"""What a folder calls its store."""
_APPLICATION = 0x53756666
_HEADER = b"SQLite format 3\0"
BUSY_S = 10.0
_DAY_S = 86_400.0
RECORDER = "r"
"""Begins the tokens of a recorder's runs; those of live loops are hexadecimal digits."""
OF_RECORDERS = f"token LIKE '{RECORDER}%'"
# `turn` counts questions in the order in which they ended; a reserved name has no `begun`
_SCHEMA = """
CREATE TABLE runs (
    number INTEGER PRIMARY KEY, token TEXT NOT NULL UNIQUE, document TEXT NOT NULL, host TEXT NOT NULL,
    process TEXT NOT NULL);
CREATE TABLE questions (
    number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, run INTEGER NOT NULL REFERENCES runs, text TEXT,
    type TEXT, split TEXT, "group" TEXT, gold_answers TEXT, gold_passage_ids TEXT, policy_hash TEXT,
    propensity REAL, explored INTEGER, begun REAL, ended REAL, stopped_by TEXT, turn INTEGER UNIQUE);
CREATE INDEX questions_of_run ON questions (run, turn);
CREATE TABLE rounds (
    question INTEGER NOT NULL REFERENCES questions ON DELETE CASCADE, round INTEGER NOT NULL,
    content TEXT NOT NULL, score REAL, time REAL, UNIQUE (question, round));
CREATE TABLE labels (
    number INTEGER PRIMARY KEY AUTOINCREMENT, question TEXT NOT NULL, content TEXT NOT NULL);
CREATE INDEX labels_of_question ON labels (question);
"""


def store_at(path: str | Path) -> Path | None:
    """The store that a path names: a database, or the one in a folder; ``None``: there is none."""
    place = Path(path)
    if place.is_dir():
        return place / NAME if (place / NAME).exists() else None
    return place if place.suffix in SUFFIXES and place.exists() else None


def store_place(record: str | Path) -> Path:
    """Where loops are recorded: ``FILE.db``, or ``record.db`` in a folder that holds no other record."""
    place = Path(record)
    there = store_at(place)
    if there is not None and Store(there).is_recorders():
        raise UsageError(
            f"{there} was written by suffice record, not by live loops; record into another place"
        )
    if place.suffix in SUFFIXES and not place.is_dir():
        return place
    if place.suffix == ".parquet" or place.is_file():
        raise UsageError(
            f"loops are recorded into a database; write record={place.with_suffix('.db')}, or a folder, "
            f"which then holds {NAME}"
        )
    other = next(iter((*place.glob("[!.]*.parquet"), *place.glob("watch-*.jsonl"))), None)
    if other is not None and not (place / NAME).exists():
        old = other.name.startswith("watch-")
        how = (
            f"suffice traces import --format watch-1 {place} --out NEW" if old else "another folder"
        )
        raise UsageError(
            f"{place} holds another record ({other.name}); record={place}.db goes beside it"
            + (f", and the old one is read once more by: {how}" if old else f", or name {how}")
        )
    return place / NAME


_EXPORTED = re.compile(r"store-(\w+)-(\d+)")


def exported(files: Iterable[Path]) -> Callable[[str], int]:
    """Up to which turn Parquet files hold the questions of a run, by its token."""
    turns: dict[str, int] = {}
    for named in filter(None, (_EXPORTED.fullmatch(file.stem) for file in files)):
        turns[named[1]] = max(int(named[2]), turns.get(named[1], 0))
    return lambda token: turns.get(token, 0)


def free_id(wanted: str, taken: Callable[[str], object]) -> str:
    """The id, or with a number where it is taken: nothing recorded is dropped for its name.

    >>> free_id("q1", {"q1", "q1#2"}.__contains__)
    'q1#3'
    """
    number, name = 1, wanted
    while taken(name):
        number += 1
        name = f"{wanted}#{number}"
    return name


# --- connections -----------------------------------------------------------------------------------
_OPEN: weakref.WeakSet[Store] = weakref.WeakSet()
_forking: list[Any] = []
_one_fork = threading.Lock()


def _before_fork() -> None:
    """SQLite's locks do not outlive a fork, so nobody is connected during one."""
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
    """An SQLite database of questions, rounds and labels; many threads and processes may use it.

    Threads take turns. A fork closes the connection first.
    """

    def __init__(self, file: Path, *, durable: bool = False, stays: bool = False) -> None:
        self.file = file
        self.lock = threading.RLock()
        self.wait_s = self._waits = BUSY_S
        self._durable, self._stays = durable, stays
        self._connection: sqlite3.Connection | None = None
        self._identity = (0, 0)
        _hook_forks()
        _OPEN.add(self)

    def disconnect(self) -> None:
        """Close the connection; the next transaction opens another."""
        with self.lock:
            if self._connection is not None:
                with suppress(sqlite3.Error):
                    self._connection.close()
                self._connection = None

    @contextmanager
    def transaction(self, *, write: bool = True) -> Iterator[sqlite3.Connection]:
        """All or nothing of what is written; reading sees one moment."""
        with self.lock, self._named():
            connection = self._connected(write=write)
            try:
                if self._waits != self.wait_s:
                    connection.execute(f"PRAGMA busy_timeout = {round(1000 * self.wait_s)}")
                    self._waits = self.wait_s
                connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
                yield connection
                connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    connection.execute("ROLLBACK")
                raise
            finally:
                if not self._stays:
                    self.disconnect()

    @property
    def connected(self) -> bool:
        """Whether anything was read or written since a fork."""
        return self._connection is not None

    def removed(self) -> sqlite3.Connection | None:
        """The connection to a file that was removed, or replaced, under it; it is forgotten here."""
        if self._connection is None:
            return None
        with suppress(OSError):
            known = self.file.stat()
            if (known.st_dev, known.st_ino) == self._identity:
                return None
        old, self._connection = self._connection, None
        return old

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Errors of SQLite as ours, with the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            said = str(error)
            if "locked" in said or "busy" in said:
                said = f"another process held the lock for more than {self.wait_s:g} s; end it, or try again"
            elif "full" in said or "I/O" in said:
                said += "; make room, or name another place"
            elif "unable to open" in said:
                said += "; change who may read and write it and its folder"
            raise StorageError(f"{self.file}: {said}") from error
        except sqlite3.DatabaseError as error:
            if isinstance(error, sqlite3.IntegrityError | sqlite3.ProgrammingError):
                raise
            raise DataError(
                f"is no record of suffice, or damaged: {error}; name another file",
                file=str(self.file),
            ) from error
        except DataError as error:
            if error.file is not None:
                raise
            raise DataError(error.message, file=str(self.file), column=error.column) from error
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise DataError(f"is damaged: {error!r:.200}", file=str(self.file)) from error
        except OSError as error:
            raise StorageError(f"{self.file}: {error.strerror or error}") from error

    def _connected(self, *, write: bool) -> sqlite3.Connection:
        if self._connection is None:
            if write:
                self.file.parent.mkdir(parents=True, exist_ok=True)
            elif not self.file.exists() or not plain_file(self.file).stat().st_size:
                raise DataError("no such file, or an empty one", file=str(self.file))
            if self.file.exists():
                plain_file(self.file)
            self._connection, self._waits = self._opened(write=write), self.wait_s
            known = self.file.stat()
            self._identity = (known.st_dev, known.st_ino)
        return self._connection

    def _opened(self, *, write: bool) -> sqlite3.Connection:
        """A connection, to write or else, where the folder lets nothing be made, to read."""
        quoted = f"{self.file.absolute().as_uri()}?mode="
        modes = ["rwc"] if write else ["rw", "ro", "ro&immutable=1"]
        while True:
            connection = sqlite3.connect(
                quoted + modes.pop(0),
                uri=True, timeout=self.wait_s, isolation_level=None, check_same_thread=False,
            )  # fmt: skip
            try:
                self._prepare(connection)
            except sqlite3.OperationalError as error:
                connection.close()
                if not modes or "locked" in str(error):
                    raise
            except BaseException:
                connection.close()
                raise
            else:
                return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA foreign_keys = ON")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if not tables:
            self._create(connection)
            version = VERSION
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if tables and application != _APPLICATION:
            raise DataError(
                "is a database, but no record of suffice; name another file", file=str(self.file)
            )
        if version > VERSION:
            raise DataError(
                f"is a store of version {version}, newer than {VERSION}, the newest this version reads; "
                "upgrade with: pip install -U suffice",
                file=str(self.file),
            )
        # seldom, since a loop waits for it: 16 MB
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")

    def _create(self, connection: sqlite3.Connection) -> None:
        until = time.monotonic() + self.wait_s
        while True:  # changing the mode waits for nobody
            try:
                connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
                connection.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.01)
        connection.execute("BEGIN IMMEDIATE")
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,):
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")

    # --- reading -----------------------------------------------------------------------------------
    def runs(
        self, after: Callable[[str], int] = lambda _: 0, *, dead: bool = True, most: int = -1
    ) -> list[StoredRun]:
        """What each run recorded after so many ends, by its token; of a run ``most`` questions, -1: all.

        ``dead``: also what a process that is gone had not finished, which ended in error.
        """
        with self.transaction(write=False) as connection:
            found = connection.execute("SELECT * FROM runs ORDER BY number").fetchall()
            return [_run_of(connection, run, after(run[1]), most, dead=dead) for run in found]

    def labels(self, after: int = 0) -> tuple[list[Label], int]:
        """Labels that came after so many others, and how many there are now."""
        from suffice.trace.rounds.labels import read_label

        with self.transaction(write=False) as connection:
            rows = connection.execute(
                "SELECT number, content FROM labels WHERE number > ? ORDER BY number", (after,)
            ).fetchall()
        labels = [read_label(json.loads(content), str(self.file)) for _, content in rows]
        return labels, rows[-1][0] if rows else after

    def run_documents(self) -> list[Mapping[str, Any]]:
        """What the runs say of themselves, the first one first; none where nothing is recorded."""
        if not (self.file.exists() and plain_file(self.file).stat().st_size):
            return []
        with self.transaction(write=False) as connection:
            rows = connection.execute("SELECT document FROM runs ORDER BY number").fetchall()
        return [json.loads(document) for (document,) in rows]

    def is_recorders(self) -> bool:
        """Whether a recorder wrote it, and not live loops."""
        if not (self.file.is_file() and self.file.stat().st_size):
            return False
        with self.transaction(write=False) as connection:
            found = connection.execute(f"SELECT 1 FROM runs WHERE {OF_RECORDERS}")  # noqa: S608
            return found.fetchone() is not None

    def stamp(self) -> tuple[int, int]:
        """What tells it from what it was before and will be: questions that ended, and labels."""
        recorders = self.is_recorders()
        with self.transaction(write=False) as connection:
            if recorders:
                rows = connection.execute("SELECT coalesce(max(number), 0) FROM records")
                return int(rows.fetchone()[0]), 0
            rows = connection.execute(
                "SELECT coalesce(max(turn), 0), (SELECT coalesce(max(number), 0) FROM labels) FROM questions"
            )
            return tuple(rows.fetchone())

    # --- labels and retention ------------------------------------------------------------------------
    def label(self, label: Label, instead: str = "keep the right one") -> None:
        """Keep what became known of a question, unless it says nothing new."""
        from suffice.trace.rounds.labels import Labels, line_of, read_label
        from suffice.trace.rounds.writer import records_to_table

        with self.transaction() as connection:
            row = connection.execute(
                f"{_QUESTIONS} WHERE id = ? AND begun IS NOT NULL", (label.question_id,)
            ).fetchone()
            record = None if row is None else _record_of(connection, row, None)
            if record is None:
                raise DataError(
                    f"no round of question {label.question_id!r:.60} is recorded in {self.file}; a loop "
                    "tells under which id its question is recorded (question_id)",
                    column="question_id",
                )
            rows = records_to_table([record])
            before = connection.execute(
                "SELECT content FROM labels WHERE question = ? ORDER BY number",
                (label.question_id,),
            ).fetchall()
            held = [read_label(json.loads(content), str(self.file)) for (content,) in before]
            known, both = Labels.of(held), Labels.of([*held, label])
            for _, conflict in both.fitted_to(rows).conflicts(rows, str(self.file), instead):
                raise conflict
            if both.entries.keys() > known.entries.keys():
                connection.execute(
                    "INSERT INTO labels (question, content) VALUES (?, ?)",
                    (label.question_id, line_of(label)),
                )

    def prune(self, before: float | None, most_bytes: float | None, *, dry: bool) -> Pruned:
        """Remove the questions that ended before a POSIX time, then the oldest until the rest fits.

        The one that ended last stays, since the next is counted from it.
        """
        gone = held = 0
        with self.transaction() as connection:
            (kept,) = connection.execute("SELECT coalesce(max(turn), 0) FROM questions").fetchone()
            rows = connection.execute(
                "SELECT number, ended, (SELECT sum(length(content)) FROM rounds WHERE question = number) "
                "FROM questions WHERE turn < ? ORDER BY turn",
                (kept,),
            ).fetchall()
            size = _bytes_of(connection)
            over = 0.0 if most_bytes is None else size - most_bytes
            for number, ended, taken in rows:
                if not ((before is not None and ended < before) or held < over):
                    continue
                gone, held = gone + 1, held + (taken or 0)
                if not dry:
                    connection.execute(
                        "DELETE FROM labels WHERE question = (SELECT id FROM questions WHERE number = ?)",
                        (number,),
                    )
                    connection.execute("DELETE FROM questions WHERE number = ?", (number,))
            if gone and not dry:
                connection.execute("PRAGMA incremental_vacuum").fetchall()
                size = _bytes_of(connection)
        return Pruned(questions=gone, bytes=held, bytes_left=size - (held if dry else 0))


def _bytes_of(connection: sqlite3.Connection) -> int:
    parts = ("page_count", "freelist_count", "page_size")
    pages, free, size = (connection.execute(f"PRAGMA {part}").fetchone()[0] for part in parts)
    return int((pages - free) * size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was removed, or would be: questions and the bytes of their rounds, and the bytes that are left."""

    questions: int
    bytes: int
    bytes_left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """What a run recorded: its document, questions in the order in which they ended, the last one's turn."""

    token: str
    document: Mapping[str, Any]
    records: tuple[QuestionRecord, ...]
    turn: int = 0


_QUESTIONS = (
    'SELECT number, id, text, type, split, "group", gold_answers, gold_passage_ids, policy_hash, propensity, '
    "stopped_by, turn FROM questions"
)


def _run_of(
    connection: sqlite3.Connection, run: Sequence[Any], after: int, most: int, *, dead: bool
) -> StoredRun:
    number, token, document, host, process = run
    rows = connection.execute(
        f"{_QUESTIONS} WHERE run = ? AND turn > ? ORDER BY turn LIMIT ?", (number, after, most)
    ).fetchall()
    turn = rows[-1][-1] if rows else after
    records = [_record_of(connection, row, row[-2]) for row in rows]
    left = connection.execute(f"{_QUESTIONS} WHERE run = ? AND turn IS NULL", (number,)).fetchall()
    if dead and left and not _is_alive(connection, number, host, process):
        records += [_record_of(connection, row, "error") for row in left]
    return StoredRun(
        token=token,
        document=json.loads(document),
        records=tuple(record for record in records if record is not None),
        turn=turn,
    )


def _record_of(
    connection: sqlite3.Connection, row: Sequence[Any], stopped_by: StoppedBy | None
) -> QuestionRecord | None:
    """A question with its rounds; ``None``: it has none."""
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


# --- whether a process lives -------------------------------------------------------------------------
def process_of(number: int) -> str:
    """What tells a process of this machine from others, and from a later one of its number; empty: gone."""
    if os.name != "posix":
        return str(number)
    try:
        started = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, IndexError):
        if Path("/proc/self/stat").exists():
            return ""
    else:
        return f"{number} {boot} {started}"
    with suppress(PermissionError):
        try:
            os.kill(number, 0)
        except (ProcessLookupError, OverflowError):
            return ""
    return str(number)


def _is_alive(connection: sqlite3.Connection, run: int, host: str, process: str) -> bool:
    """Whether the process of a run may still go on; one elsewhere for a day after its last round."""
    if host == platform.node() and os.name == "posix":
        return process_of(int(process.split(maxsplit=1)[0])) == process
    (last,) = connection.execute(
        "SELECT max(r.time) FROM rounds r JOIN questions q ON q.number = r.question WHERE q.run = ? "
        "AND q.turn IS NULL",
        (run,),
    ).fetchone()
    return last is None or time.time() - last < _DAY_S


END = (
    "UPDATE questions SET ended = ?, stopped_by = ?, turn = (SELECT coalesce(max(turn), 0) + 1 FROM "
    "questions) WHERE id = ? AND run = ? AND turn IS NULL"
)


def end_the_dead(connection: sqlite3.Connection) -> None:
    """What processes that are gone had not finished ended in error."""
    runs = connection.execute(
        "SELECT DISTINCT r.number, host, process FROM runs r JOIN questions q ON q.run = r.number "
        "WHERE turn IS NULL"
    ).fetchall()
    for number, host, process in runs:
        if not _is_alive(connection, number, host, process):
            end_all(connection, number)


def end_all(connection: sqlite3.Connection, run: int) -> None:
    """What a run had not finished ended in error."""
    connection.execute("DELETE FROM questions WHERE run = ? AND begun IS NULL", (run,))
    left = connection.execute("SELECT id FROM questions WHERE run = ? AND turn IS NULL", (run,))
    for (name,) in left.fetchall():
        connection.execute(END, (time.time(), "error", name, run))
