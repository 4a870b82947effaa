"""A PostgreSQL server of the tests: on loopback, in a temporary folder, with a database for each test."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PASSWORD = "not-to-be-told"


class NoServer(Exception):  # noqa: N818
    """Why no server can be started here."""


class Server:
    """It runs until it is stopped, and can be started again with what it holds."""

    def __init__(self, folder: Path) -> None:
        found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
        initdb = found[-1] if found else shutil.which("initdb")
        if initdb is None:
            raise NoServer("PostgreSQL is not installed; type: make postgres")
        self._bin, self._folder = Path(initdb).parent, folder
        self._as: list[str] = []
        if os.geteuid() == 0:  # it refuses root
            if shutil.which("setpriv") is None:
                raise NoServer("PostgreSQL refuses root, and setpriv is not there")
            user = "nobody"
            with suppress(KeyError):
                user = pwd.getpwnam("postgres").pw_name
            self._as = ["setpriv", f"--reuid={user}", "--clear-groups"]
            shutil.chown(folder, user)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        secret = folder / "password"
        secret.write_text(PASSWORD)
        words = f"-D data -U ann -A scram-sha-256 --pwfile={secret} -E UTF8 --locale=C --no-sync"
        self._run("initdb", *words.split())
        self.start()
        self._names = (f"loops{number}" for number in itertools.count())

    def _run(self, program: str, *words: str) -> None:
        done = subprocess.run(
            [*self._as, str(self._bin / program), *words],
            cwd=self._folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise NoServer(f"{program}: {done.stderr.strip() or done.stdout.strip()}")

    def start(self) -> None:
        """Until it answers."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -c fsync=off -k {self._folder}"
        self._run("pg_ctl", "-D", "data", "-w", "-l", "log", "-o", options, "start")

    def stop(self, how: str = "fast") -> None:
        """Connections are cut; ``immediate``: as a crash does."""
        self._run("pg_ctl", "-D", "data", "-w", "-m", how, "stop")

    def address(self, database: str) -> str:
        """With the password."""
        return f"postgresql://ann:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def database(self, *settings: str) -> str:
        """The address of a new one."""
        name = next(self._names)
        self.ask("postgres", f"CREATE DATABASE {name} {' '.join(settings)}")
        return self.address(name)

    def ask(self, database: str, *statements: str) -> Sequence[tuple[object, ...]]:
        """The rows of the last of some statements."""
        import psycopg

        rows: Sequence[tuple[object, ...]] = []
        name = database.rpartition("/")[2]
        with psycopg.connect(self.address(name), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement.encode())
                rows = cursor.fetchall() if cursor.description else []
        return rows

    def cut(self) -> None:
        """End every connection."""
        self.ask(
            "postgres",
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
            "AND backend_type = 'client backend'",
        )


@contextmanager
def serving() -> Iterator[Server]:
    """A server while the block runs."""
    folder = Path(tempfile.mkdtemp(prefix="suffice-postgres-"))
    try:
        server = Server(folder)
        try:
            yield server
        finally:
            with suppress(NoServer):
                server.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
