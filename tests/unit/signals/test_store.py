"""Storing signals: what is kept, what is added, what is skipped and why."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from tests.builders import with_rounds
from tests.hashing_encoder import HashingEncoder

from suffice.contracts import GenerationRequest, Reranker
from suffice.evaluation.replay.runner import stop_rounds
from suffice.policies.rules.policy import Rule
from suffice.signals.asking.judge_support import JUDGE_TOKENS
from suffice.signals.stored_signals import SignalModels, with_signals
from suffice.testing.models import Failures, ScriptedModel
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import Passage, Round, Usage
from suffice.trace.rounds.trace_set import TraceSet
from suffice.trace.rounds.writer import write_trace_set

GOLD = ("a 3",)


def rating(request: GenerationRequest, _: int) -> str:
    return str(request.prompt).rstrip().removesuffix("Rating:").strip()[-1]


def partly_known_traces() -> TraceSet:
    first, second = (make_record(name, ["a 1", "a 9", "a 3"], gold=GOLD) for name in ("p", "q"))
    known = [
        dataclasses.replace(
            each, usage=Usage(llm_calls=1, judge_calls=t), signals={"mine": float(t)}
        )
        for t, each in enumerate(second.rounds)
    ]
    closed = Round(answer="from memory", usage=Usage(llm_calls=1))
    return to_trace_set(
        [
            dataclasses.replace(first, closed_book=closed),
            dataclasses.replace(second, rounds=tuple(known)),
        ]
    )


def values(found: TraceSet, name: str) -> list[list[float | None]]:
    stored, there = found.stored_signal(name)
    return [
        [None if not known else float(value) for value, known in zip(row, mask, strict=True)]
        for row, mask in zip(stored, there, strict=True)
    ]


def test_the_judge_adds_values_and_calls_and_touches_nothing_else(tmp_path: Path) -> None:
    before = partly_known_traces()
    stored = with_signals(
        before, ("judge_support",), models=SignalModels(judge=ScriptedModel(rating))
    )
    assert stored.computed == ("judge_support",)
    assert stored.skipped == {}
    file = write_trace_set(stored.traces, tmp_path / "t.parquet")
    found = read_traces(file)
    np.testing.assert_array_equal(found.stored_signal("judge_support")[0], [[1, np.nan, 3]] * 2)
    np.testing.assert_array_equal(found.column("judge_calls"), [[1, 1, 1], [1, 2, 3]])
    assert values(found, "mine")[1] == [0.0, 1.0, 2.0]
    assert found.closed_book.num_rows == 1
    changed = {"signals", "judge_calls", *JUDGE_TOKENS}
    for name in set(before.table.column_names) - changed:
        assert found.table.column(name).to_pylist() == before.table.column(name).to_pylist(), name
    # a rule over the verdict reads the file: 3 is reached at round 3, never 4
    assert stop_rounds(Rule(rule="judge_support >= 3"), found).tolist() == [3, 3]
    assert stop_rounds(Rule(rule="judge_support <= 1"), found).tolist() == [1, 1]


def test_a_second_run_asks_only_where_a_call_failed() -> None:
    broken = ScriptedModel(rating, failures=Failures(containing=("Answer: a 3",)))
    once = with_signals(
        partly_known_traces(), ("judge_support",), models=SignalModels(judge=broken)
    )
    assert list(once.asked["judge"].failures) == [2, 5]
    assert values(once.traces, "judge_support")[0][2] is None
    assert math.isnan(values(once.traces, "judge_support")[0][1] or 0.0)  # asked, no rating
    again = ScriptedModel(rating)
    twice = with_signals(once.traces, ("judge_support",), models=SignalModels(judge=again))
    assert len(again.requests) == 2
    assert values(twice.traces, "judge_support")[1][2] == 3.0
    idle = ScriptedModel(rating)
    thrice = with_signals(twice.traces, ("judge_support",), models=SignalModels(judge=idle))
    assert (idle.requests, thrice.asked) == ((), {})
    assert thrice.skipped == {"judge_support": "stored already"}
    assert thrice.traces.table.equals(twice.traces.table)


class Counting:
    """Scores passages 3, 2, 1, ... in the order asked."""

    def __init__(self) -> None:
        self.calls = 0

    def rerank(self, query: str, passages: Sequence[Passage]) -> Sequence[Passage]:
        self.calls += 1
        return tuple(
            dataclasses.replace(each, rerank_score=3.0 - n) for n, each in enumerate(passages)
        )


def test_a_reranker_gives_scores_signals_and_calls(tmp_path: Path) -> None:
    reranker = Counting()
    assert isinstance(reranker, Reranker)
    stored = with_signals(
        partly_known_traces(),
        ("rerank_top_score", "rerank_mean"),
        models=SignalModels(reranker=reranker),
    )
    assert stored.computed == ("rerank_top_score", "rerank_mean")
    assert reranker.calls == 2
    found = read_traces(write_trace_set(stored.traces, tmp_path / "t.parquet"))
    scores = [
        [passage.rerank_score for each in record.rounds for passage in each.passages or ()]
        for record in found.records()
    ]
    assert scores == [[3.0, 2.0, 1.0]] * 2
    assert values(found, "rerank_top_score") == [[3.0] * 3] * 2
    assert values(found, "rerank_mean") == [[3.0, 2.5, 2.0]] * 2
    np.testing.assert_array_equal(found.column("rerank_calls"), np.ones((2, 3)))
    again = with_signals(found, ("rerank_top_score",), models=SignalModels(reranker=reranker))
    assert reranker.calls == 2
    assert again.skipped == {"rerank_top_score": "stored already"}
    assert again.traces.table.equals(found.table)


def test_scores_mend_signals_stored_as_undefined_but_not_known_ones() -> None:
    signals = {"rerank_top_score": math.nan, "rerank_mean": 9.0}
    before = to_trace_set([with_rounds(make_record("p", ["x", "y"]), signals=signals)])
    stored = with_signals(
        before, ("rerank_top_score", "rerank_mean"), models=SignalModels(reranker=Counting())
    )
    assert stored.skipped == {"rerank_mean": "stored already"}
    assert values(stored.traces, "rerank_top_score") == [[3.0, 3.0]]
    assert values(stored.traces, "rerank_mean") == [[9.0, 9.0]]


# --- encoder and entailment model --------------------------------------------------------------------
CONSISTENCY = ("evidence_consistency", "evidence_consistency_max", "evidence_consistency_top1")


class Halves:
    """Everything follows with 1/2."""

    asked = 0

    def entailed(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        self.asked += len(pairs)
        return np.full(len(pairs), 0.5)


def test_what_is_stored_stays_and_only_the_rest_is_asked_about() -> None:
    record = make_record("p", ["x", "y"])
    known = dataclasses.replace(record.rounds[0], signals={"evidence_consistency": 9.0})
    before = to_trace_set([dataclasses.replace(record, rounds=(known, record.rounds[1]))])
    encoder = HashingEncoder()
    once = with_signals(before, ("evidence_consistency",), models=SignalModels(encoder=encoder))
    assert list(once.asked["encoder"].by_row) == [1]
    assert values(once.traces, "evidence_consistency")[0][0] == 9.0
    calls = len(encoder.calls)
    models = SignalModels(encoder=encoder)
    again = with_signals(once.traces, ("evidence_consistency",), models=models)
    assert len(encoder.calls) == calls
    assert again.skipped == {"evidence_consistency": "stored already"}
    assert again.traces.table.equals(once.traces.table)
    rest = with_signals(once.traces, CONSISTENCY, models=models)
    assert rest.computed == CONSISTENCY[1:]
    assert values(rest.traces, "evidence_consistency")[0][0] == 9.0


def test_after_an_interrupt_nobody_else_is_asked() -> None:
    class Interrupted(HashingEncoder):
        def encode(
            self, texts: Sequence[str], *, role: Literal["query", "passage"] = "passage"
        ) -> NDArray[np.float32]:
            if "a 3" in texts:
                os.kill(os.getpid(), signal.SIGINT)
                time.sleep(0.05)
            return super().encode(texts, role=role)

    entailment = Halves()
    stored = with_signals(
        partly_known_traces(),
        (*CONSISTENCY, "evidence_entailment"),
        models=SignalModels(encoder=Interrupted(), entailment=entailment),
    )
    assert stored.asked["encoder"].interrupted
    assert stored.skipped == {"evidence_entailment": "interrupted before"}
    assert (entailment.asked, list(stored.asked)) == (0, ["encoder"])
