"""Verdicts: a call of a chat model rates a round; what it costs is charged to who reads the rating."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from suffice.concurrency import width_of
from suffice.protocols import ChatModel
from suffice.signals.asking.whole_record import (
    Asking,
    OnProgress,
    Replies,
    RoundQuestion,
    ask_rounds,
    column_values,
)
from suffice.signals.spec import UNDEFINED, VERDICTS
from suffice.trace.rounds.records import LoopView, Usage

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging(Replies[Rating]):
    """What a judge said."""

    @property
    def undefined(self) -> int:
        """Rounds with a verdict that is no rating."""
        return sum(verdict.failure is not None for verdict in self.by_row.values())

    @property
    def usages(self) -> Mapping[int, Usage]:
        """Calls and their tokens by row; failed calls are counted, their tokens are unknown."""
        made = {row: verdict.usage for row, verdict in self.by_row.items()}
        return made | dict.fromkeys(self.failures, Usage(judge_calls=1))

    @property
    def calls(self) -> Mapping[int, int]:
        """Calls by row, failed ones too."""
        return {row: usage.judge_calls or 0 for row, usage in self.usages.items()}

    def tokens(self, name: str) -> int | None:
        """Sum of a token count over the calls answered; ``None``: not reported for all of them.

        ``name`` is ``prompt_tokens``, ``cached_tokens`` or ``completion_tokens``.
        """
        usages = [verdict.usage for verdict in self.by_row.values() if verdict.usage.judge_calls]
        counts = [getattr(usage, f"judge_{name}") for usage in usages]
        return None if None in counts else sum(counts)


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
) -> Asking[Judging]:
    """A chat model (``--llm``) rates every round for one signal, and its calls are charged as verdicts."""

    def ask(
        traces: TraceSet, model: ChatModel, wanted: NDArray[np.bool_], on_progress: OnProgress
    ) -> Judging:
        question = RoundQuestion(
            what="judged",
            who=who,
            ask=lambda view: rate(view, model),
            called=lambda verdict: bool(verdict.usage.judge_calls),
            concurrency=width_of(model),
        )
        replies = ask_rounds(traces, question, wanted, on_progress)
        return Judging(
            by_row=replies.by_row,
            failures=replies.failures,
            left=replies.left,
            interrupted=replies.interrupted,
        )

    return Asking(
        name=name,
        option="--llm",
        who=who,
        ask=ask,
        values=lambda verdict: {signal: verdict.value},
        columns=_charged,
        summary=_summary,
        line="the {who} rated {rated} rounds in {calls} calls; {undefined} undefined, {failed} failed",
    )


def _charged(traces: TraceSet, judging: Judging) -> Mapping[str, list[Any]]:
    """The columns of judge calls and their tokens; a round of which nothing was known made no call."""
    columns = {name: column_values(traces, name) for name in (*JUDGE_TOKENS, VERDICTS.calls)}
    for row, more in judging.usages.items():
        before = Usage(**{name: values[row] for name, values in columns.items()})
        added = add_judge_calls(before, more)
        for name, values in columns.items():
            values[row] = getattr(added, name)
    return {**columns, VERDICTS.calls: [known or 0 for known in columns[VERDICTS.calls]]}


def _summary(judging: Judging) -> dict[str, Any]:
    return {
        "calls": sum(judging.calls.values()),
        "rated": len(judging.by_row) - judging.undefined,
        "undefined": judging.undefined,
        "failed": len(judging.failures),
        "left": judging.left,
        "prompt_tokens": judging.tokens("prompt_tokens"),
        "cached_tokens": judging.tokens("cached_tokens"),
        "completion_tokens": judging.tokens("completion_tokens"),
    }
