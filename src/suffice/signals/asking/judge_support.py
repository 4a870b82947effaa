"""Judge support: a second call rates how well the evidence supports the answer."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from suffice.protocols import ChatModel, GenerationRequest, Message
from suffice.signals.asking.whole_record import Asked, Replies, RoundQuestion, ask_rounds
from suffice.signals.evidence import evidence_text, one_line, seen_passages
from suffice.signals.recorded import JUDGE_SUPPORT
from suffice.signals.spec import UNDEFINED, VERDICTS
from suffice.trace.rounds.records import LoopView, Round, Usage

if TYPE_CHECKING:
    from suffice.trace.rounds.table import TraceSet


_INSTRUCTIONS = (
    "Rate from 1 (it does not support it at all) to 5 (it states it) how well the evidence supports "
    "the answer to the question."
)
_EXAMPLES = (
    (
        "[Corran Mill] Corran Mill is a mill on the river Esk. It was built in 1764 by Tam Lorne.\n"
        "[Dunmore Mill] Dunmore Mill is a mill on the river Wye. It burned down in 1820.",
        "Who built Corran Mill?",
        "Tam Lorne",
        5,
    ),
    (
        "[Corran Mill] Corran Mill is a mill on the river Esk. It was built in 1764 by Tam Lorne.",
        "Where was the builder of Corran Mill born?",
        "Dunmore",
        1,
    ),
    (
        "[Pell Choir] The Pell Choir gives its concerts in Arden, where most of its singers live.\n"
        "[Arden] Arden is a town on the river Wye.",
        "In which town was the Pell Choir founded?",
        "Arden",
        3,
    ),
    (
        "[Vey Bridge] The Vey Bridge was opened in 1903.\n"
        "[Sorrel Bridge] The Sorrel Bridge was opened some years before the Vey Bridge.",
        "Which bridge is older, the Vey Bridge or the Sorrel Bridge?",
        "the Vey Bridge",
        1,
    ),
    (
        "[Ada Rusk] Ada Rusk painted in Lindal from 1911 and taught there until her death.\n"
        "[Lindal] Lindal is a village on the coast.",
        "Where did the painter Ada Rusk die?",
        "Lindal",
        4,
    ),
)
_RATING = re.compile(r"\s*(?:Rating:)?\s*([1-5])\s*\.?\s*")
_MAX_TOKENS = 8
JUDGE_TOKENS = VERDICTS.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A rating and what it cost.

    ``value`` is 1 to 5, NaN when undefined; ``usage`` holds the judge's own call: ``judge_calls``, the
    ``judge_`` tokens and the seconds. ``failure``: ``None``, or why there is no rating.
    """

    value: float
    usage: Usage = field(default_factory=lambda: Usage(judge_calls=0))
    failure: str | None = None


def render_judge_prompt(
    view: LoopView, *, api: Literal["chat", "completion"]
) -> str | tuple[Message, ...]:
    """The judge's prompt over the question, passages 1..t and the answer of round t."""
    evidence = evidence_text((seen_passages(view.rounds) or {}).values())
    asked = f"Question: {one_line(view.question)}\nAnswer: {one_line(view.current.answer)}"
    if api == "completion":
        examples = "\n\n".join(
            f"Evidence:\n{text}\nQuestion: {question}\nAnswer: {answer}\nRating: {rating}"
            for text, question, answer, rating in _EXAMPLES
        )
        return f"{_INSTRUCTIONS}\n\n{examples}\n\n{evidence}\n{asked}\nRating:"
    layout = "Reply with exactly this line:\nRating: <1-5>"
    return (Message(role="user", content=f"{_INSTRUCTIONS} {layout}\n\n{evidence}\n\n{asked}"),)


def parse_rating(text: str) -> float:
    """A lone 1-5, after ``Rating:`` or bare; anything else is undefined.

    >>> parse_rating(" 4"), parse_rating("Rating: 2."), parse_rating("4/5"), parse_rating("10")
    (4.0, 2.0, nan, nan)
    """
    found = _RATING.fullmatch(text)
    return float(found.group(1)) if found else UNDEFINED


def judge_support(view: LoopView, model: ChatModel) -> Verdict:
    """How well passages 1..t support the answer of round t, 1 to 5 (paper 0); high: well.

    One greedy call. Undefined without a call where the round has no answer or passages were not
    recorded, and undefined after it where the reply is no lone 1-5.

    Raises
    ------
    BackendError
        When the model fails.
    """
    if not view.current.answer.strip():
        return Verdict(value=UNDEFINED, failure="no answer to rate")
    if seen_passages(view.rounds) is None:
        return Verdict(value=UNDEFINED, failure="the passages were not recorded")
    reply = model.generate(
        GenerationRequest(
            prompt=render_judge_prompt(view, api=model.api),
            max_tokens=_MAX_TOKENS,
            stop=("\n",) if model.api == "completion" else (),
        )
    )
    text = reply.completions[0].text
    value = parse_rating(text)
    usage = Usage(
        judge_calls=1,
        judge_prompt_tokens=reply.prompt_tokens,
        judge_cached_tokens=reply.cached_tokens,
        judge_completion_tokens=reply.completion_tokens,
        latency_s=reply.latency_s,
    )
    unparsed = f"no lone 1-5 in the reply {text[:60]!r}" if math.isnan(value) else None
    return Verdict(value=value, usage=usage, failure=unparsed)


def judged(view: LoopView, model: ChatModel) -> Round:
    """The view's last round with the verdict among its signals, the judge's call and tokens in its usage.

    Raises
    ------
    BackendError
        When the model fails.
    """
    verdict = judge_support(view, model)
    finished, before = view.current, view.current.usage
    latency = before.latency_s
    if latency is not None:
        latency += verdict.usage.latency_s or 0.0
    return replace(
        finished,
        usage=replace(add_judge_calls(before, verdict.usage), latency_s=latency),
        signals={**finished.signals, JUDGE_SUPPORT.name: verdict.value},
    )


def add_judge_calls(before: Usage, more: Usage) -> Usage:
    """The usage with further judge calls and their tokens: unknown with unknown, nothing for no call.

    Nothing else of ``more`` is added. Where ``judge_calls`` is ``None`` there were none.

    >>> once = add_judge_calls(Usage(), Usage(judge_calls=1, judge_prompt_tokens=90))
    >>> once.judge_calls, once.judge_prompt_tokens, once.judge_completion_tokens
    (1, 90, None)
    """
    tokens = {
        name: _sum(_judge_tokens(before, name), _judge_tokens(more, name)) for name in JUDGE_TOKENS
    }
    calls = (before.judge_calls or 0) + (more.judge_calls or 0)
    return replace(before, judge_calls=calls, **tokens)


def _judge_tokens(usage: Usage, name: str) -> int | None:
    found: int | None = getattr(usage, name)
    return found if usage.judge_calls else found or 0


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging(Replies[Verdict]):
    """What a judge said."""

    @property
    def undefined(self) -> int:
        """Rounds with a verdict that is no rating."""
        return sum(each.failure is not None for each in self.found.values())

    @property
    def usages(self) -> Mapping[int, Usage]:
        """Calls and their tokens by row; failed calls are counted, their tokens are unknown."""
        made = {row: each.usage for row, each in self.found.items()}
        return made | dict.fromkeys(self.failures, Usage(judge_calls=1))

    @property
    def calls(self) -> Mapping[int, int]:
        """Calls by row, failed ones too."""
        return {row: each.judge_calls or 0 for row, each in self.usages.items()}

    def tokens(self, name: str) -> int | None:
        """Sum of a token count over the calls answered; ``None``: not reported for all of them.

        ``name`` is ``prompt_tokens``, ``cached_tokens`` or ``completion_tokens``.
        """
        asked = [each.usage for each in self.found.values() if each.usage.judge_calls]
        known = [count for each in asked if (count := getattr(each, f"judge_{name}")) is not None]
        return sum(known) if len(known) == len(asked) else None


def judge_rounds(
    traces: TraceSet,
    model: ChatModel,
    wanted: NDArray[np.bool_],
    on_progress: Callable[[Asked], None],
) -> Judging:
    """Ask ``model`` about every row where ``wanted`` (n_rows,) is true.

    As :func:`~suffice.signals.asking.whole_record.ask_rounds` does: one thread a question, so that a
    server that keeps prefixes evaluates only what is new.

    Raises
    ------
    BackendError
        When every call failed.
    """
    question = RoundQuestion(
        what="judged",
        who="judge",
        ask=lambda view: judge_support(view, model),
        called=lambda verdict: bool(verdict.usage.judge_calls),
        concurrency=int(getattr(model, "concurrency", 1)),
    )
    replies = ask_rounds(traces, question, wanted, on_progress)
    return Judging(
        found=replies.found,
        failures=replies.failures,
        left=replies.left,
        interrupted=replies.interrupted,
    )
