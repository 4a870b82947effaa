"""The questions that stand first in a large record, read before its others."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from suffice.errors import SufficeError
from suffice.trace.lazy import Checks, Files, LazyTable, Span
from suffice.trace.reader import StoredFile, parquet_files
from suffice.trace.rounds.checks import Keys
from suffice.trace.rounds.reader import of_shard
from suffice.trace.rounds.schema import COLUMNS, QUESTIONS
from suffice.trace.rounds.table import TraceSet, TraceSetOrigin

_SMALL = 8 << 20  # bytes: read whole in less than a second
_ROWS = 4096


def first_questions(path: Path, count: int = 50) -> TraceSet | None:
    """The first ``count`` questions of the first file of a record, in the order in which they stand there.

    ``None``: the record is so small that nobody waits for it, or the rows of its questions do not lie in
    order, or cannot be read; what is wrong with them is said when the record is read.
    """
    try:
        files = parquet_files(path)
        if sum(file.stat().st_size for file in files) < _SMALL:
            return None
        file = StoredFile.open(files[0], {column.name for column in COLUMNS}, QUESTIONS)
        span = Span(file, 0, min(_ROWS, file.rows))
        unchecked = Checks(check=lambda *_: None, beside={})
        keys = Keys.of(LazyTable(Files([span], unchecked, {})))
        whole = len(keys.first_ids) - (span.rows < file.rows)  # the last one may go on
        if not keys.in_order or not whole:
            return None
        starts = keys.starts[: min(count, whole) + 1]
        origin = TraceSetOrigin(source=str(path), run=file.run)
        return of_shard(Span(file, 0, int(starts[-1])), np.asarray(starts), origin, {})
    except (SufficeError, OSError):
        return None
