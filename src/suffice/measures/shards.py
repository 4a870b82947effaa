"""A large record in shards: measured in turn or in parallel, with its columns cached on disk."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from suffice._version import VERSION
from suffice.errors import BackendError, plain_file
from suffice.stats.units import Array, Mask
from suffice.trace.durable import replace_file, usable_cores
from suffice.trace.lazy import LazyTable, Span
from suffice.trace.parquet import opened, parquet_writer
from suffice.trace.rounds.trace_set import TraceSet, TraceSetOrigin
from suffice.trace.stored_file import Rows, parquet_files

SHARD_ROWS = 65_536
"""How many rounds a shard has, about; fewer where they are large."""
_SHARD_BYTES = 64_000_000
_FEW = 4  # shards that are measured before other processes have started
_AHEAD = 3  # shards a worker that wait for it

_Given = TypeVar("_Given")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shard:
    """Hold some questions of a record; their ``rows`` lie in a span of a file."""

    span: Span
    rows: Rows
    starts: NDArray[np.int64]
    questions: NDArray[np.intp]
    origin: TraceSetOrigin

    def traces(self) -> TraceSet:
        table = LazyTable([self.span], self.rows)
        none = table.taken(np.arange(0))
        return TraceSet(table=table, closed_book=none, origin=self.origin, known_starts=self.starts)


def shards_of(traces: TraceSet, rows: int = SHARD_ROWS) -> tuple[Shard, ...]:
    """Split a lazily read record, or a part of one, into shards; a record in memory has none."""
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
        before = np.cumsum(lengths[of_span]) - lengths[of_span]
        runs = np.flatnonzero(np.diff(before // size)) + 1  # of about ``size`` rows
        for questions in np.split(of_span, runs):
            if not len(questions):
                continue
            begins = np.append(0, np.cumsum(lengths[questions]))
            gaps = np.repeat(starts[questions] - begins[:-1], lengths[questions])
            chosen = table.rows[np.arange(begins[-1]) + gaps]
            low, high = int(chosen.min()), int(chosen.max()) + 1
            shift = int(ends[place]) - span.rows - span.start
            shards.append(
                Shard(
                    span=Span(span.file, low - shift, high - shift),
                    rows=chosen - low,
                    starts=begins,
                    questions=questions,
                    origin=origin,
                )
            )
    read = sum(shard.span.rows for shard in shards)
    return tuple(shards) if read <= 2 * sum(span.rows for span in table.spans) else ()


class Workers(Executor):
    """Run work in separate processes, started on first use and again after :meth:`shutdown`.

    ``count`` is their number; ``None`` means one per core, or one core less if they work ``behind`` others.
    """

    def __init__(self, count: int | None, *, behind: bool = False) -> None:
        self.count: int = count or max(1, usable_cores() - behind)
        self._initializer = partial(os.nice, 10) if behind and hasattr(os, "nice") else None
        self._pool: ProcessPoolExecutor | None = None

    def submit(self, fn: Callable[..., _Given], /, *args: Any, **kwargs: Any) -> Future[_Given]:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.count, mp_context=get_context("spawn"), initializer=self._initializer
            )
        return self._pool.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=cancel_futures)
            self._pool = None


def _read(work: Callable[[TraceSet], _Given], shard: Shard) -> _Given:
    return work(shard.traces())


def map_shards(
    work: Callable[[TraceSet], _Given], shards: Sequence[Shard], executor: Executor | None = None
) -> Iterator[tuple[Shard, _Given]]:
    """Apply ``work`` to every shard's questions, in the order of the shards."""
    here = isinstance(executor, Workers) and (len(shards) <= _FEW or not _travels(work))
    if executor is None or here or not shards:
        yield from ((shard, work(shard.traces())) for shard in shards)
        return
    ahead = _AHEAD * int(getattr(executor, "count", 16))
    left, waiting = iter(shards), deque[tuple[Shard, Future[_Given]]]()
    try:
        for shard in islice(left, ahead):
            waiting.append((shard, executor.submit(_read, work, shard)))
        while waiting:
            shard, future = waiting[0]
            given = future.result()
            waiting.popleft()
            for following in islice(left, 1):
                waiting.append((following, executor.submit(_read, work, following)))
            yield shard, given
    except BrokenExecutor as error:
        executor.shutdown(wait=False, cancel_futures=True)
        span = shard.span
        raise BackendError(
            f"a worker died over rows {span.start:,} to {span.stop - 1:,} of {span.file.file} or a shard "
            f"after it ({error}): killed, or out of memory; type --workers 1, which needs the least"
        ) from error
    finally:
        for _, future in waiting:
            future.cancel()


def _travels(work: object) -> bool:
    try:
        pickle.dumps(work)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


_FOOTER = 65_536  # bytes at the end of a file by which it is told from others
_UNREADABLE = (pa.ArrowException, OSError)


class Kept:
    """Keep columns of one whole record, one file each in the folder ``RECORD.measures``."""

    def __init__(self, source: Path, stamp: str) -> None:
        self._stamp = stamp
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        place = hashlib.sha256(str(source.absolute()).encode()).hexdigest()[:16]
        beside = source.absolute().with_name(f"{source.absolute().name}.measures")
        self.folders: tuple[Path, Path] = (beside, cache / "suffice" / "measures" / place)
        self.place: Path | None = None  # the folder that was last read or written

    @classmethod
    def of(cls, traces: TraceSet) -> Kept | None:
        """Return the store of a lazily read record; ``None`` for a part, or a record in memory."""
        table = traces.table
        if not isinstance(table, LazyTable):
            return None
        rows = sum(span.file.rows for span in table.spans)
        if table.num_rows + traces.closed_book.num_rows < rows:
            return None
        digest = hashlib.sha256(f"{code_stamp()} {sorted(traces.origin.run.items())}".encode())
        for file in parquet_files(Path(traces.origin.source)):
            size = file.stat().st_size
            with plain_file(file).open("rb") as stream:
                stream.seek(max(0, size - _FOOTER))
                digest.update(f"{file.name} {size} ".encode() + stream.read())
        return cls(Path(traces.origin.source), digest.hexdigest())

    def read(self, key: str) -> Array | None:
        """Read a column (n_rounds or 1, n_questions), where it is known first; ``None`` if it is absent."""
        for file in self._files(key):
            try:
                with opened(file) as parquet:
                    table = parquet.read(use_threads=False)
            except (*_UNREADABLE, ValueError):
                continue
            self.place = file.parent
            return np.stack([np.asarray(cells, np.float64) for cells in table.columns])
        return None

    def write(self, key: str, values: Array, filled: Mask) -> None:
        """Write a column, known for the questions that are ``filled``, and remove older versions."""
        cells = {
            str(number): row for number, row in enumerate([filled.astype(np.float64), *values])
        }
        table, sink = pa.table(cells), pa.BufferOutputStream()
        with parquet_writer(sink, table.schema) as writer:
            writer.write_table(table)
        for file in self._files(key):
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                replace_file(file, sink.getvalue().to_pybytes())
                name, _, stamp = file.stem.rpartition("-")
                for older in file.parent.glob(f"{name}-*.parquet"):
                    if older.stem.rpartition("-")[0] == name and older.stem != f"{name}-{stamp}":
                        older.unlink(missing_ok=True)
            except OSError:
                continue
            self.place = file.parent
            return

    def _files(self, key: str) -> Iterator[Path]:
        stamp = hashlib.sha256(f"{self._stamp} {key}".encode()).hexdigest()[:16]
        return (folder / f"{key}-{stamp}.parquet" for folder in self.folders)


@cache
def code_stamp() -> str:
    """Return the version and a hash of the code that measures."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    files = [root / "scoring.py", *(root / "measures").glob("*.py")]
    for folder in ("stats", "signals", "trace"):
        files += (root / folder).rglob("*.py")
    for file in sorted(files):
        digest.update(file.read_bytes())
    return f"{VERSION} {digest.hexdigest()[:16]}"
