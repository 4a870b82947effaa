"""Per-question scores of answers, retrieval and signals, under keys that workers share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import methodcaller
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.scoring import METRICS, F1Kind, Metric, ScoreName
from suffice.signals.columns.answer_columns import GoldAnswers, ScoredAnswers
from suffice.signals.columns.arrays import Texts
from suffice.signals.columns.rounds import RoundColumns, gold_passages, listings
from suffice.signals.known_signals import SIGNALS, SignalSpec
from suffice.signals.signal_table import signal_columns
from suffice.stats.units import Array, Mask
from suffice.trace.rounds.labels import labelled
from suffice.trace.rounds.trace_set import TraceSet, unit_keys


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Hold the scores of every answer, each (n_questions, n_rounds); NaN: unlabeled or no answer."""

    em: Array
    f1: Array
    acc: Array
    labelled: Mask  # (n_questions,)
    metric: Metric = METRICS["f1"]

    @property
    def compared(self) -> Array:
        """Return the score that compares policies, (n_questions, n_rounds)."""
        scores: Array = getattr(self, self.metric.score)
        return scores

    def take(self, rows: Mask) -> Outcomes:
        em, f1, acc = (values[rows] for values in (self.em, self.f1, self.acc))
        return replace(self, em=em, f1=f1, acc=acc, labelled=self.labelled[rows])


def score_rounds(
    traces: TraceSet,
    names: Sequence[ScoreName],
    kind: F1Kind | Literal["mlqa"] = "hotpotqa",
    *,
    agreement: bool = False,
) -> list[Array]:
    """Score every recorded answer, (n_questions, n_rounds) each; NaN where none was asked for."""
    question = np.repeat(np.arange(traces.n_questions), traces.last_rounds)
    said, gold = traces.table.column("answer"), gold_answers(traces)
    by = "agreement" if agreement else kind
    if kind == "mlqa":  # a text stands behind its language
        told = pc.fill_null(traces.first_rounds("question_type"), "").cast("string")
        of_gold = np.repeat(np.arange(len(told)), np.diff(gold.offsets))
        texts = gold.texts.distinct.take(pa.array(gold.texts.codes)).cast("string")
        said = pc.binary_join_element_wise(told.take(pa.array(question)), said, "\n")
        texts = pc.binary_join_element_wise(told.take(pa.array(of_gold)), texts, "\n")
        said = pc.if_else(pa.array(gold.labelled[question]), said, None)
        gold = GoldAnswers(Texts.of(texts), gold.offsets)
    answers = ScoredAnswers(Texts.of(said), gold, question, by)
    f1_kind: F1Kind = "squad" if kind == "mlqa" else kind
    return [traces.dense(answers.score(name, f1_kind)) for name in names]


def gold_answers(traces: TraceSet) -> GoldAnswers:
    return GoldAnswers.of(traces.first_rounds("gold_answers"))


def own_scores(traces: TraceSet, name: ScoreName) -> Array:
    """Return the record's own scores in place of a score, see :class:`suffice.scoring.Metric`."""
    scores = traces.column("score")
    if scores is None:
        return np.full((traces.n_rounds, traces.n_questions), np.nan).T
    if name == "f1":
        return scores
    holds = scores == 1.0 if name == "em" else scores > 0.0
    return np.where(np.isnan(scores), np.nan, holds)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalQuality:
    """Hold precision and recall in [0, 1], each (n_questions, n_rounds); high is good."""

    precision: Array
    recall: Array

    def at(
        self, stops: NDArray[np.int16], weights: Array | None = None
    ) -> tuple[float | None, float | None]:
        """Return mean precision and recall at the stops (n_questions,); ``None`` if undefined everywhere."""
        rows = np.arange(len(stops))
        weights = np.ones(len(stops)) if weights is None else weights
        return (
            _mean(self.precision[rows, stops - 1], weights),
            _mean(self.recall[rows, stops - 1], weights),
        )


def _mean(values: Array, weights: Array) -> float | None:
    defined = np.isfinite(values)
    return float(np.average(values[defined], weights=weights[defined])) if defined.any() else None


def retrieval_quality(traces: TraceSet) -> RetrievalQuality:
    """Compute precision and recall of the passages of rounds 1 to t by id, each id once.

    Paper 1, table 2, gives no formula; this is our reading. If a corpus holds a paragraph under several ids,
    both figures come out too low.
    """
    if not (traces.has("gold_passage_ids") and traces.has("passages")):
        unknown = np.full((traces.n_questions, traces.n_rounds), np.nan)
        return RetrievalQuality(precision=unknown, recall=unknown)
    rounds = RoundColumns(traces)
    listed, (named, right_ones) = rounds.once(listings), gold_passages(rounds)
    gold_new = np.bincount(listed.rows[right_ones], minlength=rounds.n_rows)
    distinct, right = (
        np.cumsum(traces.dense(np.where(listed.lists.valid, counted, np.nan)), axis=1)
        for counted in (listed.new, gold_new)
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        recall = right / np.where(named > 0, named, np.nan)[:, None]
        precision = np.where(np.isnan(recall), np.nan, right / distinct)
    return RetrievalQuality(precision=precision, recall=recall)


@dataclass(frozen=True, slots=True)
class ScoreColumn:
    """Name a score; with ``agreeing``, an answer equal to the gold one always scores 1."""

    name: ScoreName
    kind: F1Kind | Literal["mlqa"] = "hotpotqa"
    agreeing: bool = False
    of_rounds = True


@dataclass(frozen=True, slots=True)
class RetrievalColumn:
    """Name the ``precision`` or ``recall`` of retrieval."""

    name: str
    of_rounds = True


@dataclass(frozen=True, slots=True, eq=False)
class SignalColumn:
    """Name a signal by its declaration, compared by value if possible."""

    spec: SignalSpec
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
    """Name a function of some questions, each by itself, (n_questions, n_rounds or 1)."""

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
    return WorkColumn(methodcaller("lengths", column), f"length-{column}")


@cache
def own_score(name: ScoreName) -> WorkColumn:
    return WorkColumn(partial(own_scores, name=name))


MeasuredColumn = ScoreColumn | RetrievalColumn | SignalColumn | WorkColumn


def column_name(key: MeasuredColumn) -> str:
    """Return the name of a column kept beside the record; empty if it is not kept."""
    if isinstance(key, ScoreColumn):
        of = f"-{key.kind}" * (key.name == "f1" or key.kind == "mlqa") + "-agreeing" * key.agreeing
        return f"score-{key.name}{of}"
    if isinstance(key, SignalColumn):
        usual = SIGNALS.get(key.spec.name) == key.spec
        return f"signal-{key.spec.name}" if usual else ""
    return key.name


def measured_columns(traces: TraceSet, keys: Sequence[MeasuredColumn]) -> list[Array]:
    """Compute the columns of these questions, each (n_questions, n_rounds) or (n_questions, 1)."""
    columns: dict[MeasuredColumn, Array] = {}
    signals = [key for key in keys if isinstance(key, SignalColumn)]
    columns |= zip(signals, signal_columns(traces, [key.spec for key in signals]), strict=True)
    if any(isinstance(key, RetrievalColumn) for key in keys):
        quality = retrieval_quality(traces)
        columns[RetrievalColumn("precision")] = quality.precision
        columns[RetrievalColumn("recall")] = quality.recall
    scores = [key for key in keys if isinstance(key, ScoreColumn)]
    for kind, agreeing in {(key.kind, key.agreeing) for key in scores}:
        alike = [key for key in scores if (key.kind, key.agreeing) == (kind, agreeing)]
        names = [key.name for key in alike]
        columns |= zip(alike, score_rounds(traces, names, kind, agreement=agreeing), strict=True)
    for key in keys:
        if isinstance(key, WorkColumn):
            columns[key] = key.work(traces)
    return [columns[key] for key in keys]


@dataclass(frozen=True, slots=True)
class MeasuredShard:
    """Measure columns of a shard; ``by_full_budget`` takes its own last answers as gold answers."""

    keys: tuple[MeasuredColumn, ...]
    by_full_budget: bool = False

    def __call__(self, traces: TraceSet) -> list[Array]:
        if self.by_full_budget:
            traces = traces.labelled_by_full_budget()
        return measured_columns(traces, self.keys)
