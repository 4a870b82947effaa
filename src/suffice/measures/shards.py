"""A record in shards: whole questions that lie together in a file, measured in turn or side by side.

What is sent to a worker names files and rows and holds no data. Results come in the order of the shards,
so they are the same for any number of workers.
"""

from __future__ import annotations

import os
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from suffice.errors import BackendError
from suffice.trace.lazy import LazyTable, Readings, Rows, Span
from suffice.trace.reader import StoredFile
from suffice.trace.rounds.reader import of_shard
from suffice.trace.rounds.table import TraceSet, TraceSetOrigin
from suffice.trace.schema import STATED

SHARD_ROWS = 65_536
"""How many rounds a shard has, about; fewer where they are large."""
_SHARD_BYTES = 64_000_000
_TOGETHER = 2  # shards that a worker takes at a time, whose files it reads forwards
_AHEAD = 3  # such tasks a worker that wait for it
_TRIES = 3

_Task = TypeVar("_Task")
_Given = TypeVar("_Given")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """Some questions of a record: rows ``start`` to ``stop`` of a file.

    ``starts`` is where each question begins in the rows, and how many there are; ``questions`` are the places
    of those that are meant among all of the record. ``chosen`` says which of those in the
    rows are meant; ``None``: all.
    """

    file: StoredFile
    start: int
    stop: int
    starts: NDArray[np.int64]
    questions: NDArray[np.int64]
    origin: TraceSetOrigin
    chosen: NDArray[np.bool_] | None = None

    def only(self, chosen: NDArray[np.bool_]) -> Shard:
        """Those of its questions where ``chosen`` (of all of the record) is true."""
        there = chosen[self.questions]
        if there.all():
            return self
        asked = there
        if self.chosen is not None:
            asked = self.chosen.copy()
            asked[self.chosen] = there
        return replace(self, questions=self.questions[there], chosen=asked)

    def traces(self, readings: Readings | None = None) -> TraceSet:
        """The questions; shards of one file that are read in turn share ``readings``."""
        span = Span(self.file, self.start, self.stop)
        shared = {} if readings is None else readings
        traces = of_shard(span, self.starts, self.origin, shared)
        return traces if self.chosen is None else traces.take(self.chosen)

    @property
    def place(self) -> str:
        """Where it lies, for messages."""
        return f"rows {self.start:,} to {self.stop - 1:,} of {self.file.file}"


def shards_of(traces: TraceSet, rows: int = SHARD_ROWS) -> tuple[Shard, ...]:
    """The shards of a record, or of a part of one, that is read when asked for; none of one in memory.

    One in whose files the rows of some question lie apart has none: it is measured whole.
    """
    if not isinstance(traces.table, LazyTable) or traces.table.num_rows <= rows:
        return ()
    source, in_files = traces.table.in_files(traces.starts[:-1])
    if source.runs is None:
        return ()
    run = {name: said for name, said in traces.origin.run.items() if name != STATED}
    origin = replace(traces.origin, skipped=(), run=run)
    starts = source.runs.starts
    if not np.isin(np.cumsum([span.rows for span in source.spans]), starts).all():
        return ()  # a question runs on in the next file
    asked = np.full(len(source.runs.place), -1)  # by run the place among these questions
    asked[np.searchsorted(starts, in_files, side="right") - 1] = np.arange(traces.n_questions)
    shards: list[Shard] = []
    first_row = 0
    for span in source.spans:
        last_row = first_row + span.rows
        runs = slice(*np.searchsorted(starts[:-1], (first_row, last_row)))
        within = starts[runs] - first_row
        of_shard = _SHARD_BYTES * max(span.file.rows, 1) / max(span.file.n_bytes, 1)
        for begin, end in _cuts(within, span.rows, max(1, min(rows, int(of_shard)))):
            questions = asked[runs][begin:end]
            if (questions < 0).all():
                continue
            start, stop = int(within[begin]), int([*within[end : end + 1], span.rows][0])
            shards.append(
                Shard(
                    file=span.file,
                    start=span.start + start,
                    stop=span.start + stop,
                    starts=np.append(within[begin:end], stop) - start,
                    questions=questions[questions >= 0],
                    origin=origin,
                    chosen=None if (questions >= 0).all() else questions >= 0,
                )
            )
        first_row = last_row
    return tuple(shards)


def _cuts(starts: Rows, n_rows: int, size: int) -> Iterator[tuple[int, int]]:
    """Runs, from one to before another, that make about ``size`` rows."""
    targets = np.arange(0, n_rows, size)
    cuts = np.unique(np.searchsorted(starts, targets))
    ends = [*cuts[1:].tolist(), len(starts)]
    yield from ((begin, end) for begin, end in zip(cuts.tolist(), ends, strict=True) if begin < end)


def usable_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# --- executors ------------------------------------------------------------------------------------
class Workers(Executor):
    """Processes that share nothing; one that dies is replaced.

    With ``behind`` they leave the machine to whatever else wants it.
    """

    def __init__(self, count: int, *, behind: bool = False) -> None:
        self.count = count
        self._initializer = partial(os.nice, 10) if behind and hasattr(os, "nice") else None
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, fn: Callable[..., _Given], /, *args: Any, **kwargs: Any) -> Future[_Given]:
        """Run it in one of them."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.count, mp_context=get_context("spawn"), initializer=self._initializer
            )
        return self._pool.submit(fn, *args, **kwargs)

    def renew(self) -> None:
        """Start new ones where some died."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """End them."""
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)
            self._pool = None


def map_shards(
    work: Callable[[TraceSet], _Given], shards: Sequence[Shard], executor: Executor | None = None
) -> Iterator[tuple[Shard, _Given]]:
    """What ``work`` gives of every shard's questions, in the order of the shards."""
    if len(shards) <= _TOGETHER:  # to start workers would take longer
        executor = None
    tasks = tasks_of(shards)
    for task, given in zip(tasks, map_tasks(_InTurn(work), tasks, executor), strict=True):
        yield from zip(task, given, strict=True)


def tasks_of(shards: Sequence[Shard]) -> list[Sequence[Shard]]:
    """Shards that one worker takes in turn, since they lie together."""
    return [shards[i : i + _TOGETHER] for i in range(0, len(shards), _TOGETHER)]


def map_tasks(
    work: Callable[[_Task], _Given], tasks: Sequence[_Task], executor: Executor | None = None
) -> Iterator[_Given]:
    """What ``work`` gives of every task, in their order."""
    if isinstance(executor, Workers) and not _travels(work):
        executor = None  # a signal of somebody's own, made of a function within another
    if executor is None:
        yield from map(work, tasks)
        return
    ahead = _AHEAD * int(getattr(executor, "count", 16))
    left, waiting = deque(tasks), deque[tuple[_Task, Future[_Given]]]()
    deaths = 0
    try:
        while left or waiting:
            while left and len(waiting) < ahead:
                task = left.popleft()
                waiting.append((task, executor.submit(work, task)))
            task, future = waiting[0]
            try:
                given = future.result()
            except BrokenExecutor as error:
                deaths += 1
                renew = getattr(executor, "renew", None)
                if deaths >= _TRIES or renew is None:
                    raise BackendError(_died(task, error)) from error
                renew()
                left.extendleft(reversed([task for task, _ in waiting]))
                waiting.clear()
                continue
            deaths = 0
            waiting.popleft()
            yield given
    finally:
        for _, future in waiting:
            future.cancel()


def _travels(work: object) -> bool:
    """Whether another process can be sent it."""
    try:
        pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


def _died(task: object, error: BrokenExecutor) -> str:
    place = (
        task[0].place if isinstance(task, Sequence) and isinstance(task[0], Shard) else "a shard"
    )
    return (
        f"workers died {_TRIES} times over {place} and the shards after it ({error}): killed, or out of "
        "memory; type --workers 1, which needs the least, or measure once: suffice measure TRACES --out NEW"
    )


@dataclass(frozen=True, slots=True)
class _InTurn(Generic[_Given]):
    """Does some work for one shard after the other."""

    work: Callable[[TraceSet], _Given]

    def __call__(self, shards: Sequence[Shard]) -> list[_Given]:
        readings: Readings = {}
        file: Path | None = None
        given = []
        for shard in shards:
            if shard.file.file != file:
                readings, file = {}, shard.file.file
            given.append(self.work(shard.traces(readings)))
        return given
