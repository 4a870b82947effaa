"""A policy pays for what it reads."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from suffice.costs.usage import COSTS, round_costs
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.records import Round, Usage
from suffice.trace.table import TraceSet


def traces(*rounds: Round) -> TraceSet:
    return to_trace_set([dataclasses.replace(make_record("q", ["x"]), rounds=rounds)])


def paid(found: TraceSet, **reads: bool) -> dict[str, Any]:
    reads = {"reads_samples": False, **reads}
    costs = round_costs(found, **reads)
    assert tuple(costs) == COSTS
    return {name: None if each is None else each.tolist()[0] for name, each in costs.items()}


def a_round(samples: int | None = None, **usage: Any) -> Round:
    drawn = None if samples is None else ("x",) * samples
    return Round(answer="x", samples=drawn, usage=Usage(**usage))


def test_sample_calls_are_paid_by_who_reads_samples() -> None:
    found = traces(a_round(3, llm_calls=4, sample_calls=3), a_round(0, llm_calls=1, sample_calls=0))
    assert paid(found)["llm_calls"] == [1.0, 1.0]
    assert paid(found, reads_samples=True)["llm_calls"] == [4.0, 1.0]


def test_sample_calls_are_inferred_where_unknown() -> None:
    """As many as samples were recorded, if that leaves an answering call."""
    found = traces(a_round(5, llm_calls=6), a_round(None, llm_calls=1), a_round(0, llm_calls=2))
    assert paid(found)["llm_calls"] == [1.0, 1.0, 2.0]
    assert paid(found, reads_samples=True)["llm_calls"] == [6.0, 1.0, 2.0]


def test_every_call_is_paid_where_the_samples_are_the_answers() -> None:
    """Three samples from three calls: the answer is one of them."""
    found = traces(a_round(3, llm_calls=3), a_round(3, llm_calls=1))
    assert paid(found)["llm_calls"] == [3.0, 1.0]
    assert paid(traces(a_round(None, llm_calls=3)))["llm_calls"] == [3.0]


def test_a_stated_count_beats_the_inferred() -> None:
    found = traces(a_round(5, llm_calls=6, sample_calls=2), a_round(5, llm_calls=6))
    assert paid(found)["llm_calls"] == [4.0, 1.0]


def test_verdicts_are_paid_by_who_reads_them() -> None:
    found = traces(a_round(llm_calls=1, judge_calls=2), a_round(llm_calls=1, judge_calls=0))
    assert paid(found)["llm_calls"] == [1.0, 1.0]
    assert paid(found, reads_verdicts=True)["llm_calls"] == [3.0, 1.0]
    # a verdict of unknown cost is not free
    partly = traces(a_round(llm_calls=1, judge_calls=2), a_round(llm_calls=1))
    assert paid(partly)["llm_calls"] == [1.0, 1.0]
    assert paid(partly, reads_verdicts=True)["llm_calls"] is None
    assert paid(traces(a_round(llm_calls=1)), reads_verdicts=True)["llm_calls"] is None


def test_tokens_of_samples() -> None:
    found = traces(
        a_round(
            2,
            prompt_tokens=100,
            sample_prompt_tokens=200,
            completion_tokens=7,
            sample_completion_tokens=9,
            cached_tokens=50,
        )
    )
    assert paid(found) == {
        "llm_calls": None,
        "prompt_tokens": [100.0],
        "cached_tokens": [50.0],
        "completion_tokens": [7.0],
    }
    read = paid(found, reads_samples=True)
    assert read["prompt_tokens"] == [300.0]
    assert read["completion_tokens"] == [16.0]
    assert read["cached_tokens"] is None  # of the samples unknown


def test_without_samples_there_is_nothing_more_to_pay() -> None:
    found = traces(a_round(prompt_tokens=100), a_round(prompt_tokens=150))
    assert paid(found, reads_samples=True)["prompt_tokens"] == [100.0, 150.0]


def test_one_unknown_round_makes_a_cost_unknown() -> None:
    found = traces(a_round(llm_calls=1, prompt_tokens=10), a_round(llm_calls=1))
    assert paid(found)["llm_calls"] == [1.0, 1.0]
    assert paid(found)["prompt_tokens"] is None
    assert paid(traces(a_round(), a_round())) == dict.fromkeys(COSTS)


def test_rounds_that_do_not_exist_are_not_unknown() -> None:
    short = dataclasses.replace(make_record("p", ["x"]), rounds=(a_round(llm_calls=1),))
    long = dataclasses.replace(make_record("q", ["x"]), rounds=(a_round(llm_calls=2),) * 2)
    calls = round_costs(to_trace_set([short, long]), reads_samples=False)["llm_calls"]
    assert calls is not None
    np.testing.assert_array_equal(calls, [[1.0, math.nan], [2.0, 2.0]])
