"""Measures of a trace set: scores, signals, costs and stop rounds, computed on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.contracts import StopPolicy
from suffice.costs.usage import CostModel, CostReads
from suffice.errors import InternalError, UsageError, counted
from suffice.measures.costs import CostBook
from suffice.measures.scores import (
    LABELLED,
    UNITS,
    MeasuredColumn,
    MeasuredShard,
    Outcomes,
    RetrievalColumn,
    RetrievalQuality,
    ScoreColumn,
    SignalColumn,
    WorkColumn,
    column_name,
    lengths_of,
    measured_columns,
    own_metric,
    own_score,
)
from suffice.measures.seen import Seen, seen_of
from suffice.measures.shards import Kept, Shard, map_shards, shards_of
from suffice.scoring import F1_KINDS, METRICS, F1Kind, Metric, ScoreName
from suffice.signals.known_signals import SignalSpec
from suffice.signals.signal_table import SignalTable, first_stops, signal_table, specs_for
from suffice.stats.units import Array, Mask, numbered_units
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.trace_set import TraceSet, is_veiled

_SCORES: tuple[ScoreName, ...] = ("em", "f1", "acc")
_RETRIEVAL = (RetrievalColumn("precision"), RetrievalColumn("recall"))


# what every replay of a large record asks for besides
_OF_REPLAYS = (UNITS, *_RETRIEVAL, lengths_of("passages"), lengths_of("samples"))

_FOREIGN = (
    "some answers hold letters beyond ASCII; the official scripts score them, which know English articles "
    "and ASCII punctuation alone; for MLQA's script in seven languages: --metric f1-mlqa or em-mlqa"
)


class _Columns:
    """Keep columns over all questions of a trace set, and for which questions each is computed."""

    def __init__(
        self, traces: TraceSet, recorded: TraceSet | None = None, executor: Executor | None = None
    ) -> None:
        self.traces = traces
        self.executor = executor
        self._relabels = recorded is not None
        self._recorded = traces if recorded is None else recorded
        # those of the questions that were last asked for
        self._shards: tuple[bytes, tuple[Shard, ...]] = b"", ()
        self.kept: Kept | None = Kept.of(self._recorded)
        self._values: dict[MeasuredColumn, Array] = {}  # (n_rounds or 1, n_questions) each
        self._filled: dict[MeasuredColumn, Mask] = {}  # (n_questions,) each

    def lacking(self, key: MeasuredColumn, rows: NDArray[np.intp]) -> NDArray[np.intp]:
        if key not in self._filled and self.kept is not None and (name := self._name(key)):
            held = self.kept.read(name)
            if held is not None:
                self._filled[key], self._values[key] = held[0] == 1.0, held[1:]
        return rows[~self._filled[key][rows]] if key in self._filled else rows

    def _name(self, key: MeasuredColumn) -> str:
        name = column_name(key)
        return f"{name}-by-full-budget" if name and self._relabels else name

    def compute(
        self, keys: Sequence[MeasuredColumn], rows: NDArray[np.intp], part: TraceSet
    ) -> None:
        """Compute columns for some questions; ``part`` holds these questions."""
        among = np.zeros(self.traces.n_questions, bool)
        among[rows] = True
        if self._shards[0] != rows.tobytes():
            recorded = self._recorded if among.all() else self._recorded.take(among)
            self._shards = rows.tobytes(), shards_of(recorded)
        shards = self._shards[1]
        if not shards:
            if len(rows) != part.n_questions:
                part = self.traces.take(among)
            for key, values in zip(keys, measured_columns(part, keys), strict=True):
                self._fill(key, rows, values)
        work = MeasuredShard(tuple(keys), self._relabels)
        for shard, columns in map_shards(work, shards, self.executor):
            for key, values in zip(keys, columns, strict=True):
                self._fill(key, rows[shard.questions], values)
        for key in keys:
            if self.kept is not None and (name := self._name(key)):
                self.kept.write(name, self._values[key], self._filled[key])

    def _fill(self, key: MeasuredColumn, rows: NDArray[np.intp], values: Array) -> None:
        """Keep values (n_rows, at most n_rounds) of these questions."""
        if key not in self._values:
            height = self.traces.n_rounds if key.of_rounds else 1
            self._values[key] = np.full((height, self.traces.n_questions), np.nan)
            self._filled[key] = np.zeros(self.traces.n_questions, bool)
        self._values[key][: values.shape[1], rows] = values.T
        self._filled[key][rows] = True

    def part(self, key: MeasuredColumn, rows: NDArray[np.intp], n_rounds: int) -> Array:
        """Return the column of these questions, (n_rows, n_rounds) stored round-major, read only."""
        height = n_rounds if key.of_rounds else 1
        if not len(rows):
            return np.empty((height, 0)).T
        values = self._values[key][:height]
        if len(rows) < self.traces.n_questions:
            values = np.take(values, rows, axis=1)
        column = values.T
        column.flags.writeable = False
        return column


@dataclass(frozen=True, slots=True)
class _PartOf:
    """Hold what measures share: the columns of the whole, their rows there, and the recorded questions.

    ``seen`` says how far labeled questions were observed that represent others; ``worst``: answers that are
    not scored count at their worst.
    """

    whole: _Columns
    rows: NDArray[np.intp]
    recorded: TraceSet | None = None
    seen: Seen | None = None
    worst: bool = False

    def take(self, chosen: Mask) -> _PartOf:
        recorded = None if self.recorded is None else self.recorded.take(chosen)
        seen = None if self.seen is None else self.seen.take(chosen)
        return replace(self, rows=self.rows[chosen], recorded=recorded, seen=seen)


class Measures:
    """Give scores, signals and costs of a trace set as columns, computed on first use.

    Parts (:meth:`only_split`, :meth:`take`) share them. Nothing is computed twice for a question and round,
    and nothing for questions that nobody asks for.
    """

    def __init__(
        self,
        traces: TraceSet,
        metric: Metric | None = None,
        executor: Executor | None = None,
        *,
        of: _PartOf | None = None,
    ) -> None:
        self.traces = traces
        if of is None:
            of = _PartOf(_Columns(traces, executor=executor), np.arange(traces.n_questions))
        self._of = of
        self._whole, self._rows, self._recorded = of.whole, of.rows, of.recorded
        self._splits: dict[str, Measures] = {}
        self._columns: dict[MeasuredColumn, Array] = {}
        self._scores: dict[F1Kind, Outcomes] = {}
        self._books: list[tuple[tuple[CostModel, CostReads | None], CostBook]] = []
        self._wanted: dict[int, tuple[StopPolicy, NDArray[np.int16]]] = {}
        self._closed_book: Measures | None = None
        self._metric = metric
        self._by: dict[str, Measures] = {}

    @classmethod
    def of(cls, traces: Traces) -> Measures:
        """Return the measures of a trace set or of the traces at a path; measures stay as they are."""
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
        return self._metric or METRICS["f1"]

    @property
    def recorded(self) -> TraceSet:
        """Return the questions with their recorded gold answers, whatever the metric."""
        return self._recorded or self.traces

    def by(self, name: str | None) -> Measures:
        """Return the measures under another metric, of any name that its user may type; parts keep it.

        For agreement, the answers of the full budget replace the gold answers, in fits and in scores.
        """
        if name is None:
            name = self.metric.name if self._metric else self.usual()
        metric = METRICS.get(name) or own_metric(name, self.traces)
        if metric == self._metric:
            return self
        if name not in self._by:
            self._by[name] = self._compared_by(metric)
        return self._by[name]

    def usual(self) -> str:
        """Return the metric by which policies are compared if nobody names one."""
        if is_veiled(self.traces.origin.run) and self.traces.has("score"):
            return "score"
        if self.labelled.any():
            return "f1"
        return "score" if self.traces.has("score") else "agreement"

    def _compared_by(self, metric: Metric) -> Measures:
        if self.metric.agreement:
            raise InternalError(f"no gold answers are left to score {metric.name} against")
        if not metric.agreement:
            return Measures(self.traces, metric, of=replace(self._of, recorded=None))
        relabelled = self._whole.traces.labelled_by_full_budget()
        part = self.traces.labelled_by_full_budget()
        whole = _Columns(relabelled, self._whole.traces, self._whole.executor)
        return Measures(part, metric, of=_PartOf(whole, self._rows, self.traces))

    def notes(self, asked: str | None) -> list[str]:
        """Return what a reader must know about the scores; ``asked`` is the requested metric."""
        if self.metric.gold:
            gold = pc.list_flatten(self.traces.first_rounds("gold_answers"))
            texts = [] if self.metric.mlqa else [gold, self.traces.table.column("answer")]
            foreign = (pc.match_substring_regex(one, r"[^\x00-\x7f\P{L}]") for one in texts)
            return [_FOREIGN] if any(pc.any(found).as_py() for found in foreign) else []
        veiled = is_veiled(self.traces.origin.run)
        lacking = "The record holds no texts. " if veiled else "No question has gold answers. "
        why = "" if asked else lacking
        traces, notes = self.traces, [f"{why}{self.metric.legend}"]
        if not self.metric.agreement:
            without = int((~self.scores().labelled).sum())
            if without:
                notes.append(
                    f"no score: {without} of {counted(traces.n_questions, 'question')}, counted in costs, "
                    "not in scores"
                )
            silent = int(traces.exists.sum() - traces.answered.sum())
            if silent:
                rounds = counted(int(traces.exists.sum()), "round")
                notes.append(f"no answer in {silent:,} of {rounds}; these scores need none")
            return notes
        short = int((traces.last_rounds < traces.n_rounds).sum())
        if short:
            notes.append(
                f"{short} of {counted(traces.n_questions, 'question')} ended before round {traces.n_rounds}: "
                "the full budget's answer is that of the last recorded round"
            )
        blank = int((~self.labelled).sum())
        if blank:
            notes.append(
                f"a blank answer at the full budget of {blank} of {counted(traces.n_questions, 'question')}, "
                "with which nothing can agree: counted in costs, not in scores"
            )
        return notes

    @cached_property
    def seen(self) -> Seen | None:
        """Return how far questions were observed; ``None`` if none was cut."""
        return self._of.seen or seen_of(self.recorded)

    @property
    def ends(self) -> NDArray[np.int16]:
        """Return the round at which a policy that never stops ends each question, (n_questions,).

        It is the last recorded round; in a record with cut questions it is the full budget.
        """
        last = self.traces.last_rounds
        return last if self.seen is None else np.full_like(last, self.seen.budget)

    # --- parts ---------------------------------------------------------------------------------
    def only_split(self, name: str) -> Measures:
        if name not in self._splits:
            self._splits[name] = self._part(
                self.traces.only_split(name), self.traces.in_split(name)
            )
        return self._splits[name]

    def take(self, chosen: Mask) -> Measures:
        """Return the measures of the questions in a mask (n_questions,), in the record's order."""
        if chosen.shape == (self.traces.n_questions,) and chosen.all():
            return self
        return self._part(self.traces.take(chosen), chosen)

    def in_splits(self, splits: Sequence[str | None]) -> Measures:
        """Return the same questions in these splits, (n_questions,)."""
        recorded = None if self._recorded is None else self._recorded.with_splits(splits)
        of = replace(self._of, recorded=recorded)
        return Measures(self.traces.with_splits(splits), self._metric, of=of)

    def only_labelled(self, labelled: Mask) -> Measures:
        """Return labeled questions (n_questions,) that represent the others, also in a cut record."""
        if labelled.all():
            return self
        seen = None if self.seen is None else self.seen.by_labels(labelled)
        whole = seen is None or not (seen.cut | seen.explored).any()
        of = replace(self._of.take(labelled), seen=None if whole else seen)
        return Measures(self.traces.take(labelled), self._metric, of=of)

    def at_worst(self) -> Measures:
        """Return the same questions, unscored answers at their worst: right at the end, else wrong."""
        return Measures(self.traces, self._metric, of=replace(self._of, worst=True))

    def closed_book(self) -> Measures:
        """Return the measures of round 0 of every question that has one."""
        if self._closed_book is None:
            self._closed_book = Measures(self.traces.closed_book_rounds(), self._metric)
        return self._closed_book

    def _part(self, traces: TraceSet, chosen: Mask) -> Measures:
        return Measures(traces, self._metric, of=self._of.take(chosen))

    # --- local to a question -------------------------------------------------------------------
    def score(self, name: ScoreName, f1_kind: F1Kind = "hotpotqa") -> Array:
        """Return one score of every answer, (n_questions, n_rounds); NaN: unlabeled or no round."""
        return self._local([self._scored(name, f1_kind)])[0]

    def _scored(self, name: ScoreName, f1_kind: F1Kind) -> MeasuredColumn:
        if self.metric.against == "scores" or (self.metric.source and name == self.metric.score):
            return own_score(name, self.metric)
        kind = f1_kind if name == "f1" else F1_KINDS[0]
        return ScoreColumn(name, "mlqa" if self.metric.mlqa else kind, self.metric.agreement)

    def scores(self, f1_kind: F1Kind = "hotpotqa") -> Outcomes:
        if f1_kind not in self._scores:
            keys = [self._scored(name, f1_kind) for name in _SCORES]
            em, f1, acc, gold = self._local([*keys, LABELLED])
            own = self.metric.against == "scores"
            labelled = ~np.isnan(f1).all(axis=1) if own else gold[:, 0] == 1.0
            if self._of.worst:
                worst = np.arange(1, em.shape[1] + 1) == self.traces.last_rounds[:, None]
                unscored = np.asarray(labelled)[:, None] & self.traces.exists
                em, f1, acc = (np.where(unscored & np.isnan(of), worst, of) for of in (em, f1, acc))
            self._scores[f1_kind] = Outcomes(
                em=em, f1=f1, acc=acc, labelled=np.asarray(labelled), metric=self.metric
            )
        return self._scores[f1_kind]

    @property
    def labelled(self) -> Mask:
        """Say which questions have gold answers, (n_questions,)."""
        return np.asarray(self._local([LABELLED])[0][:, 0] == 1.0)

    @cached_property
    def units(self) -> NDArray[np.intp]:
        """Return the unit of each question, (n_questions,), numbered from 0 by first occurrence.

        Questions of a unit are not independent. A unit is a ``group``, or else a text, see
        :func:`suffice.trace.rounds.trace_set.unit_keys`. A part numbers its own.
        """
        return numbered_units(self._local([UNITS])[0][:, 0])

    @property
    def unit_notes(self) -> list[str]:
        questions, units = len(self.units), int(self.units.max(initial=-1)) + 1
        if questions == units:
            return []
        return [
            f"{questions:,} questions in {counted(units, 'unit')}: those of one group, or else of one text, "
            "are drawn and tested together. Means are over questions"
        ]

    @property
    def kept(self) -> Kept | None:
        """Return the store of columns beside the record; ``None`` for a small record or a part."""
        return self._whole.kept

    def measure(self, signals: Iterable[str | SignalSpec], f1_kind: F1Kind = "hotpotqa") -> None:
        """Compute what a replay of these signals asks for, in one pass over the record."""
        scores = [self._scored(name, f1_kind) for name in _SCORES]
        specs = map(SignalColumn, specs_for(self.traces, signals))
        besides = () if self.kept is None else _OF_REPLAYS
        self._local([*scores, LABELLED, *specs, *besides])

    def scores_throughout(self, who: str, f1_kind: F1Kind = "hotpotqa") -> Outcomes:
        """Return the scores; refuse a record without a score for every round, which ``who`` needs."""
        scored = self.scores(f1_kind)
        unknown = self.traces.exists & np.isnan(scored.compared) & scored.labelled[:, None]
        if unknown.any():
            question, number = np.argwhere(unknown)[0]
            raise UsageError(
                f"{who} needs a score of every round, and {int(unknown.any(axis=1).sum())} of "
                f"{counted(int(scored.labelled.sum()), 'question')} {scored.metric.scored} have rounds "
                f"{scored.metric.untold}, the first: round {number + 1} of question "
                f"{self.traces.question_ids[question]!r} in {self.traces.origin.source}; "
                f"{scored.metric.remedy}"
            )
        return scored

    def signals(self, signals: Iterable[str | SignalSpec]) -> SignalTable:
        """Return a table of these signals; compute what is missing in one pass over the record.

        A signal is known by its declaration: its name and a policy's settings of it. The last one of a name
        counts.
        """
        return signal_table(
            self.traces, signals, lambda specs: self._local([*map(SignalColumn, specs)])
        )

    def retrieval(self) -> RetrievalQuality:
        """Return precision and recall of the passages retrieved up to each round."""
        precision, recall = self._local(_RETRIEVAL)
        return RetrievalQuality(precision=precision, recall=recall)

    def derived(self, *works: Callable[[TraceSet], Array]) -> list[Array]:
        """Apply functions to every question alone, (n_questions, n_rounds), some questions at a time."""
        return self._local([WorkColumn(work) for work in works])

    def _local(self, keys: Sequence[MeasuredColumn]) -> list[Array]:
        """Return columns by key; compute what some of these questions lack."""
        absent = [key for key in keys if key not in self._columns]
        to_compute: dict[bytes, list[MeasuredColumn]] = {}
        for key in absent:
            lacking = self._whole.lacking(key, self._rows)
            if len(lacking):
                to_compute.setdefault(lacking.tobytes(), []).append(key)
        for place, together in to_compute.items():
            self._whole.compute(together, np.frombuffer(place, np.intp), self.traces)
        for key in absent:
            self._columns[key] = self._whole.part(key, self._rows, self.traces.n_rounds)
        return [self._columns[key] for key in keys]

    # --- of the part as a whole ----------------------------------------------------------------
    def costs(self, model: CostModel, choosing: CostReads | None = None) -> CostBook:
        """Return cumulative costs by what is read; ``choosing`` is what it takes to choose among answers."""
        for known, book in self._books:
            if known == (model, choosing):
                return book
        lengths = None if self.kept is None else lambda name: self._local([lengths_of(name)])[0]
        book = CostBook(self.traces, model, choosing, lengths)
        self._books.append(((model, choosing), book))
        return book

    def wanted_rounds(self, policy: StopPolicy) -> NDArray[np.int16]:
        """Return the round at which the policy would stop, recorded or not, (n_questions,)."""
        if id(policy) not in self._wanted:
            wanted = first_stops(policy, self.signals(policy.specs))
            self._wanted[id(policy)] = policy, wanted  # kept, so that its id stays its own
        return self._wanted[id(policy)][1]

    def stop_rounds(self, policy: StopPolicy) -> NDArray[np.int16]:
        """Return the stop rounds, at most each question's last recorded round, (n_questions,)."""
        return np.minimum(self.wanted_rounds(policy), self.traces.last_rounds)


Traces = TraceSet | Measures | str | Path
"""A record as whoever compares, searches or fits is given it: read, measured, or where it lies."""
