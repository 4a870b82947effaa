"""Settings of a loop, and a round in two halves: retrieval, then the answer."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Self

from suffice.contracts import ChatModel, Encoder, PassageFilter, Retriever
from suffice.errors import UsageError
from suffice.loops.calls import (
    AnswerCall,
    AnswerSettings,
    ask_answer,
    ask_majority,
    draft_of,
    reply_of,
    usage_sum,
)
from suffice.loops.prompts import Prompt, render_closed_book, render_prompt
from suffice.options import Option
from suffice.signals.asking.evidence_models import with_evidence
from suffice.signals.asking.judge_support import JUDGE_SUPPORT, judged
from suffice.signals.asking.meaning_clusters import check_clustering, check_cosine, with_clusters
from suffice.signals.asking.whole_record import KeptEncoder
from suffice.trace.rounds.records import LoopView, Passage, Question, Round, with_draft


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings(AnswerSettings):
    """Settings of how a loop makes its rounds. Loops state their own defaults and add fields.

    A field with an :class:`suffice.options.Option` is an option of the commands that run loops.
    """

    pipeline: ClassVar[str]
    summary: ClassVar[str]
    default_rule: ClassVar[str] = "answer_repeats and not abstained"
    """The rule that stops the loop live if no policy is named."""
    compares_evidence: ClassVar[bool] = False
    """Whether its recordings compare answers with their evidence if there is an encoder."""
    converses: ClassVar[bool] = False
    """Whether the loop is a conversation, at whose end the answer can be asked for."""
    ranks_once: ClassVar[bool] = False
    """Whether later rounds show more of one ranking, so that a fixed budget is one call."""
    settles: ClassVar[tuple[str, ...]] = ()
    """Settings that depend on the model; see :meth:`settled`."""

    rounds: Annotated[int, Option(help="full budget", metavar="R", at_least=1)] = 5
    samples: Annotated[
        int,
        Option(
            help="sampled answers a round, beside the greedy one; under self_consistency the votes (0: "
            "three)",
            metavar="M",
            at_least=0,
        ),
    ] = 0
    candidates: int = 10
    closed_book: Annotated[
        bool, Option(help="also record the answer without passages, as round 0")
    ] = False
    judge: Annotated[
        bool,
        Option(
            help="also ask the model how well the evidence supports each answer: the signal judge_support "
            "(later: suffice signals --llm)"
        ),
    ] = False
    cluster_cosine: float | None = None

    def __post_init__(self) -> None:
        AnswerSettings.__post_init__(self)  # super() does not reach over slots
        if self.prompt == "in-loop" and not self.converses:
            raise UsageError(
                f"the {self.pipeline} loop is no conversation, so its answers have a prompt of their own; "
                "type --prompt bare, or record another loop, as with --pipeline react"
            )
        if self.cluster_cosine is not None:
            check_cosine(self.cluster_cosine)

    @classmethod
    def writing(cls, signals: Collection[str]) -> dict[str, Any]:
        """Return the settings that make rounds carry these recorded signals, if the loop can ask for them."""
        return {"judge": JUDGE_SUPPORT.name in signals}

    def settled(self, model: ChatModel) -> Self:
        """Return the settings with nothing left that depends on the model."""
        del model
        return self

    @property
    def majority(self) -> bool:
        """Whether a round's answer is the most frequent of its samples, not the greedy one."""
        return False

    @property
    def writes(self) -> frozenset[str]:
        """Names of the recorded signals that the rounds carry."""
        return frozenset()

    @property
    def calls(self) -> int:
        """The most model calls of a round, if none is repeated."""
        return (0 if self.majority else 1) + self.samples + self.judge + self.own_calls

    @property
    def own_calls(self) -> int:
        """The number of these calls that neither answer nor rate an answer."""
        return 0

    def shown(self, number: int) -> int:
        """Return the number of passages that rounds 1 to ``number`` show."""
        return number


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundReads:
    """The parts of rounds that are read before the loop ends; by default all that its settings make."""

    answers: bool = True
    at_end: bool = True


EVERYTHING = RoundReads()


class SteppedLoop(ABC):
    """A loop over one question at a time; safe to use from several threads."""

    def __init__(
        self,
        model: ChatModel,
        settings: LoopSettings,
        *,
        encoder: Encoder | None = None,
        passage_filter: PassageFilter | None = None,
    ) -> None:
        self.model = model
        self.settings: LoopSettings = settings.settled(model)
        self._encoder = None if encoder is None else KeptEncoder(encoder)
        self._filter = passage_filter
        if self.settings.cluster_cosine is not None:  # refused before the model answers
            if encoder is None:
                raise UsageError(
                    "clustering samples (cluster_cosine) needs an encoder; type --encoder minilm"
                )
            if not self.settings.samples:
                raise UsageError(
                    "there are no samples to cluster (cluster_cosine); type --samples 5"
                )
            check_clustering(self.settings.cluster_cosine)

    @abstractmethod
    def steps(
        self, question: Question, retriever: Retriever, reads: RoundReads = EVERYTHING
    ) -> Iterator[Step]:
        """Yield the rounds one by one, up to the budget."""

    def rounds(self, question: Question, retriever: Retriever) -> Iterator[Round]:
        """Yield complete rounds, each with everything that the settings ask for."""
        for step in self.steps(question, retriever):
            yield step.finished()

    def closed_book(self, question: Question) -> Round:
        """Return round 0: the model's answer without passages, by one greedy call."""
        started = time.perf_counter()
        prompt = render_closed_book(question.text, api=self.model.api, name=self.settings.prompt)
        call = AnswerCall(prompt=prompt, question_id=question.id, number=0)
        answered = ask_answer(self.model, call, self.settings)
        return timed(replace(answered, passages=()), started)

    def kept(self, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        return tuple(passages if self._filter is None else self._filter.keep(passages))

    def evidence_prompt(self, question: Question, shown: Sequence[Passage]) -> Prompt:
        """Return the prompt for the answer from all passages shown so far."""
        return render_prompt(question.text, shown, api=self.model.api, name=self.settings.prompt)

    def beside(self, question: Question, rounds: tuple[Round, ...], *, rate: bool) -> Round:
        """Return the last round with the values of encoder and judge."""
        if self._encoder is not None:
            started = time.perf_counter()
            encoded = with_evidence(LoopView(question.text, rounds), self._encoder)
            if self.settings.cluster_cosine is not None and encoded.samples is not None:
                encoded = with_clusters(encoded, self._encoder, self.settings.cluster_cosine)
            rounds = (*rounds[:-1], timed(encoded, started))
        if self.settings.judge and rate:
            return judged(LoopView(question.text, rounds), self.model)
        return rounds[-1]


@dataclass(slots=True, kw_only=True, eq=False)
class Step:
    """A round after its retrieval (``found``), and the ``before`` rounds without answers."""

    loop: SteppedLoop
    question: Question
    found: Round
    before: tuple[Round, ...]
    prompt: Callable[[], Prompt]
    reads: RoundReads = EVERYTHING

    @property
    def number(self) -> int:
        """The round's number, from 1."""
        return len(self.before) + 1

    @property
    def last(self) -> bool:
        return self.number == self.loop.settings.rounds

    @property
    def reads_more(self) -> bool:
        """Whether its samples, verdicts and ratings are read."""
        return self.reads.at_end or not self.last

    def _asked(self) -> Round:
        """Return the round with the parts of its answer and samples that are read."""
        settings, reads = self.loop.settings, self.reads
        samples = settings.samples if self.reads_more or settings.majority else 0
        if not (reads.answers or (samples and not settings.majority)):
            return self.found
        started = time.perf_counter()
        made = self._ask(samples, greedy=reads.answers)
        before = self.found.usage
        spent = usage_sum(replace(made.usage, latency_s=0.0), before)
        usage = replace(spent, retrievals=before.retrievals, rerank_calls=before.rerank_calls)
        with_answer = replace(self.found, answer=made.answer, **reply_of(made), usage=usage)
        return timed(with_answer, started)

    def finished(self) -> Round:
        """Return the round with its answer, and everything that is asked and measured after it."""
        rounds = (*self.before, self._after(self._asked()))
        return self.loop.beside(self.question, rounds, rate=self.reads_more)

    def answered(self, finished: Round, tell: Callable[[str], None] | None = None) -> Round:
        """Return the finished round as the last of its loop; asks for its answer if it has none.

        ``tell`` gets the reply piece by piece; see :class:`suffice.contracts.GenerationRequest`.
        """
        finished = self._ended(finished)
        if finished.answer is not None:
            return finished
        started, settings = time.perf_counter(), self.loop.settings
        made = self._ask(settings.samples if settings.majority else 0, tell=tell)
        draft = draft_of(made, seconds=time.perf_counter() - started)
        return with_draft(finished, draft, probed=None)

    def _after(self, answered: Round) -> Round:
        """Return the round with what the loop asks after its answer."""
        return answered

    def _ended(self, finished: Round) -> Round:
        """Return the last round of a stopped loop, with the usage of all calls made after it."""
        return finished

    def _ask(
        self, samples: int, *, greedy: bool = True, tell: Callable[[str], None] | None = None
    ) -> Round:
        """Return a round of the answer and samples; without ``greedy``, of samples alone."""
        model, settings = self.loop.model, self.loop.settings
        call = AnswerCall(prompt=self.prompt(), question_id=self.question.id, number=self.number)
        if settings.majority:
            return ask_majority(model, call, settings, samples=samples)
        return ask_answer(model, call, settings, samples=samples, greedy=greedy, tell=tell)


def retrieved(finished: Round, query: str, ranked: Sequence[Passage]) -> Round:
    # a reranker leaves its own order; these are the retriever's scores, best first
    scores = sorted(
        (passage.score for passage in ranked if passage.score is not None), reverse=True
    )
    reranked = any(passage.rerank_score is not None for passage in ranked)
    return replace(
        finished,
        query=query,
        candidate_scores=tuple(scores),
        usage=replace(finished.usage, retrievals=1, rerank_calls=int(reranked)),
    )


def timed(finished: Round, started: float) -> Round:
    """Add the seconds since ``started`` to the round's latency."""
    latency = (finished.usage.latency_s or 0.0) + time.perf_counter() - started
    return replace(finished, usage=replace(finished.usage, latency_s=latency))
