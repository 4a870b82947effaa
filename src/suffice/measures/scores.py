"""Per-question scores of answers, retrieval and signals, under keys that workers share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib import import_module
from operator import attrgetter, methodcaller
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError, unknown_name
from suffice.scoring import METRICS, F1Kind, Metric, ScoreName
from suffice.signals.columns.answer_columns import GoldAnswers, ScoredAnswers
from suffice.signals.columns.arrays import Texts
from suffice.signals.columns.rounds import RoundColumns, gold_passages, listings
from suffice.signals.known_signals import SIGNALS, SignalSpec
from suffice.signals.signal_table import signal_columns
from suffice.stats.units import Array, Mask
from suffice.trace.rounds.labels import labelled
from suffice.trace.rounds.records import SCORE
from suffice.trace.rounds.schema import SCHEMA
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

    @property
    def judged(self) -> Array:
        """Return what a round is judged by: exact match, or the record's own score."""
        return self.f1 if self.metric.against == "scores" else self.em

    @property
    def scale(self) -> str:
        """Return what the judgement is against: gold, agreement, scores of 0 and 1, or graded ones."""
        judged = self.judged[np.isfinite(self.judged)]
        return self.metric.against if np.isin(judged, (0.0, 1.0)).all() else "graded"

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


def own_metric(name: str, traces: TraceSet | None = None) -> Metric:
    """Return the metric of a record's own column or signal, or of ``MODULE:FUNCTION``, which is imported.

    So no name comes here that a file states: the function is what its user typed.
    """
    of = () if traces is None else (*traces.signal_names, *traces.table.column_names)
    own = {*of} - {*SCHEMA.names}
    if name in own:
        score, texts = METRICS["score"], ("unscored", "remedy", "legend")
        said = {text: getattr(score, text).replace("'score'", repr(name)) for text in texts}
        return replace(score, name=name, source=name, **said)
    module, _, path = str(name).partition(":")
    if not (module and path):
        raise UsageError(unknown_name("metric", name, (*METRICS, *sorted(own), "MODULE:FUNCTION")))
    if str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))
    try:
        return replace(METRICS["f1"], name=name, source=attrgetter(path)(import_module(module)))
    except Exception as error:
        said_ = f"metric {name!r} is no MODULE:FUNCTION: {type(error).__name__}: {error}"
        raise UsageError(said_) from error


def refuse_code(stated: object, file: str) -> None:
    """Refuse a metric that a file states and that would be imported; its user may name it."""
    if isinstance(stated, str) and ":" in stated:
        said = f"names a metric that is code, which its user has to type: --metric {stated}"
        raise DataError(said, file=file)


def judged(metric: Metric, answer: str, accepted: Sequence[str]) -> float:
    """Return what the user's function says of an answer, given the list of gold answers."""
    try:
        value = float(metric.source(answer, [*accepted]))
    except Exception as error:
        raise UsageError(
            f"metric {metric.name!r} fails for answer {answer!r:.60}: {type(error).__name__}: {error}"
        ) from error
    if not 0.0 <= value <= 1.0:
        raise UsageError(
            f"metric {metric.name!r} gives {value:g}, which is not from 0 to 1: {answer!r:.60}"
        )
    return value


def function_scores(traces: TraceSet, metric: Metric) -> Array:
    """Return the scores of a function, each answer of a question judged once."""
    judge, golds = cache(partial(judged, metric)), [gold.answers for gold in traces.gold]
    answers = traces.table.column("answer").to_pylist()
    accepted = (golds[number] for number in np.repeat(np.arange(len(golds)), traces.last_rounds))
    values = [
        judge(answer, gold) if gold and answer is not None else np.nan
        for answer, gold in zip(answers, accepted, strict=True)
    ]
    return traces.dense(np.array(values, np.float64))


def own_scores(traces: TraceSet, name: ScoreName, column: str = "score") -> Array:
    """Return the record's own scores in place of a score, see :class:`suffice.scoring.Metric`."""
    scores = traces.column(column)
    if scores is None and column in traces.signal_names:
        scores = traces.stored_signal(column)[0]
    if scores is None:
        return np.full((traces.n_rounds, traces.n_questions), np.nan).T
    for value in scores[(scores < 0.0) | (scores > 1.0)][:1].tolist():
        raise DataError(SCORE.refusal(value), file=traces.origin.source, column=column)
    if name == "f1":
        return scores
    holds = scores == 1.0 if name == "em" else scores > 0.0
    return np.where(np.isnan(scores), np.nan, holds)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalQuality:
    """Hold precision and recall in [0, 1], each (n_questions, n_rounds); high is good."""

    precision: Array
    recall: Array

    def at(self, stops: NDArray[np.int16]) -> tuple[float | None, float | None]:
        """Return mean precision and recall at the stops (n_questions,); ``None`` if undefined everywhere."""
        rows = np.arange(len(stops))
        return _mean(self.precision[rows, stops - 1]), _mean(self.recall[rows, stops - 1])


def _mean(values: Array) -> float | None:
    defined = np.isfinite(values)
    return float(values[defined].mean()) if defined.any() else None


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
def own_score(name: ScoreName, metric: Metric) -> WorkColumn:
    if metric.gold:
        return WorkColumn(partial(function_scores, metric=metric))
    return WorkColumn(partial(own_scores, name=name, column=metric.source or "score"))


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
