"""Fit and replay MiCP's passage filter on recorded relevance (paper 3, first stage)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from suffice.numbers.conformal.order_statistics import lower_order_statistic
from suffice.policies.method import Preset
from suffice.policies.micp.relevance_filter import Relevance, RelevanceFilter
from suffice.protocols import Retention
from suffice.trace.rounds.table import TraceSet

_NAMES: tuple[Relevance, ...] = ("rerank_score", "score")


def scored_by(traces: TraceSet) -> Relevance | None:
    """Which relevance every recorded passage carries, the reranker's first; ``None``: neither."""
    if not traces.has("passages"):
        return None
    passages = traces.table.column("passages").combine_chunks().flatten()
    names = [name for name in _NAMES if len(passages) and not passages.field(name).null_count]
    return names[0] if names else None


def gold_relevance(traces: TraceSet, relevance: Relevance) -> list[NDArray[np.float64]]:
    """For every question the best relevance, over rounds, of each right passage that was retrieved.

    Empty where none was retrieved, or none is known.
    """
    relevances = []
    for index, views in enumerate(traces.views(["passages"])):
        best: dict[str, float] = {}
        for passage in chain.from_iterable(shown.passages or () for shown in views[-1].rounds):
            value = float(getattr(passage, relevance))
            if math.isnan(value):
                value = -math.inf  # a filter that drops anything drops it
            best[passage.id] = max(value, best.get(passage.id, -math.inf))
        gold = dict.fromkeys(traces.gold[index].passage_ids)
        relevances.append(np.array([best[name] for name in gold if name in best], np.float64))
    return relevances


@dataclass(frozen=True, slots=True, kw_only=True)
class Relevances:
    """Relevance of the right passages that were retrieved, best over rounds, and of all shown.

    ``gold`` and ``shown`` stand beside the question each belongs to, of ``n``.
    """

    relevance: Relevance
    n: int
    gold: NDArray[np.float64]
    gold_question: NDArray[np.intp]
    shown: NDArray[np.float64]
    shown_question: NDArray[np.intp]

    @classmethod
    def read(cls, traces: TraceSet, relevance: Relevance) -> Relevances:
        """Of a record all of whose passages carry it; undefined ones count as the least."""
        gold = gold_relevance(traces, relevance)
        passages = traces.table.column("passages").combine_chunks()
        shown = passages.flatten().field(relevance).to_numpy(zero_copy_only=False)
        rows = passages.value_parent_indices().to_numpy(zero_copy_only=False)
        question_of_row = np.repeat(np.arange(traces.n_questions), traces.last_rounds)
        return cls(
            relevance=relevance,
            n=traces.n_questions,
            gold=np.concatenate([*gold, np.empty(0)]),
            gold_question=np.repeat(np.arange(len(gold)), [len(relevances) for relevances in gold]),
            shown=np.where(np.isnan(shown), -np.inf, shown).astype(np.float64),
            shown_question=question_of_row[rows].astype(np.intp),
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
        """What a threshold leaves of the ``chosen`` questions (n,)."""
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
