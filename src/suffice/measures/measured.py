"""The columns that are measured of questions by themselves, by keys that other processes understand."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.measures.retrieval import retrieval_quality
from suffice.measures.scores import own_scores, score_rounds
from suffice.protocols import Signal
from suffice.scoring import F1Kind, ScoreName
from suffice.signals.table import signal_columns
from suffice.trace.rounds.labels import labelled
from suffice.trace.rounds.table import TraceSet
from suffice.trace.schema import MEASURED
from suffice.trace.units import unit_keys

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class ScoreColumn:
    """A score of every answer; ``agreeing``: an answer equal to the gold one scores 1 in any case.

    EM and Acc have the F1's first kind.
    """

    name: ScoreName
    f1_kind: F1Kind = "hotpotqa"
    agreeing: bool = False
    of_rounds = True


@dataclass(frozen=True, slots=True)
class OwnScoreColumn:
    """The record's own score in place of one of answers."""

    name: ScoreName
    of_rounds = True


@dataclass(frozen=True, slots=True)
class LabelledColumn:
    """1 where a question has gold answers, one value a question."""

    of_rounds = False


@dataclass(frozen=True, slots=True)
class UnitColumn:
    """See :func:`suffice.trace.units.unit_keys`, one value a question."""

    of_rounds = False


@dataclass(frozen=True, slots=True)
class RetrievalColumn:
    """``precision`` or ``recall`` of what was retrieved."""

    name: str
    of_rounds = True


@dataclass(frozen=True, slots=True, eq=False)
class SignalColumn:
    """A signal, known by its declaration: compared by value where it can be."""

    spec: Signal
    of_rounds = True

    @property
    def _key(self) -> Hashable:
        try:
            return hash(self.spec), self.spec
        except TypeError:
            return id(self.spec)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SignalColumn) and other._key == self._key


@dataclass(frozen=True, slots=True)
class DerivedColumn:
    """What a function gives of a record of some questions, each by itself, (n_questions, n_rounds).

    Known by the function's value; other processes are sent it.
    """

    work: Callable[[TraceSet], Array]
    of_rounds = True


MeasuredColumn = (
    ScoreColumn
    | OwnScoreColumn
    | LabelledColumn
    | UnitColumn
    | RetrievalColumn
    | SignalColumn
    | DerivedColumn
)


def column_name(key: MeasuredColumn) -> str:
    """What a column is called where it is written with the record; empty: it is not."""
    if isinstance(key, ScoreColumn) and not key.agreeing:
        kind = f".{key.f1_kind}" if key.name == "f1" else ""
        return f"{MEASURED}score.{key.name}{kind}"
    if isinstance(key, LabelledColumn):
        return f"{MEASURED}labelled"
    if isinstance(key, RetrievalColumn):
        return f"{MEASURED}{key.name}"
    if isinstance(key, SignalColumn) and not key.spec.own_settings:
        return f"{MEASURED}signal.{key.spec.name}"
    return ""


def _written(traces: TraceSet, key: MeasuredColumn) -> Array:
    """A column that was written with the record."""
    name = column_name(key)
    if key.of_rounds:
        return traces.dense(traces.table.column(name))
    return np.asarray(pc.cast(traces.first_rounds(name), "float64"), np.float64)[:, None]


def measured_columns(traces: TraceSet, keys: Sequence[MeasuredColumn]) -> list[Array]:
    """The columns of these questions, each (n_questions, n_rounds), or (n_questions, 1) of questions."""
    written = {key for key in keys if column_name(key) in traces.table.column_names}
    columns: dict[MeasuredColumn, Array] = {key: _written(traces, key) for key in written}
    asked, keys = keys, [key for key in keys if key not in written]
    signals = [key for key in keys if isinstance(key, SignalColumn)]
    columns |= zip(signals, signal_columns(traces, [key.spec for key in signals]), strict=True)
    if any(isinstance(key, RetrievalColumn) for key in keys):
        quality = retrieval_quality(traces)
        columns[RetrievalColumn("precision")] = quality.precision
        columns[RetrievalColumn("recall")] = quality.recall
    scores = [key for key in keys if isinstance(key, ScoreColumn)]
    for f1_kind, agreeing in {(key.f1_kind, key.agreeing) for key in scores}:
        alike = [key for key in scores if (key.f1_kind, key.agreeing) == (f1_kind, agreeing)]
        names = [key.name for key in alike]
        columns |= zip(alike, score_rounds(traces, names, f1_kind, agreement=agreeing), strict=True)
    for key in keys:
        if isinstance(key, OwnScoreColumn):
            columns[key] = own_scores(traces, key.name)
        elif isinstance(key, LabelledColumn):
            columns[key] = labelled(traces)[:, None].astype(np.float64)
        elif isinstance(key, UnitColumn):
            columns[key] = unit_keys(traces)[:, None]
        elif isinstance(key, DerivedColumn):
            columns[key] = key.work(traces)
    return [columns[key] for key in asked]


@dataclass(frozen=True, slots=True)
class MeasuredShard:
    """Measures columns of a shard; ``by_full_budget``: its own last answers stand for the gold ones."""

    keys: tuple[MeasuredColumn, ...]
    by_full_budget: bool = False

    def __call__(self, traces: TraceSet) -> list[Array]:
        """The columns in the order of the keys."""
        if self.by_full_budget:
            traces = traces.labelled_by_full_budget()
        return measured_columns(traces, self.keys)
