"""Judge support: a second call rates how well the evidence supports the answer."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import Literal

from suffice.contracts import Absence, ChatModel, GenerationRequest, Message
from suffice.signals.asking.verdicts import Rating, add_judge_calls, asking_verdicts
from suffice.signals.evidence import (
    NO_ANSWER,
    PASSAGES_UNKNOWN,
    evidence_text,
    one_line,
    seen_passages,
)
from suffice.signals.spec import UNDEFINED, VERDICTS, SignalSpec
from suffice.trace.rounds.records import LoopView, Round, Usage

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
_RATING = re.compile(r"\s*+(?:Rating:\s*+)?+([1-5])\s*+\.?+\s*+")
_MAX_TOKENS = 8


def render_judge_prompt(
    view: LoopView, *, api: Literal["chat", "completion"]
) -> str | tuple[Message, ...]:
    """The judge's prompt over the question, passages 1..t and the answer of round t."""
    evidence = evidence_text((seen_passages(view.rounds) or {}).values())
    asked = f"Question: {one_line(view.question)}\nAnswer: {one_line(view.current.answer_text)}"
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
    rating = _RATING.fullmatch(text)
    return float(rating.group(1)) if rating else UNDEFINED


def judge_support(view: LoopView, model: ChatModel) -> Rating:
    """How well passages 1..t support the answer of round t, 1 to 5 (paper 0); high: well.

    One greedy call. Undefined without a call where the round has no answer or passages were not
    recorded, and undefined after it where the reply is no lone 1-5.
    """
    if not view.current.answer_text.strip():
        return Rating(value=UNDEFINED, failure="no answer to rate")
    if seen_passages(view.rounds) is None:
        return Rating(value=UNDEFINED, failure="the passages were not recorded")
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
        judge_latency_s=reply.latency_s,
    )
    unparsed = f"no lone 1-5 in the reply {text[:60]!r}" if math.isnan(value) else None
    return Rating(value=value, usage=usage, failure=unparsed)


def judged(view: LoopView, model: ChatModel) -> Round:
    """The view's last round with the verdict among its signals, the judge's call and tokens in its usage."""
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


JUDGING = asking_verdicts("judge_support", judge_support, name="judge", who="judge")
JUDGE_SUPPORT = SignalSpec(
    name="judge_support",
    summary="a judge's rating of how well the passages support the answer, 1 to 5",
    needs=("passages",),
    charges=(VERDICTS,),
    low=1.0,
    high=5.0,
    asking=JUDGING,
    undefined=(
        NO_ANSWER,
        PASSAGES_UNKNOWN,
        Absence("the judge's reply was no lone rating from 1 to 5", lambda _: True),
    ),
)
