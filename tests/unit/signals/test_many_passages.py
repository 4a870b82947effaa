"""Many passages a question, and questions in many blocks: the overlaps of all rounds at once."""

from __future__ import annotations

import random

import numpy as np
import pytest
from tests.signal_twins import twin_columns

from suffice.signals import novelty
from suffice.signals.novelty import NEW_PASSAGES, OVERLAP, OVERLAP_IDF
from suffice.signals.table import signal_columns
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Passage, QuestionRecord

_SPECS = [OVERLAP, OVERLAP_IDF, NEW_PASSAGES]


def _record(name: str, draw: random.Random, vocabulary: int) -> QuestionRecord:
    passages = [
        [
            Passage(
                id=str(draw.randrange(30)),
                title=f"w{draw.randrange(vocabulary)}",
                text=" ".join(f"w{draw.randrange(vocabulary)}" for _ in range(draw.randrange(40))),
            )
            for _ in range(draw.randrange(4))
        ]
        for _ in range(draw.randint(1, 9))
    ]
    return make_record(name, ["a"] * len(passages), passages=passages)


@pytest.mark.parametrize(("block", "narrow"), [(1 << 16, 31), (1 << 16, 0), (300, 31), (1, 31)])
def test_any_size_of_blocks(block: int, narrow: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(novelty, "_BLOCK", block)
    monkeypatch.setattr(novelty, "_NARROW", narrow)
    draw = random.Random(5)
    traces = to_trace_set([_record(f"q{i:02}", draw, 60) for i in range(12)])
    for values, expected in zip(
        signal_columns(traces, _SPECS), twin_columns(traces, _SPECS), strict=True
    ):
        assert np.isfinite(expected).sum() > 20
        np.testing.assert_array_equal(values, expected)


def test_a_question_without_a_comparison_may_hold_a_word_in_more_passages() -> None:
    def record(name: str, counts: list[int]) -> QuestionRecord:
        passages = [
            [Passage(id=f"{t}-{i}", text=f"ore w{t}") for i in range(n)]
            for t, n in enumerate(counts)
        ]
        return make_record(name, ["a"] * len(counts), passages=passages)

    traces = to_trace_set([record("q0", [6]), record("q1", [1, 1])])
    found = signal_columns(traces, [OVERLAP_IDF])[0]
    expected = twin_columns(traces, [OVERLAP_IDF])[0]
    assert np.isfinite(expected).sum() == 1
    np.testing.assert_array_equal(found, expected)
