"""The mechanism of loops in which every round sends a query of its own, chosen from what was found so far."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from suffice.pipelines.answer_calls import LoopSettings, check_least
from suffice.pipelines.answerer import Answerer, retrieved, timed
from suffice.protocols import ChatModel, Encoder, PassageFilter, Retriever
from suffice.signals.recorded import LLM_STOP, MALFORMED_ACTIONS
from suffice.trace.records import Passage, Question, Round, Usage

__all__ = ["Choice", "QueryChooser", "SearchSettings", "SearchStep", "SearchingLoop", "usage_sum"]

_SUMMED = ("llm_calls", "prompt_tokens", "cached_tokens", "completion_tokens", "latency_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings(LoopSettings):
    """How rounds are made: each sends one query and shows what it finds that is new.

    Parameters
    ----------
    step
        At most so many passages more in each round.
    verdicts
        Whether the chooser is asked after each round, the last one too, whether it would end: the
        signal ``llm_stop``. What it says is then also the next round's choice, so this changes no
        later round. Without it the chooser is asked only when the loop goes on.

    The others are those of :class:`suffice.pipelines.answer_calls.LoopSettings`; ``candidates`` is how
    many passages each query asks for at least.
    """

    step: int = 3
    verdicts: bool = True

    def __post_init__(self) -> None:
        LoopSettings.__post_init__(self)  # super() does not reach over slots
        check_least(self, {"step": 1})

    @property
    def writes(self) -> frozenset[str]:
        """Names of the recorded signals that the rounds carry."""
        return frozenset({MALFORMED_ACTIONS.name, *([LLM_STOP.name] if self.verdicts else [])})

    def shown(self, number: int) -> int:
        """The most passages that rounds 1 to ``number`` show."""
        return number * self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchStep:
    """A search that was made: what the chooser said, and what it found that had not been found before."""

    said: str
    query: str
    found: tuple[Passage, ...]


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


@dataclass(slots=True)
class _Trail:
    """What one question's searches have found: all of it, and what of it the answerer was shown."""

    steps: tuple[SearchStep, ...] = ()
    shown: tuple[Passage, ...] = ()
    _found: set[str] = field(default_factory=set)

    def look(self, choice: Choice, ranked: Sequence[Passage], most: int) -> tuple[Passage, ...]:
        """Take in the first ``most`` passages not found before; what may be shown, in rank order.

        That is those, and what was dropped before and ranks among them now: its score for this query
        may be better.
        """
        shown = {each.id for each in self.shown}
        new: list[Passage] = []
        offered: list[Passage] = []
        for each in ranked:
            if len(new) == most:
                break
            if any(each.id == other.id for other in offered):
                continue  # a retriever may return a passage twice
            if each.id not in self._found:
                new.append(each)
                offered.append(each)
            elif each.id not in shown:
                offered.append(each)
        self._found.update(each.id for each in new)
        step = SearchStep(said=choice.said, query=choice.query, found=tuple(new))
        self.steps = (*self.steps, step)
        return tuple(offered)


class SearchingLoop:
    """Runs the loop over one question at a time; safe to use from several threads.

    A round sends the query the chooser wants, adds at most ``step`` passages, and answers over all the
    evidence so far. ``candidate_scores`` are those of everything the query found, ``action`` is what
    the chooser generated, and its calls and tokens count with the round whose query they chose.

    Parameters
    ----------
    model, encoder
        See :class:`suffice.pipelines.answerer.Answerer`.
    settings
        How rounds are made.
    chooser
        Sees everything found, whatever the filter drops, so that queries do not depend on the filter.
    passage_filter
        Drops passages before they are shown to the answerer. One that was dropped may be found again
        and kept, at its score for that later query.
    """

    def __init__(
        self,
        model: ChatModel,
        settings: SearchSettings,
        chooser: QueryChooser,
        *,
        encoder: Encoder | None = None,
        passage_filter: PassageFilter | None = None,
    ) -> None:
        self._loop = settings
        self._chooser = chooser
        self._answerer = Answerer(model, settings, encoder=encoder, passage_filter=passage_filter)

    def rounds(self, question: Question, retriever: Retriever) -> Iterator[Round]:
        """Rounds as they happen, up to the budget, also those that find nothing new.

        Where the chooser would end it is made to search once more: whether to stop is for a policy.

        Raises
        ------
        BackendError
            When the model, the retriever or the encoder fails.
        """
        loop, trail = self._loop, _Trail()
        finished: tuple[Round, ...] = ()
        choice: Choice | None = None
        unread = 0
        for number in range(1, loop.rounds + 1):
            choice = self._searching(question.text, trail.steps, choice)
            unread += choice.unread
            started = time.perf_counter()
            ranked = retriever.retrieve(choice.query, max(loop.candidates, loop.shown(number)))
            added = self._answerer.kept(trail.look(choice, ranked, loop.step))
            trail.shown = (*trail.shown, *added)
            answered = retrieved(
                self._answerer.answer(question, number, trail.shown), choice.query, ranked
            )
            latest = replace(
                answered,
                passages=added,
                action=choice.action,
                usage=usage_sum(answered.usage, choice.usage),
                signals={**answered.signals, MALFORMED_ACTIONS.name: float(unread)},
            )
            latest = self._answerer.beside(question, (*finished, timed(latest, started)))
            choice = None
            if loop.verdicts:
                choice = self._choose(question.text, trail.steps)
                latest = _with_verdict(latest, choice, last=number == loop.rounds)
            finished = (*finished, latest)
            yield latest

    def closed_book(self, question: Question) -> Round:
        """Round 0: the model's answer without passages, one greedy call.

        Raises
        ------
        BackendError
            When the model fails.
        """
        return self._answerer.closed_book(question)

    def _searching(
        self, question: str, steps: tuple[SearchStep, ...], choice: Choice | None
    ) -> Choice:
        """A choice that searches, and what it took to get it."""
        first = choice or self._choose(question, steps)
        if not first.finishes:
            return first
        second = self._choose(question, steps, refused=first)
        return replace(
            second,
            action=f"{first.action}\n\n{second.action}",
            usage=usage_sum(first.usage, second.usage),
            finishes=False,
        )

    def _choose(
        self, question: str, steps: tuple[SearchStep, ...], *, refused: Choice | None = None
    ) -> Choice:
        """The chooser's choice, with its seconds."""
        started = time.perf_counter()
        choice = self._chooser.choose(question, steps, refused=refused)
        seconds = time.perf_counter() - started
        return replace(choice, usage=replace(choice.usage, latency_s=seconds))


def usage_sum(first: Usage, second: Usage) -> Usage:
    """The first with calls, plain tokens and seconds of the second added; unknown with unknown."""
    added: dict[str, int | float | None] = {}
    for name in _SUMMED:
        one, other = getattr(first, name), getattr(second, name)
        added[name] = None if one is None or other is None else one + other
    return replace(first, **added)  # type: ignore[arg-type]


def _with_verdict(finished: Round, verdict: Choice, *, last: bool) -> Round:
    """The round with the verdict that came after it.

    A verdict is a ``judge_call`` where it chose no query of its own: where the chooser would end, and
    after the last round. Elsewhere it is the next round's choice and costs a policy nothing more.
    """
    usage = finished.usage
    if verdict.finishes or last:
        calls = (usage.judge_calls or 0) + (verdict.usage.llm_calls or 0)
        usage = replace(usage, judge_calls=calls)
    return replace(
        finished,
        usage=usage,
        signals={**finished.signals, LLM_STOP.name: float(verdict.finishes)},
    )
