"""One round's calls to the model: greedy with samples beside, or a majority of samples."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

from suffice.errors import UsageError
from suffice.pipelines.answers.parsing import parse_reply
from suffice.pipelines.answers.prompts import PromptName
from suffice.protocols import ChatModel, Completion, Generation, GenerationRequest, Message
from suffice.scoring import normalize_answer
from suffice.signals.asking.meaning_clusters import check_cosine
from suffice.trace.rounds.records import Round, Usage

_STOP = ("\n\n", "\nQuestion:", "\nEvidence:")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """How rounds are made; loops state their own defaults.

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
        How many passages are ranked, of which the first are shown.
    temperature, top_p
        Of the samples; the greedy call has none.
    max_tokens, max_sample_tokens
        Length limits of a reply.
    seed
        Of the samples, mixed with question and round.
    closed_book
        Whether a recording also keeps the answer without passages, as round 0.
    judge
        Whether the model is asked after each round how well the evidence supports its answer.
    cluster_cosine
        Cluster each round's samples by the encoder's vectors at this cosine, in (0, 1]; ``None``: not.
    """

    pipeline: ClassVar[str]
    """The loop's name."""

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
    cluster_cosine: float | None = None

    def __post_init__(self) -> None:
        least = {"rounds": 1, "samples": 0, "top_logprobs": 0, "candidates": 1, "seed": 0}
        check_least(self, {**least, "max_tokens": 1, "max_sample_tokens": 1})
        if self.cluster_cosine is not None:
            check_cosine(self.cluster_cosine)

    @property
    def majority(self) -> bool:
        """Whether a round's answer is the most frequent of its samples, not the greedy one."""
        return False

    @property
    def writes(self) -> frozenset[str]:
        """Names of the recorded signals that the rounds carry of themselves."""
        return frozenset()

    @property
    def calls(self) -> int:
        """Calls to the model that a round takes at most, where none has to be repeated."""
        return (0 if self.majority else 1) + self.samples + self.judge + self.own_calls

    @property
    def own_calls(self) -> int:
        """Those of them that neither answer nor rate an answer."""
        return 0

    def shown(self, number: int) -> int:
        """How many passages round ``number`` (from 1) shows, those of earlier rounds included."""
        return number


def check_least(settings: object, least: dict[str, int]) -> None:
    """Refuse settings below their least value, by name."""
    for name, low in least.items():
        if getattr(settings, name) < low:
            raise UsageError(f"{name} must be at least {low}, found {getattr(settings, name)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCall:
    """What is asked: the prompt, and whose turn it is, on which the samples' seed depends."""

    prompt: str | tuple[Message, ...]
    question_id: str
    number: int


def ask_greedy(
    model: ChatModel, call: AnswerCall, settings: LoopSettings, *, samples: int = 0
) -> Round:
    """A round of the greedy reply, with that many stochastic answers beside it; no passages.

    Raises
    ------
    BackendError
        When the model fails.
    """
    greedy = model.generate(
        GenerationRequest(
            prompt=call.prompt,
            max_tokens=settings.max_tokens,
            top_logprobs=settings.top_logprobs,
            stop=_stop(settings, model),
        )
    )
    sampled = _sampled(model, call, settings, samples) if samples else None
    usage = usage_of(greedy, calls=1)
    found = _answered(greedy.completions[0], usage)
    if sampled is None:
        return found
    usage = replace(
        usage,
        llm_calls=1 + len(sampled.completions),
        sample_calls=len(sampled.completions),
        sample_prompt_tokens=sampled.prompt_tokens,
        sample_cached_tokens=sampled.cached_tokens,
        sample_completion_tokens=sampled.completion_tokens,
    )
    return replace(found, samples=_answers(sampled), usage=usage)


def ask_majority(
    model: ChatModel, call: AnswerCall, settings: LoopSettings, *, samples: int
) -> Round:
    """A round of the most frequent of that many stochastic answers; no passages.

    Answers are compared normalised, as they are scored. Of equally frequent ones the first drawn
    wins, and of those that normalise alike the first drawn is the answer. Whoever wants the answer
    needs all of these calls: they all count as answering calls, none as sample calls, and the plain
    token counts hold all of them.

    Raises
    ------
    BackendError
        When the model fails.
    """
    drawn = _sampled(model, call, settings, samples)
    answers = _answers(drawn)
    normalized = [normalize_answer(each) for each in answers]
    mode, _ = Counter(normalized).most_common(1)[0]  # of equal counts the one seen first
    chosen = drawn.completions[normalized.index(mode)]
    return replace(_answered(chosen, usage_of(drawn, calls=len(answers))), samples=answers)


def _sampled(
    model: ChatModel, call: AnswerCall, settings: LoopSettings, samples: int
) -> Generation:
    return model.generate(
        GenerationRequest(
            prompt=call.prompt,
            n=samples,
            temperature=settings.temperature,
            top_p=settings.top_p,
            max_tokens=settings.max_sample_tokens,
            seed=sampling_seed(settings.seed, call.question_id, call.number),
            stop=_stop(settings, model, sampled=True),
        )
    )


def _stop(settings: LoopSettings, model: ChatModel, *, sampled: bool = False) -> tuple[str, ...]:
    """What ends a reply before the model does."""
    if settings.prompt == "bare":
        # a base model goes on with the next example; a chat model ends by itself, and its end counts
        return ("\n",) if model.api == "completion" else _STOP
    # a sample's confidence is not read
    return ("\nConfidence", *_STOP) if sampled and settings.prompt == "answer-first" else _STOP


def _answers(generation: Generation) -> tuple[str, ...]:
    return tuple(parse_reply(each.text).answer for each in generation.completions)


def _answered(completion: Completion, usage: Usage) -> Round:
    parsed = parse_reply(completion.text)
    return Round(
        answer=parsed.answer,
        response=completion.text,
        tokens=completion.tokens,
        verbalized_confidence=parsed.confidence,
        usage=usage,
        parse_failure=parsed.failure,
    )


def sampling_seed(seed: int, question_id: str, number: int) -> int:
    """A sampling seed that depends on nothing but its arguments, 31 bits."""
    digest = hashlib.sha256(f"{seed}:{number}:{question_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def usage_of(generation: Generation, *, calls: int) -> Usage:
    """What so many calls to the model cost; none of them samples, verdicts or retrievals."""
    return Usage(
        llm_calls=calls,
        sample_calls=0,
        judge_calls=0,
        rerank_calls=0,
        retrievals=0,
        prompt_tokens=generation.prompt_tokens,
        cached_tokens=generation.cached_tokens,
        completion_tokens=generation.completion_tokens,
    )
