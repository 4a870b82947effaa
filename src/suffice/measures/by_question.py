"""What a record says of whole questions, as Arrow columns: no object is made of a question."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from suffice.columns.answers import GoldAnswers
from suffice.trace.rounds.schema import SCHEMA
from suffice.trace.rounds.table import TraceSet


def of_first_rounds(traces: TraceSet, name: str) -> pa.ChunkedArray:
    """A column in round 1 of every question, (n_questions,); nulls where it is not there."""
    lasts = _last_rows(traces)
    return _taken(traces, name, lasts + 1 - traces.last_rounds)


def of_last_rounds(traces: TraceSet, name: str) -> pa.ChunkedArray:
    """A column in the last round of every question, (n_questions,); nulls where it is not there."""
    return _taken(traces, name, _last_rows(traces))


def gold_answers(traces: TraceSet) -> GoldAnswers:
    """The gold answers of every question; only fitting and scoring may read them."""
    return GoldAnswers.of(of_first_rounds(traces, "gold_answers"))


def _last_rows(traces: TraceSet) -> NDArray[np.int64]:
    return np.cumsum(traces.last_rounds, dtype=np.int64) - 1


def _taken(traces: TraceSet, name: str, rows: NDArray[np.int64]) -> pa.ChunkedArray:
    if name not in traces.table.column_names:
        return pa.chunked_array([pa.nulls(len(rows), SCHEMA.field(name).type)])
    return traces.table.column(name).take(pa.array(rows))
