"""The mechanism of loops that rank once and show a growing head of the ranking, answering each time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from suffice.pipelines.answer_calls import AnswerCall, LoopSettings, ask_greedy, ask_majority
from suffice.pipelines.prompts import render_closed_book, render_prompt
from suffice.protocols import ChatModel, Encoder, Retriever
from suffice.signals.evidence_consistency import with_evidence
from suffice.signals.judge_support import judged
from suffice.signals.kept import KeptEncoder
from suffice.trace.records import LoopView, Passage, Question, Round

__all__ = ["GrowingLoop"]


class GrowingLoop:
    """Runs the loop over one question at a time; safe to use from several threads.

    Parameters
    ----------
    model
        Answers.
    settings
        How rounds are made.
    encoder
        Compares each round's answer with its evidence: rounds then carry the signals of
        :mod:`suffice.signals.evidence_consistency`. ``None``: they do not.
    """

    def __init__(
        self, model: ChatModel, settings: LoopSettings, *, encoder: Encoder | None = None
    ) -> None:
        self._model = model
        self._loop = settings
        self._encoder = None if encoder is None else KeptEncoder(encoder)

    def rounds(self, question: Question, retriever: Retriever) -> Iterator[Round]:
        """Rounds as they happen, up to the budget or until a round would add no passage.

        Raises
        ------
        BackendError
            When the model, the retriever or the encoder fails.
        """
        loop = self._loop
        started = time.perf_counter()
        ranked = tuple(
            retriever.retrieve(question.text, max(loop.candidates, loop.shown(loop.rounds)))
        )
        finished: tuple[Round, ...] = ()
        before = 0
        for number in range(1, loop.rounds + 1):
            shown = ranked[: loop.shown(number)]
            if len(shown) == before:
                return
            latest = replace(self._answer(question, number, shown), passages=shown[before:])
            if number == 1:
                latest = _retrieved(latest, question, ranked)
            latest = self._beside(question, (*finished, _timed(latest, started)))
            finished, before = (*finished, latest), len(shown)
            yield latest
            started = time.perf_counter()

    def closed_book(self, question: Question) -> Round:
        """Round 0: the model's answer without passages, one greedy call.

        Raises
        ------
        BackendError
            When the model fails.
        """
        started = time.perf_counter()
        prompt = render_closed_book(question.text, api=self._model.api, name=self._loop.prompt)
        call = AnswerCall(prompt=prompt, question_id=question.id, number=0)
        found = ask_greedy(self._model, call, self._loop)
        return _timed(replace(found, passages=()), started)

    def _answer(self, question: Question, number: int, shown: Sequence[Passage]) -> Round:
        loop, model = self._loop, self._model
        prompt = render_prompt(question.text, shown, api=model.api, name=loop.prompt)
        call = AnswerCall(prompt=prompt, question_id=question.id, number=number)
        ask = ask_majority if loop.majority else ask_greedy
        return ask(model, call, loop, samples=loop.samples)

    def _beside(self, question: Question, rounds: tuple[Round, ...]) -> Round:
        """The last round with what the encoder and the judge find."""
        if self._encoder is not None:
            started = time.perf_counter()
            encoded = with_evidence(LoopView(question.text, rounds), self._encoder)
            rounds = (*rounds[:-1], _timed(encoded, started))
        if self._loop.judge:
            return judged(LoopView(question.text, rounds), self._model)
        return rounds[-1]


def _retrieved(first: Round, question: Question, ranked: Sequence[Passage]) -> Round:
    """Round 1 with what ranking gave and cost."""
    # a reranker leaves its own order; these are the retriever's scores, best first
    scores = sorted((each.score for each in ranked if each.score is not None), reverse=True)
    reranked = any(each.rerank_score is not None for each in ranked)
    return replace(
        first,
        query=question.text,
        candidate_scores=tuple(scores),
        usage=replace(first.usage, retrievals=1, rerank_calls=int(reranked)),
    )


def _timed(finished: Round, started: float) -> Round:
    """The round with the seconds since ``started`` added to its latency."""
    latency = (finished.usage.latency_s or 0.0) + time.perf_counter() - started
    return replace(finished, usage=replace(finished.usage, latency_s=latency))
