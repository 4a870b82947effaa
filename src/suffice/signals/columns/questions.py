"""What a record says of whole questions, as Arrow columns: no object is made of a question."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow.compute as pc

from suffice.signals.columns.answers import normal_forms
from suffice.trace.rounds.table import TraceSet

AT_ONCE = 20_000
"""Questions whose texts are worked on together."""


def only_columns(traces: TraceSet, *columns: str) -> TraceSet:
    """The record with these columns only, as far as it has them, without its closed-book rounds."""
    names = [n for n in ("question_id", "round", *columns) if n in traces.table.column_names]
    table = traces.table.select(names)
    return replace(traces, table=table, closed_book=table.slice(0, 0))


def blocks(traces: TraceSet, questions: int | None = None) -> Iterator[TraceSet]:
    """What lies in memory of a record by so many consecutive questions at a time."""
    questions = AT_ONCE if questions is None else questions
    ends, start = np.cumsum(traces.last_rounds, dtype=np.int64), 0
    for stop in [*ends[questions - 1 : -1 : questions].tolist(), *ends[-1:].tolist()]:
        yield replace(traces, table=traces.table.slice(start, stop - start))
        start = stop


def asked_in_both(first: TraceSet, second: TraceSet) -> list[str]:
    """The questions that both records ask, in normal form, each once; blank ones are left out."""
    one, other = (
        pc.unique(normal_forms(pc.unique(traces.first_rounds("question")).drop_null()))
        for traces in (first, second)
    )
    shared = one.filter(pc.and_(pc.is_in(one, value_set=other), pc.not_equal(one, "")))
    return list(shared.to_pylist())
