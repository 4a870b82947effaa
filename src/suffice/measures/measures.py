"""A trace set measured once: scores, signals, costs and stop rounds, computed when first asked and kept.

Scores, signals and retrieval are local to a question. So they are kept as columns over the whole trace
set, each filled for the questions that were asked for and not known yet; a split or any other part
reads its rows of them. Sums of costs and stop rounds are kept with the part: whether a cost is known, and
which round is the last one of a budget, are said of a part as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import CostModel, CostReads
from suffice.errors import InternalError, UsageError
from suffice.measures.costs import CostBook
from suffice.measures.retrieval import RetrievalQuality, retrieval_quality
from suffice.measures.scores import Outcomes, gold_answers, own_scores, score_rounds
from suffice.measures.seen import Seen, seen_of
from suffice.protocols import Signal, StopPolicy
from suffice.scoring import (
    METRICS,
    F1Kind,
    Metric,
    MetricName,
    ScoreName,
)
from suffice.signals.table import SignalTable, signal_columns, specs_for
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.table import TraceSet

Array = NDArray[np.float64]


class _Columns:
    """Columns over all questions of a trace set, by key; each knows which questions it is filled for."""

    def __init__(self, traces: TraceSet) -> None:
        self.traces = traces
        self._values: dict[Hashable, Array] = {}  # (n_rounds, n_questions) each
        self._filled: dict[Hashable, NDArray[np.bool_]] = {}  # (n_questions,) each

    def lacking(self, key: Hashable, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        """Those of the questions for which the column is not known yet."""
        return rows[~self._filled[key][rows]] if key in self._filled else rows

    def only(self, rows: NDArray[np.intp]) -> TraceSet:
        """The record of these questions."""
        chosen = np.zeros(self.traces.n_questions, bool)
        chosen[rows] = True
        return self.traces.take(chosen)

    def fill(self, key: Hashable, rows: NDArray[np.intp], values: Array) -> None:
        """Keep values (n_rows, at most n_rounds) of these questions."""
        if key not in self._values:
            traces = self.traces
            self._values[key] = np.full((traces.n_rounds, traces.n_questions), np.nan)
            self._filled[key] = np.zeros(traces.n_questions, bool)
        self._values[key][: values.shape[1], rows] = values.T
        self._filled[key][rows] = True

    def part(self, key: Hashable, rows: NDArray[np.intp], n_rounds: int) -> Array:
        """The column of these questions, (n_rows, n_rounds) stored round-major, read only."""
        if not len(rows):
            return np.empty((n_rounds, 0)).T
        values = self._values[key][:n_rounds]
        if len(rows) < self.traces.n_questions:
            values = np.take(values, rows, axis=1)
        column = values.T
        column.flags.writeable = False
        return column


class Measures:
    """What is known of a trace set in columns, computed on first use.

    Parts (:meth:`only_split`, :meth:`take`, :meth:`only_questions`) share what they measure: nothing is
    computed twice for one question and round, and nothing for questions that nobody asks for.

    Parameters
    ----------
    traces
        The recorded questions.
    metric
        What their scores are compared by; ``None``: not asked for, see :meth:`by`.
    """

    def __init__(self, traces: TraceSet, metric: Metric | None = None) -> None:
        self.traces = traces
        self._whole = _Columns(traces)
        self._rows: NDArray[np.intp] = np.arange(traces.n_questions)  # of the whole
        self._splits: dict[str, Measures] = {}
        self._columns: dict[Hashable, Array] = {}
        self._scores: dict[F1Kind, Outcomes] = {}
        self._books: list[tuple[tuple[CostModel, CostReads | None], CostBook]] = []
        self._wanted: dict[int, tuple[StopPolicy, NDArray[np.int16]]] = {}
        self._closed_book: Measures | None = None
        self._metric = metric
        self._recorded: TraceSet | None = None  # None: the traces
        self._by: dict[MetricName, Measures] = {}

    @classmethod
    def of(cls, traces: Traces) -> Measures:
        """The measures of a trace set, or of the traces at a path; measures are handed on as they are.

        Raises
        ------
        UsageError
            For anything else.
        DataError
            For traces that cannot be read.
        """
        if isinstance(traces, Measures):
            return traces
        if isinstance(traces, str | Path):
            traces = read_traces(traces)
        if not isinstance(traces, TraceSet):
            raise UsageError(
                "traces are a TraceSet, Measures of one or the path of a Parquet file or directory, found "
                f"{type(traces).__name__}"
            )
        return cls(traces)

    # --- what scores are compared by -------------------------------------------------------------
    @property
    def metric(self) -> Metric:
        """What policies are compared by, and what every score is taken against."""
        return self._metric or METRICS["f1"]

    @property
    def recorded(self) -> TraceSet:
        """The questions with the gold answers they were recorded with, whatever scores go by."""
        return self._recorded or self.traces

    def by(self, name: MetricName | None) -> Measures:
        """The measures under which policies are compared by this metric; parts keep it.

        Parameters
        ----------
        name
            Of :data:`suffice.scoring.METRICS`. ``None``: the one asked for before, else f1 where some
            question has gold answers, score where none has and some has a score of its own, else
            agreement.

        Notes
        -----
        Under agreement the full budget's own answers stand for the gold ones wherever these are read, in
        fitting as in scoring: what comes out is what a record without gold answers gives.
        """
        if name is None:
            name = self.metric.name if self._metric else self._usual()
        metric = METRICS[name]
        if metric == self._metric:
            return self
        if name not in self._by:
            self._by[name] = self._compared_by(metric)
        return self._by[name]

    def _usual(self) -> MetricName:
        if any(gold.answers for gold in self.traces.gold):
            return "f1"
        return "score" if self.traces.has("score") else "agreement"

    def _compared_by(self, metric: Metric) -> Measures:
        if self.metric.agreement:
            raise InternalError(f"no gold answers are left to score {metric.name} against")
        if not metric.agreement:
            measures = Measures(self.traces, metric)
            measures._whole, measures._rows = self._whole, self._rows
            return measures
        measures = Measures(self.traces.labelled_by_full_budget(), metric)
        measures._recorded = self.traces
        return measures

    def notes(self, asked: MetricName | None) -> list[str]:
        """What a reader of these questions' scores must know of what they are taken against.

        ``asked`` is the metric that was asked for.
        """
        if self.metric.gold:
            return []
        why = "" if asked else "No question has gold answers. "
        traces, notes = self.traces, [f"{why}{self.metric.legend}"]
        if not self.metric.agreement:
            without = int((~self.scores().labelled).sum())
            if without:
                notes.append(
                    f"{without} of {traces.n_questions} questions have no score: counted in costs, not in "
                    "scores"
                )
            return notes
        short = int((traces.last_rounds < traces.n_rounds).sum())
        if short:
            notes.append(
                f"{short} of {traces.n_questions} questions end before round {traces.n_rounds}: the full "
                "budget's answer is that of their last recorded round"
            )
        blank = sum(not gold.answers for gold in traces.gold)
        if blank:
            notes.append(
                f"{blank} of {traces.n_questions} questions have a blank answer at their full budget, with "
                "which nothing can agree: counted in costs, not in scores"
            )
        return notes

    @cached_property
    def seen(self) -> Seen | None:
        """How far its questions were seen; ``None``: none of them was cut."""
        return seen_of(self.recorded)

    @property
    def ends(self) -> NDArray[np.int16]:
        """The round at which what never stops ends each question, (n_questions,).

        That is the last one recorded; where some were cut the full budget, of those too.
        """
        last = self.traces.last_rounds
        return last if self.seen is None else np.full_like(last, self.seen.budget)

    # --- parts ---------------------------------------------------------------------------------
    def only_split(self, name: str) -> Measures:
        """The measures of one split's questions.

        Raises
        ------
        DataError
            When there are none, naming the splits there are.
        """
        if name not in self._splits:
            traces = self.traces.only_split(name)
            chosen = np.array([question.split == name for question in self.traces.questions], bool)
            self._splits[name] = self._part(traces, chosen)
        return self._splits[name]

    def only_questions(self, ids: Iterable[str]) -> Measures:
        """The measures of the questions with these ids, as far as they are recorded."""
        wanted = frozenset(ids)
        return self.take(np.array([name in wanted for name in self.traces.question_ids], bool))

    def take(self, chosen: NDArray[np.bool_]) -> Measures:
        """The measures of the questions where ``chosen`` (n_questions,) is true."""
        return self if chosen.all() else self._part(self.traces.take(chosen), chosen)

    def closed_book(self) -> Measures:
        """The measures of round 0 of every question that has one, as its only round."""
        if self._closed_book is None:
            self._closed_book = Measures(self.traces.closed_book_rounds(), self._metric)
        return self._closed_book

    def _part(self, traces: TraceSet, chosen: NDArray[np.bool_]) -> Measures:
        part = Measures(traces, self._metric)
        part._whole, part._rows = self._whole, self._rows[chosen]
        if self._recorded is not None:
            part._recorded = self._recorded.take(chosen)
        return part

    # --- local to a question -------------------------------------------------------------------
    def score(self, name: ScoreName, f1_kind: F1Kind = "hotpotqa") -> Array:
        """One score of every recorded answer, (n_questions, n_rounds); NaN: unlabelled or no round."""
        return self._scored((name,), f1_kind)[0]

    def _scored(self, names: Sequence[ScoreName], f1_kind: F1Kind) -> list[Array]:
        if self.metric.against == "scores":
            own: dict[Hashable, ScoreName] = {("own", name): name for name in names}
            return self._local(
                list(own), lambda traces, keys: [own_scores(traces, own[key]) for key in keys]
            )
        known: dict[Hashable, ScoreName] = {
            (name, f1_kind) if name == "f1" else name: name for name in names
        }
        agreement = self.metric.agreement
        return self._local(
            list(known),
            lambda traces, keys: score_rounds(
                traces, [known[key] for key in keys], f1_kind, agreement=agreement
            ),
        )

    def scores(self, f1_kind: F1Kind = "hotpotqa") -> Outcomes:
        """What every recorded answer scored."""
        if f1_kind not in self._scores:
            em, f1, acc = self._scored(("em", "f1", "acc"), f1_kind)
            labelled = gold_answers(self.traces).labelled
            if self.metric.against == "scores":
                labelled = np.asarray(~np.isnan(f1).all(axis=1))
            self._scores[f1_kind] = Outcomes(
                em=em,
                f1=f1,
                acc=acc,
                labelled=labelled,
                metric=self.metric,
            )
        return self._scores[f1_kind]

    def scores_throughout(self, who: str, f1_kind: F1Kind = "hotpotqa") -> Outcomes:
        """The scores, for ``who`` compares what stopping after any round scores.

        Raises
        ------
        UsageError
            When a question that is scored at all has a round without a score.
        """
        scored = self.scores(f1_kind)
        unknown = self.traces.exists & np.isnan(scored.compared) & scored.labelled[:, None]
        if unknown.any():
            question, number = np.argwhere(unknown)[0]
            raise UsageError(
                f"{who} needs a score of every round, and {int(unknown.any(axis=1).sum())} of "
                f"{int(scored.labelled.sum())} questions {scored.metric.scored} have rounds "
                f"{scored.metric.untold}, the first: round {number + 1} of question "
                f"{self.traces.question_ids[question]!r} in {self.traces.origin.source}; "
                f"{scored.metric.remedy}"
            )
        return scored

    def signals(self, signals: Iterable[str | Signal]) -> SignalTable:
        """A table of these signals; what is not known yet is computed in one pass over the record.

        A signal is known by its declaration: its name and what a policy changed of its meaning. Of two
        with one name the last one stands in the table.

        Raises
        ------
        UsageError
            For an unknown name, or a signal whose inputs these questions do not hold at all.
        """
        specs = {_key(spec): spec for spec in specs_for(self.traces, signals)}
        columns = self._local(
            list(specs),
            lambda traces, keys: signal_columns(traces, [specs[key] for key in keys]),
        )
        return SignalTable(
            values={
                spec.name: values for spec, values in zip(specs.values(), columns, strict=True)
            },
            exists=self.traces.exists,
            question_ids=self.traces.question_ids,
        )

    def retrieval(self) -> RetrievalQuality:
        """Precision and recall of what was retrieved up to each round."""
        precision, recall = self._local(["precision", "recall"], _retrieval)
        return RetrievalQuality(precision=precision, recall=recall)

    def _local(
        self,
        keys: Sequence[Hashable],
        compute: Callable[[TraceSet, Sequence[Hashable]], Sequence[Array]],
    ) -> list[Array]:
        """Columns by key; ``compute`` gives those that some of these questions lack."""
        absent = [key for key in keys if key not in self._columns]
        to_compute: dict[bytes, list[Hashable]] = {}
        for key in absent:
            lacking = self._whole.lacking(key, self._rows)
            if len(lacking):
                to_compute.setdefault(lacking.tobytes(), []).append(key)
        for place, together in to_compute.items():
            rows = np.frombuffer(place, np.intp)
            whole = len(rows) == len(self._rows)
            traces = self.traces if whole else self._whole.only(rows)
            for key, values in zip(together, compute(traces, together), strict=True):
                self._whole.fill(key, rows, values)
        for key in absent:
            self._columns[key] = self._whole.part(key, self._rows, self.traces.n_rounds)
        return [self._columns[key] for key in keys]

    # --- of the part as a whole ----------------------------------------------------------------
    def costs(self, model: CostModel, choosing: CostReads | None = None) -> CostBook:
        """Cumulative costs by what is read; ``choosing`` is what everybody reads to choose among answers."""
        for known, book in self._books:
            if known == (model, choosing):
                return book
        book = CostBook(self.traces, model, choosing)
        self._books.append(((model, choosing), book))
        return book

    def wanted_rounds(self, policy: StopPolicy) -> NDArray[np.int16]:
        """The round at which the policy would stop each question, recorded or not, (n_questions,)."""
        if id(policy) not in self._wanted:
            wanted = policy.stop_rounds(self.signals(policy.specs))
            self._wanted[id(policy)] = policy, wanted  # kept, so that its id stays its own
        return self._wanted[id(policy)][1]

    def stop_rounds(self, policy: StopPolicy) -> NDArray[np.int16]:
        """The same, clamped to each question's last recorded round, (n_questions,)."""
        return np.minimum(self.wanted_rounds(policy), self.traces.last_rounds)


Traces = TraceSet | Measures | str | Path
"""A record as whoever compares, searches or fits is given it: read, measured, or where it lies."""


def _retrieval(traces: TraceSet, keys: Sequence[Hashable]) -> list[Array]:
    quality = retrieval_quality(traces)
    return [getattr(quality, str(key)) for key in keys]


def _key(spec: Signal) -> Hashable:
    """What tells a signal from others: itself, compared by value where it can be."""
    try:
        return hash(spec), spec
    except TypeError:
        return _Identity(spec)


@dataclass(frozen=True, slots=True, eq=False)
class _Identity:
    """A signal that cannot be compared by value."""

    spec: Signal

    def __hash__(self) -> int:
        return id(self.spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.spec is self.spec
