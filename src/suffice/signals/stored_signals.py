"""Storage of computed signals in a trace set's ``signals`` map."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from suffice.contracts import ChatModel, Encoder, Entailment, Reranker
from suffice.signals.asking.looks import Looking
from suffice.signals.asking.whole_record import Asked, Asking, OnProgress, column_values
from suffice.signals.known_signals import SIGNALS, asked_by, askings, resolve
from suffice.signals.signal_table import declared, is_stored, lack, signal_table
from suffice.stats.fields import known
from suffice.stats.units import Array
from suffice.trace.rounds.trace_set import TraceSet, with_column

_Pair = tuple[str, float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalModels:
    """Name the models that may compute signals; ``None``: no model."""

    reranker: Reranker | None = None
    encoder: Encoder | None = None
    entailment: Entailment | None = None
    judge: ChatModel | None = None
    looks: Looking | None = None

    def named(self) -> Mapping[str, object]:
        """Return the models by the option of ``suffice signals``, the cheapest first."""
        models = {
            "--reranker": self.reranker,
            "--encoder": self.encoder,
            "--nli": self.entailment,
            "--llm": self.judge,
            "--looks": self.looks,
        }
        return {option: model for option, model in models.items() if model is not None}


_NOBODY = SignalModels()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSignals:
    """Hold traces with stored signals, the names computed, and why others were skipped.

    ``asked`` holds the replies of the models by name, such as ``judge``.
    """

    traces: TraceSet
    computed: tuple[str, ...]
    skipped: Mapping[str, str]
    asked: Mapping[str, Any] = field(default_factory=dict)


def with_signals(
    traces: TraceSet,
    only: tuple[str, ...] | None = None,
    *,
    models: SignalModels = _NOBODY,
    on_progress: OnProgress = lambda _: None,
) -> StoredSignals:
    """Compute all signals that the record allows, or those in ``only``, and store them.

    Looks are asked beside those in ``only``. Stored values stay. An undefined value is stored as null. A
    model is asked about every round without a stored value. A round whose call fails gets no value, so a
    later run asks again. After an interrupt no model is asked.
    """
    looks = () if models.looks is None else models.looks.names
    named = only if only is not None else () if looks else tuple(SIGNALS)
    names = tuple(dict.fromkeys((*(resolve(name).name for name in named), *looks)))
    rows = _Rows(traces=traces, names=names, on_progress=on_progress)
    ready = [
        (asking, model)
        for option, model in models.named().items()
        for asking in askings()
        if asking.option == option
    ]
    for asking, model in ready:
        if asking.inputs is not None:
            rows.ask_for_inputs(asking, model)
    chosen, skipped = _sorted_out(names, rows.traces)
    table = signal_table(rows.traces, chosen)
    rows.pairs = _pairs(rows.traces, {name: table.signal(name) for name in chosen})
    again = set(chosen).intersection(rows.traces.signal_names)
    for asking, model in ready:
        if asking.inputs is None:
            rows.ask(asking, model)
    reasons = {name: why for name, why in skipped.items() if name not in rows.computed}
    return StoredSignals(
        traces=replace(rows.traces, table=_with_map(rows.traces, rows.pairs, drop=again)),
        computed=(*chosen, *rows.computed),
        skipped=reasons | rows.put_off,
        asked=rows.asked,
    )


def with_values(traces: TraceSet, values: Mapping[str, Array]) -> TraceSet:
    """Store these signals, each (n_questions, n_rounds), in place of stored ones."""
    table = _with_map(traces, _pairs(traces, values), drop=values.keys())
    return replace(traces, table=table)


@dataclass(slots=True, kw_only=True)
class _Rows:
    """Collect new values by row, and the models that gave them."""

    traces: TraceSet
    names: Collection[str]
    on_progress: Callable[[Asked], None]
    pairs: list[list[_Pair]] = field(default_factory=list)
    computed: list[str] = field(default_factory=list)
    asked: dict[str, Any] = field(default_factory=dict)
    put_off: dict[str, str] = field(default_factory=dict)
    interrupted: bool = False

    def ask_for_inputs(self, asking: Asking, model: object) -> None:
        """Write what signals are computed of; those stored as undefined throughout are dropped."""
        names = asked_by(asking)
        if set(names).isdisjoint(self.names):
            return
        wanted = np.ones(self.traces.table.num_rows, bool)
        replies = asking.ask(self.traces, model, wanted, self.on_progress)
        self._write(asking, replies)
        if not replies.by_row:
            return
        empty = {
            name
            for name in set(names).intersection(self.traces.signal_names)
            if np.isnan(self.traces.stored_signal(name)[0]).all()
        }
        if empty:
            table = _with_map(self.traces, _pairs(self.traces, {}), drop=empty)
            self.traces = replace(self.traces, table=table)

    def ask(self, asking: Asking, model: object) -> None:
        lacking = {}  # by name the rows without it, not even as undefined, (n_rows,)
        for name in asked_by(asking):
            if name in self.names and all(map(self.traces.has, SIGNALS[name].needs)):
                lacking[name] = np.ones(self.traces.table.num_rows, bool)
                if name in self.traces.signal_names:
                    lacking[name] = ~self.traces.stored_signal(name)[1][self.traces.exists]
        wanted = np.any([*lacking.values()], axis=0)
        if not wanted.any():
            return
        new = [name for name, rows in lacking.items() if rows.any()]
        if self.interrupted:
            self.put_off |= dict.fromkeys(new, "interrupted before")
            return
        replies = asking.ask(self.traces, model, wanted, self.on_progress)
        for row, reply in replies.by_row.items():
            values = asking.values(reply)
            self.pairs[row] += [(name, known(values[name])) for name in new if lacking[name][row]]
        self.computed += new
        self._write(asking, replies)

    def _write(self, asking: Asking, replies: Any) -> None:
        table = self.traces.table
        for name, values in asking.columns(self.traces, replies).items():
            table = with_column(table, name, values)
        self.traces = replace(self.traces, table=table)
        self.asked[asking.name] = replies
        self.interrupted = replies.interrupted


def _pairs(traces: TraceSet, values: Mapping[str, Array]) -> list[list[_Pair]]:
    """Return dense values (n_questions, n_rounds) by name as pairs of each row."""
    pairs: list[list[_Pair]] = [[] for _ in range(traces.table.num_rows)]
    for name, dense in values.items():
        for row, value in zip(pairs, dense[traces.exists].tolist(), strict=True):
            row.append((name, known(value)))
    return pairs


def _sorted_out(names: Sequence[str], traces: TraceSet) -> tuple[list[str], dict[str, str]]:
    """Split the names into those that the record alone gives, and the others with a reason."""
    chosen: list[str] = []
    skipped: dict[str, str] = {}
    for name in names:
        spec = declared(name, traces)
        why = lack(spec, traces)
        inputs = None if spec.asking is None else spec.asking.inputs
        if is_stored(spec, traces):
            skipped[name] = "stored already"
        elif why is not None:
            skipped[name] = why.no_columns or why.because or f"needs {spec.asks or 'a model'}"
        elif inputs is not None and not inputs(traces):
            skipped[name] = f"needs {spec.asks}"
        else:
            chosen.append(name)
    return chosen, skipped


def _with_map(
    traces: TraceSet, pairs: Sequence[Sequence[_Pair]], drop: Collection[str] = ()
) -> pa.Table:
    """Add these pairs to each row's signals and remove the names in ``drop``."""
    merged = [
        [*(pair for pair in old or () if pair[0] not in drop), *new] or None
        for old, new in zip(column_values(traces, "signals"), pairs, strict=True)
    ]
    return with_column(traces.table, "signals", merged)
