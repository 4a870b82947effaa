"""The columns that are measured of questions by themselves, by keys that other processes understand."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from operator import methodcaller

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import Signal
from suffice.measures.retrieval import retrieval_quality
from suffice.measures.scores import own_scores, score_rounds
from suffice.scoring import F1Kind, ScoreName
from suffice.signals.registry import SIGNALS
from suffice.signals.table import signal_columns
from suffice.trace.rounds.labels import labelled
from suffice.trace.rounds.table import TraceSet
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
class WorkColumn:
    """What a function gives of a record of some questions, each by itself, (n_questions, n_rounds or 1).

    Known by the function's value; other processes are sent it. With a ``name`` it is kept beside the record.
    """

    work: Callable[[TraceSet], Array]
    name: str = ""
    of_rounds: bool = True


def _labelled(traces: TraceSet) -> Array:
    return labelled(traces)[:, None].astype(np.float64)


def _units(traces: TraceSet) -> Array:
    return unit_keys(traces)[:, None]


LABELLED = WorkColumn(_labelled, "labelled", of_rounds=False)
"""1 where a question has gold answers."""
UNITS = WorkColumn(_units, "unit", of_rounds=False)


@cache
def lengths_of(column: str) -> WorkColumn:
    """How long each list of a column of the record is."""
    return WorkColumn(methodcaller("lengths", column), f"length-{column}")


@cache
def own_score(name: ScoreName) -> WorkColumn:
    """The record's own score in place of one of answers."""
    return WorkColumn(partial(own_scores, name=name))


MeasuredColumn = ScoreColumn | RetrievalColumn | SignalColumn | WorkColumn


def column_name(key: MeasuredColumn) -> str:
    """What a column is called where it is kept beside the record; empty: it is not."""
    if isinstance(key, ScoreColumn):
        of = f"-{key.f1_kind}" * (key.name == "f1") + "-agreeing" * key.agreeing
        return f"score-{key.name}{of}"
    if isinstance(key, SignalColumn):
        own = key.spec.own_settings or SIGNALS.get(key.spec.name) != key.spec
        return "" if own else f"signal-{key.spec.name}"
    return key.name


def measured_columns(traces: TraceSet, keys: Sequence[MeasuredColumn]) -> list[Array]:
    """The columns of these questions, each (n_questions, n_rounds), or (n_questions, 1) of questions."""
    columns: dict[MeasuredColumn, Array] = {}
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
        if isinstance(key, WorkColumn):
            columns[key] = key.work(traces)
    return [columns[key] for key in keys]


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
