"""Fit and replay MiCP's passage filter on recorded relevance (paper 3, first stage)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from suffice.numbers.conformal.order_statistics import lower_order_statistic
from suffice.policies.method import Preset
from suffice.policies.micp.relevance_filter import Relevance, RelevanceFilter
from suffice.protocols import Retention
from suffice.trace.rounds.records import Passage
from suffice.trace.rounds.table import TraceSet

_NAMES: tuple[Relevance, ...] = ("rerank_score", "score")


def scored_by(traces: TraceSet) -> Relevance | None:
    """Which relevance every recorded passage carries, the reranker's first; ``None``: neither."""
    if not traces.has("passages"):
        return None
    passages = traces.table.column("passages").combine_chunks().flatten()
    names = [name for name in _NAMES if len(passages) and not passages.field(name).null_count]
    return names[0] if names else None


def best_relevance(traces: TraceSet, relevance: Relevance) -> list[dict[str, float]]:
    """For every question the best relevance of each passage over the rounds that retrieved it (Eq. 9).

    That is the round that added it, and those that found it again as far as that is recorded: of
    records without ``refound`` see :func:`unrecorded_finds`.
    """
    held = []
    for views in traces.views(["passages", "refound"]):
        best: dict[str, float] = {}
        for round_ in views[-1].rounds:
            for passage in chain(round_.passages or (), round_.refound or ()):
                value = _value(passage, relevance)
                best[passage.id] = max(value, best.get(passage.id, -math.inf))
        held.append(best)
    return held


def _value(passage: Passage, relevance: Relevance) -> float:
    value = getattr(passage, relevance)
    # a filter that drops anything drops what is undefined
    return -math.inf if value is None or math.isnan(value) else float(value)


def unrecorded_finds(traces: TraceSet) -> int:
    """How many questions were searched with several queries without a record of what was found again."""
    if not traces.has("query"):
        return 0
    count = 0
    for views in traces.views(["query", "refound"]):
        rounds = views[-1].rounds
        queries = {round_.query for round_ in rounds if round_.query is not None}
        count += len(queries) > 1 and any(round_.refound is None for round_ in rounds[1:])
    return count


def gold_relevance(
    traces: TraceSet, best: Sequence[Mapping[str, float]]
) -> list[NDArray[np.float64]]:
    """For every question the best relevance of each right passage that was retrieved.

    Empty where none was retrieved, or none is known.
    """
    return [
        np.array([own[name] for name in dict.fromkeys(gold.passage_ids) if name in own], np.float64)
        for own, gold in zip(best, traces.gold, strict=True)
    ]


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
        """Of a record all of whose passages carry it; undefined ones count as the least."""
        best = best_relevance(traces, relevance)
        gold = gold_relevance(traces, best)
        passages = traces.table.column("passages").combine_chunks()
        rows = passages.value_parent_indices().to_numpy(zero_copy_only=False)
        question_of_row = np.repeat(np.arange(traces.n_questions), traces.last_rounds)
        owners = question_of_row[rows].astype(np.intp)
        names = passages.flatten().field("id").to_pylist()
        shown = [best[owner][name or ""] for owner, name in zip(owners, names, strict=True)]
        return cls(
            relevance=relevance,
            n=traces.n_questions,
            gold=np.concatenate([*gold, np.empty(0)]),
            gold_question=np.repeat(np.arange(len(gold)), [len(values) for values in gold]),
            shown=np.array(shown, np.float64),
            shown_question=owners,
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
