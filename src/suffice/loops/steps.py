"""A round in two halves: what the loop needs to go on, and the answer, which not every policy reads."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

from suffice.loops.answers.calls import usage_sum
from suffice.loops.answers.prompts import Prompt
from suffice.loops.answers.round_answer import Answerer, timed
from suffice.loops.settings import LoopSettings
from suffice.protocols import ChatModel, Encoder, PassageFilter, Retriever
from suffice.trace.rounds.records import Question, Round, with_draft


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReads:
    """What is read of rounds before the loop ends; by default all that its settings make."""

    answers: bool = True
    at_end: bool = True
    novelty: bool = True


EVERYTHING = RoundReads()


class Following(Protocol):
    """What a loop asks about a round after its answer."""

    def __call__(self, finished: Round) -> Round:
        """The round with what was said; of the rounds in their order."""
        ...

    def begin(self) -> None:
        """Ask already what is asked whatever the answer is, in any thread."""
        ...

    def ended(self, finished: Round) -> Round:
        """The same round where the loop was stopped, with what was asked for the next one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A round that a loop has come to: what it ``found``, and earlier ones ``before`` it, without answers.

    :meth:`asked` may run in any thread, beside everything else; :meth:`finished` in the order of the rounds.
    ``then`` is what the loop asks about the round after its answer.
    """

    number: int
    question: Question
    found: Round
    before: tuple[Round, ...]
    prompt: Callable[[], Prompt]
    answerer: Answerer
    reads: RoundReads = EVERYTHING
    last: bool = False
    then: Following | None = None

    @property
    def reads_more(self) -> bool:
        """Whether samples, verdicts and ratings are read of it."""
        return self.reads.at_end or not self.last

    def asked(self) -> Round:
        """The round with what is read of its answer and samples."""
        answerer, reads = self.answerer, self.reads
        samples = answerer.samples if self.reads_more or answerer.majority else 0
        if not (reads.answers or (samples and not answerer.majority)):
            return self.found
        started = time.perf_counter()
        made = answerer.ask(
            self.question, self.number, self.prompt(), samples=samples, greedy=reads.answers
        )
        return timed(_with(self.found, made), started)

    def finished(self, asked: Round) -> Round:
        """The round with what is asked and measured after its answer."""
        followed = asked if self.then is None else self.then(asked)
        rounds = (*self.before, followed)
        return self.answerer.beside(
            self.question, rounds, rate=self.reads_more, novelty=self.reads.novelty
        )

    def answered(self, finished: Round, tell: Callable[[str], None] | None = None) -> Round:
        """The finished round as the last of its loop, with an answer, asked for now unless it has one.

        ``tell`` is told of the reply as it comes; see :class:`suffice.protocols.GenerationRequest`.
        """
        if self.then is not None:
            finished = self.then.ended(finished)
        if finished.answer is not None:
            return finished
        draft = self.answerer.draft(self.question, self.number, self.prompt(), tell)
        return with_draft(finished, draft, probed=None)


def _with(found: Round, made: Round) -> Round:
    """What was found with what the model made of it."""
    before = found.usage
    spent = usage_sum(replace(made.usage, latency_s=0.0), before)
    looked = replace(spent, retrievals=before.retrievals, rerank_calls=before.rerank_calls)
    return replace(
        found,
        answer=made.answer,
        response=made.response,
        tokens=made.tokens,
        samples=made.samples,
        verbalized_confidence=made.verbalized_confidence,
        parse_failure=made.parse_failure,
        usage=looked,
    )


class SteppedLoop(ABC):
    """A loop over one question at a time; safe to use from several threads.

    ``settings`` are those given with nothing left to what the model gives; ``settled_by`` says why, by the
    setting's name.
    """

    settings_type: ClassVar[type[LoopSettings]]

    def __init__(
        self,
        model: ChatModel,
        settings: LoopSettings,
        *,
        encoder: Encoder | None = None,
        passage_filter: PassageFilter | None = None,
    ) -> None:
        self.model = model
        self.settings, self.settled_by = settings.settled(model)
        self._answerer = Answerer(
            model, self.settings, encoder=encoder, passage_filter=passage_filter
        )

    @abstractmethod
    def steps(
        self, question: Question, retriever: Retriever, reads: RoundReads = EVERYTHING
    ) -> Iterator[Step]:
        """The rounds as they are come to, up to the budget."""

    def rounds(self, question: Question, retriever: Retriever) -> Iterator[Round]:
        """Rounds as they happen, up to the budget, each with all that the settings ask for."""
        for step in self.steps(question, retriever):
            yield step.finished(step.asked())

    def closed_book(self, question: Question) -> Round:
        """Round 0: the model's answer without passages, one greedy call."""
        return self._answerer.closed_book(question)

    def _step(
        self,
        question: Question,
        found: Round,
        prompt: Callable[[], Prompt],
        *,
        before: tuple[Round, ...],
        reads: RoundReads,
        then: Following | None = None,
    ) -> Step:
        """The step after those that found what was found ``before``."""
        number = len(before) + 1
        return Step(
            number=number,
            question=question,
            found=found,
            before=before,
            prompt=prompt,
            answerer=self._answerer,
            reads=reads,
            last=number == self.settings.rounds,
            then=then,
        )
