"""MiCP's first stage: drop passages whose relevance is lower than right ones' almost always is (paper 3)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from suffice.calibration.conformal import lower_order_statistic, smallest_sample
from suffice.calibration.fields import number, number_or_none
from suffice.errors import DataError, UsageError
from suffice.policies.fitting import Preset
from suffice.trace.records import Passage
from suffice.trace.table import TraceSet

__all__ = [
    "Relevance",
    "RelevanceFilter",
    "Retention",
    "fit_filter",
    "gold_relevance",
    "retention",
    "scored_by",
]

Relevance = Literal["score", "rerank_score"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelevanceFilter:
    """Keeps passages whose relevance is at least ``threshold``; a :class:`~suffice.protocols.PassageFilter`.

    Parameters
    ----------
    threshold
        -inf keeps everything.
    relevance
        The retriever's ``score``, or the reranker's ``rerank_score``.
    alpha
        The error level it was calibrated at.
    preset
        ``published``: a right passage that is retrieved is kept with probability at least 1 - alpha, if
        passages were exchangeable. ``corrected``: all right passages of a question that are retrieved
        are kept with probability at least 1 - alpha.
    values
        How many values it was calibrated on: passages, or questions.
    question_ids
        Whose; the second stage needs others.
    """

    threshold: float
    relevance: Relevance
    alpha: float
    preset: Preset
    values: int
    question_ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if math.isnan(self.threshold):
            raise UsageError("the filter's threshold must be a number, found NaN")
        if self.relevance not in get_args(Relevance):
            raise UsageError(
                f"no relevance {self.relevance!r}; allowed: {', '.join(get_args(Relevance))}"
            )

    def keep(self, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        """Those at least that relevant, in the order given.

        Raises
        ------
        DataError
            For a passage without that score.
        """
        if self.threshold == -math.inf:
            return tuple(passages)
        return tuple(each for each in passages if self._of(each) >= self.threshold)

    def _of(self, passage: Passage) -> float:
        value = getattr(passage, self.relevance)
        if value is None:
            raise DataError(
                f"passage {passage.id!r} has none, and the filter was calibrated on it; use the "
                "retriever the filter was fitted with",
                column=f"passages.{self.relevance}",
            )
        return float(value)

    def to_json(self) -> dict[str, Any]:
        """Its part of a policy file; a threshold of null keeps everything."""
        return {
            "threshold": None if self.threshold == -math.inf else self.threshold,
            "relevance": self.relevance,
            "alpha": self.alpha,
            "preset": self.preset,
            "values": self.values,
            "question_ids": list(self.question_ids),
        }

    @classmethod
    def from_json(cls, given: Mapping[str, Any]) -> RelevanceFilter:
        """A filter from its part of a policy file or of a run document.

        Raises
        ------
        DataError
            Naming the field that is not as it should be.
        """
        threshold = number_or_none(given.get("threshold"), "threshold")
        relevance: Any = given.get("relevance")
        preset: Any = given.get("preset")
        if relevance not in get_args(Relevance):
            raise DataError(
                f"must be one of {', '.join(get_args(Relevance))}, found {relevance!r}",
                column="relevance",
            )
        if preset not in get_args(Preset):
            raise DataError(
                f"must be one of {', '.join(get_args(Preset))}, found {preset!r}", column="preset"
            )
        ids = given.get("question_ids", [])
        if not isinstance(ids, list) or not all(isinstance(each, str) for each in ids):
            raise DataError("must be a list of question ids", column="question_ids")
        return cls(
            threshold=-math.inf if threshold is None else threshold,
            relevance=relevance,
            alpha=number(given.get("alpha"), "alpha"),
            preset=preset,
            values=int(number(given.get("values"), "values")),
            question_ids=tuple(ids),
        )


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


def values_needed(alpha: Fraction) -> int:
    """How many values a filter needs to drop anything at all."""
    return smallest_sample(alpha)


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
