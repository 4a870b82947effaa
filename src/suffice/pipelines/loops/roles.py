"""Who does what in loops whose every round sends a query of its own, and what passes between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from suffice.protocols import Message
from suffice.trace.rounds.records import Passage, Usage

_SUMMED = ("llm_calls", "prompt_tokens", "cached_tokens", "completion_tokens", "latency_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStep:
    """A search that was made.

    Parameters
    ----------
    said
        What the chooser said, in the form in which later prompts repeat it.
    query
        What was sent.
    found
        The passages it found that had not been found before, whatever a filter drops.
    shown
        Those that the answerer sees of this round.
    answer
        What a reader answered to the query from ``found``; empty without one.
    """

    said: str
    query: str
    found: tuple[Passage, ...]
    shown: tuple[Passage, ...] = ()
    answer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a chooser wants.

    Parameters
    ----------
    query
        To be sent.
    said
        What it said in the form in which later prompts repeat it.
    action
        Everything it generated, as it came.
    usage
        Its calls and their tokens.
    finishes
        Whether it would end instead.
    unread
        Whether nothing it said could be read, so that the query is the question.
    """

    query: str
    said: str
    action: str
    usage: Usage
    finishes: bool = False
    unread: bool = False


class QueryChooser(Protocol):
    """Chooses the next query. Safe to call from several threads."""

    def choose(
        self, question: str, steps: Sequence[SearchStep], *, refused: Choice | None = None
    ) -> Choice:
        """What to do after these steps.

        ``refused`` is the choice to end that was not granted: one that searches is wanted instead.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a query's passages answer to it, and what finding that out cost."""

    answer: str
    usage: Usage


class QueryReader(Protocol):
    """Answers a query from what it found. Safe to call from several threads."""

    def read(self, query: str, found: Sequence[Passage]) -> Reading:
        """The intermediate answer; ``found`` may be empty."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether the model would end here; ``unread``: nothing it said could be read, so it goes on."""

    stops: bool
    said: str
    usage: Usage
    unread: bool = False


class StopAsker(Protocol):
    """Asks whether what was found suffices. Safe to call from several threads."""

    def ask(self, question: str, steps: Sequence[SearchStep]) -> Verdict:
        """The verdict after these steps."""
        ...


FinalPrompt = Callable[[str, Sequence[SearchStep]], str | tuple[Message, ...]]
"""The prompt that asks for the question's answer after these steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Who does what in a loop.

    Parameters
    ----------
    chooser
        Chooses queries.
    reader
        Answers each query from what it found; ``None``: nobody does.
    asker
        Says after each round whether to end; ``None``: the chooser's own wish to end counts.
    prompt
        Asks for the answer from the steps; ``None``: it is asked for from the passages alone.
    """

    chooser: QueryChooser
    reader: QueryReader | None = None
    asker: StopAsker | None = None
    prompt: FinalPrompt | None = None


def usage_sum(first: Usage, second: Usage) -> Usage:
    """The first with calls, plain tokens and seconds of the second added; unknown with unknown."""
    added: dict[str, int | float | None] = {}
    for name in _SUMMED:
        one, other = getattr(first, name), getattr(second, name)
        added[name] = None if one is None or other is None else one + other
    return replace(first, **added)  # type: ignore[arg-type]
