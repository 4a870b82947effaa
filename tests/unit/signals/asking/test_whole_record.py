"""Asking about rounds, whoever is asked: what a reply is and who failed."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.errors import BackendError
from suffice.signals.asking.whole_record import Asked, RoundQuestion, ask_rounds
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import LoopView

TRACES = to_trace_set([make_record(f"q{n}", [f"{n}-1", f"{n}-2"]) for n in range(4)])
ALL = np.ones(8, bool)


def lengths(view: LoopView) -> int:
    return len(view.rounds)


def question(ask: object, *, called: bool = True) -> RoundQuestion[int]:
    return RoundQuestion(
        what="encoded",
        who="clerk",
        ask=ask,  # type: ignore[arg-type]
        called=lambda _: called,
        concurrency=2,
    )


def test_replies_by_row_in_order() -> None:
    seen: list[Asked] = []
    replies = ask_rounds(TRACES, question(lengths), ALL, seen.append)
    assert list(replies.by_row.items()) == [(row, row % 2 + 1) for row in range(8)]
    assert (replies.failures, replies.left, replies.interrupted) == ({}, 0, False)
    assert seen[-1] == Asked(what="encoded", finished=8, planned=8)


def test_a_reply_without_a_call_does_not_say_that_the_model_is_up() -> None:
    def half(view: LoopView) -> int:
        if len(view.rounds) == 2:
            raise BackendError("down")
        return 1

    with pytest.raises(BackendError, match="all 4 calls"):
        ask_rounds(TRACES, question(half, called=False), ALL, lambda _: None)
    replies = ask_rounds(TRACES, question(half), ALL, lambda _: None)
    assert sorted(replies.failures) == [1, 3, 5, 7]
    assert replies.left == 0
