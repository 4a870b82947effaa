"""A record in shards: whole questions of one file, measured in turn or side by side.

What is sent to a worker names a file and rows and holds no data. Results come in the order of the shards,
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
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from suffice.errors import BackendError
from suffice.trace.lazy import LazyTable, Span
from suffice.trace.reader import Rows
from suffice.trace.rounds.table import TraceSet, TraceSetOrigin

SHARD_ROWS = 65_536
"""How many rounds a shard has, about; fewer where they are large."""
_SHARD_BYTES = 64_000_000
_FEW = 4  # shards that are measured before other processes have started
_TRIES = 3
_AHEAD = 3  # shards a worker that wait for it

_Given = TypeVar("_Given")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """Some questions of a record, whose ``rows`` lie in a span of a file.

    ``starts`` (n + 1,) say where each question begins among the rows, ``questions`` (n,) which they are of
    all of the record.
    """

    span: Span
    rows: Rows
    starts: NDArray[np.int64]
    questions: NDArray[np.intp]
    origin: TraceSetOrigin

    def traces(self) -> TraceSet:
        """The questions."""
        table = LazyTable([self.span], self.rows)
        none = table.taken(np.arange(0))
        return TraceSet(table=table, closed_book=none, origin=self.origin, known_starts=self.starts)

    @property
    def place(self) -> str:
        """Where it lies, for messages."""
        return f"rows {self.span.start:,} to {self.span.stop - 1:,} of {self.span.file.file}"


def shards_of(traces: TraceSet, rows: int = SHARD_ROWS) -> tuple[Shard, ...]:
    """The shards of a record, or of a part of one, that is read when asked for; none of one in memory.

    One whose questions lie scattered over its files has none: it is measured whole.
    """
    table, starts = traces.table, traces.starts
    if not isinstance(table, LazyTable) or table.num_rows <= rows:
        return ()
    first, last = (of.reduceat(table.rows, starts[:-1]) for of in (np.minimum, np.maximum))
    ends = np.cumsum([span.rows for span in table.spans])
    places = np.searchsorted(ends, first, side="right")
    lengths = traces.last_rounds.astype(np.int64)
    if (places != np.searchsorted(ends, last, side="right")).any():
        return ()  # a question goes on in the next file
    order = np.argsort(first, kind="stable")
    origin, shards = replace(traces.origin, skipped=()), []
    for place, span in enumerate(table.spans):
        of_span = order[places[order] == place]
        large = span.file.n_bytes / max(span.file.rows, 1)
        size = max(1, min(rows, int(_SHARD_BYTES / max(large, 1e-9))))
        for questions in np.split(of_span, _cuts(lengths[of_span], size)):
            if not len(questions):
                continue
            begins = np.append(0, np.cumsum(lengths[questions]))
            gaps = np.repeat(starts[questions] - begins[:-1], lengths[questions])
            chosen = table.rows[np.arange(begins[-1]) + gaps]
            low, high = int(chosen.min()), int(chosen.max()) + 1
            before = int(ends[place]) - span.rows - span.start
            shards.append(
                Shard(
                    span=Span(span.file, low - before, high - before),
                    rows=chosen - low,
                    starts=begins,
                    questions=questions,
                    origin=origin,
                )
            )
    read = sum(shard.span.rows for shard in shards)
    return tuple(shards) if read <= 2 * sum(span.rows for span in table.spans) else ()


def _cuts(lengths: NDArray[np.int64], size: int) -> NDArray[np.intp]:
    """Where runs of questions of about ``size`` rows end."""
    before = np.cumsum(lengths) - lengths
    return np.flatnonzero(np.diff(before // size)) + 1


def usable_cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Workers(Executor):
    """Processes that share nothing, started when work is sent, and anew after :meth:`shutdown`.

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

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """End them."""
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)
            self._pool = None


def _read(work: Callable[[TraceSet], _Given], shard: Shard) -> _Given:
    return work(shard.traces())


def map_shards(
    work: Callable[[TraceSet], _Given], shards: Sequence[Shard], executor: Executor | None = None
) -> Iterator[tuple[Shard, _Given]]:
    """What ``work`` gives of every shard's questions, in the order of the shards."""
    own = isinstance(executor, Workers)
    here = own and (len(shards) <= _FEW or not _travels(work))
    if executor is None or here or not shards:
        yield from ((shard, work(shard.traces())) for shard in shards)
        return
    ahead = _AHEAD * int(getattr(executor, "count", 16))
    left, waiting, deaths = deque(shards), deque[tuple[Shard, Future[_Given]]](), 0
    try:
        while left or waiting:
            try:
                while left and len(waiting) < ahead:
                    waiting.append((left[0], executor.submit(_read, work, left[0])))
                    left.popleft()
                given = waiting[0][1].result()
            except BrokenExecutor as error:
                deaths += 1
                executor.shutdown(wait=False, cancel_futures=True)
                left = deque([*(shard for shard, _ in waiting), *left])
                waiting.clear()
                if not own or deaths == _TRIES:
                    raise BackendError(
                        f"workers died {deaths} times over {left[0].place} and the shards after it "
                        f"({error}): killed, or out of memory; type --workers 1, which needs the least"
                    ) from error
                continue
            deaths = 0
            yield waiting.popleft()[0], given
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
