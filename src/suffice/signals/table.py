"""Signals of a whole trace set as dense arrays, and of a live loop round by round."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.protocols import Signal
from suffice.signals.abstained import ABSTAINED, abstained_signal, stated_phrases
from suffice.signals.available import is_stored, refuse_lacking
from suffice.signals.registry import resolve
from suffice.signals.spec import UNDEFINED, InColumns, SignalSpec, given_by, unanswered
from suffice.trace.rounds.records import LoopView

if TYPE_CHECKING:
    from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalTable:
    """Signals by name, each float64 (n_questions, n_rounds) stored round-major, NaN: undefined.

    ``exists`` (n_questions, n_rounds) says which rounds were recorded. ``question_ids`` are for
    policies that draw lots; empty where none reads the table.
    """

    values: Mapping[str, NDArray[np.float64]]
    exists: NDArray[np.bool_]
    question_ids: Sequence[str] = ()

    @property
    def n_questions(self) -> int:
        """How many questions there are."""
        return int(self.exists.shape[0])

    @property
    def n_rounds(self) -> int:
        """The full budget."""
        return int(self.exists.shape[1])

    def signal(self, name: str) -> NDArray[np.float64]:
        """A signal's values (n_questions, n_rounds)."""
        try:
            return self.values[name]
        except KeyError:
            raise UsageError(
                f"signal {name!r} is not in the table; it holds {', '.join(sorted(self.values))}"
            ) from None


def signal_value(spec: Signal, view: LoopView) -> float:
    """A signal at a view's last round: the recorded value as it stands, else computed."""
    recorded = None if spec.own_settings else view.current.signals.get(spec.name)
    return _computed(spec, view) if recorded is None else float(recorded)


def _computed(spec: Signal, view: LoopView) -> float:
    """Undefined where it reads answers and the loop was not asked for one."""
    return UNDEFINED if unanswered(spec, view) else spec(view)


def signal_table(traces: TraceSet, signals: Iterable[str | Signal]) -> SignalTable:
    """Read stored signals and compute the missing ones, in one pass over the record."""
    specs = specs_for(traces, signals)
    columns = signal_columns(traces, specs)
    return SignalTable(
        values={spec.name: values for spec, values in zip(specs, columns, strict=True)},
        exists=traces.exists,
        question_ids=traces.question_ids,
    )


def specs_for(traces: TraceSet, signals: Iterable[str | Signal]) -> tuple[Signal, ...]:
    """The signals' declarations, the last one of each name."""
    resolved = (
        declared(signal, traces) if isinstance(signal, str) else signal for signal in signals
    )
    specs = tuple({spec.name: spec for spec in resolved}.values())
    refuse_lacking(specs, traces)
    return specs


def declared(name: str, traces: TraceSet, *, also: Iterable[str] = ()) -> SignalSpec:
    """A signal by name, ``abstained`` by the phrases that the record states; ``also``: known elsewhere."""
    stated = stated_phrases(traces.origin.run)
    if name == ABSTAINED.name and stated is not None:
        return abstained_signal(stated)
    return resolve(name, also=(*traces.signal_names, *also))


def signal_columns(traces: TraceSet, specs: Sequence[Signal]) -> list[NDArray[np.float64]]:
    """Each signal in every recorded round, stored or computed, (n_questions, n_rounds) round-major.

    NaN also throughout where the trace lacks what a signal needs.
    """
    values: dict[int, NDArray[np.float64]] = {}
    to_compute: dict[int, NDArray[np.bool_]] = {}
    for number, spec in enumerate(specs):
        stored = np.zeros((traces.n_questions, traces.n_rounds), bool)
        values[number] = np.full((traces.n_rounds, traces.n_questions), math.nan).T
        if is_stored(spec, traces):
            values[number], stored = traces.stored_signal(spec.name)
        absent = traces.exists & ~stored
        if not spec.recorded_only and absent.any():
            to_compute[number] = absent
    computed = _compute(traces, [specs[number] for number in to_compute])
    for (number, absent), column in zip(to_compute.items(), computed, strict=True):
        values[number] = np.where(absent.T, column.T, values[number].T).T
    return [values[number] for number in range(len(specs))]


def answer_votes(traces: TraceSet) -> NDArray[np.float64]:
    """In how many rounds so far each round's answer was given, (n_questions, n_rounds); NaN: it abstains.

    Answers are compared as EM does. NaN also where the loop was not asked for one.
    """
    from suffice.numbers.series import occurrences  # not to decide by a rule, which loads little
    from suffice.signals.by_columns.answers import forms
    from suffice.signals.by_columns.rounds import RoundColumns

    spec = declared(ABSTAINED.name, traces)
    refuse_lacking([spec], traces)
    (abstained,) = signal_columns(traces, [spec])
    codes = traces.dense(RoundColumns(traces).once(forms).codes.astype(np.float64))
    return occurrences(np.where(abstained == 0.0, codes, np.nan))


def read_columns(specs: Iterable[Signal]) -> list[str]:
    """Columns of a trace that these signals are computed of, those it may lack included."""
    read = {column for spec in specs for column in (*spec.needs, *spec.reads)}
    return sorted(read | {"passages"})


def _compute(traces: TraceSet, specs: Sequence[Signal]) -> list[NDArray[np.float64]]:
    """Each signal in every recorded round, dense: by columns where it has a form for that."""
    if not specs:
        return []
    from suffice.signals.by_columns.rounds import RoundColumns  # loads pyarrow

    rounds = RoundColumns(traces)
    by_round = [number for number, spec in enumerate(specs) if _in_columns(spec) is None]
    values = dict(zip(by_round, _round_by_round(traces, [specs[i] for i in by_round]), strict=True))
    for number, spec in enumerate(specs):
        if (in_columns := _in_columns(spec)) is not None:
            column = in_columns(rounds)
            if spec.answers and given_by(spec) is spec:
                column = np.where(rounds.answered, column, math.nan)
            values[number] = traces.dense(column)
    return [values[number] for number in range(len(specs))]


def _in_columns(spec: Signal) -> InColumns | None:
    return spec.in_columns if isinstance(spec, SignalSpec) else None


def _round_by_round(traces: TraceSet, specs: Sequence[Signal]) -> list[NDArray[np.float64]]:
    """The same of signals that know single rounds only, as those of a user's own."""
    if not specs:
        return []
    rounds_first = np.full((len(specs), traces.n_rounds, traces.n_questions), math.nan)
    for question, views in enumerate(traces.views(read_columns(specs))):
        for number, view in enumerate(views):
            for index, spec in enumerate(specs):
                rounds_first[index, number, question] = _computed(spec, view)
    return [values.T for values in rounds_first]
