"""Judge support: a second call rates how well the evidence supports the answer."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from suffice.contracts import Absence, ChatModel, GenerationRequest, Message
from suffice.signals.asking.whole_record import Replies, asking_rounds, column_values
from suffice.signals.evidence import (
    NO_ANSWER,
    PASSAGES_UNKNOWN,
    evidence_text,
    one_line,
    seen_passages,
)
from suffice.signals.known_signals import UNDEFINED, VERDICTS, SignalSpec
from suffice.trace.rounds.records import LoopView, Round, Usage, known_sum

if TYPE_CHECKING:
    from suffice.trace.rounds.trace_set import TraceSet

JUDGE_TOKENS = VERDICTS.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """Hold a judge's rating, NaN if undefined (``failure`` says why), and its ``usage``."""

    value: float = UNDEFINED
    usage: Usage = field(default_factory=lambda: Usage(judge_calls=0))
    failure: str | None = None


def usages(judging: Replies[Rating]) -> Mapping[int, Usage]:
    """Return the calls and tokens of every row; a failed call counts, its tokens are unknown."""
    made = {row: verdict.usage for row, verdict in judging.by_row.items()}
    return made | dict.fromkeys(judging.failures, Usage(judge_calls=1))


def add_judge_calls(before: Usage, more: Usage) -> Usage:
    """Add judge calls, their tokens and seconds to a usage; unknown tokens make the sum unknown."""
    tokens = {
        name: known_sum([judge_tokens(before, name), judge_tokens(more, name)])
        for name in JUDGE_TOKENS
    }
    calls = (before.judge_calls or 0) + (more.judge_calls or 0)
    seconds = more.judge_latency_s
    if before.judge_latency_s is not None:
        seconds = before.judge_latency_s + (seconds or 0.0)
    return replace(before, judge_calls=calls, judge_latency_s=seconds, **tokens)


def judge_tokens(usage: Usage, name: str) -> int | None:
    """Return one of :data:`JUDGE_TOKENS`: 0 if no judge was asked, ``None`` if it is unknown."""
    tokens: int | None = getattr(usage, name)
    return tokens if usage.judge_calls else tokens or 0


def _charged(traces: TraceSet, judging: Replies[Rating]) -> Mapping[str, list[Any]]:
    columns = {name: column_values(traces, name) for name in (*JUDGE_TOKENS, VERDICTS.calls)}
    for row, more in usages(judging).items():
        before = Usage(**{name: values[row] for name, values in columns.items()})
        added = add_judge_calls(before, more)
        for name, values in columns.items():
            values[row] = getattr(added, name)
    return {**columns, VERDICTS.calls: [known or 0 for known in columns[VERDICTS.calls]]}


def _summary(judging: Replies[Rating]) -> dict[str, Any]:
    undefined = sum(verdict.failure is not None for verdict in judging.by_row.values())
    answered = [v.usage for v in judging.by_row.values() if v.usage.judge_calls]
    # null where they were not reported for all calls answered
    tokens = {name: [getattr(usage, name) for usage in answered] for name in JUDGE_TOKENS}
    return {
        "calls": sum(usage.judge_calls or 0 for usage in usages(judging).values()),
        "rated": len(judging.by_row) - undefined,
        "undefined": undefined,
        "failed": len(judging.failures),
        "left": judging.left,
        **{
            name.removeprefix("judge_"): None if None in counts else sum(counts)
            for name, counts in tokens.items()
        },
    }


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
    """Write the judge's prompt: question, passages of rounds 1..t and the answer of round t."""
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
    """Read a single rating from 1 to 5, bare or after ``Rating:``; return NaN for any other reply."""
    rating = _RATING.fullmatch(text)
    return float(rating.group(1)) if rating else UNDEFINED


def judge_support(view: LoopView, model: ChatModel) -> Rating:
    """Ask how well passages 1..t support the answer of round t, 1 to 5; high: well (paper 0).

    Undefined without an answer or passages, and if the reply is not a single rating.
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
    text = reply.completions[0].said
    value = parse_rating(text)
    usage = Usage(
        judge_calls=1,
        judge_prompt_tokens=reply.prompt_tokens,
        judge_cached_tokens=reply.cached_tokens,
        judge_completion_tokens=reply.completion_tokens,
        latency_s=reply.latency_s,
        judge_latency_s=reply.latency_s,
    )
    unparsed = f"no single rating 1-5 in the reply {text[:60]!r}" if math.isnan(value) else None
    return Rating(value=value, usage=usage, failure=unparsed)


def judged(view: LoopView, model: ChatModel) -> Round:
    """Return the last round with the judge's rating and the cost of its call."""
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


JUDGING = asking_rounds(
    "judge",
    "--llm",
    "judge",
    "judged",
    judge_support,
    called=lambda verdict: bool(verdict.usage.judge_calls),
    values=lambda verdict: {"judge_support": verdict.value},
    columns=_charged,
    summary=_summary,
    line="the {who} rated {rated} rounds in {calls} calls; {undefined} undefined, {failed} failed",
)
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
        Absence("the judge's reply was not a single rating from 1 to 5", lambda _: True),
    ),
)
