"""Store computed signals in a trace set's ``signals`` map."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.protocols import ChatModel, Encoder, Entailment, Reranker
from suffice.signals.asking.evidence_models import Measured, encode_rounds, entail_rounds
from suffice.signals.asking.judge_support import (
    JUDGE_TOKENS,
    Judging,
    add_judge_calls,
    judge_rounds,
)
from suffice.signals.asking.reranking import Reranking, rerank_passages
from suffice.signals.asking.whole_record import Asked, Replies
from suffice.signals.available import lack
from suffice.signals.recorded import JUDGE_SUPPORT
from suffice.signals.registry import SIGNALS, resolve
from suffice.signals.spec import SignalSpec
from suffice.signals.table import signal_table
from suffice.trace.rounds.records import Usage
from suffice.trace.rounds.table import TraceSet, with_column

_Pair = tuple[str, float | None]
_Model = TypeVar("_Model")
_Found = TypeVar("_Found", bound=Replies[Any])


def asking_for(option: str) -> tuple[str, ...]:
    """Names of the signals that need the model of this option of ``suffice signals``."""
    return tuple(name for name, spec in SIGNALS.items() if spec.asks == option)


_RERANKED = frozenset(asking_for("--reranker"))  # undefined where no passage has a score


def _silent(_: Asked) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalModels:
    """Who may be asked for signals that the record alone does not give; ``None``: nobody.

    Parameters
    ----------
    judge
        Rates answers for ``judge_support``; its calls are added to ``judge_calls``, their tokens to
        ``judge_prompt_tokens`` and its kin.
    reranker
        Scores the passages that have no ``rerank_score``; its calls are added to ``rerank_calls``.
    encoder
        Gives the vectors of the three ``evidence_consistency`` signals.
    entailment
        Judges ``evidence_entailment``.
    """

    judge: ChatModel | None = None
    reranker: Reranker | None = None
    encoder: Encoder | None = None
    entailment: Entailment | None = None


_NOBODY = SignalModels()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSignals:
    """The traces with signals stored, the names computed, and why others were skipped.

    ``judging``, ``encoding``, ``entailing`` and ``reranking`` say what was asked of a model;
    ``None``: nothing.
    """

    traces: TraceSet
    computed: tuple[str, ...]
    skipped: Mapping[str, str]
    judging: Judging | None = None
    encoding: Replies[Measured] | None = None
    entailing: Replies[Measured] | None = None
    reranking: Reranking | None = None


def with_signals(
    traces: TraceSet,
    only: tuple[str, ...] | None = None,
    *,
    models: SignalModels = _NOBODY,
    on_progress: Callable[[Asked], None] = _silent,
) -> StoredSignals:
    """Compute every signal that the record allows, or those in ``only``, and store them.

    A stored value stays as it stands. An undefined one is stored as null under its name. A model is
    asked about every round without a stored value; a round whose call fails gets none, so that a
    later run asks again. After an interrupt no further model is asked.

    Parameters
    ----------
    traces
        The record.
    only
        Names of signals; ``None``: all.
    models
        Who may be asked.
    on_progress
        Told how far the asking is.

    Raises
    ------
    UsageError
        For an unknown name in ``only``.
    BackendError
        When every call of a model fails, or one of the reranker.
    """
    names = tuple(SIGNALS) if only is None else tuple(resolve(name).name for name in only)
    reranking = None
    if models.reranker is not None and not _RERANKED.isdisjoint(names):
        reranking = rerank_passages(traces, models.reranker, on_progress)
        traces = _with_scores(traces, reranking)
    chosen, skipped = _sorted_out(names, traces)
    rows = _Rows(
        traces=traces, names=names, on_progress=on_progress, pairs=_computed(traces, chosen)
    )
    encoding = rows.ask("--encoder", models.encoder, encode_rounds, dict)
    entailing = rows.ask("--nli", models.entailment, entail_rounds, dict)
    judging = rows.ask(
        "--llm", models.judge, judge_rounds, lambda verdict: {JUDGE_SUPPORT.name: verdict.value}
    )
    table = traces.table
    if judging is not None:
        table = _with_judge_calls(table, judging.usages)
    reasons = {name: why for name, why in skipped.items() if name not in rows.asked}
    return StoredSignals(
        traces=replace(traces, table=_with_map(table, rows.pairs)),
        computed=(*chosen, *rows.asked),
        skipped=reasons | rows.put_off,
        judging=judging,
        encoding=encoding,
        entailing=entailing,
        reranking=reranking,
    )


def with_values(traces: TraceSet, values: Mapping[str, NDArray[np.float64]]) -> TraceSet:
    """The traces with these signals stored, each (n_questions, n_rounds), in place of stored ones.

    An undefined value is stored as null under its name.
    """
    pairs: list[list[_Pair]] = [[] for _ in range(traces.table.num_rows)]
    for name, dense in values.items():
        for row, value in zip(pairs, _rows(dense, traces), strict=True):
            row.append((name, _null_if_undefined(value)))
    return replace(traces, table=_with_map(traces.table, pairs, drop=values.keys()))


@dataclass(slots=True, kw_only=True)
class _Rows:
    """New values by row, and which models gave them."""

    traces: TraceSet
    names: Collection[str]
    on_progress: Callable[[Asked], None]
    pairs: list[list[_Pair]]
    asked: list[str] = field(default_factory=list)
    put_off: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False

    def ask(
        self,
        option: str,
        model: _Model | None,
        ask: Callable[..., _Found],
        values: Callable[[Any], Mapping[str, float]],
    ) -> _Found | None:
        """What the model says about the rows that lack one of its signals; ``None``: not asked."""
        lacking = {
            name: _not_stored(name, self.traces)
            for name in asking_for(option)
            if name in self.names and not _missing_columns(SIGNALS[name], self.traces)
        }
        wanted = np.any([*lacking.values()], axis=0)
        if model is None or not wanted.any():
            return None
        new = [name for name, rows in lacking.items() if rows.any()]
        if self.interrupted:
            self.put_off |= dict.fromkeys(new, "interrupted before")
            return None
        replies = ask(self.traces, model, wanted, self.on_progress)
        for row, reply in replies.found.items():
            found = values(reply)
            self.pairs[row] += [
                (name, _null_if_undefined(found[name])) for name in new if lacking[name][row]
            ]
        self.asked += new
        self.interrupted = replies.interrupted
        return replies


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
        spec = SIGNALS[name]
        why = lack(spec, traces)
        if name in traces.signal_names:
            skipped[name] = "stored already"
        elif why is not None:
            skipped[name] = why.no_columns or f"needs {spec.asks or 'a model'}"
        elif name in _RERANKED and not _has_rerank_scores(traces.table):
            skipped[name] = f"needs {spec.asks}"
        else:
            chosen.append(name)
    return chosen, skipped


def _missing_columns(spec: SignalSpec, traces: TraceSet) -> tuple[str, ...]:
    """Columns that computing it would read and the trace does not hold."""
    return tuple(column for column in spec.needs if not traces.has(column))


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
    table = with_column(traces.table, "passages", rows)
    table = _with_calls(table, "rerank_calls", reranking.calls)
    empty = {
        name
        for name in _RERANKED.intersection(traces.signal_names)
        if np.isnan(traces.stored_signal(name)[0]).all()
    }
    if empty:
        table = _with_map(table, [[] for _ in rows], drop=empty)
    return replace(traces, table=table)


def _with_calls(table: pa.Table, name: str, calls: Mapping[int, int]) -> pa.Table:
    """Calls added to the column by row; a round of which nothing was known made no other ones."""
    before = _column(table, name)
    counts = [(known or 0) + calls.get(row, 0) for row, known in enumerate(before)]
    return with_column(table, name, counts)


def _with_judge_calls(table: pa.Table, usages: Mapping[int, Usage]) -> pa.Table:
    """Judge calls and their tokens added by row, the calls as :func:`_with_calls` does."""
    columns = {name: _column(table, name) for name in ("judge_calls", *JUDGE_TOKENS)}
    for row, more in usages.items():
        before = Usage(**{name: values[row] for name, values in columns.items()})
        added = add_judge_calls(before, more)
        for name, values in columns.items():
            values[row] = getattr(added, name)
    for name in JUDGE_TOKENS:
        table = with_column(table, name, columns[name])
    return with_column(table, "judge_calls", [known or 0 for known in columns["judge_calls"]])


def _with_map(
    table: pa.Table, pairs: Sequence[Sequence[_Pair]], drop: Collection[str] = ()
) -> pa.Table:
    before = _column(table, "signals")
    merged = [
        [*(pair for pair in old or () if pair[0] not in drop), *new] or None
        for old, new in zip(before, pairs, strict=True)
    ]
    return with_column(table, "signals", merged)


def _column(table: pa.Table, name: str) -> list[Any]:
    if name not in table.column_names:
        return [None] * table.num_rows
    values: list[Any] = table.column(name).to_pylist()
    return values
