"""Store computed signals in a trace set's ``signals`` map."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from suffice.signals.registry import SIGNALS, resolve
from suffice.signals.table import missing_inputs, signal_table
from suffice.trace.schema import SCHEMA
from suffice.trace.table import TraceSet

__all__ = ["StoredSignals", "with_signals"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSignals:
    """The traces with signals stored, the names computed, and why others were skipped."""

    traces: TraceSet
    computed: tuple[str, ...]
    skipped: Mapping[str, str]


def with_signals(traces: TraceSet, only: tuple[str, ...] | None = None) -> StoredSignals:
    """Compute every signal that the record allows, or those in ``only``, and store them.

    A stored value stays as it stands. An undefined one is stored as null under its name.

    Raises
    ------
    UsageError
        For an unknown name in ``only``.
    """
    names = tuple(SIGNALS) if only is None else tuple(resolve(name).name for name in only)
    skipped: dict[str, str] = {}
    chosen: list[str] = []
    for name in names:
        missing = missing_inputs(SIGNALS[name], traces)
        if name in traces.signal_names:
            skipped[name] = "stored already"
        elif SIGNALS[name].recorded_only:
            skipped[name] = "needs a model"
        elif missing:
            skipped[name] = f"the trace has no {' and no '.join(missing)}"
        else:
            chosen.append(name)
    table = signal_table(traces, chosen)
    columns = {name: _rows(table.signal(name), traces) for name in chosen}
    return StoredSignals(
        traces=replace(traces, table=_with_map(traces.table, columns)),
        computed=tuple(chosen),
        skipped=skipped,
    )


def _rows(values: NDArray[np.float64], traces: TraceSet) -> list[float | None]:
    """Dense values (n_questions, n_rounds) as one a row, in row order."""
    flat = values[traces.exists]
    return [None if math.isnan(value) else value for value in flat.tolist()]


def _with_map(table: pa.Table, columns: Mapping[str, list[float | None]]) -> pa.Table:
    stored = (
        table.column("signals").to_pylist()
        if "signals" in table.column_names
        else [None] * table.num_rows
    )
    merged = [
        [*(before or ()), *((name, values[row]) for name, values in columns.items())] or None
        for row, before in enumerate(stored)
    ]
    signals = pa.array(merged, type=SCHEMA.field("signals").type)
    if "signals" in table.column_names:
        index = table.column_names.index("signals")
        return table.set_column(index, "signals", signals)
    return table.append_column("signals", signals)
