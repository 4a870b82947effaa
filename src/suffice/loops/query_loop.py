"""The base of loops that send a new query each round, chosen from the findings so far."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Annotated, Any, ClassVar

from suffice.contracts import Retriever
from suffice.errors import UsageError
from suffice.loops.calls import NOTHING_ASKED, usage_sum
from suffice.loops.prompts import Prompt, SearchStep, answer_now
from suffice.loops.steps import (
    EVERYTHING,
    LoopSettings,
    RoundReads,
    Step,
    SteppedLoop,
    retrieved,
    timed,
)
from suffice.options import Option
from suffice.signals.asking.judge_support import add_judge_calls
from suffice.signals.asking.looks import (
    ASKED,
    Looks,
    LookSamples,
    check_looks,
    one_turn_more,
    with_looks,
)
from suffice.signals.known_signals import LLM_STOP, MALFORMED_ACTIONS
from suffice.trace.rounds.records import Passage, Question, Round, Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryChoice:
    """A model's choice: send ``query``, or end (``finishes``).

    Later prompts repeat ``said``; ``action`` is the whole reply. ``unread``: the reply could not be read,
    so the query is the question.
    """

    query: str
    said: str
    action: str
    usage: Usage
    finishes: bool = False
    unread: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StopVerdict:
    """Whether the model would end here; ``unread``: its reply could not be read, so the loop goes on."""

    stops: bool
    said: str
    usage: Usage
    unread: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryLoopSettings(LoopSettings):
    """Settings of rounds that send one query each and show its new passages."""

    converses: ClassVar[bool] = True

    step: Annotated[int, Option(help="most new passages a search", metavar="K", at_least=1)] = 3
    verdicts: Annotated[
        bool,
        Option(
            name="llm-stop",
            help="also ask the model after each round whether to stop: the signal llm_stop (react always "
            "records it)",
        ),
    ] = True
    looks: Looks = ()
    budget_note: Annotated[
        bool, Option(help="tell the model after each search how many of its budget are made")
    ] = False
    look_samples: LookSamples = 0

    def __post_init__(self) -> None:
        LoopSettings.__post_init__(self)  # super() does not reach over slots
        check_looks(self.looks)

    @classmethod
    def writing(cls, signals: Collection[str]) -> dict[str, Any]:
        return {
            **LoopSettings.writing(signals),  # by name: super() does not reach over slots
            "verdicts": LLM_STOP.name in signals,
            "looks": tuple(name for name in ASKED if name in signals),
        }

    @property
    def writes(self) -> frozenset[str]:
        verdicts = [LLM_STOP.name] if self.verdicts else []
        return frozenset({MALFORMED_ACTIONS.name, *verdicts, *self.looks})

    @property
    def own_calls(self) -> int:
        """The most calls per round that do not answer: the choice of its query, one repeat, and looks."""
        return 2 + len(self.looks)

    def shown(self, number: int) -> int:
        return number * self.step


@dataclass(slots=True)
class _Trail:
    """The searches of one question; ``unread`` counts choices and verdicts that could not be read."""

    steps: tuple[SearchStep, ...] = ()
    shown: tuple[Passage, ...] = ()
    unread: int = 0
    _found: set[str] = field(default_factory=set)

    def look(
        self, ranked: Sequence[Passage], most: int
    ) -> tuple[list[Passage], list[Passage], list[Passage]]:
        """Return at most ``most`` new passages, the passages to show, and those shown before."""
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
        return new, offered, again


class QueryLoop(SteppedLoop):
    """A loop that sends a query per round; safe to use from several threads.

    A round sends the query of :meth:`choose`, adds at most ``step`` passages, has :meth:`read` read them,
    and answers over everything so far. ``action`` holds the text of the choice and, after a blank line, of
    the verdict. Calls and tokens of choices and readings count in their round, those of a verdict as a
    judge's. A loop of your own derives from this class and defines at least :meth:`choose`.
    """

    settings: QueryLoopSettings
    asks_apart: ClassVar[bool] = False
    """Whether :meth:`verdict` says where the loop would end, rather than a choice to finish."""

    @abstractmethod
    def choose(
        self, question: str, steps: Sequence[SearchStep], *, refused: QueryChoice | None = None
    ) -> QueryChoice:
        """Return the next choice; ``refused`` is a choice to end that was not granted: search instead."""

    def read(self, query: str, passages: Sequence[Passage]) -> tuple[str | None, Usage]:
        """Return the answer to a query from its passages, if the loop asks for one, and its usage."""
        del query, passages
        return None, NOTHING_ASKED

    def verdict(self, question: str, steps: Sequence[SearchStep]) -> StopVerdict:
        """Return whether the findings suffice after these steps, in a loop that ``asks_apart``."""
        raise NotImplementedError

    def conversation(self, question: str, steps: Sequence[SearchStep]) -> Prompt:
        """Return what the next choice continues after these steps, without its label."""
        del question, steps
        raise UsageError(
            f"{type(self).__name__} has no conversation(question, steps), at whose end looks and in-loop "
            "answers are asked; write one, or leave out looks and prompt='in-loop'"
        )

    def answer_in_loop(self, question: str, steps: Sequence[SearchStep]) -> Prompt:
        """Return the prompt for the answer at the end of that conversation."""
        return one_turn_more(self.conversation(question, steps), answer_now(question), "Answer:")

    def prompt(
        self, question: Question, steps: Sequence[SearchStep], shown: Sequence[Passage]
    ) -> Prompt:
        """Return the prompt for the question's answer after these steps."""
        if self.settings.prompt == "in-loop":
            return self.answer_in_loop(question.text, steps)
        return self.evidence_prompt(question, shown)

    def steps(
        self, question: Question, retriever: Retriever, reads: RoundReads = EVERYTHING
    ) -> Iterator[Step]:
        """Yield rounds up to the budget, also rounds that find nothing new."""
        loop, trail = self.settings, _Trail()
        before: tuple[Round, ...] = ()
        choice: QueryChoice | None = None
        for _ in range(loop.rounds):
            choice = self._searching(question.text, trail.steps, choice)
            found = self._found(retriever, trail, choice)
            step = QueryStep(
                loop=self,
                question=question,
                found=found,
                before=before,
                prompt=partial(self.prompt, question, trail.steps, trail.shown),
                reads=reads,
                trail=trail,
            )
            yield step
            choice = step.choice
            before = (*before, found)

    def _found(self, retriever: Retriever, trail: _Trail, choice: QueryChoice) -> Round:
        loop, number = self.settings, len(trail.steps) + 1
        started = time.perf_counter()
        ranked = retriever.retrieve(choice.query, max(loop.candidates, loop.shown(number)))
        new, offered, again = trail.look(ranked, loop.step)
        shown = self.kept(offered)
        answer, cost = self.read(choice.query, new)
        trail.unread += choice.unread
        step = SearchStep(
            said=choice.said,
            query=choice.query,
            found=tuple(new),
            shown=shown,
            answer=answer or "",
            note=f"(Search {number} of {loop.rounds}.)" if loop.budget_note else "",
        )
        trail.steps, trail.shown = (*trail.steps, step), (*trail.shown, *shown)
        # a reading's seconds the round's own clock counts; a choice comes before that clock starts
        spent = usage_sum(choice.usage, replace(cost, latency_s=0.0))
        found = Round(
            answer=None,
            passages=shown,
            refound=tuple(again),
            action=choice.action,
            intermediate_answer=answer,
            usage=usage_sum(NOTHING_ASKED, spent),
        )
        return timed(retrieved(found, choice.query, ranked), started)

    def _searching(
        self, question: str, steps: tuple[SearchStep, ...], choice: QueryChoice | None
    ) -> QueryChoice:
        first = choice or self.chosen(question, steps)
        if not first.finishes:
            return first
        second = self.chosen(question, steps, refused=first)
        return replace(
            second,
            action=f"{first.action}\n\n{second.action}",
            usage=usage_sum(first.usage, second.usage),
            finishes=False,
        )

    def chosen(
        self, question: str, steps: tuple[SearchStep, ...], *, refused: QueryChoice | None = None
    ) -> QueryChoice:
        """Return the choice with its seconds."""
        started = time.perf_counter()
        choice = self.choose(question, steps, refused=refused)
        seconds = time.perf_counter() - started
        return replace(choice, usage=replace(choice.usage, latency_s=seconds))


@dataclass(slots=True, kw_only=True, eq=False)
class QueryStep(Step):
    """A round after which the model may say whether to end, as the next ``choice`` or apart."""

    loop: QueryLoop
    trail: _Trail
    choice: QueryChoice | None = None

    def _after(self, answered: Round) -> Round:
        settings, question, steps = self.loop.settings, self.question.text, self.trail.steps
        if settings.looks and self.reads_more:
            asked = answered, self.loop.conversation(question, steps), self.loop.model
            answered = with_looks(
                *asked,
                settings.looks,
                question=question,
                samples=settings.look_samples,
                seed=settings.seed,
            )
        signals, usage, action = dict(answered.signals), answered.usage, answered.action
        wanted = settings.verdicts and self.reads_more
        if wanted and self.loop.asks_apart:
            started = time.perf_counter()
            verdict = self.loop.verdict(question, steps)
            seconds = time.perf_counter() - started
            self.trail.unread += verdict.unread
            signals[LLM_STOP.name] = float(verdict.stops)
            usage = _judged(usage, replace(verdict.usage, judge_latency_s=seconds))
            usage = replace(usage, latency_s=(usage.latency_s or 0.0) + seconds)
            action = f"{action}\n\n{verdict.said}"
        elif wanted:
            self.choice = self.loop.chosen(question, steps)
            signals[LLM_STOP.name] = float(self.choice.finishes)
            if self.choice.finishes or self.last:
                usage = _judged(usage, self.choice.usage)
        later = None if self.choice is None else self.choice.usage
        usage = own_turns(usage, later, answers=settings.prompt == "in-loop")
        signals[MALFORMED_ACTIONS.name] = float(self.trail.unread)
        return replace(answered, signals=signals, usage=usage, action=action)

    def _ended(self, finished: Round) -> Round:
        if self.last or self.choice is None or self.choice.finishes:
            return finished
        return replace(finished, usage=_judged(finished.usage, self.choice.usage))


def own_turns(usage: Usage, later: Usage | None, *, answers: bool) -> Usage:
    """Charge answer and looks for their own turns alone, and the loop for reading what was found.

    Whoever asks first has the server read the new part of the conversation. The loop's next call would, if
    nobody asked. What a look or ``later``, that next call, found cached is therefore cached for all of them.
    """
    found = [(usage.look_cached_tokens, usage.look_calls)]
    found += [] if later is None or later.llm_calls != 1 else [(later.cached_tokens, 1)]
    shared = max((cached // calls for cached, calls in found if cached and calls), default=0)
    left = (usage.cached_tokens or 0) - (usage.answer_cached_tokens or 0)
    changed: dict[str, int] = {}
    for part, calls in (("answer", int(answers)), ("look", usage.look_calls or 0)):
        prompt, cached = (getattr(usage, f"{part}_{kind}_tokens") for kind in ("prompt", "cached"))
        if prompt is None or cached is None:  # nobody knows of how much
            continue
        more = min(calls * shared, prompt) - cached
        if 0 < more <= left:
            changed[f"{part}_cached_tokens"], left = cached + more, left - more
            if part == "look":  # whose tokens are not among the round's own
                changed["cached_tokens"] = (usage.cached_tokens or 0) - more
    return replace(usage, **changed)


def _judged(usage: Usage, verdict: Usage) -> Usage:
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
