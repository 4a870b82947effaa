"""Store computed signals in a trace set's ``signals`` map."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.protocols import ChatModel, Reranker
from suffice.signals.asking import Asked, Judging, Reranking, judge_rounds, rerank_passages
from suffice.signals.recorded import JUDGE_SUPPORT
from suffice.signals.registry import SIGNALS, resolve
from suffice.signals.table import missing_inputs, signal_table
from suffice.trace.schema import SCHEMA
from suffice.trace.table import TraceSet

__all__ = ["RERANKED", "StoredSignals", "with_signals"]

# undefined where no passage has a reranker's score
RERANKED = frozenset({"rerank_top_score", "rerank_mean", "rerank_variance", "rerank_variance_raw"})
_Pair = tuple[str, float | None]


def _silent(_: Asked) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSignals:
    """The traces with signals stored, the names computed, and why others were skipped.

    ``judging`` and ``reranking`` say what was asked of a model; ``None``: nothing.
    """

    traces: TraceSet
    computed: tuple[str, ...]
    skipped: Mapping[str, str]
    judging: Judging | None = None
    reranking: Reranking | None = None


def with_signals(
    traces: TraceSet,
    only: tuple[str, ...] | None = None,
    *,
    judge: ChatModel | None = None,
    reranker: Reranker | None = None,
    on_progress: Callable[[Asked], None] = _silent,
) -> StoredSignals:
    """Compute every signal that the record allows, or those in ``only``, and store them.

    A stored value stays as it stands. An undefined one is stored as null under its name.

    Parameters
    ----------
    traces
        The record.
    only
        Names of signals; ``None``: all.
    judge
        The model that ``judge_support`` asks, in every round without a stored value; its calls are
        added to ``judge_calls``. A round whose call fails gets no value, so that a later run asks it.
    reranker
        Scores the passages that have no ``rerank_score``; its calls are added to ``rerank_calls``.
    on_progress
        Told how far the asking is.

    Raises
    ------
    UsageError
        For an unknown name in ``only``.
    BackendError
        When the judge fails every call, or the reranker fails.
    """
    names = tuple(SIGNALS) if only is None else tuple(resolve(name).name for name in only)
    reranking = judging = None
    if reranker is not None and not RERANKED.isdisjoint(names):
        reranking = rerank_passages(traces, reranker, on_progress)
        traces = _with_scores(traces, reranking)
    chosen, skipped = _sorted_out(names, traces)
    if judge is not None and JUDGE_SUPPORT.name in names:
        wanted = _not_stored(JUDGE_SUPPORT.name, traces)
        if wanted.any():
            judging = judge_rounds(traces, judge, wanted, on_progress)
            del skipped[JUDGE_SUPPORT.name]
    pairs = _computed(traces, chosen)
    stored = traces.table
    if judging is not None:
        chosen.append(JUDGE_SUPPORT.name)
        for index, verdict in judging.verdicts.items():
            pairs[index].append((JUDGE_SUPPORT.name, _null_if_undefined(verdict.value)))
        stored = _with_calls(stored, "judge_calls", judging.calls)
    return StoredSignals(
        traces=replace(traces, table=_with_map(stored, pairs)),
        computed=tuple(chosen),
        skipped=skipped,
        judging=judging,
        reranking=reranking,
    )


def _computed(traces: TraceSet, names: Sequence[str]) -> list[list[_Pair]]:
    """The signals of each row, computed from the record."""
    table = signal_table(traces, names)
    pairs: list[list[_Pair]] = [[] for _ in range(traces.table.num_rows)]
    for name in names:
        for row, value in zip(pairs, _rows(table.signal(name), traces), strict=True):
            row.append((name, _null_if_undefined(value)))
    return pairs


def _sorted_out(names: Sequence[str], traces: TraceSet) -> tuple[list[str], dict[str, str]]:
    """Which of the names the record alone gives, and why not the others."""
    chosen: list[str] = []
    skipped: dict[str, str] = {}
    for name in names:
        missing = missing_inputs(SIGNALS[name], traces)
        if name in traces.signal_names:
            skipped[name] = "stored already"
        elif SIGNALS[name].recorded_only:
            skipped[name] = "needs --llm" if name == JUDGE_SUPPORT.name else "needs a model"
        elif missing:
            skipped[name] = f"the trace has no {' and no '.join(missing)}"
        elif name in RERANKED and not _has_rerank_scores(traces.table):
            skipped[name] = "needs --reranker"
        else:
            chosen.append(name)
    return chosen, skipped


def _null_if_undefined(value: float) -> float | None:
    return None if math.isnan(value) else value


def _rows(values: NDArray[Any], traces: TraceSet) -> list[Any]:
    """Dense values (n_questions, n_rounds) as one a row, in row order."""
    return values[traces.exists].tolist()  # type: ignore[no-any-return]


def _not_stored(name: str, traces: TraceSet) -> NDArray[np.bool_]:
    """Rows without the name, not even as undefined, (n_rows,)."""
    if name not in traces.signal_names:
        return np.ones(traces.table.num_rows, bool)
    return ~traces.stored_signal(name)[1][traces.exists]


def _has_rerank_scores(table: pa.Table) -> bool:
    scores = pc.struct_field(pc.list_flatten(table.column("passages")), "rerank_score")
    return bool(scores.null_count < len(scores))


def _with_scores(traces: TraceSet, reranking: Reranking) -> TraceSet:
    """The traces with the new scores; signals of them stored as undefined throughout are dropped."""
    if not reranking.scores:
        return traces
    rows = traces.table.column("passages").to_pylist()
    for index, scores in reranking.scores.items():
        for passage, score in zip(rows[index], scores, strict=True):
            passage["rerank_score"] = score
    table = _with_column(traces.table, "passages", rows)
    table = _with_calls(table, "rerank_calls", reranking.calls)
    empty = {
        name
        for name in RERANKED.intersection(traces.signal_names)
        if np.isnan(traces.stored_signal(name)[0]).all()
    }
    if empty:
        table = _with_map(table, [[] for _ in rows], drop=empty)
    return replace(traces, table=table)


def _with_calls(table: pa.Table, name: str, calls: Mapping[int, int]) -> pa.Table:
    """Calls added to the column by row; a round of which nothing was known made no other ones."""
    before = _column(table, name)
    counts = [(known or 0) + calls.get(row, 0) for row, known in enumerate(before)]
    return _with_column(table, name, counts)


def _with_map(
    table: pa.Table, pairs: Sequence[Sequence[_Pair]], drop: Collection[str] = ()
) -> pa.Table:
    before = _column(table, "signals")
    merged = [
        [*(pair for pair in old or () if pair[0] not in drop), *new] or None
        for old, new in zip(before, pairs, strict=True)
    ]
    return _with_column(table, "signals", merged)


def _column(table: pa.Table, name: str) -> list[Any]:
    if name not in table.column_names:
        return [None] * table.num_rows
    values: list[Any] = table.column(name).to_pylist()
    return values


def _with_column(table: pa.Table, name: str, values: Sequence[Any]) -> pa.Table:
    column = pa.array(values, type=SCHEMA.field(name).type)
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, column)
    return table.append_column(name, column)
