"""What a record says of whole questions, as Arrow columns: no object is made of a question."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.columns.answers import normal_forms
from suffice.trace.rounds.schema import SCHEMA
from suffice.trace.rounds.table import TraceSet

AT_ONCE = 20_000
"""Questions whose texts are worked on together."""


def of_first_rounds(traces: TraceSet, name: str) -> pa.ChunkedArray:
    """A column in round 1 of every question, (n_questions,); nulls where it is not there."""
    lasts = _last_rows(traces)
    return _taken(traces, name, lasts + 1 - traces.last_rounds)


def of_last_rounds(traces: TraceSet, name: str) -> pa.ChunkedArray:
    """A column in the last round of every question, (n_questions,); nulls where it is not there."""
    return _taken(traces, name, _last_rows(traces))


def only_columns(traces: TraceSet, *columns: str) -> TraceSet:
    """The record with these columns only, as far as it has them."""
    names = [n for n in ("question_id", "round", *columns) if n in traces.table.column_names]
    return replace(traces, table=traces.table.select(names))


def blocks(traces: TraceSet, questions: int | None = None) -> Iterator[TraceSet]:
    """The record by so many consecutive questions at a time, without their closed-book rounds."""
    questions = AT_ONCE if questions is None else questions
    ends = _last_rows(traces) + 1
    none, start = traces.closed_book.slice(0, 0), 0
    for stop in [*ends[questions - 1 : -1 : questions].tolist(), *ends[-1:].tolist()]:
        yield replace(traces, table=traces.table.slice(start, stop - start), closed_book=none)
        start = stop


def _last_rows(traces: TraceSet) -> NDArray[np.int64]:
    return np.cumsum(traces.last_rounds, dtype=np.int64) - 1


def _taken(traces: TraceSet, name: str, rows: NDArray[np.int64]) -> pa.ChunkedArray:
    if name not in traces.table.column_names:
        return pa.chunked_array([pa.nulls(len(rows), SCHEMA.field(name).type)])
    return traces.table.column(name).take(pa.array(rows))


def asked_in_both(first: TraceSet, second: TraceSet) -> list[str]:
    """The questions that both records ask, in normal form, each once; blank ones are left out."""
    one, other = (
        pc.unique(normal_forms(pc.unique(of_first_rounds(traces, "question")).drop_null()))
        for traces in (first, second)
    )
    shared = one.filter(pc.and_(pc.is_in(one, value_set=other), pc.not_equal(one, "")))
    return list(shared.to_pylist())
