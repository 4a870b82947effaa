"""The model calls of one round, greedy and sampled, and their replies."""

from __future__ import annotations

import hashlib
import re
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal

from suffice.contracts import ChatModel, Completion, Generation, GenerationRequest, Message
from suffice.errors import DataError, SufficeWarning, UsageError
from suffice.loops.prompts import (
    Api,
    FollowUpPrompts,
    Prompt,
    PromptName,
    SearchStep,
    asks_marker,
    render_prompt,
)
from suffice.options import Option, settings_of
from suffice.reasoning import without_reasoning
from suffice.scoring import answer_form
from suffice.signals.model_confidence import BLANKS, MARKUP, PARTING, labelled_span, span_behind
from suffice.trace.rounds.records import Draft, LoopView, Passage, Round, Usage, known_sum

_CONFIDENCE = re.compile(
    r"^(?:[ \t]*[-+>•#]+[ \t])?[ \t*_`]*Confidence[*_`]*:[\s*_`]*+(?P<value>[^\n]*)", re.MULTILINE
)
_LOOSE_CONFIDENCE = re.compile(
    r"\bConfidence[*_`]*[ \t]*[:：][\s*_`]*+(?P<value>[^\n]*?)[)\]]?(?=[\s,;.*_]*Answer\b|$)",
    re.MULTILINE | re.IGNORECASE,
)
_MAYBE_RATING = re.compile(r"\bc[a-z]*[*_`]*[ \t]*\Z", re.IGNORECASE)
_LONE_RATING = re.compile(r"([1-5])[\s*_`]*+\.?+[\s*_`]*+")
_SIGNS = re.compile(rf"[{MARKUP}]+")

_REPLY = ("response", "tokens", "samples", "verbalized_confidence", "parse_failure")
_SUMMED = ("llm_calls", "prompt_tokens", "cached_tokens", "completion_tokens", "latency_s")
THOUGHT_TOKENS = 160  # room for thoughts before an answer
_STOP = ("\n\n", "\nQuestion:", "\nEvidence:")
_THOUGHT_STOP = ("\n\n", "\nFollow-up:", "\nIntermediate answer:")
NOTHING_ASKED = Usage(
    llm_calls=0,
    answer_calls=0,
    sample_calls=0,
    judge_calls=0,
    rerank_calls=0,
    retrievals=0,
    prompt_tokens=0,
    cached_tokens=0,
    completion_tokens=0,
    latency_s=0.0,
)
"""The usage of a round without any call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerSettings:
    """How a model is asked for an answer; ``seed`` is mixed with question and round."""

    samples: Annotated[
        int, Option(help="sampled answers a round beside the greedy one", metavar="M", at_least=0)
    ] = 0
    prompt: Annotated[
        PromptName,
        Option(
            help="order of answer and confidence in the reply. no-confidence: the answer after its "
            "marker, without a rating. bare: the answer alone. in-loop: the same, as one more turn of "
            "the loop's conversation, whose beginning a server has cached."
        ),
    ] = "answer-first"
    top_logprobs: int = 5
    temperature: float = 0.8
    top_p: float = 0.95
    max_tokens: Annotated[
        int,
        Option(
            help=f"most tokens of an answer. From {THOUGHT_TOKENS} on a chat model may think first: no blank "
            "line ends its reply.",
            metavar="N",
        ),
    ] = 48
    max_sample_tokens: int = 24
    seed: int = 42

    def __post_init__(self) -> None:
        check_whole(self, "samples", "top_logprobs", "seed", "look_samples")

    @property
    def reasons(self) -> bool:
        return False


def check_whole(settings: Any, *may_be_0: str) -> None:
    """Refuse whole numbers below 1, or below 0 for the fields in ``may_be_0``."""
    for part in fields(settings):
        value, least = getattr(settings, part.name), int(part.name not in may_be_0)
        if isinstance(value, int) and not isinstance(value, bool) and value < least:
            raise UsageError(f"{part.name} must be at least {least}, found {value}")


def greedy(
    model: ChatModel, prompt: Prompt, max_tokens: int, stop: tuple[str, ...]
) -> tuple[str, Usage]:
    reply = model.generate(GenerationRequest(prompt=prompt, max_tokens=max_tokens, stop=stop))
    return reply.completions[0].said, usage_of(reply, calls=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCall:
    """A prompt, with the question and round that the samples' seed depends on."""

    prompt: Prompt
    question_id: str
    number: int


def ask_answer(
    model: ChatModel,
    call: AnswerCall,
    settings: AnswerSettings,
    *,
    samples: int = 0,
    greedy: bool = True,
    tell: Callable[[str], None] | None = None,
) -> Round:
    """Return a round with the greedy reply and samples, or samples only; ``tell`` gets the reply's pieces."""
    made = Round(answer=None, usage=NOTHING_ASKED)
    if greedy:
        reply = model.generate(
            GenerationRequest(
                prompt=call.prompt,
                max_tokens=settings.max_tokens,
                top_logprobs=settings.top_logprobs,
                stop=_stop(settings, model),
                tell=tell,
            )
        )
        made = _answered(reply.completions[0], answer_usage(reply, calls=1))
    if not samples:
        return made
    sampled = _sampled(model, call, settings, samples)
    drawn = len(sampled.completions)
    usage = replace(
        made.usage,
        llm_calls=(made.usage.llm_calls or 0) + drawn,
        sample_calls=drawn,
        sample_prompt_tokens=sampled.prompt_tokens,
        sample_cached_tokens=sampled.cached_tokens,
        sample_completion_tokens=sampled.completion_tokens,
        sample_latency_s=sampled.latency_s,
    )
    return replace(made, samples=_answers(sampled), usage=usage)


def ask_majority(
    model: ChatModel, call: AnswerCall, settings: AnswerSettings, *, samples: int
) -> Round:
    """Return a round with the most frequent sample (the first drawn of equals); all are answer calls."""
    drawn = _sampled(model, call, settings, samples)
    answers = _answers(drawn)
    normalized = [answer_form(answer) for answer in answers]
    mode, _ = Counter(normalized).most_common(1)[0]  # of equal counts the one seen first
    chosen = drawn.completions[normalized.index(mode)]
    return replace(_answered(chosen, answer_usage(drawn, calls=len(answers))), samples=answers)


def _sampled(
    model: ChatModel, call: AnswerCall, settings: AnswerSettings, samples: int
) -> Generation:
    return model.generate(
        GenerationRequest(
            prompt=call.prompt,
            n=samples,
            temperature=settings.temperature,
            top_p=settings.top_p,
            max_tokens=max(
                settings.max_sample_tokens, settings.max_tokens if _thinks(settings) else 0
            ),
            seed=sampling_seed(settings.seed, call.question_id, call.number),
            stop=_stop(settings, model, sampled=True),
        )
    )


def _thinks(settings: AnswerSettings) -> bool:
    return settings.reasons or settings.max_tokens >= THOUGHT_TOKENS


def _stop(settings: AnswerSettings, model: ChatModel, *, sampled: bool = False) -> tuple[str, ...]:
    # a chat model may put blank lines, and the labels of lines, between its thoughts
    free = _thinks(settings) and model.api == "chat"
    if not asks_marker(settings.prompt):
        # a base model goes on with the next example; a chat model ends by itself, and its end counts
        bracket = ("]",) if settings.prompt == "in-loop" else ()
        return ("\n", *bracket) if model.api == "completion" else () if free else _STOP
    # a rating is not read of a sample, nor where none was asked for
    unread = settings.prompt == "no-confidence" or (sampled and settings.prompt == "answer-first")
    stop = () if free else _THOUGHT_STOP if settings.reasons else _STOP
    return ("\nConfidence", *stop) if unread else stop


def _answers(generation: Generation) -> tuple[str, ...]:
    return tuple(parse_reply(completion.text).answer for completion in generation.completions)


def _answered(completion: Completion, usage: Usage) -> Round:
    parsed = parse_reply(completion.text)
    thought = completion.text.strip() and not completion.said.strip()
    if not parsed.answer and (thought or completion.finish_reason == "length"):
        warnings.warn(
            "a reply ended before its answer, in the model's thoughts; give it room for both with "
            "--max-tokens 1024 (max_tokens=1024), or let its server switch the thoughts off",
            SufficeWarning,
            stacklevel=2,
        )
    return Round(
        answer=parsed.answer,
        response=completion.text,
        tokens=completion.tokens,
        verbalized_confidence=parsed.confidence,
        usage=usage,
        parse_failure=parsed.failure,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReply:
    """A parsed reply; ``answer`` is empty exactly if ``failure`` says why, ``confidence`` is 1-5."""

    answer: str
    confidence: float | None
    failure: str | None


def parse_reply(text: str) -> ParsedReply:
    """Parse a reply (METHODS 1; corrected).

    The answer is the first line with more than markup after ``Answer:``, up to a rating on the same line;
    without that marker behind ``answer :`` in another spelling; without either the reply's first line, unless
    a line above it begins with ``Confidence:``. Reasoning at the beginning is no part of the reply. The
    confidence is a lone 1-5 after ``Confidence:``; "10", "4/5" or words leave it undefined.
    """
    text = without_reasoning(text)
    rating = _CONFIDENCE.search(text)
    if rating is None or not _LONE_RATING.fullmatch(rating.group("value")):
        rating = _LOOSE_CONFIDENCE.search(text) or rating
    lone = _LONE_RATING.fullmatch(rating.group("value")) if rating else None
    answer, failure = _answer_line(text)
    return ParsedReply(
        answer=answer, confidence=float(lone.group(1)) if lone else None, failure=failure
    )


def _answer_line(text: str) -> tuple[str, str | None]:
    if not text.strip():
        return "", "empty reply"
    if span := labelled_span(text):
        answer = _with_own_signs(text, span)
        return answer, None if answer else "empty answer line"
    if _CONFIDENCE.match(text.lstrip()):
        return "", "no answer line"
    answer = _with_own_signs(text, span_behind(text, 0))
    return answer, None if answer else "no answer line"


def _with_own_signs(text: str, span: tuple[int, int]) -> str:
    """Keep signs at one end of the answer that are not markup, as in "A*" and "*args"."""
    start, end = span
    line = text[text.rfind("\n", 0, start) + 1 : start]
    runs = _SIGNS.findall(line)
    opened = {run for run, times in Counter(runs).items() if times % 2}
    closing = _SIGNS.match(text, end)
    after = closing.group() if closing and start < end else ""
    if not set(after) & set("".join(opened)):
        end += len(after)
    if start < end and line[-1:] in MARKUP and runs and not set(runs[-1]) & set(after):
        start -= len(runs[-1]) if runs[-1] in opened else 0
    return text[start:end]


class ComingAnswer:
    """The answer of a reply that arrives in pieces, as far as :func:`parse_reply` is certain to return it."""

    def __init__(self) -> None:
        self._text = ""
        self._over = False
        self.told: str = ""

    def feed(self, piece: str) -> str:
        """Return the part of the answer that this piece makes certain."""
        if self._over:
            return ""
        self._text += piece
        certain = self._certain()
        more = certain[len(self.told) :] if certain.startswith(self.told) else ""
        self.told += more
        return more

    def _certain(self) -> str:
        # another spelling may give way to the marker, and a thought may hold it within a line
        span = labelled_span(self._text, certain=True)
        if span is None:
            return ""
        line = self._text[span[0] :]
        self._over = "\n" in line
        if self._over:
            return _with_own_signs(self._text, span)
        said = self._text[span[0] : span[1]]
        # what follows may close a mark, or make it a list's sign or the line of the rating
        bare = said in "-+>•" or not said.strip("#")
        held = bare or self._text[span[0] - 1] in MARKUP
        # a last word in C may become the rating's, with what parts it from the answer
        said = _MAYBE_RATING.sub("", said).rstrip(BLANKS + MARKUP + PARTING).removesuffix(".")
        return "" if held else said


def sampling_seed(seed: int, question_id: str, number: int) -> int:
    """Return a sampling seed of 31 bits that depends only on its arguments."""
    digest = hashlib.sha256(f"{seed}:{number}:{question_id}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def usage_of(generation: Generation, *, calls: int) -> Usage:
    """Return the usage of model calls that are neither samples, verdicts nor retrievals."""
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


def answer_usage(generation: Generation, *, calls: int) -> Usage:
    """Return the same usage for calls that all make a round's answer."""
    return replace(
        usage_of(generation, calls=calls),
        answer_calls=calls,
        answer_prompt_tokens=generation.prompt_tokens,
        answer_cached_tokens=generation.cached_tokens,
        answer_completion_tokens=generation.completion_tokens,
        answer_latency_s=generation.latency_s,
    )


def usage_sum(first: Usage, second: Usage) -> Usage:
    """Add calls, plain tokens and seconds of the second usage to the first; unknown if either is unknown."""
    added: dict[str, int | float | None] = {}
    for name in _SUMMED:
        added[name] = known_sum([getattr(first, name), getattr(second, name)])
    return replace(first, **added)  # type: ignore[arg-type]


AnswerProbe = Callable[[LoopView], Draft]  # answers a loop's question from its rounds so far


def answer_probe(model: ChatModel, settings: AnswerSettings | None = None) -> AnswerProbe:
    r"""Return a function that asks the model for the answer to a loop's question from its rounds so far.

    ``suffice probe`` asks it in each round, with the prompts of the built-in loops. If every round so far has
    a query and an intermediate answer, the prompt shows these with their passages, step by step; else the
    passages alone. Each passage is shown once.

    Parameters
    ----------
    model
        The model that answers: one greedy call, and another for samples if the settings ask for them. The
        function is as safe to use from several threads as the model.
    settings
        How it is asked; ``None``: for the answer first and then its rating, without samples.

    Examples
    --------
    >>> from suffice.testing.models import ScriptedModel
    >>> ask = answer_probe(ScriptedModel(["Answer: Oslo\nConfidence: 4"]))
    >>> draft = ask(LoopView("Where?", (Round(answer=None),)))
    >>> draft.answer, draft.verbalized_confidence, draft.usage.llm_calls
    ('Oslo', 4.0, 1)
    """
    asked = settings_of(AnswerSettings, settings)

    def ask(view: LoopView) -> Draft:
        started = time.perf_counter()
        call = AnswerCall(
            prompt=_prompt(view, model.api, asked.prompt),
            question_id=view.question,
            number=len(view.rounds),
        )
        made = ask_answer(model, call, asked, samples=asked.samples)
        return draft_of(made, seconds=time.perf_counter() - started)

    return ask


def reply_of(made: Round) -> dict[str, Any]:
    return {name: getattr(made, name) for name in _REPLY}


def draft_of(made: Round, *, seconds: float) -> Draft:
    return Draft(
        made.answer_text,
        **reply_of(made),
        # silent on what asking for an answer says nothing about, so that what a round holds of it stays
        usage=replace(
            made.usage,
            sample_calls=made.usage.sample_calls or None,
            judge_calls=None,
            rerank_calls=None,
            retrievals=None,
            latency_s=seconds,
        ),
    )


def _prompt(view: LoopView, api: Api, form: PromptName) -> Prompt:
    if form != "in-loop" and not _reads(view):
        shown = [passage for passages in _added(view.rounds) for passage in passages]
        return render_prompt(view.question, shown, api=api, name=form)
    return _told(view, api, "answer_in_loop" if form == "in-loop" else "answer", form)


def conversation_of(view: LoopView, api: Api) -> Prompt:
    """Return what the next call of a recorded loop would continue, by its queries, actions and passages."""
    return _told(view, api, "conversation", "in-loop")


def _reads(view: LoopView) -> bool:
    return all(round_.query and round_.intermediate_answer is not None for round_ in view.rounds)


def _told(
    view: LoopView,
    api: Api,
    what: Literal["answer", "answer_in_loop", "conversation"],
    form: PromptName,
) -> Prompt:
    from suffice.loops.react import (  # which asks by this module
        render_finish,
        render_trail,
        said_then,
    )

    textless = any(one.text is None for round_ in view.rounds for one in round_.passages or ())
    lacking = ["a passage without its text"] if textless else []
    lacking += [] if all(round_.query for round_ in view.rounds) else ["no query"]
    if lacking:
        raise DataError(
            f"question {view.question[:60]!r}: a round holds {' and '.join(lacking)}, so the "
            "conversation of its loop is not known; leave out looks and --prompt in-loop"
        )
    steps = [
        SearchStep(
            said=said_then(round_.action or "", round_.query or "") if form == "in-loop" else "",
            query=round_.query or "",
            found=passages,
            shown=passages,
            answer=round_.intermediate_answer or "",
        )
        for round_, passages in zip(view.rounds, _added(view.rounds), strict=True)
    ]
    if not _reads(view):
        agents = render_trail if what == "conversation" else render_finish
        return agents(view.question, steps, api=api)
    prompts = FollowUpPrompts(api=api, documents=True, form=form)
    asked: Prompt = getattr(prompts, what)(view.question, steps)
    return asked


def _added(rounds: Sequence[Round]) -> list[tuple[Passage, ...]]:
    seen: set[tuple[str, str, str | None]] = set()
    added = []
    for round_ in rounds:
        new = []
        for passage in round_.passages or ():
            key = (passage.id, passage.title, passage.text)
            if key not in seen:
                seen.add(key)
                new.append(passage)
        added.append(tuple(new))
    return added


_MOST_ALONE_TOKENS = 96
_MOST_SAID = 1_000  # of a message, from its beginning
_ALONE = (
    "Rewrite the user's last message as one question that can be understood without the conversation. Put "
    "names in place of words such as he, it or there, and change nothing else.\n\n"
    "User: Who wrote Hedda Gabler?\n"
    "Assistant: Henrik Ibsen\n"
    "User: And where was he born?\n"
    "Question: Where was Henrik Ibsen born?"
)


def put_alone(model: ChatModel, earlier: Sequence[Message], question: str) -> tuple[str, Usage]:
    """Rewrite a question so that it needs no conversation, by one greedy call; return it with its usage."""
    said = [*earlier, Message(role="user", content=question)]
    lines = [
        f"{turn.role.capitalize()}: {' '.join(turn.content.split())[:_MOST_SAID]}" for turn in said
    ]
    prompt = "\n".join([_ALONE, "", *lines, "Question:"])
    chats = model.api == "chat"
    reply = model.generate(
        GenerationRequest(
            prompt=(Message(role="user", content=prompt),) if chats else prompt,
            max_tokens=_MOST_ALONE_TOKENS,
            stop=("\n\n",) if chats else ("\n",),
        )
    )
    first, _, _ = reply.completions[0].said.strip().partition("\n")
    usage = replace(usage_of(reply, calls=1), latency_s=reply.latency_s)
    return first.removeprefix("Question:").strip() or question, usage
