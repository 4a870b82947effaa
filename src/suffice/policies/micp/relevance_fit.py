"""Fit and replay MiCP's passage filter on recorded relevance (paper 3, first stage)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from suffice.numbers.conformal.order_statistics import lower_order_statistic
from suffice.policies.method import Preset
from suffice.policies.micp.relevance_filter import Relevance, RelevanceFilter
from suffice.protocols import Retention
from suffice.signals.columns.questions import blocks, only_columns
from suffice.signals.columns.ragged import Ragged
from suffice.signals.columns.rounds import RoundColumns
from suffice.signals.columns.texts import NONE, Texts
from suffice.trace.lazy import LazyTable
from suffice.trace.rounds.table import TraceSet

_NAMES: tuple[Relevance, ...] = ("rerank_score", "score")


def scored_by(traces: TraceSet) -> Relevance | None:
    """Which relevance every recorded passage carries, the reranker's first; ``None``: neither."""
    if not traces.has("passages"):
        return None
    passages = RoundColumns(traces).lists("passages")
    if not passages.lengths.any():
        return None
    return next((name for name in _NAMES if not passages.field(name).null_count), None)


def _parts(traces: TraceSet, *columns: str) -> Iterator[TraceSet]:
    """Blocks of what lies in memory; else the whole, of which no more is read than is asked for."""
    if isinstance(traces.table, LazyTable):
        return iter((traces,))
    return blocks(only_columns(traces, *columns))


def unrecorded_finds(traces: TraceSet) -> int:
    """How many questions were searched with several queries without a record of what was found again."""
    if not traces.has("query"):
        return 0
    return sum(map(_unrecorded_finds, _parts(traces, "query", "refound")))


def _unrecorded_finds(traces: TraceSet) -> int:
    rounds = RoundColumns(traces)
    queries = rounds.texts("query")
    said, many = queries.codes != NONE, len(queries.distinct)
    each_once = np.unique(rounds.question[said] * many + queries.codes[said])
    several = np.bincount(each_once // max(1, many), minlength=traces.n_questions) > 1
    untold = rounds.question[~rounds.lists("refound").valid & ~rounds.first]
    return int((several & (np.bincount(untold, minlength=traces.n_questions) > 0)).sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class Relevances:
    """Relevance of the right passages that were retrieved and of all shown, best over rounds.

    ``gold`` and ``shown`` stand beside the question each belongs to, of ``n``; ``unrecorded`` is
    :func:`unrecorded_finds`.
    """

    relevance: Relevance
    n: int
    gold: NDArray[np.float64]
    gold_question: NDArray[np.intp]
    shown: NDArray[np.float64]
    shown_question: NDArray[np.intp]
    unrecorded: int

    @classmethod
    def read(cls, traces: TraceSet, relevance: Relevance) -> Relevances:
        """Of a record all of whose passages carry it; undefined ones count as the least.

        A passage counts with its best relevance over the rounds that retrieved it (Eq. 9): the one that added
        it, and those that found it again as far as that is recorded: of records without ``refound`` see
        :func:`unrecorded_finds`.
        """
        parts, start = [], 0
        for block in _parts(traces, "passages", "refound", "gold_passage_ids"):
            parts.append(_best(block, relevance, start))
            start += block.n_questions
        gold, gold_question, shown, shown_question = (
            np.concatenate(columns) for columns in zip(*parts, strict=True)
        )
        return cls(
            relevance=relevance,
            n=traces.n_questions,
            gold=gold,
            gold_question=gold_question,
            shown=shown,
            shown_question=shown_question,
            unrecorded=unrecorded_finds(traces),
        )

    @property
    def everybody(self) -> NDArray[np.bool_]:
        """Every question, (n,)."""
        return np.ones(self.n, bool)

    def values(self, chosen: NDArray[np.bool_], preset: Preset) -> NDArray[np.float64]:
        """What a filter is calibrated on, of the ``chosen`` questions (n,).

        ``published`` pools the passages of all questions; ``corrected`` takes the least one of each
        question, since passages of one question are not exchangeable with each other. Questions
        without such a passage have no say.
        """
        here = chosen[self.gold_question]
        if preset == "published":
            return self.gold[here]
        least = np.full(self.n, np.inf)
        np.minimum.at(least, self.gold_question[here], self.gold[here])
        return least[least < np.inf]

    def kept(self, chosen: NDArray[np.bool_], threshold: float) -> Retention:
        """What a threshold leaves of the ``chosen`` questions (n,), each passage by its best turn."""
        here = chosen[self.gold_question]
        of = np.bincount(self.gold_question[here], minlength=self.n)
        some = np.bincount(self.gold_question[here & (self.gold >= threshold)], minlength=self.n)
        asked = of > 0
        left = self.shown[chosen[self.shown_question]] >= threshold
        return Retention(
            passages=float(np.mean(some[asked] / of[asked])) if asked.any() else None,
            all=float(np.mean(some[asked] == of[asked])) if asked.any() else None,
            shown=float(left.mean()) if left.size else None,
            questions=int(asked.sum()),
        )


_Best = tuple[NDArray[np.float64], NDArray[np.intp], NDArray[np.float64], NDArray[np.intp]]


def _best(traces: TraceSet, relevance: Relevance, start: int) -> _Best:
    """Right passages that were retrieved and all shown, each beside its question, counted from ``start``."""
    import pyarrow as pa

    rounds = RoundColumns(traces)
    shown, again = rounds.lists("passages"), rounds.lists("refound")
    wanted = Ragged.of(traces.first_rounds("gold_passage_ids"))
    named = wanted.values.is_valid()
    ids = [passages.field("id").fill_null("") for passages in (shown, again)]
    names = Texts.of(pa.chunked_array([*ids, wanted.values.filter(named)], pa.string()))
    question = np.concatenate(
        [
            rounds.question[shown.rows],
            rounds.question[again.rows],
            wanted.rows[named.to_numpy(zero_copy_only=False)],
        ]
    )
    keys = question * len(names.distinct) + names.codes
    n_shown = len(shown.rows)
    count = n_shown + len(again.rows)
    distinct, place = np.unique(keys[:count], return_inverse=True)
    values = np.concatenate([passages.numbers(relevance) for passages in (shown, again)])
    best = np.full(len(distinct), -np.inf)
    # a filter that drops anything drops what is undefined
    np.maximum.at(best, place, np.where(np.isnan(values), -np.inf, values))
    right = count + np.sort(np.unique(keys[count:], return_index=True)[1])
    right = right[np.isin(keys[right], distinct)]
    return (
        best[np.searchsorted(distinct, keys[right])],
        question[right] + start,
        best[place[:n_shown]],
        question[:n_shown] + start,
    )


def fit_filter(
    traces: TraceSet, alpha: Fraction, preset: Preset, relevance: Relevance
) -> RelevanceFilter:
    """The floor(alpha (N + 1))-th smallest of :meth:`Relevances.values`."""
    held = Relevances.read(traces, relevance)
    values = held.values(held.everybody, preset)
    return RelevanceFilter(
        threshold=lower_order_statistic(values, alpha),
        relevance=relevance,
        alpha=float(alpha),
        preset=preset,
        values=len(values),
        question_ids=traces.question_ids,
    )


def retention(traces: TraceSet, chosen: RelevanceFilter) -> Retention:
    """Replay a filter on the relevance that was recorded."""
    held = Relevances.read(traces, chosen.relevance)
    return held.kept(held.everybody, chosen.threshold)
