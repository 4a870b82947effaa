"""Databases of a store: an SQLite file or a PostgreSQL server, with tables, connection and errors."""

from __future__ import annotations

import ctypes
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from suffice._optional import require
from suffice.errors import DataError, StorageError, UsageError, first_line, keep_secret, plain_file

if TYPE_CHECKING:
    import psycopg

    _Place = Path
else:
    _Place = type(Path())


VERSION = 1
_APPLICATION = 0x53756666
# `turn` counts questions as they end; a reserved name has no `begun`; `ended` without `turn`: may be resumed
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FileKind:
    """A kind of SQLite file: its tables, and remedies for a file of another kind or without room."""

    name: str
    tables: str
    application: int
    version: int = VERSION
    remedy: str = "name another file"
    again: str = ""


STORE = FileKind(name="record of suffice", tables=SCHEMA, application=_APPLICATION)


def refuse_newer(version: int, place: Path, newest: int = VERSION) -> None:
    if version > newest:
        raise DataError(
            f"is a store of version {version}, newer than {newest}, the newest this version reads; "
            "upgrade with: pip install -U suffice",
            file=str(place),
        )


class SQLite:
    """One connection to a database file, made anew after each :meth:`close`."""

    shared = False
    silent_s: float = 86_400.0
    """After how long without a round a process elsewhere counts as gone."""

    def __init__(self, file: Path, *, durable: bool, kind: FileKind = STORE) -> None:
        self.file = file
        self._durable, self._kind = durable, kind
        self.connection: sqlite3.Connection | None = None
        self._wait_s = self._waits = 0.0
        self._identity = self._log = (0, 0)
        self._doubt = self._given_up = False

    def begin(self, *, write: bool, alone: bool, wait_s: float) -> sqlite3.Connection:  # noqa: ARG002
        """Begin a transaction; one process writes at a time, ``alone`` or not."""
        self._wait_s = wait_s
        if self._given_up:
            raise StorageError(f"{self.file}-wal was cut by another program; name another record")
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
        self._note()  # before more is written
        self.connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        return self.connection

    def close(self) -> None:
        if self.connection is not None:
            with suppress(sqlite3.Error):
                self.connection.close()
            self.connection, self._log = None, (0, 0)  # whoever closes it last removes the log

    def commit(self) -> None:
        if self.connection is not None:
            self.connection.execute("COMMIT")
            self._log = self._log_now()

    def settle(self) -> bool:
        """Write what the log beside the file holds into it, so that a copy of the file has all."""
        self._note()
        if self.connection is None or self._doubt:
            return False
        self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        return True

    def in_doubt(self) -> bool:
        """Return, once, whether the log was cut, so that what was committed may be gone."""
        self._note()
        doubt, self._doubt = self._doubt, False
        return doubt

    def _note(self) -> None:
        (number, before), self._log = self._log, self._log_now()
        self._doubt = self._doubt or (self._log[0] == number and self._log[1] < before)

    def copied(self, folder: Path) -> Path:
        """Copy the file and its log into a folder."""
        for end in ("-wal", ""):  # what is written into the file meanwhile stands in the log
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{self.file}{end}", folder / f"copy.db{end}")
        return folder / "copy.db"

    def give_up(self) -> None:
        """Refuse all further work; never close the connection, which would write a cut log into the file."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.connection))
        self.connection, self._given_up = None, True

    def _log_now(self) -> tuple[int, int]:
        log = Path(f"{self.file}-wal")
        return (log.stat().st_ino, log.stat().st_size) if log.exists() else (0, 0)

    def removed(self) -> sqlite3.Connection | None:
        """Return, and forget, the connection to a file that was removed or replaced since."""
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
        """Raise errors of SQLite as ours, with the file."""
        try:
            yield
        except sqlite3.OperationalError as error:
            said = str(error)
            if "locked" in said or "busy" in said:
                said = f"another process held the lock for more than {self._wait_s:g} s; end it, or try again"
            elif "full" in said or "I/O" in said:
                said += "; make room, or name another place"
            elif "unable to open" in said or "readonly" in said:
                said += "; change who may read and write it and its folder"
            raise StorageError(f"{self.file}: {said}{self._kind.again}") from error
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError, OverflowError) as error:
            raise Refused(f"refuses a row: {error}", file=str(self.file)) from error
        except sqlite3.DatabaseError as error:
            raise DataError(
                f"is no {self._kind.name}, or damaged: {error}; {self._kind.remedy}",
                file=str(self.file),
            ) from error

    def hold(self, run: int) -> None:
        """Do nothing: the number of a process tells whether it lives."""

    def holds(self, run: int) -> bool:  # noqa: ARG002
        """Return whether the database knows that the process of a run is there: never."""
        return False

    def size(self, connection: sqlite3.Connection) -> int:
        parts = ("page_count", "freelist_count", "page_size")
        pages, free, size = (connection.execute(f"PRAGMA {part}").fetchone()[0] for part in parts)
        return int((pages - free) * size)

    def shrink(self, connection: sqlite3.Connection) -> None:
        """Give the room of deleted rows back."""
        connection.execute("PRAGMA incremental_vacuum").fetchall()

    def _opened(self, *, write: bool) -> sqlite3.Connection:
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
            version = self._kind.version
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if tables and application != self._kind.application:
            raise DataError(
                f"is a database, but no {self._kind.name}; name another file", file=str(self.file)
            )
        refuse_newer(version, self.file, self._kind.version)
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
            for statement in self._kind.tables.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {self._kind.application}")
            connection.execute(f"PRAGMA user_version = {self._kind.version}")
        connection.execute("COMMIT")


_KEY = 0x53756666
"""Of advisory locks: with 0 of the writer that is alone, with a run's number of its process."""
_TABLES = ("suffice", *re.findall(r"CREATE TABLE (\w+)", SCHEMA))
_TYPES = {
    "INTEGER PRIMARY KEY AUTOINCREMENT": "INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "INTEGER PRIMARY KEY": "INTEGER GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "REAL": "DOUBLE PRECISION",
}
_FORM = "postgresql://USER@HOST:PORT/DATABASE"

# --- addresses -------------------------------------------------------------------------------------
_passwords: dict[str, str] = {}  # of this process, by address without it
_ADDRESS = re.compile(r"postgres(?:ql)?:(/+)(.*)", re.DOTALL)
_HOST = r"(?:\[[\da-fA-F:.]+\]|[\w.-]*)(?::\d+)?"
_HOSTS = re.compile(f"{_HOST}(?:,{_HOST})*")
_PASSWORD = re.compile(r"(?<![^?&])password=([^&]*)&?")


class Address(_Place):
    """The address of a database on a server, where a path is wanted; no password stands in it."""

    def __str__(self) -> str:
        rest = super().__str__().replace("\\", "/").partition(":/")[2]
        host = "/" in rest.partition("?")[0]
        return f"postgresql:{'//' if host else '///'}{rest}"


def as_place(record: str | Path) -> Path:
    """Return a path, or the address of a database; its password is kept apart."""
    if not isinstance(record, str | Path):
        raise UsageError(f"a record is named by its path, found {type(record).__name__}")
    found = _ADDRESS.fullmatch(str(record))
    if found is None:
        return Path(record)
    head, mark, query = found[2].partition("?")
    authority, slash, database = head.partition("/")
    if not slash and found[1] != "//":  # a server of this machine, by its socket
        authority, database = "", authority
    user, at, hosts = authority.rpartition("@")
    user, _, password = user.partition(":")
    odd = "/" in database or "@" in user or "\\" in found[2]
    if not database or odd or not _HOSTS.fullmatch(hosts):
        raise UsageError(
            f"the address of a database is {_FORM}, and what follows its scheme is none; in a user or a "
            "password write / as %2F, @ as %40, and : as %3A"
        )
    if stated := _PASSWORD.search(query):
        password, query = stated[1], _PASSWORD.sub("", query).rstrip("&")
    rest = f"{user}{at}{hosts}/{database}".lstrip("/")
    address = Address(f"postgresql:/{rest}{mark and query and '?'}{query}")
    if password:
        keep_secret(password)
        keep_secret(unquote(password))
        _passwords[str(address)] = unquote(password)
    return address


def named_address(address: Address, file: Path) -> str:
    """Return an address that a file names, of allowed hosts, without settings beside ``options``."""
    from suffice.foreign import check_host

    own = str(address)
    driver = require("psycopg", extra="postgres", purpose="a database's address")
    try:  # as the driver reads it, since that decides where it connects
        parts = driver.conninfo.conninfo_to_dict(own)
        if str(as_place(own)) != own:
            raise ValueError(f"{own!r:.200} has another spelling")  # noqa: TRY301
    except (driver.Error, ValueError) as error:
        raise DataError(f"names no database: {first_line(error)}", file=str(file)) from error
    if further := parts.keys() - {"user", "host", "port", "dbname", "options"}:
        said = f"an address in a file may set options= only, found {', '.join(sorted(further))}"
        raise DataError(said, file=str(file))
    for host in filter(None, str(parts.get("host") or "").split(",")):
        check_host(host, file)
    return own


# --- connections -----------------------------------------------------------------------------------
class Connection:
    """A connection that takes the statements of SQLite."""

    def __init__(self, raw: psycopg.Connection[tuple[Any, ...]]) -> None:
        self.raw = raw

    def execute(self, statement: str, row: Sequence[Any] = ()) -> psycopg.Cursor[tuple[Any, ...]]:
        """Run a statement; texts lose what PostgreSQL cannot hold."""
        cells = [cell.replace("\0", "�") if isinstance(cell, str) else cell for cell in row]
        return self.raw.execute(_statement(statement), cells or None)


@cache
def _statement(text: str) -> bytes:
    return (text.replace("%", "%%").replace("?", "%s") if "?" in text else text).encode()


class PostgreSQL:
    """One connection to a server, made anew after each :meth:`close`, and once where it was cut."""

    shared = True
    silent_s: float = 3_600.0
    """After how long without a round a process elsewhere counts as gone, once its connection is."""

    def __init__(self, address: Address, *, durable: bool) -> None:
        self._address, self._durable = address, durable
        self._driver: Any = require(
            "psycopg", extra="postgres", purpose="recording into PostgreSQL"
        )
        self.connection: Connection | None = None
        self._wait_s, self._anew = 0.0, False
        self._held: set[int] = set()

    def begin(self, *, write: bool, alone: bool, wait_s: float) -> Connection:
        """Begin a transaction; of those that write ``alone`` one does at a time."""
        self._wait_s = wait_s
        if self.connection is not None:
            try:
                return self._begun(self.connection, write=write, alone=alone)
            except self._driver.errors.LockNotAvailable:
                raise
            except self._driver.OperationalError:  # cut since
                self.close()
        self.connection = self._opened(write=write)
        return self._begun(self.connection, write=write, alone=alone)

    def _begun(self, connection: Connection, *, write: bool, alone: bool) -> Connection:
        begin = "BEGIN" if write else "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
        if write and alone:
            wait_ms = max(1, round(1000 * self._wait_s))
            begin += (
                f"; SET LOCAL lock_timeout = {wait_ms}; SELECT pg_advisory_xact_lock({_KEY}, 0)"
            )
        try:
            connection.execute(begin)
        except BaseException:
            with suppress(self._driver.Error):
                connection.execute("ROLLBACK")
            raise
        return connection

    def close(self) -> None:
        if self.connection is not None:
            with suppress(self._driver.Error):
                self.connection.raw.close()
            self.connection, self._anew = None, True
        self._held.clear()

    def commit(self) -> None:
        if self.connection is not None:
            self.connection.execute("COMMIT")

    def in_doubt(self) -> bool:
        """Return, once, whether the server was away: a crash may have lost what it committed last."""
        doubt = self._anew and self.connection is not None
        self._anew = self._anew and not doubt
        return doubt

    def removed(self) -> sqlite3.Connection | None:
        """Return ``None``: nobody removes a server's tables under a connection."""
        return None

    def hold(self, run: int) -> None:
        """Show others that the process of a run is there, as long as it is connected."""
        if self.connection is not None and run not in self._held:
            self.connection.execute("SELECT pg_advisory_lock_shared(?, ?)", (_KEY, run))
            self._held.add(run)

    def holds(self, run: int) -> bool:
        """Return whether the process of a run is connected."""
        found = self.connection and self.connection.execute(
            "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = ? AND objid = ? AND granted "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            (_KEY, run),
        )
        return bool(found and found.fetchone())

    def size(self, connection: Connection) -> int:
        """Return the bytes of rounds; PostgreSQL frees their room later and uses it again."""
        rows = connection.execute("SELECT coalesce(sum(length(content)), 0) FROM rounds")
        return int((rows.fetchone() or (0,))[0])

    def shrink(self, connection: Connection) -> None:
        """Do nothing: the server does so by itself."""

    def _opened(self, *, write: bool) -> Connection:
        own = str(self._address)
        secret = {"password": _passwords[own]} if own in _passwords else {}
        raw = self._driver.connect(
            own, **secret, autocommit=True, client_encoding="utf8", fallback_application_name="suffice",
            connect_timeout=max(2, round(self._wait_s)), keepalives_idle=10, keepalives_interval=5,
            keepalives_count=3, tcp_user_timeout=10_000,
        )  # fmt: skip
        try:
            self._prepare(Connection(raw), write=write)
        except BaseException:
            raw.close()
            raise
        return Connection(raw)

    def _prepare(self, connection: Connection, *, write: bool) -> None:
        commit = "on" if self._durable else "off"
        wait_ms = round(1000 * max(1.0, self._wait_s))
        connection.execute(f"SET synchronous_commit = {commit}; SET lock_timeout = {wait_ms}")
        if not self._is_ours(connection):
            if not write:
                raise NothingThere(
                    "holds no record yet; it does once a loop is recorded there",
                    file=str(self._address),
                )
            self._begun(connection, write=True, alone=True)
            if not self._is_ours(connection):
                connection.execute(_schema())
            connection.execute("COMMIT")
        version = connection.execute("SELECT version FROM suffice").fetchone()
        refuse_newer(0 if version is None else version[0], self._address)

    def _is_ours(self, connection: Connection) -> bool:
        """Return whether our tables are there; tables of others beside them do no harm."""
        rows = connection.execute(
            "SELECT relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace "
            "WHERE nspname = current_schema() AND relname = ANY (?)",
            [[*_TABLES]],
        ).fetchall()
        there = {name for (name,) in rows}
        if there and _TABLES[0] not in there:
            raise DataError(
                f"holds a table {min(there)} that is not of suffice; name another database, or a schema by "
                "?options=-csearch_path%3DSCHEMA",
                file=str(self._address),
            )
        return bool(there)

    # --- errors --------------------------------------------------------------------------------------
    @contextmanager
    def named(self) -> Iterator[None]:
        errors = self._driver.errors
        try:
            yield
        except errors.LockNotAvailable as error:
            raise StorageError(
                f"{self._address}: another process held the lock for more than {self._wait_s:g} s; end it, "
                "or try again"
            ) from error
        except (self._driver.IntegrityError, self._driver.DataError, OverflowError) as error:
            raise Refused(f"refuses a row: {first_line(error)}", file=str(self._address)) from error
        except self._driver.Error as error:
            self.close()
            said = " ".join(str(error).split())
            wrong = "authentication failed", "no password supplied", "does not exist"
            if self.connection is None and any(words in said for words in wrong):
                raise UsageError(
                    f"{self._address}: {said}; an address is {_FORM}, the password may stand in PGPASSWORD "
                    "or ~/.pgpass, and createdb DATABASE makes a database"
                ) from error
            raise StorageError(f"{self._address}: {said}") from error


@cache
def _schema() -> str:
    text = SCHEMA
    for own, theirs in _TYPES.items():
        text = text.replace(own, theirs)
    return f"CREATE TABLE suffice AS SELECT {VERSION} AS version;{text}"
