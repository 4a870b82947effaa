"""What every round of every loop does with its evidence: answer, and measure beside the answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from suffice.errors import UsageError
from suffice.loops.answers.calls import AnswerCall, ask_greedy, ask_majority, ask_samples
from suffice.loops.answers.drafts import draft_of
from suffice.loops.answers.prompts import Prompt, render_closed_book, render_prompt
from suffice.loops.settings import LoopSettings
from suffice.protocols import ChatModel, Encoder, PassageFilter
from suffice.signals.asking.embedded_novelty import with_novelty
from suffice.signals.asking.evidence_models import with_evidence
from suffice.signals.asking.judge_support import judged
from suffice.signals.asking.meaning_clusters import check_clustering, with_clusters
from suffice.signals.asking.memo import KeptEncoder
from suffice.trace.rounds.records import Draft, LoopView, Passage, Question, Round


class Answerer:
    """Answers over evidence; safe to use from several threads."""

    def __init__(
        self,
        model: ChatModel,
        settings: LoopSettings,
        *,
        encoder: Encoder | None = None,
        passage_filter: PassageFilter | None = None,
    ) -> None:
        if settings.cluster_cosine is not None:  # refused before the model is asked
            if encoder is None:
                raise UsageError(
                    "clustering samples (cluster_cosine) needs an encoder; type --encoder minilm"
                )
            if not settings.samples:
                raise UsageError(
                    "there are no samples to cluster (cluster_cosine); type --samples 5"
                )
            check_clustering(settings.cluster_cosine)
        self._model = model
        self._loop = settings
        self._encoder = None if encoder is None else KeptEncoder(encoder)
        self._filter = passage_filter

    def kept(self, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        """Those the filter lets through."""
        return tuple(passages if self._filter is None else self._filter.keep(passages))

    @property
    def samples(self) -> int:
        """Stochastic answers a round."""
        return self._loop.samples

    @property
    def majority(self) -> bool:
        """Whether an answer is the most frequent of them."""
        return self._loop.majority

    def prompt(self, question: Question, shown: Sequence[Passage]) -> Prompt:
        """What asks for the answer from all the passages shown so far."""
        return render_prompt(question.text, shown, api=self._model.api, name=self._loop.prompt)

    def ask(
        self,
        question: Question,
        number: int,
        prompt: Prompt,
        *,
        samples: int | None = None,
        greedy: bool = True,
        tell: Callable[[str], None] | None = None,
    ) -> Round:
        """Round ``number`` by a prompt; it names no passage itself.

        ``samples``: how many, where not as the settings say; without ``greedy`` nothing else is asked.
        ``tell`` is told of a greedy reply as it comes.
        """
        loop = self._loop
        drawn = loop.samples if samples is None else samples
        call = AnswerCall(prompt=prompt, question_id=question.id, number=number)
        if loop.majority:
            return ask_majority(self._model, call, loop, samples=drawn)
        if not greedy:
            return ask_samples(self._model, call, loop, samples=drawn)
        return ask_greedy(self._model, call, loop, samples=drawn, tell=tell)

    def draft(
        self,
        question: Question,
        number: int,
        prompt: Prompt,
        tell: Callable[[str], None] | None = None,
    ) -> Draft:
        """The answer of round ``number`` alone, without samples that it is not made of."""
        started = time.perf_counter()
        samples = self.samples if self.majority else 0
        made = self.ask(question, number, prompt, samples=samples, tell=tell)
        return draft_of(made, seconds=time.perf_counter() - started)

    def beside(
        self,
        question: Question,
        rounds: tuple[Round, ...],
        *,
        rate: bool = True,
        novelty: bool = True,
    ) -> Round:
        """The last round with what the encoder and the judge find.

        Without ``rate`` no judge is asked, without ``novelty`` queries and passages are not compared with
        earlier ones.
        """
        if self._encoder is not None:
            started = time.perf_counter()
            if novelty:
                compared = with_novelty(LoopView(question.text, rounds), self._encoder)
                rounds = (*rounds[:-1], compared)
            encoded = with_evidence(LoopView(question.text, rounds), self._encoder)
            if self._loop.cluster_cosine is not None and encoded.samples is not None:
                encoded = with_clusters(encoded, self._encoder, self._loop.cluster_cosine)
            rounds = (*rounds[:-1], timed(encoded, started))
        if self._loop.judge and rate:
            return judged(LoopView(question.text, rounds), self._model)
        return rounds[-1]

    def closed_book(self, question: Question) -> Round:
        """Round 0: the model's answer without passages, one greedy call."""
        started = time.perf_counter()
        prompt = render_closed_book(question.text, api=self._model.api, name=self._loop.prompt)
        call = AnswerCall(prompt=prompt, question_id=question.id, number=0)
        answered = ask_greedy(self._model, call, self._loop)
        return timed(replace(answered, passages=()), started)


def retrieved(finished: Round, query: str, ranked: Sequence[Passage]) -> Round:
    """The round with what its query gave and cost."""
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
    """The round with the seconds since ``started`` added to its latency."""
    latency = (finished.usage.latency_s or 0.0) + time.perf_counter() - started
    return replace(finished, usage=replace(finished.usage, latency_s=latency))
