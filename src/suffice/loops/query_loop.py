"""The mechanism of loops in which every round sends a query of its own, chosen from what was found so far."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, Protocol

from suffice.concurrency import Once
from suffice.errors import InternalError
from suffice.loops.answers.calls import NOTHING_ASKED, check_least, usage_sum
from suffice.loops.answers.prompts import Prompt, SearchStep
from suffice.loops.answers.round_answer import retrieved, timed
from suffice.loops.settings import LoopSettings
from suffice.loops.steps import EVERYTHING, RoundReads, Step, SteppedLoop
from suffice.options import Option
from suffice.protocols import ChatModel, Encoder, PassageFilter, Retriever
from suffice.signals.asking.verdicts import add_judge_calls
from suffice.signals.registry import LLM_STOP, MALFORMED_ACTIONS
from suffice.trace.rounds.records import Passage, Question, Round, Usage


# --- who does what --------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class QueryChoice:
    """What a chooser wants: to send ``query``, or to end instead (``finishes``).

    Later prompts repeat ``said``; ``action`` is everything it generated. ``unread``: nothing of that could be
    read, so that the query is the question.
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
        self, question: str, steps: Sequence[SearchStep], *, refused: QueryChoice | None = None
    ) -> QueryChoice:
        """What to do after these steps.

        ``refused`` is the choice to end that was not granted: one that searches is wanted instead.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class StopVerdict:
    """Whether the model would end here; ``unread``: nothing it said could be read, so it goes on."""

    stops: bool
    said: str
    usage: Usage
    unread: bool = False


QueryReader = Callable[[str, Sequence[Passage]], tuple[str, Usage]]
"""Answers a query from what it found, if anything; with what that cost. Safe in several threads."""
StopAsker = Callable[[str, Sequence[SearchStep]], StopVerdict]
"""Asks whether what was found suffices after these steps. Safe in several threads."""
FinalPrompt = Callable[[str, Sequence[SearchStep]], Prompt]
"""The prompt that asks for the question's answer after these steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roles:
    """Who chooses queries, answers each from what it found, and says after each round whether to end.

    Without an ``asker`` the chooser's own wish to end counts; without a ``prompt`` that asks for the answer
    from the steps it is asked for from the passages alone.
    """

    chooser: QueryChooser
    reader: QueryReader | None = None
    asker: StopAsker | None = None
    prompt: FinalPrompt | None = None


# --- the loop -------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLoopSettings(LoopSettings):
    """How rounds are made: each sends one query and shows what it finds that is new."""

    step: Annotated[
        int, Option(help="at most so many passages more a search", metavar="K", at_least=1)
    ] = 3
    verdicts: Annotated[
        bool,
        Option(
            name="llm-stop",
            help="also ask the model after each round whether it would stop: the signal llm_stop (react "
            "always says)",
            otherwise="other loops ask the model nothing about stopping; --judge records its rating of "
            "the evidence",
        ),
    ] = True

    def __post_init__(self) -> None:
        LoopSettings.__post_init__(self)  # super() does not reach over slots
        check_least(self, {"step": 1})

    @classmethod
    def writing(cls, signals: Collection[str]) -> dict[str, Any]:
        """See :meth:`suffice.loops.settings.LoopSettings.writing`."""
        # LoopSettings by name: super() does not reach over slots
        return {**LoopSettings.writing(signals), "verdicts": LLM_STOP.name in signals}

    @property
    def writes(self) -> frozenset[str]:
        """Names of the recorded signals that the rounds carry."""
        return frozenset({MALFORMED_ACTIONS.name, *([LLM_STOP.name] if self.verdicts else [])})

    @property
    def own_calls(self) -> int:
        """Calls a round that do not answer, at most: the one that chooses its query, and one more.

        That is the search of an agent that would have ended, or the verdict after the last round.
        """
        return 2

    def shown(self, number: int) -> int:
        """The most passages that rounds 1 to ``number`` show."""
        return number * self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What a query found, in rank order, down to the last passage that it adds.

    ``offered`` are the ``new`` and what was dropped before: its score for this query may be better. ``again``
    were shown before.
    """

    new: tuple[Passage, ...]
    offered: tuple[Passage, ...]
    again: tuple[Passage, ...]


@dataclass(slots=True)
class _Trail:
    """What one question's searches have found: all of it, and what of it the answerer was shown.

    ``unread`` counts the choices, ``unread_verdicts`` the verdicts so far of which nothing could be read.
    """

    steps: tuple[SearchStep, ...] = ()
    shown: tuple[Passage, ...] = ()
    unread: int = 0
    unread_verdicts: int = 0
    _found: set[str] = field(default_factory=set)

    def look(self, ranked: Sequence[Passage], most: int) -> _Look:
        """The first ``most`` passages not found before, and what else ranks among them."""
        shown = {passage.id for passage in self.shown}
        new: list[Passage] = []
        offered: list[Passage] = []
        again: list[Passage] = []
        for passage in ranked:
            if len(new) == most:
                break
            if any(passage.id == other.id for other in (*offered, *again)):
                continue  # a retriever may return a passage twice
            if passage.id in shown:
                again.append(replace(passage, text=None, title=""))  # which stand above
                continue
            offered.append(passage)
            if passage.id not in self._found:
                new.append(passage)
        self._found.update(passage.id for passage in new)
        return _Look(new=tuple(new), offered=tuple(offered), again=tuple(again))

    def add(self, step: SearchStep) -> None:
        """Take in a step."""
        self.steps = (*self.steps, step)
        self.shown = (*self.shown, *step.shown)


class QueryLoop(SteppedLoop):
    """Runs the loop over one question at a time; safe to use from several threads.

    A round sends the query the chooser wants, adds at most ``step`` passages, has them read where there
    is a reader, and answers over everything so far. ``candidate_scores`` are those of everything the
    query found, ``refound`` the passages shown before that rank among those it adds, ``action`` is what
    the chooser generated and, after a blank line, what an asker said.
    The calls and tokens of chooser and reader count with the round that they made, those of a verdict
    as a judge's.
    """

    settings: QueryLoopSettings

    def __init__(
        self,
        model: ChatModel,
        settings: QueryLoopSettings,
        roles: Roles,
        *,
        encoder: Encoder | None = None,
        passage_filter: PassageFilter | None = None,
    ) -> None:
        super().__init__(model, settings, encoder=encoder, passage_filter=passage_filter)
        self._roles = roles

    def steps(
        self, question: Question, retriever: Retriever, reads: RoundReads = EVERYTHING
    ) -> Iterator[Step]:
        """Rounds as they are come to, up to the budget, also those that find nothing new.

        Where the chooser would end it is made to search once more: whether to stop is for a policy.
        """
        loop, trail = self.settings, _Trail()
        before: tuple[Round, ...] = ()
        choice: QueryChoice | None = None
        for number in range(1, loop.rounds + 1):
            choice = self._searching(question.text, trail.steps, choice)
            found = self._found(retriever, trail, choice)
            after = _After(
                verdicts=loop.verdicts and (reads.at_end or number < loop.rounds),
                ask=partial(self._ask, question.text, trail.steps),
                wish=Once(partial(self._choose, question.text, trail.steps)),
                asks=self._roles.asker is not None,
                unread=trail.unread,
                trail=trail,
                last=number == loop.rounds,
            )
            prompt = partial(self._prompt, question, trail.steps, trail.shown)
            yield self._step(question, found, prompt, before=before, reads=reads, then=after)
            choice = after.wish() if after.wishes and number < loop.rounds else None
            before = (*before, found)

    def _found(self, retriever: Retriever, trail: _Trail, choice: QueryChoice) -> Round:
        """Search, and have it read."""
        loop, number = self.settings, len(trail.steps) + 1
        started = time.perf_counter()
        ranked = retriever.retrieve(choice.query, max(loop.candidates, loop.shown(number)))
        look = trail.look(ranked, loop.step)
        shown = self._answerer.kept(look.offered)
        spent, answer = choice.usage, None
        if self._roles.reader is not None:
            answer, cost = self._roles.reader(choice.query, look.new)
            # its seconds the round's own clock counts; a choice comes before that clock starts
            spent = usage_sum(spent, replace(cost, latency_s=0.0))
        trail.unread += choice.unread
        trail.add(
            SearchStep(
                said=choice.said,
                query=choice.query,
                found=look.new,
                shown=shown,
                answer=answer or "",
            )
        )
        found = Round(
            answer=None,
            passages=shown,
            refound=look.again,
            action=choice.action,
            intermediate_answer=answer,
            usage=usage_sum(NOTHING_ASKED, spent),
        )
        return timed(retrieved(found, choice.query, ranked), started)

    def _prompt(
        self, question: Question, steps: tuple[SearchStep, ...], shown: tuple[Passage, ...]
    ) -> Prompt:
        if self._roles.prompt is None:
            return self._answerer.prompt(question, shown)
        return self._roles.prompt(question.text, steps)

    def _ask(self, question: str, steps: tuple[SearchStep, ...]) -> StopVerdict:
        """The asker's verdict, with its seconds."""
        if self._roles.asker is None:
            raise InternalError("nobody is there to be asked")
        started = time.perf_counter()
        verdict = self._roles.asker(question, steps)
        seconds = time.perf_counter() - started
        return replace(verdict, usage=replace(verdict.usage, latency_s=seconds))

    def _searching(
        self, question: str, steps: tuple[SearchStep, ...], choice: QueryChoice | None
    ) -> QueryChoice:
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
        self, question: str, steps: tuple[SearchStep, ...], *, refused: QueryChoice | None = None
    ) -> QueryChoice:
        """The chooser's choice, with its seconds."""
        started = time.perf_counter()
        choice = self._roles.chooser.choose(question, steps, refused=refused)
        seconds = time.perf_counter() - started
        return replace(choice, usage=replace(choice.usage, latency_s=seconds))


@dataclass(frozen=True, slots=True, kw_only=True)
class _After:
    """What is asked after a round if ``verdicts``: whether to end, of an asker or as the chooser's choice.

    ``unread`` are the choices up to this round of which nothing could be read.
    """

    verdicts: bool
    ask: Callable[[], StopVerdict]
    wish: Once[QueryChoice]
    asks: bool
    unread: int
    trail: _Trail
    last: bool

    @property
    def wishes(self) -> bool:
        """Whether the chooser is asked."""
        return self.verdicts and not self.asks

    def __call__(self, finished: Round) -> Round:
        """The round with what was said of it."""
        if self.wishes:
            finished = _with_wish(finished, self.wish(), last=self.last)
        elif self.verdicts:
            verdict = self.ask()
            self.trail.unread_verdicts += verdict.unread
            finished = _with_asked(finished, verdict)
        malformed = float(self.unread + self.trail.unread_verdicts)
        return replace(finished, signals={**finished.signals, MALFORMED_ACTIONS.name: malformed})

    def begin(self) -> None:
        """Ask the chooser already."""
        if self.wishes:
            self.wish()

    def ended(self, finished: Round) -> Round:
        """The last round of a loop that was stopped, with the next round's choice as a verdict's cost."""
        paid = self.last or not self.wishes or self.wish().finishes
        if paid:
            return finished
        return replace(finished, usage=_judged(finished.usage, self.wish().usage))


def _with_wish(finished: Round, choice: QueryChoice, *, last: bool) -> Round:
    """The round with what the chooser wished after it.

    That is a ``judge_call`` where it chose no query: where the chooser would end, and after the last
    round. Elsewhere it is the next round's choice and costs a policy nothing more.
    """
    usage = finished.usage
    if choice.finishes or last:
        usage = _judged(usage, choice.usage)
    return replace(
        finished,
        usage=usage,
        signals={**finished.signals, LLM_STOP.name: float(choice.finishes)},
    )


def _with_asked(finished: Round, verdict: StopVerdict) -> Round:
    """The round with the verdict that was asked for after it, whose seconds count with it."""
    seconds = verdict.usage.latency_s
    usage = _judged(finished.usage, replace(verdict.usage, judge_latency_s=seconds))
    latency = (usage.latency_s or 0.0) + (seconds or 0.0)
    return replace(
        finished,
        action=f"{finished.action}\n\n{verdict.said}",
        usage=replace(usage, latency_s=latency),
        signals={**finished.signals, LLM_STOP.name: float(verdict.stops)},
    )


def _judged(usage: Usage, verdict: Usage) -> Usage:
    """A round's usage with a verdict's calls and tokens as a judge's."""
    return add_judge_calls(
        usage,
        Usage(
            judge_calls=verdict.llm_calls,
            judge_prompt_tokens=verdict.prompt_tokens,
            judge_cached_tokens=verdict.cached_tokens,
            judge_completion_tokens=verdict.completion_tokens,
            judge_latency_s=verdict.judge_latency_s,
        ),
    )
