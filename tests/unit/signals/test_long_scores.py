"""Long lists of scores, which numpy sums in parts, and long questions: all rounds at once."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest
from tests.signal_twins import twin_columns

from suffice.signals.columns import ragged
from suffice.signals.registry import SIGNALS
from suffice.signals.table import signal_columns
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Passage, QuestionRecord

_SPECS = [
    spec
    for spec in SIGNALS.values()
    if spec.columns and spec.name.startswith(("retrieval", "rerank"))
]


def _score(draw: random.Random) -> float | None:
    special = draw.random()
    if special < 0.2:
        return draw.choice([None, 0.0, -0.0, 1.0, 1e-7])
    return math.ldexp(draw.gauss(0, 1), draw.randint(-20, 20))


def _record(name: str, draw: random.Random) -> QuestionRecord:
    passages = [
        None
        if draw.random() < 0.03
        else [
            Passage(id=str(draw.randrange(200)), rerank_score=_score(draw))
            for _ in range(draw.choice([0, 1, 5, 30]))
        ]
        for _ in range(draw.randint(1, 8))
    ]
    record = make_record(name, ["a"] * len(passages), passages=passages)
    lists = [
        None
        if draw.random() < 0.3
        else tuple(_score(draw) or 0.0 for _ in range(draw.choice([0, 1, 2, 8, 9, 130, 300])))
        for _ in record.rounds
    ]
    rounds = [
        replace(round_, candidate_scores=scores)
        for round_, scores in zip(record.rounds, lists, strict=True)
    ]
    return replace(record, rounds=tuple(rounds))


@pytest.mark.parametrize("block", [1 << 16, 1, 500])
def test_any_length_of_lists(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ragged, "_BLOCK", block)
    draw = random.Random(3)
    traces = to_trace_set([_record(f"q{number:02}", draw) for number in range(25)])
    for values, expected in zip(
        signal_columns(traces, _SPECS), twin_columns(traces, _SPECS), strict=True
    ):
        assert np.isfinite(expected).sum() > 20
        assert (
            np.nan_to_num(values, nan=-7.0).tobytes() == np.nan_to_num(expected, nan=-7.0).tobytes()
        )
