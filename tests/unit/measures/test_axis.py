"""What policies are compared at where no cost is named, and what changes besides."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from suffice.costs.usage import CostModel
from suffice.evaluation.replay.compare import compare
from suffice.evaluation.settings import ComparisonSettings
from suffice.measures.costs import cost_changes, usual_axis
from suffice.measures.measures import Measures
from suffice.testing.traces import random_records, to_trace_set
from suffice.trace.rounds.records import Usage

RISING, ALIKE = np.array([1.0, 2.0, 4.0]), np.array([1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("rising", "alike", "expected", "told"),
    [
        (("usd", "evaluated_tokens", "llm_calls"), (), "usd", ""),
        (("evaluated_tokens", "prompt_tokens", "llm_calls"), (), "evaluated_tokens", ""),
        (("prompt_tokens", "llm_calls"), (), "prompt_tokens", "reused"),
        (("llm_calls",), (), "llm_calls", "tokens are not known"),
        (("llm_calls",), ("evaluated_tokens",), "llm_calls", "uncached prompt tokens"),
        (("evaluated_tokens",), ("usd",), "evaluated_tokens", "price"),
        ((), ("llm_calls",), "rounds", "model calls"),
        ((), (), "rounds", "tokens are not known"),
    ],
)
def test_dollars_go_before_tokens_before_calls_before_rounds(
    rising: tuple[str, ...], alike: tuple[str, ...], expected: str, told: str
) -> None:
    known = {**dict.fromkeys((*rising, "rounds"), RISING), **dict.fromkeys(alike, ALIKE)}
    axis = usual_axis(known, CostModel())
    assert axis.name == expected
    assert bool(axis.reason) == bool(told)
    assert told in axis.reason


def test_a_cap_without_a_name_is_one_of_calls() -> None:
    known = {"evaluated_tokens": RISING, "llm_calls": ALIKE, "rounds": RISING}
    assert usual_axis(known, CostModel(), capped=True).name == "llm_calls"
    assert usual_axis({"rounds": RISING}, CostModel(), capped=True).name == "rounds"


def two_calls_a_round(*, cached: bool) -> Measures:
    """A call of the loop and one that answers, with tokens, in every round."""
    reused = {"cached_tokens": 50, "answer_cached_tokens": 20} if cached else {}
    asked = {"prompt_tokens": 200, "answer_prompt_tokens": 120}
    usage = Usage(llm_calls=2, answer_calls=1, **asked, **reused)
    return Measures(
        to_trace_set(
            [
                replace(record, rounds=tuple(replace(one, usage=usage) for one in record.rounds))
                for record in random_records(24)
            ]
        )
    )


def test_what_saves_rounds_may_cost_calls_and_tokens() -> None:
    """A policy that reads answers pays one in every round, the full budget the last alone."""
    measures = two_calls_a_round(cached=True)
    rule = "answer_stable or round >= 99"
    result = compare(
        measures, ComparisonSettings(policies=("fixed-3",), rules=(rule,), split="tune")
    ).result
    changes = {one.name: one for one in cost_changes(result.full_costs, result.policies[1].costs)}
    assert list(changes) == ["rounds", "calls", "tokens", "retrievals", "seconds", "usd"]
    assert changes["rounds"].change is not None
    assert changes["rounds"].change < 0
    calls = changes["calls"]
    rounds = result.policies[1].mean_rounds
    assert calls.own is not None
    assert calls.own > rounds  # loop and answer in each, but at the budget
    assert changes["tokens"].label == "uncached prompt tokens"
    assert changes["usd"].full is changes["usd"].own is changes["usd"].change is None


def test_tokens_are_told_alike_of_both() -> None:
    full = {"evaluated_tokens": 10.0, "prompt_tokens": 40.0, "llm_calls": 0.0}
    own = {"evaluated_tokens": None, "prompt_tokens": 50.0, "llm_calls": 0.0}
    changes = {one.name: one for one in cost_changes(full, own)}
    assert (changes["tokens"].full, changes["tokens"].own) == (40.0, 50.0)
    assert changes["tokens"].change == pytest.approx(0.25)
    assert changes["calls"].change is None
