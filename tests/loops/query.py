"""Doubles of a query-choosing loop, which remember what they were asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from suffice.loops.prompts import SearchStep
from suffice.loops.query_loop import QueryChoice, QueryLoop, QueryLoopSettings
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Passage, Question, Usage

QUESTION = Question(id="q", text="Who wrote it?")
COST = Usage(llm_calls=1, prompt_tokens=100, cached_tokens=40, completion_tokens=10)
FREE = Usage(llm_calls=0, prompt_tokens=0, cached_tokens=0, completion_tokens=0)


def choice(query: str, *, finishes: bool = False, unread: bool = False) -> QueryChoice:
    said = f"Finish[{query}]" if finishes else f"Search[{query}]"
    return QueryChoice(
        query=query, said=said, action=said, usage=COST, finishes=finishes, unread=unread
    )


@dataclass
class Written:
    """Gives its choices in order, and remembers what it was shown."""

    choices: list[QueryChoice]
    seen: list[tuple[SearchStep, ...]] = field(default_factory=list)
    refused: list[QueryChoice | None] = field(default_factory=list)

    def choose(
        self, question: str, steps: Sequence[SearchStep], *, refused: QueryChoice | None = None
    ) -> QueryChoice:
        self.seen.append(tuple(steps))
        self.refused.append(refused)
        return self.choices.pop(0)


class Acting(QueryLoop):
    """Has its choices from another."""

    def __init__(
        self,
        settings: QueryLoopSettings,
        chooser: Written,
        *,
        model: ScriptedModel | None = None,
        passage_filter: Any = None,
    ) -> None:
        super().__init__(model or ScriptedModel(), settings, passage_filter=passage_filter)
        self.choose = chooser.choose  # type: ignore[method-assign]

    def choose(self, *_: Any, **__: Any) -> QueryChoice:
        raise NotImplementedError


@dataclass(frozen=True)
class AtLeast:
    """Keeps passages of this score and above."""

    score: float

    def keep(self, passages: Sequence[Passage]) -> Sequence[Passage]:
        return [each for each in passages if (each.score or 0.0) >= self.score]


def passage(name: str, score: float = 1.0, **more: Any) -> Passage:
    return Passage(id=name, title=name.upper(), text=f"Fact {name}", score=score, **more)


@dataclass
class Scripted:
    """The passages of each query, best first."""

    results: dict[str, list[Passage]]
    asked: list[tuple[str, int]] = field(default_factory=list)

    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        self.asked.append((query, k))
        return self.results[query][:k]


def found(*names: str) -> list[Passage]:
    return [passage(name, score=9.0 - at) for at, name in enumerate(names)]
