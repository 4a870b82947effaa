"""Verdicts: a call of a chat model rates a round; what it costs is charged to who reads the rating."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from suffice.contracts import ChatModel
from suffice.signals.asking.whole_record import Asking, Replies, asking_rounds, column_values
from suffice.signals.spec import UNDEFINED, VERDICTS
from suffice.trace.rounds.records import LoopView, Usage

if TYPE_CHECKING:
    from suffice.trace.rounds.table import TraceSet

JUDGE_TOKENS = VERDICTS.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """A rating and what it cost.

    ``value`` is NaN when undefined; ``usage`` holds the call: ``judge_calls``, the ``judge_`` tokens and
    the seconds. ``failure``: ``None``, or why there is no rating.
    """

    value: float = UNDEFINED
    usage: Usage = field(default_factory=lambda: Usage(judge_calls=0))
    failure: str | None = None


def usages(judging: Replies[Rating]) -> Mapping[int, Usage]:
    """Calls and their tokens by row; failed calls are counted, their tokens are unknown."""
    made = {row: verdict.usage for row, verdict in judging.by_row.items()}
    return made | dict.fromkeys(judging.failures, Usage(judge_calls=1))


def add_judge_calls(before: Usage, more: Usage) -> Usage:
    """The usage with further judge calls, their tokens and seconds; unknown with unknown tokens.

    Nothing else of ``more`` is added. Where ``judge_calls`` is ``None`` there were none.

    >>> once = add_judge_calls(Usage(), Usage(judge_calls=1, judge_prompt_tokens=90))
    >>> once.judge_calls, once.judge_prompt_tokens, once.judge_completion_tokens
    (1, 90, None)
    """
    tokens = {
        name: _sum(judge_tokens(before, name), judge_tokens(more, name)) for name in JUDGE_TOKENS
    }
    calls = (before.judge_calls or 0) + (more.judge_calls or 0)
    seconds = more.judge_latency_s
    if before.judge_latency_s is not None:
        seconds = before.judge_latency_s + (seconds or 0.0)
    return replace(before, judge_calls=calls, judge_latency_s=seconds, **tokens)


def judge_tokens(usage: Usage, name: str) -> int | None:
    """One of :data:`JUDGE_TOKENS` of a usage: 0 where no judge was asked, ``None`` where it is unknown."""
    tokens: int | None = getattr(usage, name)
    return tokens if usage.judge_calls else tokens or 0


def _sum(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else one + other


def asking_verdicts(
    signal: str, rate: Callable[[LoopView, ChatModel], Rating], *, name: str, who: str
) -> Asking:
    """A chat model (``--llm``) rates every round for one signal, and its calls are charged as verdicts."""
    return asking_rounds(
        name,
        "--llm",
        who,
        "judged",
        rate,
        called=lambda verdict: bool(verdict.usage.judge_calls),
        values=lambda verdict: {signal: verdict.value},
        columns=_charged,
        summary=_summary,
        line="the {who} rated {rated} rounds in {calls} calls; {undefined} undefined, {failed} failed",
    )


def _charged(traces: TraceSet, judging: Replies[Rating]) -> Mapping[str, list[Any]]:
    """The columns of judge calls and their tokens; a round of which nothing was known made no call."""
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
