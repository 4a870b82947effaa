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
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Self

from suffice.cli.main import COMMANDS, main

_WATCHING = ("pytest", "pyarrow.parquet", "numpy", "suffice.live.watch", __name__)
_COMMANDS = (
    "pyarrow.compute",
    "pyarrow.dataset",
    "scipy.stats",
    "scipy.optimize",
    "sklearn.feature_extraction.text",
    "bm25s",
    "sqlite3",
    "openai",
    "torch._dynamo",
    "safetensors.torch",
    "suffice.testing.models",
    *(f"suffice.cli.commands.{name}" for name in COMMANDS),
)
_CONTEXT = multiprocessing.get_context("forkserver")


def import_once(*, commands: bool) -> None:
    """Say, before the first child, what children find imported: what watches loops, or every command."""
    _CONTEXT.set_forkserver_preload([*_WATCHING, *(_COMMANDS if commands else ())])


# Linux: the rights by which root reads and writes what permissions forbid
_OVERRIDES = (1, 2, 3)
_PR_CAPBSET_DROP = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a command runs under.

    Parameters
    ----------
    file_bytes
        No file may grow past so many bytes: a disk that is full.
    more_memory
        Bytes of address space beyond what the process has when it begins.
    environment
        Variables to set; ``None`` takes one away.
    permissions
        Whether permissions hold for root too.
    jumps
        Seconds that the wall clock is moved by, one a reading, over and over; the monotonic one goes on.
    """

    file_bytes: int | None = None
    more_memory: int | None = None
    environment: Mapping[str, str | None] = field(default_factory=dict)
    permissions: bool = False
    jumps: Sequence[float] = ()

    def enter(self) -> None:
        """Put this process under them."""
        for name, value in self.environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if self.permissions and os.geteuid() == 0:
            _obey_permissions()
        if self.jumps:
            _jump(self.jumps)
        if self.more_memory is not None:
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + self.more_memory
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        if self.file_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (self.file_bytes, self.file_bytes))


USUAL = Conditions()


def _obey_permissions() -> None:
    """Give up root's right to pass over permissions."""
    libc = ctypes.CDLL(None, use_errno=True)

    class Header(ctypes.Structure):
        _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))

    header = Header(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()  # effective, permitted, inheritable, twice 32 bits
    if libc.capset(ctypes.byref(header), ctypes.byref(sets)):
        raise OSError(ctypes.get_errno(), "capset")


def _jump(jumps: Sequence[float]) -> None:
    """Have every reading of the wall clock moved."""
    real, lock, position = time.time, threading.Lock(), [0]

    def jumping() -> float:
        with lock:
            position[0] += 1
            return real() + jumps[position[0] % len(jumps)]

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
    """A running command, or any function that can be pickled.

    Parameters
    ----------
    words
        Of the command line.
    folder
        Where it runs.
    conditions
        What it runs under.
    heard, heard_of_stderr
        How many bytes of stdout and of stderr are read before the reader goes away; ``None``: all.
    run
        Called in the child with the words, in place of ``suffice``; gives the exit code.
    """

    def __init__(
        self,
        words: Sequence[str],
        folder: Path,
        *,
        conditions: Conditions = USUAL,
        heard: int | None = None,
        heard_of_stderr: int | None = None,
        run: Callable[[Sequence[str]], int] = main,
    ) -> None:
        out, own_out = _CONTEXT.Pipe(duplex=False)
        err, own_err = _CONTEXT.Pipe(duplex=False)
        self._started = time.monotonic()
        self._process: ForkServerProcess = _CONTEXT.Process(
            target=_live, args=(run, tuple(words), str(folder), conditions, own_out, own_err)
        )
        self._process.start()
        own_out.close()
        own_err.close()
        self._out, self._err = _Reader(out, heard), _Reader(err, heard_of_stderr)

    @property
    def pid(self) -> int:
        """Of the process."""
        pid = self._process.pid
        assert pid is not None
        return pid

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self._process.is_alive()

    def send(self, number: int) -> None:
        """A signal, unless it has ended."""
        if self.running:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send(signal.SIGKILL)

    def end(self, seconds: float = 120.0) -> Ended:
        """Wait for its end; killed where it takes longer."""
        self._process.join(seconds)
        if self._process.exitcode is None:
            self._process.kill()
            self._process.join()
            raise AssertionError(f"no end after {seconds} s: {self._err.text()}")
        seconds = time.monotonic() - self._started
        return Ended(
            code=self._process.exitcode,
            out=self._out.text(),
            err=self._err.text(),
            seconds=seconds,
        )


class _Reader(threading.Thread):
    """Takes in what a child says, up to so many bytes."""

    def __init__(self, source: Connection, most: int | None) -> None:
        super().__init__(daemon=True)
        self._source, self._most = source, most
        self._parts: list[bytes] = []
        self.start()

    def run(self) -> None:
        """Read to the end."""
        taken = 0
        while self._most is None or taken < self._most:
            part = os.read(self._source.fileno(), 65536)
            if not part:
                break
            self._parts.append(part)
            taken += len(part)
        self._source.close()

    def text(self) -> str:
        """All that was said."""
        self.join()
        return b"".join(self._parts).decode(errors="replace")


def _live(
    run: Callable[[Sequence[str]], int],
    words: Sequence[str],
    folder: str,
    conditions: Conditions,
    out: Connection,
    err: Connection,
) -> None:
    """The child's life."""
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
