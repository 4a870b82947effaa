"""A model and a retriever for the follow-up loops, which remember what they were asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from suffice.contracts import Generation, GenerationRequest
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Passage, Question

Api = Literal["chat", "completion"]
APIS: tuple[Api, ...] = get_args(Api)
QUESTION = Question(id="q", text="Who was the brother of the founder of Brill Works?")
LETTERS = "abcdefghij"


def text_of(request: GenerationRequest) -> str:
    if isinstance(request.prompt, str):
        return request.prompt
    return "\n\n".join(each.content for each in request.prompt)


def kind(request: GenerationRequest) -> str:
    """What is asked for: a query, a reading, a verdict or an answer."""
    text = text_of(request)
    if text.startswith("Answer the question from the document alone"):
        return "reading"
    if text.startswith("A main question is to be answered"):
        return "verdict"
    wants = text.endswith(("Follow-up:", "Ask the next follow-up question."))
    return "query" if wants or "\nThat was asked before." in f"\n{text[-90:]}" else "answer"


@dataclass
class Lines:
    """Replies to each kind of request in order, the last one again and again."""

    query: Sequence[str] = ("Who founded Brill Works?",)
    reading: Sequence[str] = ("Ada Thorn",)
    verdict: Sequence[str] = ("Analysis: more.\nDecision: <CONTINUE>",)
    answer: Sequence[str] = ("Answer: Ben\nConfidence: 4",)
    given: dict[str, int] = field(default_factory=dict)

    def __call__(self, request: GenerationRequest, _sample: int) -> str:
        name = kind(request)
        replies: Sequence[str] = getattr(self, name)
        at = self.given.get(name, 0)
        self.given[name] = at + 1
        return replies[min(at, len(replies) - 1)]


class Heard(ScriptedModel):
    """Keeps what it gave."""

    def __init__(self, lines: Any = None, *, api: Api = "completion", **more: Any) -> None:
        super().__init__(lines, api=api, **more)
        self.given: list[tuple[GenerationRequest, Generation]] = []

    def generate(self, request: GenerationRequest) -> Generation:
        reply = ScriptedModel.generate(self, request)
        self.given.append((request, reply))
        return reply

    def of(self, name: str) -> list[GenerationRequest]:
        return [request for request, _ in self.given if kind(request) == name]


def passage(name: str, score: float = 1.0) -> Passage:
    return Passage(id=name, title=name.upper(), text=f"Fact {name}", score=score)


@dataclass
class Ranks:
    """The same passages for every query, best first; remembers queries."""

    names: str = LETTERS
    asked: list[tuple[str, int]] = field(default_factory=list)

    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        self.asked.append((query, k))
        return [passage(name, 9.0 - at) for at, name in enumerate(self.names)][:k]
