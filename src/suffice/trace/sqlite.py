"""The SQLite file of a store: its schema, how it is opened, and what its errors mean."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from suffice.errors import DataError, StorageError, plain_file

VERSION = 1
_APPLICATION = 0x53756666
# `turn` counts questions in the order in which they ended; a reserved name has no `begun`
SCHEMA = """
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


class Refused(DataError):  # noqa: N818 - reads as what it is
    """The database refuses a row: another one has its place, or its values do not fit."""


class NothingThere(DataError):  # noqa: N818
    """Nothing was recorded there yet."""


def refuse_newer(version: int, place: Path) -> None:
    """Refuse a store of a later version."""
    if version > VERSION:
        raise DataError(
            f"is a store of version {version}, newer than {VERSION}, the newest this version reads; "
            "upgrade with: pip install -U suffice",
            file=str(place),
        )


class SQLite:
    """One connection to a database file, made anew after each :meth:`close`."""

    shared = False
    silent_s = 86_400.0
    """After how long without a round a process elsewhere counts as gone."""

    def __init__(self, file: Path, *, durable: bool) -> None:
        self.file, self._durable = file, durable
        self.connection: sqlite3.Connection | None = None
        self._wait_s = self._waits = 0.0
        self._identity = (0, 0)

    def begin(self, *, write: bool, alone: bool, wait_s: float) -> sqlite3.Connection:  # noqa: ARG002
        """A connection in a transaction; one writes at a time, ``alone`` or not."""
        self._wait_s = wait_s
        if self.connection is None:
            if write:
                self.file.parent.mkdir(parents=True, exist_ok=True)
            elif not self.file.exists() or not plain_file(self.file).stat().st_size:
                raise NothingThere("no such file, or an empty one", file=str(self.file))
            if self.file.exists():
                plain_file(self.file)
            self.connection, self._waits = self._opened(write=write), wait_s
            known = self.file.stat()
            self._identity = (known.st_dev, known.st_ino)
        if self._waits != wait_s:
            self.connection.execute(f"PRAGMA busy_timeout = {round(1000 * wait_s)}")
            self._waits = wait_s
        self.connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        return self.connection

    def close(self) -> None:
        """Close the connection."""
        if self.connection is not None:
            with suppress(sqlite3.Error):
                self.connection.close()
            self.connection = None

    def removed(self) -> sqlite3.Connection | None:
        """The connection to a file that was removed, or replaced, under it; it is forgotten here."""
        if self.connection is None:
            return None
        with suppress(OSError):
            known = self.file.stat()
            if (known.st_dev, known.st_ino) == self._identity:
                return None
        old, self.connection = self.connection, None
        return old

    @contextmanager
    def named(self) -> Iterator[None]:
        """Errors of SQLite as ours, with the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            said = str(error)
            if "locked" in said or "busy" in said:
                said = f"another process held the lock for more than {self._wait_s:g} s; end it, or try again"
            elif "full" in said or "I/O" in said:
                said += "; make room, or name another place"
            elif "unable to open" in said:
                said += "; change who may read and write it and its folder"
            raise StorageError(f"{self.file}: {said}") from error
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError, OverflowError) as error:
            raise Refused(f"refuses a row: {error}", file=str(self.file)) from error
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"is no record of suffice, or damaged: {error}; name another file",
                file=str(self.file),
            ) from error

    def hold(self, run: int) -> None:
        """Nothing: that a process lives is told by its number."""

    def holds(self, run: int) -> bool:  # noqa: ARG002
        """Whether the process of a run is surely there, as the database knows it."""
        return False

    def size(self, connection: sqlite3.Connection) -> int:
        """Bytes of pages in use."""
        parts = ("page_count", "freelist_count", "page_size")
        pages, free, size = (connection.execute(f"PRAGMA {part}").fetchone()[0] for part in parts)
        return int((pages - free) * size)

    def shrink(self, connection: sqlite3.Connection) -> None:
        """Give the room of what was deleted back."""
        connection.execute("PRAGMA incremental_vacuum").fetchall()

    def _opened(self, *, write: bool) -> sqlite3.Connection:
        """A connection, to write or else, where the folder lets nothing be made, to read."""
        quoted = f"{self.file.absolute().as_uri()}?mode="
        modes = ["rwc"] if write else ["rw", "ro", "ro&immutable=1"]
        while True:
            connection = sqlite3.connect(
                quoted + modes.pop(0),
                uri=True, timeout=self._wait_s, isolation_level=None, check_same_thread=False,
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
        refuse_newer(version, self.file)
        # seldom, since a loop waits for it: 16 MB
        connection.execute("PRAGMA wal_autocheckpoint = 4000")
        connection.execute(f"PRAGMA synchronous = {'FULL' if self._durable else 'NORMAL'}")

    def _create(self, connection: sqlite3.Connection) -> None:
        until = time.monotonic() + self._wait_s
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
            for statement in SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
