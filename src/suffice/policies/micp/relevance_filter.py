"""MiCP's first stage: drop passages below the calibrated relevance (paper 3)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from suffice.contracts import Retention
from suffice.errors import DataError
from suffice.policies.method import PRESETS, Preset
from suffice.signals.columns.arrays import Ragged, Texts
from suffice.signals.columns.rounds import RoundColumns, blocks, only_columns
from suffice.stats.conformal import lower_order_statistic
from suffice.stats.fields import Fields, whole
from suffice.stats.units import Array, Mask
from suffice.trace.lazy import LazyTable
from suffice.trace.rounds.records import Passage
from suffice.trace.rounds.trace_set import TraceSet

Relevance = Literal["rerank_score", "score"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelevanceFilter:
    """A passage filter that keeps passages of relevance ``threshold`` or more."""

    threshold: float
    relevance: Relevance
    alpha: float
    preset: Preset
    values: int
    question_ids: tuple[str, ...] = ()

    def keep(self, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        """Return the passages of at least this relevance, in the same order."""
        if self.threshold == -math.inf:
            return tuple(passages)
        kept = []
        for passage in passages:
            value = getattr(passage, self.relevance)
            if value is None:
                raise DataError(
                    f"passage {passage.id!r} has none, and the filter was calibrated on it; use the "
                    "retriever the filter was fitted with",
                    column=f"passages.{self.relevance}",
                )
            if float(value) >= self.threshold:
                kept.append(passage)
        return tuple(kept)

    def to_json(self) -> dict[str, Any]:
        """Return its part of a policy file; a threshold of null keeps everything."""
        least = None if self.threshold == -math.inf else self.threshold
        return {**asdict(self), "threshold": least, "question_ids": list(self.question_ids)}

    def stated(self) -> dict[str, Any]:
        """Return its part of a run document: everything but the ids of its calibration."""
        return {name: value for name, value in self.to_json().items() if name != "question_ids"}

    @classmethod
    def from_json(cls, document: object) -> RelevanceFilter:
        if not isinstance(document, Mapping):
            raise DataError(
                f"a passage filter is an object, found {document!r:.80}", column="filter"
            )
        fields = Fields(document)
        least = document.get("threshold")
        return cls(
            threshold=-math.inf if least is None else fields.number("threshold"),
            relevance=fields.one_of("relevance", get_args(Relevance)),
            alpha=fields.number("alpha"),
            preset=fields.one_of("preset", PRESETS),
            values=whole(document.get("values"), "values"),
            question_ids=fields.strings("question_ids") or (),
        )


def scored_by(traces: TraceSet) -> Relevance | None:
    """Return the relevance that all recorded passages have, the reranker's first; ``None``: neither."""
    if not traces.has("passages"):
        return None
    passages = RoundColumns(traces).lists("passages")
    if not passages.lengths.any():
        return None
    return next((name for name in get_args(Relevance) if not passages.field(name).null_count), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relevances:
    """Relevance of the retrieved right passages and of all shown passages, best over rounds."""

    relevance: Relevance
    n: int
    gold: Array
    gold_question: NDArray[np.intp]
    shown: Array
    shown_question: NDArray[np.intp]

    @classmethod
    def read(cls, traces: TraceSet, relevance: Relevance) -> Relevances:
        """Read a record whose passages all have this relevance; undefined values count as the least."""
        parts, start = [], 0
        some: Iterable[TraceSet] = (traces,)  # a lazy record reads no more than is asked for
        if not isinstance(traces.table, LazyTable):
            some = blocks(only_columns(traces, "passages", "refound", "gold_passage_ids"))
        for block in some:
            parts.append(_best(block, relevance, start))
            start += block.n_questions
        names = ("gold", "gold_question", "shown", "shown_question")
        columns = {
            name: np.concatenate(of)
            for name, of in zip(names, zip(*parts, strict=True), strict=True)
        }
        return cls(relevance=relevance, n=traces.n_questions, **columns)

    def values(self, chosen: Mask, preset: Preset) -> Array:
        """Return the calibration values of the ``chosen`` questions (n,)."""
        here = chosen[self.gold_question]
        # passages of one question are not exchangeable with each other
        if preset == "published":
            return self.gold[here]
        least = np.full(self.n, np.inf)
        np.minimum.at(least, self.gold_question[here], self.gold[here])
        return least[least < np.inf]

    def kept(self, chosen: Mask, threshold: float) -> Retention:
        """Return the effect of a threshold on the ``chosen`` questions (n,), passages by their best round."""
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


_Best = tuple[Array, NDArray[np.intp], Array, NDArray[np.intp]]


def _best(traces: TraceSet, relevance: Relevance, start: int) -> _Best:
    """Return retrieved right passages and all shown ones with their questions, counted from ``start``."""
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
    """Fit the threshold: the floor(alpha (N + 1))-th smallest of :meth:`Relevances.values`."""
    held = Relevances.read(traces, relevance)
    values = held.values(np.ones(held.n, bool), preset)
    return RelevanceFilter(
        threshold=lower_order_statistic(values, alpha),
        relevance=relevance,
        alpha=float(alpha),
        preset=preset,
        values=len(values),
        question_ids=traces.question_ids,
    )


def retention(traces: TraceSet, chosen: RelevanceFilter) -> Retention:
    held = Relevances.read(traces, chosen.relevance)
    return held.kept(np.ones(held.n, bool), chosen.threshold)
