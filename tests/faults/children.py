"""Commands in processes of their own, under conditions, which start in milliseconds.

A forked child finds everything imported; it runs ``suffice.cli.main`` with descriptors, limits, clock and
environment of its own, and ends as an interpreter does.
"""

from __future__ import annotations

import atexit
import ctypes
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from itertools import cycle
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from suffice.cli.main import COMMANDS, main

_WATCHING = ("pytest", "pyarrow.parquet", "numpy", "suffice.live.watch", __name__)
_COMMANDS = (
    *("pyarrow.compute", "pyarrow.dataset", "scipy.stats", "scipy.optimize", "bm25s", "sqlite3"),
    *("sklearn.feature_extraction.text", "openai", "torch._dynamo", "safetensors.torch"),
    *(
        "suffice.testing.models",
        *{f"suffice.cli.commands.{module}" for module, _ in COMMANDS.values()},
    ),
)
_CONTEXT = multiprocessing.get_context("forkserver")


def import_once(*, commands: bool) -> None:
    """Say, before the first child, what children find imported: what watches loops, or every command."""
    _CONTEXT.set_forkserver_preload([*_WATCHING, *(_COMMANDS if commands else ())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    file_bytes: int | None = None  # no file may grow past so many: a disk that is full
    environment: Mapping[str, str | None] = field(default_factory=dict)  # ``None`` takes one away
    permissions: bool = False  # they hold for root too
    jumps: Sequence[float] = ()  # seconds by which each reading of the wall clock is moved, in turn
    deaf: int = 0  # the descriptor whose reader has gone: 1 or 2

    def enter(self) -> None:
        for name, value in self.environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if self.permissions and os.geteuid() == 0:
            _obey_permissions()
        if self.jumps:
            _jump(self.jumps)
        if self.file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.file_bytes, self.file_bytes))


USUAL = Conditions()


def _obey_permissions() -> None:
    """Give up root's right to pass over permissions."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # version 3; this process
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable, twice 32 bits
    if libc.capset(ctypes.byref(header), ctypes.byref(sets)):
        raise OSError(ctypes.get_errno(), "capset")


def _jump(jumps: Sequence[float]) -> None:
    real, moves = time.time, cycle(jumps)

    def jumping() -> float:
        return real() + next(moves)

    class Kind(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, datetime)

    class Jumping(datetime, metaclass=Kind):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(jumping(), tz)

    time.time = jumping
    for name, module in list(sys.modules.items()):
        if name.startswith("suffice.") and getattr(module, "datetime", None) is datetime:
            module.__dict__["datetime"] = Jumping


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A command that ended: its code (negative: the signal), what it said, the seconds it took."""

    code: int
    out: str
    err: str
    seconds: float


class Child:
    """A running command, or any function that can be pickled and gives the exit code."""

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        conditions: Conditions = USUAL,
        run: Callable[[Sequence[str]], int] = main,
    ) -> None:
        out, own_out = _CONTEXT.Pipe(duplex=False)
        err, own_err = _CONTEXT.Pipe(duplex=False)
        self._started = time.monotonic()
        self._process = _CONTEXT.Process(
            target=_live, args=(run, tuple(words), str(folder), conditions, own_out, own_err)
        )
        self._process.start()
        own_out.close()
        own_err.close()
        readers = ThreadPoolExecutor(2)
        self._said: list[Future[str]] = [
            readers.submit(_read, source, hears=conditions.deaf != number)
            for number, source in ((1, out), (2, err))
        ]
        readers.shutdown(wait=False)

    @property
    def pid(self) -> int:
        pid = self._process.pid
        assert pid is not None
        return pid

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    def send(self, number: int) -> None:
        if self.running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def end(self, seconds: float = 120.0) -> Ended:
        """Wait for its end; killed where it takes longer."""
        self._process.join(seconds)
        late = self._process.exitcode is None
        if late:
            self._process.kill()
            self._process.join()
        took = time.monotonic() - self._started
        out, err = (said.result() for said in self._said)
        assert not late, f"no end after {seconds} s: {err}"
        code = self._process.exitcode
        assert code is not None
        return Ended(code=code, out=out, err=err, seconds=took)


def _read(source: Connection, *, hears: bool) -> str:
    """All that comes; nothing where the reader goes away."""
    with source, open(source.fileno(), "rb", closefd=False) as stream:
        return stream.read().decode(errors="replace") if hears else ""


def _live(
    run: Callable[[Sequence[str]], int],
    words: Sequence[str],
    folder: str,
    conditions: Conditions,
    out: Connection,
    err: Connection,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.chdir(folder)
    for descriptor, pipe in ((1, out), (2, err)):
        os.dup2(pipe.fileno(), descriptor)
        pipe.close()
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115
    conditions.enter()
    sys.argv = ["suffice", *words]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        code: Any = main() if run is main else run(words)
    except SystemExit as end:
        code = end.code
    atexit._run_exitfuncs()
    sys.exit(code)


def check_told(ended: Ended, *words: str) -> None:
    assert ended.code in (1, 2), ended.err
    assert "Traceback" not in ended.err
    last = ended.err.strip().splitlines()[-1]
    assert any(word in last for word in words), last


@contextmanager
def full(disk: Path, left: int) -> Iterator[None]:
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    with (disk / "filler").open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, free - left)
    yield
    (disk / "filler").unlink()
