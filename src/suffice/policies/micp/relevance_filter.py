"""MiCP's first stage: drop passages whose relevance is lower than right ones' almost always is (paper 3)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from suffice.errors import DataError, UsageError
from suffice.numbers.fields import Fields, number
from suffice.policies.method import PRESETS, Preset
from suffice.trace.rounds.records import Passage

Relevance = Literal["score", "rerank_score"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelevanceFilter:
    """Keeps passages whose relevance is at least ``threshold``; a ``protocols.PassageFilter``."""

    threshold: float
    relevance: Relevance
    alpha: float
    preset: Preset
    values: int
    question_ids: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not (self.threshold < math.inf and math.isfinite(self.alpha)):
            raise UsageError(
                "the filter's threshold must be a number or -inf and its alpha a number, found "
                f"{self.threshold} and {self.alpha}"
            )
        if self.relevance not in get_args(Relevance):
            raise UsageError(
                f"no relevance {self.relevance!r}; allowed: {', '.join(get_args(Relevance))}"
            )

    def keep(self, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        """Those at least that relevant, in the order given."""
        if self.threshold == -math.inf:
            return tuple(passages)
        return tuple(passage for passage in passages if self._of(passage) >= self.threshold)

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

    def stated(self) -> dict[str, Any]:
        """What a recording says of it: everything but whose passages it was calibrated on."""
        return {name: value for name, value in self.to_json().items() if name != "question_ids"}

    @classmethod
    def from_json(cls, document: object) -> RelevanceFilter:
        """A filter from its part of a policy file or of a run document."""
        if not isinstance(document, Mapping):
            raise DataError(
                f"a passage filter is an object, found {document!r:.80}", column="filter"
            )
        fields = Fields(document)
        threshold = fields.number_or_none("threshold")
        relevance = fields.one_of("relevance", get_args(Relevance))
        preset = fields.one_of("preset", PRESETS)
        ids = document.get("question_ids", [])
        if not isinstance(ids, list) or not all(isinstance(name, str) for name in ids):
            raise DataError("must be a list of question ids", column="question_ids")
        return cls(
            threshold=-math.inf if threshold is None else threshold,
            relevance=relevance,
            alpha=number(document.get("alpha"), "alpha"),
            preset=preset,
            values=_count(document.get("values"), "values"),
            question_ids=tuple(ids),
        )


def _count(value: object, column: str) -> int:
    count = number(value, column)
    if not (count >= 0.0 and count.is_integer()):
        raise DataError(f"must be a whole number from 0, found {value!r}", column=column)
    return int(count)
