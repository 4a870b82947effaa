"""Fit and replay MiCP's passage filter on recorded relevance (paper 3, first stage)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from suffice.calibration.conformal import lower_order_statistic
from suffice.policies.presets import Preset
from suffice.policies.relevance_filter import Relevance, RelevanceFilter
from suffice.trace.records import Passage
from suffice.trace.table import TraceSet

__all__ = ["Retention", "fit_filter", "gold_relevance", "retention", "scored_by"]


def scored_by(traces: TraceSet) -> Relevance | None:
    """Which relevance every recorded passage carries, the reranker's first; ``None``: neither."""
    if not traces.has("passages"):
        return None
    names: tuple[Relevance, ...] = ("rerank_score", "score")
    shown = [passages for _, rounds in _passages(traces) for passages in rounds]
    if not any(shown):
        return None
    for name in names:
        if all(getattr(each, name) is not None for passages in shown for each in passages):
            return name
    return None


def _passages(traces: TraceSet) -> Iterator[tuple[int, list[tuple[Passage, ...]]]]:
    for index, views in enumerate(traces.views(["passages"])):
        yield index, [each.passages or () for each in views[-1].rounds]


def gold_relevance(traces: TraceSet, relevance: Relevance) -> list[NDArray[np.float64]]:
    """For every question the best relevance, over rounds, of each right passage that was retrieved.

    Empty where none was retrieved, or none is known.
    """
    found = []
    for index, rounds in _passages(traces):
        best: dict[str, float] = {}
        for each in (passage for passages in rounds for passage in passages):
            value = float(getattr(each, relevance))
            value = (
                -math.inf if math.isnan(value) else value
            )  # a filter that drops anything drops it
            best[each.id] = max(value, best.get(each.id, -math.inf))
        gold = dict.fromkeys(traces.gold[index].passage_ids)
        found.append(np.array([best[each] for each in gold if each in best], np.float64))
    return found


def fit_filter(
    traces: TraceSet, alpha: Fraction, preset: Preset, relevance: Relevance
) -> RelevanceFilter:
    """The floor(alpha (N + 1))-th smallest relevance of right passages that were retrieved.

    ``published`` pools the passages of all questions; ``corrected`` takes the least one of each
    question, since passages of one question are not exchangeable with each other. Questions without
    such a passage have no say.
    """
    values = [each for each in gold_relevance(traces, relevance) if len(each)]
    pooled = (
        np.concatenate([*values, np.empty(0)])
        if preset == "published"
        else np.array([each.min() for each in values])
    )
    return RelevanceFilter(
        threshold=lower_order_statistic(pooled, alpha),
        relevance=relevance,
        alpha=float(alpha),
        preset=preset,
        values=len(pooled),
        question_ids=traces.question_ids,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What a filter does to recorded passages.

    ``passages`` is the mean share of right passages kept, over questions that retrieved one; ``all``
    the share of those questions that keep every one; ``shown`` the share of all passages kept.
    ``questions`` counts those questions. Undefined parts are ``None``.
    """

    passages: float | None
    all: float | None
    shown: float | None
    questions: int

    def to_json(self) -> dict[str, float | int | None]:
        """As JSON."""
        return {
            "passages": self.passages,
            "all": self.all,
            "shown": self.shown,
            "questions": self.questions,
        }


def retention(traces: TraceSet, chosen: RelevanceFilter) -> Retention:
    """Replay a filter on the relevance that was recorded."""
    kept = [
        each >= chosen.threshold for each in gold_relevance(traces, chosen.relevance) if len(each)
    ]
    counts = [
        (len(chosen.keep(passages)), len(passages))
        for _, rounds in _passages(traces)
        for passages in rounds
    ]
    total = sum(of for _, of in counts)
    return Retention(
        passages=float(np.mean([each.mean() for each in kept])) if kept else None,
        all=float(np.mean([each.all() for each in kept])) if kept else None,
        shown=sum(some for some, _ in counts) / total if total else None,
        questions=len(kept),
    )
