"""The vectorised replay against plain dictionaries and loops."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.builders import with_rounds
from tests.properties import examples
from tests.question_records import question_records

from suffice.costs.prices import Prices, PriceTier
from suffice.costs.usage import COSTS, CostModel
from suffice.errors import UsageError
from suffice.evaluation.replay.named_policies import NamedPolicy, named_policies
from suffice.evaluation.replay.results import PolicyResult, ReplayResult
from suffice.evaluation.replay.runner import replay, stop_rounds
from suffice.evaluation.settings import ComparisonSettings
from suffice.policies.rules.policy import Rule
from suffice.policies.unfitted import FixedPolicy
from suffice.scoring import accuracy, exact_match, f1_score
from suffice.testing.conformance import live_stop
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord, Usage
from suffice.trace.rounds.trace_set import TraceSet

NAMES = ("fixed-1", "fixed-3", "fixed-9", "oracle-em", "oracle-f1")
RULES = (
    "answer_stable and not abstained",
    "not answer_stable or round >= 4",
    "self_consistency >= 0.5",
    "judge_support >= 4 or round == 2",
    "rerank_top_score > 0",
)
SAMPLED = {"self_consistency >= 0.5"}
JUDGED = {"judge_support >= 4 or round == 2"}
RERANKED = {"rerank_top_score > 0"}
TOKENS = ("prompt_tokens", "cached_tokens", "completion_tokens")
MODEL = CostModel(
    prices=Prices(
        input=3.0,
        cached=0.5,
        output=10.0,
        call=1e-5,
        rerank=2e-5,
        tiers=(PriceTier(above=60, input=6.0, cached=1.0, output=20.0),),
    ),
    charge="published",  # the ledgers of tests/unit/costs/test_as_run.py are those of as-run
)


# --- the twin -------------------------------------------------------------------------------------
def twin_stop(each: NamedPolicy, record: QuestionRecord, budget: int) -> tuple[int, bool]:
    """(round taken, whether a later one was wanted)."""
    last = len(record.rounds)
    gold = record.gold.answers
    if each.policy is not None:
        stop = live_stop(each.policy, record)
        if stop is not None:
            return stop, False
        fixed = isinstance(each.policy, FixedPolicy)
        return last, fixed or last < budget
    if not gold:
        return last, False
    if each.name == "oracle-em":
        right = [t for t, r in enumerate(record.rounds, 1) if exact_match(r.answer_text, gold)]
        return (right[0] if right else last), False
    scores = [f1_score(r.answer_text, gold) for r in record.rounds]
    return scores.index(max(scores)) + 1, False


def twin_calls(usage: Usage, samples: int, *, sampled: bool, judged: bool) -> int | None:
    if usage.llm_calls is None:
        return None
    drawn = usage.sample_calls
    if drawn is None:
        drawn = samples if samples < usage.llm_calls else 0
    if drawn > usage.llm_calls:
        return None
    calls = usage.llm_calls if sampled else usage.llm_calls - drawn
    if not judged:
        return calls
    return None if usage.judge_calls is None else calls + usage.judge_calls


def twin_costs(
    each: NamedPolicy, record: QuestionRecord, any_samples: bool
) -> list[dict[str, Any]]:
    rows = []
    for finished in record.rounds:
        usage, drawn = finished.usage, len(finished.samples or ())
        row: dict[str, Any] = {
            "llm_calls": twin_calls(
                usage, drawn, sampled=each.name in SAMPLED, judged=each.name in JUDGED
            )
        }
        for name in TOKENS:
            parts = [getattr(usage, name)]
            if each.name in SAMPLED and any_samples:
                parts.append(getattr(usage, f"sample_{name}"))
            if each.name in JUDGED and usage.judge_calls != 0:
                asked = usage.judge_calls is not None  # else nobody knows whether there were any
                parts.append(getattr(usage, f"judge_{name}") if asked else None)
            row[name] = None if None in parts else sum(parts)
        row["judge_calls"] = usage.judge_calls if each.name in JUDGED else 0
        row["look_calls"] = 0  # none was recorded
        row["rerank_calls"] = usage.rerank_calls if each.name in RERANKED else 0
        row["retrievals"] = usage.retrievals
        row["seconds"] = usage.latency_s
        row["passages"] = None if finished.passages is None else len(finished.passages)
        row["rounds"] = 1
        rows.append({**row, **twin_derived(row, usage.prompt_tokens)})
    return rows


def twin_derived(row: dict[str, Any], own_prompt: int | None) -> dict[str, Any]:
    """Costs made of others; what they are made of may be unknown."""

    def made(of: Callable[..., float], *names: str) -> float | None:
        parts = [row[name] for name in names]
        return None if any(part is None for part in parts) else of(*parts)

    level = MODEL.prices
    assert level is not None
    tier = level.tiers[0] if own_prompt is not None and own_prompt > 60 else level

    def usd(calls: float, reranks: float, *tokens: float) -> float:
        prompt, cached, completion = tokens
        per_million = (
            (prompt - cached) * tier.input + cached * tier.cached + completion * tier.output
        )
        return per_million / 1e6 + calls * 1e-5 + reranks * 2e-5

    evaluated = made(lambda a, b: a - b, "prompt_tokens", "cached_tokens")
    impossible = evaluated is not None and evaluated < 0
    return {
        "calls": made(lambda a, b: a + b, "llm_calls", "rerank_calls"),
        "evaluated_tokens": None if impossible else evaluated,
        "usd": None if impossible else made(usd, "llm_calls", "rerank_calls", *TOKENS),
    }


def check_against_twin(
    found: PolicyResult, each: NamedPolicy, records: list[QuestionRecord]
) -> None:
    budget = max(len(record.rounds) for record in records)
    stops = [twin_stop(each, record, budget) for record in records]
    assert found.stops.tolist() == [stop for stop, _ in stops]
    assert found.beyond_record == sum(late for _, late in stops)
    assert found.mean_rounds == pytest.approx(sum(stop for stop, _ in stops) / len(stops))
    labelled = [
        (record.rounds[stop - 1].answer_text, record.gold.answers)
        for record, (stop, _) in zip(records, stops, strict=True)
        if record.gold.answers
    ]
    for score, value in ((exact_match, found.em), (f1_score, found.f1), (accuracy, found.acc)):
        if labelled:
            assert value == pytest.approx(sum(score(a, g) for a, g in labelled) / len(labelled))
        else:
            assert value is None
    any_samples = any(r.samples is not None for record in records for r in record.rounds)
    costs = [twin_costs(each, record, any_samples) for record in records]
    assert set(found.costs) == set(costs[0][0]) == set(COSTS)
    for name in COSTS:
        column = [[row[name] for row in rows] for rows in costs]
        if any(value is None for rows in column for value in rows):
            assert found.costs[name] is None, name
        else:
            paid = [sum(rows[:stop]) for rows, (stop, _) in zip(column, stops, strict=True)]
            assert found.costs[name] == pytest.approx(sum(paid) / len(paid)), name


def with_usage(records: list[QuestionRecord], seed: int, complete: bool) -> list[QuestionRecord]:
    """The records with drawn usage; ``complete`` leaves nothing unknown but sample_calls."""
    generator = np.random.default_rng(seed)

    def count(most: int) -> int | None:
        return None if not complete and generator.random() < 0.05 else int(generator.integers(most))

    def usage(samples: int) -> Usage:
        return Usage(
            llm_calls=count(3) if generator.random() < 0.2 else 1 + samples,
            sample_calls=samples if generator.random() < 0.5 else None,
            judge_calls=int(generator.integers(3)) if generator.random() < 0.8 else None,
            rerank_calls=count(2),
            retrievals=count(2),
            latency_s=count(9),
            **{name: count(20 if "cached" in name else 100) for name in TOKENS},
            **{f"{kind}_{name}": count(100) for kind in ("sample", "judge") for name in TOKENS},
        )

    return [
        with_rounds(record, usage=lambda each: usage(len(each.samples or ()))) for record in records
    ]


def run(
    traces: TraceSet, names: tuple[str, ...], rules: tuple[str, ...], model: CostModel | None = None
) -> tuple[Any, ReplayResult]:
    built = named_policies(traces, names, rules)
    settings = ComparisonSettings(baseline=built[0].name, cost_model=model or CostModel())
    return built, replay(traces, built, settings)


def computable(rules: tuple[str, ...], traces: TraceSet) -> tuple[str, ...]:
    """The rules whose signals this trace holds; the others are refused."""
    kept = []
    for rule in rules:
        try:
            run(traces, ("fixed-1",), (rule,))
        except UsageError as refusal:
            if "does not hold" not in str(refusal):
                raise
        else:
            kept.append(rule)
    return tuple(kept)


@settings(deadline=None, max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow])
@given(records=question_records(), seed=st.integers(0, 2**32), complete=st.booleans())
def test_every_score_and_cost_equals_the_slow_twin(
    records: list[QuestionRecord], seed: int, complete: bool
) -> None:
    records = with_usage(records, seed, complete)
    traces = to_trace_set(records)
    built, result = run(traces, NAMES, computable(RULES, traces), MODEL)
    assert [each.name for each in result.policies] == [each.name for each in built]
    for each, found in zip(built, result.policies, strict=True):
        check_against_twin(found, each, records)
    check_intervals(result, built, records)


def check_intervals(result: ReplayResult, built: Any, records: list[QuestionRecord]) -> None:
    labelled = [n for n, record in enumerate(records) if record.gold.answers]
    assert result.labelled == len(labelled)
    if not labelled:
        assert result.frontier is None
        assert all(each.delta is None and each.retained is None for each in result.policies)
        return

    def f1_at(stops: list[int]) -> list[float]:
        chosen = ((records[n], stops[n]) for n in labelled)
        return [f1_score(r.rounds[stop - 1].answer_text, r.gold.answers) for r, stop in chosen]

    budget = max(len(record.rounds) for record in records)
    full = sum(f1_at([len(r.rounds) for r in records])) / len(labelled)
    base = np.array(f1_at(result.policies[0].stops.tolist()))
    draws = np.random.default_rng(42).integers(0, len(labelled), size=(1000, len(labelled)))
    for found in result.policies:
        own = np.array(f1_at(found.stops.tolist()))
        resampled = (own - base)[draws].mean(axis=1)
        assert found.delta is not None
        assert found.delta.estimate == pytest.approx((own - base).mean(), abs=1e-12)
        ends = (found.delta.low, found.delta.high)
        assert ends == pytest.approx(np.percentile(resampled, [2.5, 97.5]).tolist(), abs=1e-9)
        if full:
            assert found.retained == pytest.approx(own.mean() / full)
        else:
            assert found.retained is None
    assert result.frontier is not None
    assert result.frontier.scores == pytest.approx(
        [
            sum(f1_at([min(k, len(r.rounds)) for r in records])) / len(labelled)
            for k in range(1, budget + 1)
        ]
    )


def test_the_gain_over_the_best_fixed_budget_draw_by_draw() -> None:
    """In every resample the budgets, and mixes of two, that cost what the policy costs there compete anew."""
    five = (["x", "x", "x"], ["y", "x", "x"], ["y", "y", "x"], ["x", "x", "y"], ["y", "y", "y"])
    finished = five * 12
    exact = 1.0 - 0.025 ** (
        1 / 60
    )  # no question differs from the mix, so the draws alone are too narrow
    records = [make_record(f"q{n:02}", list(t), gold=["x"]) for n, t in enumerate(finished)]
    traces = to_trace_set(records)
    _, result = run(traces, ("fixed-1",), ("answer_stable",))
    (against,) = result.policies[1].against_fixed
    assert against.cost == "evaluated_tokens"
    right = np.array([[float(text == "x") for text in texts] for texts in finished])
    # a fixed budget evaluates its own prompt alone, which holds a passage of 100 tokens a round
    fixed = np.array([100.0, 200.0, 300.0])
    stops = np.array(result.policies[1].stops)
    own = result.policies[1].costs["evaluated_tokens"]
    assert own == np.mean([sum((100, 120, 140)[:stop]) for stop in stops])
    paid = np.array([sum((100, 120, 140)[:stop]) for stop in stops])
    f1 = right[np.arange(60), stops - 1]

    def gain(drawn: Any) -> float:
        spent, scores = paid[drawn].mean(), right[drawn].mean(axis=0)
        reached = [score for cost, score in zip(fixed, scores, strict=True) if cost <= spent]
        for low in range(3):
            for high in range(low + 1, 3):
                if fixed[low] <= spent < fixed[high]:
                    share = (spent - fixed[low]) / (fixed[high] - fixed[low])
                    reached.append(scores[low] + share * (scores[high] - scores[low]))
        return float(f1[drawn].mean() - max(reached))

    draws = np.random.default_rng(42).integers(0, 60, size=(1000, 60))
    assert against.gain.estimate == pytest.approx(gain(np.arange(60)))
    ends = np.percentile([gain(drawn) for drawn in draws], [2.5, 97.5])
    found = (against.gain.low, against.gain.high)
    assert found == pytest.approx((min(ends[0], -exact), max(ends[1], exact)), abs=1e-9)

    mixed = [int(k) - 1 for k in against.fixed.removeprefix("fixed-").split("/")]
    low, high = mixed[0], mixed[-1]

    def held(drawn: Any) -> float:
        scores = right[drawn].mean(axis=0)
        if low == high:
            return float(f1[drawn].mean() - scores[low])
        share = min(max((paid[drawn].mean() - fixed[low]) / (fixed[high] - fixed[low]), 0.0), 1.0)
        return float(f1[drawn].mean() - scores[low] - share * (scores[high] - scores[low]))

    assert against.held.estimate == against.gain.estimate
    ends = np.percentile([held(drawn) for drawn in draws], [2.5, 97.5])
    found = (against.held.low, against.held.high)
    assert found == pytest.approx((min(ends[0], -exact), max(ends[1], exact)), abs=1e-9)


def test_cost_is_read_in_rounds_where_calls_are_unknown() -> None:
    record = with_rounds(make_record("a", ["x", "y"], gold=["y"]), usage=Usage())
    _, result = run(to_trace_set([record]), ("fixed-2",), ())
    assert result.frontier is not None
    assert (result.frontier.cost_name, result.frontier.costs) == ("rounds", (1.0, 2.0))
    unknown = [name for name, paid in result.policies[0].costs.items() if paid is None]
    assert {"llm_calls", "calls", "seconds", "usd", *TOKENS} <= set(unknown)
    assert (result.policies[0].costs["rounds"], result.cost.name) == (2.0, "rounds")


@pytest.mark.parametrize(
    "name", ["llm_calls", "prompt_tokens", "evaluated_tokens", "passages", "rounds"]
)
def test_any_known_cost_can_be_the_axis(name: str) -> None:
    """Stopping at 1 or 2 by need, against fixed-k at the same cost, by hand."""
    first = make_record("a", ["x", "x", "x"], gold=["x"])
    second = make_record("b", ["y", "x", "x"], gold=["x"])
    traces = to_trace_set([first, second])
    built = named_policies(traces, ["fixed-1", "oracle-em"])
    published = CostModel(charge="published")
    settings = ComparisonSettings(baseline="fixed-1", cost=name, cost_model=published)
    result = replay(traces, built, settings)
    per_round = {
        "llm_calls": (1, 1, 1),
        "prompt_tokens": (100, 200, 300),
        "evaluated_tokens": (100, 120, 140),
        "passages": (1, 1, 1),
        "rounds": (1, 1, 1),
    }[name]
    one, two, three = np.cumsum(per_round).tolist()
    assert result.frontier is not None
    assert (result.cost.name, result.frontier.cost_name) == (name, name)
    assert result.frontier.costs == (one, two, three)
    oracle = result.policies[1]
    assert oracle.costs[name] == (one + two) / 2
    assert oracle.frontier_gain is not None
    assert oracle.frontier_gain.estimate == pytest.approx(1.0 - 0.75)


def test_an_axis_that_is_not_recorded_is_refused() -> None:
    record = make_record("a", ["x", "y"], gold=["y"])
    short = (record.rounds[0], dataclasses.replace(record.rounds[1], usage=Usage(llm_calls=1)))
    traces = to_trace_set([dataclasses.replace(record, rounds=short)])
    built = named_policies(traces, ["fixed-1"])
    for name, said in {
        "retrievals": "fixed-k: cost 'retrievals' is unknown: memory has no column 'retrievals'; known",
        "cached_tokens": "column 'cached_tokens' is null in 1 of 2 rounds of memory, first in round 2 "
        "of question 'a'",
        "usd": "no prices were given; type --price-model MODEL",
        "money": "unknown cost 'money'; known: llm_calls",
    }.items():
        with pytest.raises(UsageError, match=said):
            replay(traces, built, ComparisonSettings(baseline="fixed-1", cost=name))


def test_rounds_past_the_record_are_counted_and_noted() -> None:
    made = [make_record("a", ["x"] * 4, gold=["x"]), make_record("b", ["x", "y"], gold=["x"])]
    _, result = run(to_trace_set(made), ("fixed-1", "fixed-3", "fixed-5"), ("overlap > 0.99",))
    assert [each.beyond_record for each in result.policies] == [0, 1, 2, 1]
    assert [each.stops.tolist() for each in result.policies] == [[1, 1], [3, 2], [4, 2], [4, 2]]
    assert result.notes[0].startswith("fixed-3: 1 question ended before")
    assert sum(" ended before" in note for note in result.notes) == 3


def test_policies_with_their_own_settings_do_not_share_signals() -> None:
    made = [make_record("a", ["no idea", "no idea", "Oslo"], gold=["Oslo"])]
    usual = NamedPolicy(name="1", kind="rule", preset=None, policy=Rule(rule="not abstained"))
    mine = Rule(rule="not abstained", abstention=("no idea",))
    both = [usual, NamedPolicy(name="2", kind="rule", preset=None, policy=mine)]
    result = replay(to_trace_set(made), both, ComparisonSettings(baseline="1"))
    assert [each.stops.tolist() for each in result.policies] == [[1], [3]]
    assert stop_rounds(mine, to_trace_set(made)).tolist() == [3]
    assert result.policies[0].hash != result.policies[1].hash
