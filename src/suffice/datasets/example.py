"""What a data set is made of."""

from __future__ import annotations

from dataclasses import dataclass

from suffice.trace.rounds.records import Gold, Passage, Question


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A question, its gold record, and the passages that belong to it (in file order; may be none)."""

    question: Question
    gold: Gold
    passages: tuple[Passage, ...]
