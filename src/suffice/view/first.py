"""The questions that stand first in a large record, read before its others."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from suffice.errors import SufficeError
from suffice.trace.lazy import LazyTable, Span
from suffice.trace.reader import StoredFile, parquet_files
from suffice.trace.rounds.checks import Keys
from suffice.trace.rounds.reader import questions_of
from suffice.trace.rounds.schema import COLUMNS, QUESTIONS
from suffice.trace.rounds.table import TraceSet, TraceSetOrigin

_SMALL = 8 << 20  # bytes: read whole in less than a second
_ROWS = 4096


def first_questions(path: Path, count: int = 50) -> TraceSet | None:
    """The first ``count`` questions of the first file of a record.

    ``None``: the record is so small that nobody waits for it, or the rows of its questions do not lie in
    order, or cannot be read; what is wrong with them is said when the record is read.
    """
    try:
        files = parquet_files(path)
        if sum(file.stat().st_size for file in files) < _SMALL:
            return None
        file = StoredFile.open(files[0], {column.name for column in COLUMNS}, QUESTIONS)
        rows = min(_ROWS, file.rows)
        table = LazyTable([Span(file, 0, rows)])
        keys = Keys.of(table)
        whole = len(keys.rank) - (rows < file.rows)  # the last one may go on
        if not keys.in_order or not whole:
            return None
        first = table.taken(np.arange(keys.starts[min(count, whole)]))
        return questions_of(first, TraceSetOrigin(source=str(path), run=file.run))
    except (SufficeError, OSError):
        return None
