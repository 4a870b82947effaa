"""A policy pays for what it reads."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.builders import of_rounds
from tests.properties import examples
from tests.question_records import question_records

from suffice.costs.prices import Prices, PriceTier
from suffice.costs.usage import COSTS, CostModel, CostReads, cost_matrix, stop_costs
from suffice.errors import UsageError
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import QuestionRecord, Round, Usage
from suffice.trace.rounds.trace_set import TraceSet


def paid(found: TraceSet, model: CostModel | None = None, **reads: Any) -> dict[str, Any]:
    """What each round adds for a policy that reads its answer, and what else is said."""
    costs = stop_costs(found, reads=CostReads(answers=True, at_end=True, **reads), model=model)
    assert tuple(costs) == tuple(COSTS)
    return {
        name: None if summed is None else np.diff(summed, axis=1, prepend=0).tolist()[0]
        for name, summed in costs.items()
    }


def a_round(samples: int | None = None, **usage: Any) -> Round:
    drawn = None if samples is None else ("x",) * samples
    return Round(answer="x", samples=drawn, usage=Usage(**usage))


def test_verdicts_are_paid_by_who_reads_them() -> None:
    found = of_rounds(a_round(llm_calls=1, judge_calls=2), a_round(llm_calls=1, judge_calls=0))
    assert paid(found)["llm_calls"] == [1.0, 1.0]
    assert paid(found, verdicts=True)["llm_calls"] == [3.0, 1.0]
    # a verdict of unknown cost is not free
    partly = of_rounds(a_round(llm_calls=1, judge_calls=2), a_round(llm_calls=1))
    assert paid(partly)["llm_calls"] == [1.0, 1.0]
    assert paid(partly, verdicts=True)["llm_calls"] is None
    assert paid(of_rounds(a_round(llm_calls=1)), verdicts=True)["llm_calls"] is None


def test_one_unknown_round_makes_a_cost_unknown() -> None:
    found = paid(of_rounds(a_round(llm_calls=1, prompt_tokens=10), a_round(llm_calls=1)))
    assert (found["llm_calls"], found["prompt_tokens"]) == ([1.0, 1.0], None)
    known = {name: values for name, values in paid(of_rounds(a_round())).items() if values}
    assert known == {
        "judge_calls": [0.0],
        "look_calls": [0.0],
        "rerank_calls": [0.0],
        "rounds": [1.0],
    }


def test_the_judge_and_the_reranker_are_counted_where_they_are_read() -> None:
    found = of_rounds(a_round(llm_calls=1, judge_calls=2, rerank_calls=3))
    for verdicts, reranks, judge, rerank in [
        (False, False, 0.0, 0.0),
        (True, False, 2.0, 0.0),
        (False, True, 0.0, 3.0),
        (True, True, 2.0, 3.0),
    ]:
        costs = paid(found, verdicts=verdicts, reranks=reranks)
        assert (costs["judge_calls"], costs["rerank_calls"]) == ([judge], [rerank])
        assert (costs["llm_calls"], costs["calls"]) == ([1.0 + judge], [1.0 + judge + rerank])
    unknown = paid(of_rounds(a_round(llm_calls=1)), reranks=True)
    assert (unknown["llm_calls"], unknown["rerank_calls"], unknown["calls"]) == ([1.0], None, None)


JUDGED = {"judge_calls": 1, "judge_prompt_tokens": 300, "judge_cached_tokens": 200}


def test_a_judges_tokens_are_not_taken_to_be_none() -> None:
    """A record made before they had columns: only a judge that was never asked costs none."""
    reads = CostReads(answers=True, verdicts=True, at_end=True)
    model = CostModel(prices=Prices(input=1, cached=1, output=0))
    asked = of_rounds(a_round(llm_calls=1, judge_calls=1, prompt_tokens=10))
    names = [n for n in asked.table.column_names if not n.startswith("judge_p")]
    old = dataclasses.replace(asked, table=asked.table.select(names))
    for found in (asked, old):
        assert paid(found)["prompt_tokens"] == [10.0]
        assert paid(found, verdicts=True)["prompt_tokens"] is None
        with pytest.raises(UsageError, match="'judge_prompt_tokens'"):
            cost_matrix(found, "usd", reads=reads, model=model)
    never = of_rounds(a_round(llm_calls=1, judge_calls=0, prompt_tokens=10))
    assert paid(never, verdicts=True)["prompt_tokens"] == [10.0]
    assert paid(of_rounds(a_round(prompt_tokens=10)), verdicts=True)["prompt_tokens"] is None
    partly = of_rounds(
        a_round(prompt_tokens=10, **JUDGED),
        a_round(prompt_tokens=10, judge_calls=0),
        a_round(prompt_tokens=10, judge_calls=2),
    )
    with pytest.raises(UsageError, match="'judge_prompt_tokens'"):
        cost_matrix(partly, "prompt_tokens", reads=reads)


def test_what_cannot_be_a_cost_is_unknown() -> None:
    more_samples = of_rounds(a_round(2, llm_calls=1, sample_calls=2))
    assert paid(more_samples)["llm_calls"] is None
    assert paid(more_samples, samples=True)["llm_calls"] is None
    more_cached = paid(of_rounds(a_round(prompt_tokens=10, cached_tokens=11)))
    assert (more_cached["cached_tokens"], more_cached["evaluated_tokens"]) == ([11.0], None)
    for strange in (-1.0, math.inf):
        assert paid(of_rounds(a_round(latency_s=strange)))["seconds"] is None
    with pytest.raises(UsageError, match="'evaluated_tokens'"):
        cost_matrix(of_rounds(a_round(prompt_tokens=10, cached_tokens=11)), "evaluated_tokens")


USAGE = {"prompt_tokens": 1000, "cached_tokens": 600, "completion_tokens": 20, "llm_calls": 2}


def test_dollars_by_hand() -> None:
    found = of_rounds(a_round(**USAGE, retrievals=3, rerank_calls=1))
    assert paid(found)["usd"] is None  # no prices
    plain = CostModel(prices=Prices(input=2.0, cached=0.5, output=10.0))
    tokens = (400 * 2.0 + 600 * 0.5 + 20 * 10.0) / 1e6
    assert paid(found, plain)["usd"] == pytest.approx([tokens])
    each = CostModel(
        prices=Prices(input=2.0, cached=0.5, output=10.0, call=0.01, retrieval=0.005, rerank=0.002)
    )
    assert paid(found, each)["usd"] == pytest.approx([tokens + 2 * 0.01 + 3 * 0.005])
    with_rerank = paid(found, each, reranks=True)["usd"]
    assert with_rerank == pytest.approx([tokens + 2 * 0.01 + 3 * 0.005 + 0.002])


def test_long_prompts_pay_their_tier_with_all_their_tokens() -> None:
    """Above 1,000, not at it; samples repeat the prompt, so that theirs do not add up to a longer one."""
    tier = PriceTier(above=1000, input=3.0, cached=3.0, output=5.0)
    model = CostModel(prices=Prices(input=1.0, cached=1.0, output=1.0, tiers=(tier,)))
    found = of_rounds(*(a_round(1, prompt_tokens=n, completion_tokens=10) for n in (1000, 1001)))
    assert paid(found, model)["usd"] == pytest.approx([1010e-6, (1001 * 3 + 10 * 5) * 1e-6])
    samples = {"sample_prompt_tokens": 1600, "sample_completion_tokens": 30}
    sampled = of_rounds(a_round(2, prompt_tokens=800, completion_tokens=0, **samples))
    assert paid(sampled, model, samples=True)["usd"] == pytest.approx([2430e-6])
    judge = {"completion_tokens": 0, **JUDGED, "judge_completion_tokens": 2}
    judged = of_rounds(*(a_round(prompt_tokens=n, **judge) for n in (1000, 1001)))
    expected = [1302e-6, (1301 * 3 + 2 * 5) * 1e-6]
    assert paid(judged, model, verdicts=True)["usd"] == pytest.approx(expected)


COUNTS = st.integers(0, 300)
COUNTED = (
    *("llm_calls", "prompt_tokens", "cached_tokens", "completion_tokens", "judge_prompt_tokens"),
    *("judge_completion_tokens", "rerank_calls", "retrievals", "sample_calls"),
)
MAYBE = ("judge_cached_tokens", "answer_prompt_tokens", "answer_cached_tokens")
USAGES = st.builds(
    Usage,
    **dict.fromkeys(COUNTED, COUNTS),
    **dict.fromkeys(MAYBE, st.none() | COUNTS),
    judge_calls=st.integers(0, 1),
    answer_calls=st.none() | st.integers(0, 2),
    answer_latency_s=st.none() | st.floats(0, 3, width=32),
    latency_s=st.floats(-1, 100, width=32),
)
BOOLS = dict.fromkeys(("answers", "samples", "verdicts", "reranks", "at_end"), st.booleans())
READS = st.builds(CostReads, until=st.none() | st.integers(1, 4), **BOOLS)
RATE = st.floats(0, 50)


@settings(max_examples=examples(80))
@given(records=question_records(), reads=READS, rates=st.tuples(RATE, RATE, RATE), data=st.data())
def test_no_cost_is_negative_and_none_falls_over_rounds_where_answers_are_read(
    records: list[QuestionRecord], reads: CostReads, rates: tuple[float, ...], data: st.DataObject
) -> None:
    used = [
        dataclasses.replace(
            record,
            rounds=tuple(dataclasses.replace(r, usage=data.draw(USAGES)) for r in record.rounds),
        )
        for record in records
    ]
    found = to_trace_set(used)
    first, second, third = rates
    model = CostModel(prices=Prices(input=first, cached=second, output=third))
    known = stop_costs(found, reads=reads, model=model)
    charged = stop_costs(found, reads=reads, model=dataclasses.replace(model, charge="published"))
    assert known["rounds"] is not None
    for name, values in known.items():
        if values is None:
            with pytest.raises(UsageError, match=f"cost '{name}' is unknown"):
                cost_matrix(found, name, reads=reads, model=model)
            continue
        assert values.shape == found.exists.shape
        np.testing.assert_array_equal(np.isnan(values), ~found.exists)
        assert (values[found.exists] >= 0).all()
        np.testing.assert_array_equal(cost_matrix(found, name, reads=reads, model=model), values)
        steps = np.diff(values, axis=1)
        if reads.answers and reads.until is None:
            assert (steps[found.exists[:, 1:]] >= 0).all()
        published = charged[name]
        if published is not None and name not in ("evaluated_tokens", "usd"):
            # as run never costs more, but in what a server reuses of a prompt
            assert (values[found.exists] <= published[found.exists] + 1e-6).all()
