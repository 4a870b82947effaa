"""Measured columns kept beside a large record, known by its files and by the code that measured."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from suffice._version import VERSION
from suffice.errors import plain_file
from suffice.trace.durable import replace_file
from suffice.trace.lazy import LazyTable
from suffice.trace.parquet import opened, parquet_writer
from suffice.trace.reader import parquet_files
from suffice.trace.rounds.table import TraceSet

_FOOTER = 65_536  # bytes at the end of a file by which it is told from others
_UNREADABLE = (pa.ArrowException, OSError)
Array = NDArray[np.float64]


class Kept:
    """Columns of one whole record, a file each in the folder ``RECORD.measures``.

    Where that cannot be written they stand in the user's cache; where that cannot either, nowhere.
    """

    def __init__(self, source: Path, stamp: str) -> None:
        self._stamp = stamp
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        place = hashlib.sha256(str(source.absolute()).encode()).hexdigest()[:16]
        beside = source.absolute().with_name(f"{source.absolute().name}.measures")
        self.folders = (beside, cache / "suffice" / "measures" / place)
        self.place: Path | None = None  # the folder that was last read or written

    @classmethod
    def of(cls, traces: TraceSet) -> Kept | None:
        """Those of a record that is read when asked for; ``None``: of a part of one, or one in memory."""
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
        """A column (n_rounds or 1, n_questions) by its key, and NaN; ``None``: it is not there."""
        for file in self._files(key):
            try:
                with opened(file) as parquet:
                    table = parquet.read(use_threads=False)
            except (*_UNREADABLE, ValueError):
                continue
            self.place = file.parent
            return np.stack([np.asarray(cells, np.float64) for cells in table.columns])
        return None

    def write(self, key: str, values: Array, filled: NDArray[np.bool_]) -> None:
        """Keep a column, known of the questions that are ``filled``, in place of older ones of this name."""
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
        """Where a column may stand."""
        stamp = hashlib.sha256(f"{self._stamp} {key}".encode()).hexdigest()[:16]
        return (folder / f"{key}-{stamp}.parquet" for folder in self.folders)


@cache
def code_stamp() -> str:
    """The version, and a hash of the code that measures."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    files = [root / "scoring.py", *(root / "measures").glob("*.py")]
    for folder in ("numbers", "signals", "trace"):
        files += (root / folder).rglob("*.py")
    for file in sorted(files):
        digest.update(file.read_bytes())
    return f"{VERSION} {digest.hexdigest()[:16]}"
