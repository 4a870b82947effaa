"""Ask a judge about the answers of a whole record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from suffice.protocols import ChatModel
from suffice.signals.asking import Asked, Replies, RoundQuestion, ask_rounds
from suffice.signals.judge_support import Verdict, judge_support
from suffice.trace.records import Usage

if TYPE_CHECKING:
    from suffice.trace.table import TraceSet

__all__ = ["Judging", "judge_rounds"]


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

    As :func:`suffice.signals.asking.ask_rounds` does: one thread a question, so that a server that
    keeps prefixes evaluates only what is new.

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
