"""The cumulative loop: rank once, show one more passage a round, answer each time (METHODS 1)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace

from suffice.errors import UsageError
from suffice.pipelines.parsing import parse_reply
from suffice.pipelines.prompts import PromptName, render_closed_book, render_prompt
from suffice.protocols import ChatModel, Generation, GenerationRequest, Message, Retriever
from suffice.signals.judge_support import judged
from suffice.trace.records import LoopView, Passage, Question, Round, Usage

__all__ = ["CumulativePipeline", "CumulativeSettings"]

_STOP = ("\n\n", "\nQuestion:", "\nEvidence:")
_STOP_SAMPLES = {"answer-first": ("\nConfidence", *_STOP), "confidence-first": _STOP}


@dataclass(frozen=True, slots=True, kw_only=True)
class CumulativeSettings:
    """How rounds are made.

    Parameters
    ----------
    rounds
        The full budget.
    samples
        Stochastic answers a round, beside the greedy one; 0: none.
    prompt
        Which of the prompts.
    top_logprobs
        Alternatives asked for a token; 0 when the model gives none.
    candidates
        How many passages are ranked, of which the first ``rounds`` are shown.
    temperature, top_p
        Of the samples; the answering call is greedy.
    max_tokens, max_sample_tokens
        Length limits of a reply.
    seed
        Of the samples, mixed with question and round.
    closed_book
        Whether a recording also keeps the answer without passages, as round 0.
    judge
        Whether the model is asked after each round how well the evidence supports its answer.
    """

    rounds: int = 5
    samples: int = 0
    prompt: PromptName = "answer-first"
    top_logprobs: int = 5
    candidates: int = 10
    temperature: float = 0.8
    top_p: float = 0.95
    max_tokens: int = 48
    max_sample_tokens: int = 24
    seed: int = 42
    closed_book: bool = False
    judge: bool = False

    def __post_init__(self) -> None:
        least = {"rounds": 1, "samples": 0, "top_logprobs": 0, "candidates": 1, "seed": 0}
        for name, low in {**least, "max_tokens": 1, "max_sample_tokens": 1}.items():
            if getattr(self, name) < low:
                raise UsageError(f"{name} must be at least {low}, found {getattr(self, name)}")


class CumulativePipeline:
    """Runs the loop over one question at a time; safe to use from several threads."""

    def __init__(self, model: ChatModel, settings: CumulativeSettings) -> None:
        self._model = model
        self.settings = settings

    def rounds(self, question: Question, retriever: Retriever) -> Iterator[Round]:
        """Rounds as they happen, up to the budget or until no passage is left to show.

        Raises
        ------
        BackendError
            When the model or the retriever fails.
        """
        settings = self.settings
        started = time.perf_counter()
        wanted = max(settings.candidates, settings.rounds)
        ranked = tuple(retriever.retrieve(question.text, wanted))
        scores = tuple(each.score for each in ranked if each.score is not None)
        finished: tuple[Round, ...] = ()
        for number in range(1, min(settings.rounds, len(ranked)) + 1):
            first = number == 1
            latest = self._round(question, ranked[:number], started, scores if first else None)
            if settings.judge:
                latest = judged(LoopView(question.text, (*finished, latest)), self._model)
            finished = (*finished, latest)
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
        prompt = render_closed_book(question.text, api=self._model.api, name=self.settings.prompt)
        greedy = self._greedy(prompt)
        return _answered(greedy, (), _usage(greedy, None, 0, started))

    def _round(
        self,
        question: Question,
        shown: tuple[Passage, ...],
        started: float,
        scores: tuple[float, ...] | None,
    ) -> Round:
        settings = self.settings
        prompt = render_prompt(question.text, shown, api=self._model.api, name=settings.prompt)
        greedy = self._greedy(prompt)
        sampled = self._samples(question, prompt, len(shown))
        answers = (
            None
            if sampled is None
            else tuple(parse_reply(each.text).answer for each in sampled.completions)
        )
        usage = _usage(greedy, sampled, 1 if scores is not None else 0, started)
        return replace(
            _answered(greedy, shown[-1:], usage),
            query=question.text if scores is not None else None,
            samples=answers,
            candidate_scores=scores,
        )

    def _greedy(self, prompt: str | tuple[Message, ...]) -> Generation:
        return self._model.generate(
            GenerationRequest(
                prompt=prompt,
                max_tokens=self.settings.max_tokens,
                top_logprobs=self.settings.top_logprobs,
                stop=_STOP,
            )
        )

    def _samples(
        self, question: Question, prompt: str | tuple[Message, ...], number: int
    ) -> Generation | None:
        settings = self.settings
        if settings.samples == 0:
            return None
        return self._model.generate(
            GenerationRequest(
                prompt=prompt,
                n=settings.samples,
                temperature=settings.temperature,
                top_p=settings.top_p,
                max_tokens=settings.max_sample_tokens,
                seed=_seed(settings.seed, question.id, number),
                stop=_STOP_SAMPLES[settings.prompt],
            )
        )


def _answered(greedy: Generation, passages: tuple[Passage, ...], usage: Usage) -> Round:
    """A round of what the greedy reply says."""
    completion = greedy.completions[0]
    parsed = parse_reply(completion.text)
    return Round(
        answer=parsed.answer,
        response=completion.text,
        tokens=completion.tokens,
        verbalized_confidence=parsed.confidence,
        passages=passages,
        usage=usage,
        parse_failure=parsed.failure,
    )


def _seed(seed: int, question_id: str, number: int) -> int:
    """A sampling seed that depends on nothing but its arguments, 31 bits."""
    digest = hashlib.sha256(f"{seed}:{number}:{question_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _usage(
    greedy: Generation, sampled: Generation | None, retrievals: int, started: float
) -> Usage:
    drawn = 0 if sampled is None else len(sampled.completions)
    return Usage(
        llm_calls=1 + drawn,
        sample_calls=drawn,
        judge_calls=0,
        rerank_calls=0,
        retrievals=retrievals,
        prompt_tokens=greedy.prompt_tokens,
        cached_tokens=greedy.cached_tokens,
        completion_tokens=greedy.completion_tokens,
        sample_prompt_tokens=None if sampled is None else sampled.prompt_tokens,
        sample_cached_tokens=None if sampled is None else sampled.cached_tokens,
        sample_completion_tokens=None if sampled is None else sampled.completion_tokens,
        latency_s=time.perf_counter() - started,
    )
