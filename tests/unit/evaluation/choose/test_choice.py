"""One policy from a record: what is chosen, promised, guessed and refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from tests.choice_population import reaching
from tests.cut_population import run_live

import suffice
from suffice.evaluation.choose import candidates
from suffice.evaluation.choose.choice import Choice
from suffice.evaluation.choose.procedure import choose
from suffice.evaluation.replay.results import BY_SIGNALS
from suffice.evaluation.settings import LOSSES, ChoiceSettings
from suffice.policies.rules.policy import Rule
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import Gold
from suffice.trace.rounds.trace_set import TraceSet


@pytest.fixture(autouse=True)
def few_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control alone stands for the methods: what is fitted longest is tested with its method."""
    monkeypatch.setattr(candidates, "nameable_methods", lambda: ("stable-base-rate",))


def record(count: int = 240, **given: Any) -> TraceSet:
    """Questions that are answered early, late or never."""
    return to_trace_set(reaching(count, **given))


def chosen(traces: TraceSet, **given: Any) -> Choice:
    asked = ChoiceSettings(
        **{"resamples": 5, "signals": ("answer_token_margin",), "max_signals": 1, **given}
    )
    return choose(traces, asked)


def test_the_cheapest_that_is_proven_is_chosen_and_carries_its_promise() -> None:
    choice = chosen(record(600), max_loss=0.1)
    assert choice.promised is not None
    proven = choice.promised.row.proven
    assert proven is not None
    assert proven.saved > 0
    assert choice.guess is None
    assert choice.policy.facts.guarantee["max_loss"] == 0.1
    assert choice.policy.facts.guarantee["fell_back"] is False
    assert choice.parts == {"all": 600, "tune": 300, "rank": 100, "prove": 200}
    measured = choice.measured.costs["evaluated_tokens"] or choice.measured.costs["rounds"]
    full = choice.full.costs["evaluated_tokens"] or choice.full.costs["rounds"]
    assert measured is not None
    assert full is not None
    assert 1 - measured / full == pytest.approx(proven.saved, abs=0.02)
    json.dumps(choice.to_json(), allow_nan=False)


def test_two_questions_have_one_answer_each() -> None:
    """What the comparison of a page says of signals is what its first screen says."""
    choice = chosen(suffice.read("example"), max_loss=0.03, signals=("overlap",))
    more_rounds, by_signals, *_ = choice.answers()
    assert (more_rounds, by_signals) == ("Do more rounds help?", BY_SIGNALS)
    assert choice.measured.adaptive
    short, _ = choice.answers()[by_signals]
    assert choice.result.verdict().startswith(short)
    assert choice.result.named("looping").title.startswith(f"{by_signals} {short}")


def test_every_loss_is_proven_together_where_none_is_asked_for() -> None:
    """The policy is that of 2 points, else of the smallest loss that is proven."""
    for reached, expected in (((0.55, 0.75, 0.76), 0.02), ((0.3, 0.55, 0.8), None)):
        choice = chosen(record(240, reached=reached))
        assert choice.promised is not None
        rows = choice.promised.rows
        assert [row.promise.max_loss for row in rows] == list(LOSSES)
        saved = [0.0 if row.proven is None else row.proven.saved for row in rows]
        assert saved == sorted(saved)
        document = choice.to_json()
        told = [row["saved"] or 0.0 for row in document["table"]]
        assert told == pytest.approx(saved)
        assert [row["proven"] for row in document["table"]] == [one > 0 for one in saved]
        at = document["promise"]["max_loss"]
        proven = [row["max_loss"] for row in document["table"] if row["proven"]]
        assert at == next((loss for loss in proven if loss >= 0.02), 0.02)
        if expected is not None:
            assert at == expected
        else:
            assert at > 0.02
            assert choice.policy.facts.guarantee["max_loss"] == at
            needed = document["table"][0]["questions_needed"]
            assert needed is None or needed >= 240


def test_scores_of_ones_own_without_gold_answers_are_chosen_by() -> None:
    """What returning the majority is worth is a mean over questions with scores, which have no gold."""
    made = []
    for one in reaching(120):
        right = [float(each.answer in one.gold.answers) for each in one.rounds]
        made.append(replace(one, gold=Gold(), scores=dict(enumerate(right, start=1))))
    choice = chosen(to_trace_set(made), max_loss=0.3)
    assert choice.metric.name == "score"
    assert choice.by_majority is not None
    assert choice.measured.delta_full is not None


def test_the_seed_of_the_division_changes_nothing_that_paths_prove() -> None:
    traces = record(400, reached=(0.55, 0.75, 0.76))
    found = [chosen(traces, seed=seed, max_loss=0.05) for seed in (1, 2, 3)]
    assert len({choice.policy.facts.summary for choice in found}) == 1
    assert len({choice.promised.row.proven.path for choice in found if choice.promised}) == 1  # type: ignore[union-attr]


def test_where_nothing_is_proven_the_guess_is_measured_beside_the_full_budget() -> None:
    choice = chosen(record(60, reached=(0.3, 0.9, 0.9)), max_loss=0.007)
    assert choice.promised is not None
    assert choice.promised.row.proven is None
    assert choice.in_full
    assert choice.guess is not None
    document = choice.to_json()
    assert document["promise"]["fell_back"] is True
    assert document["guess"]["confidence"] == 0.8
    assert document["guess"]["measured"]["delta_full"] is not None
    assert not choice.policy.facts.guarantee


class Unheld(Rule):
    from_round = None  # type: ignore[assignment]


def test_no_candidate_stops_before_the_least_round() -> None:
    eager = Rule(rule="answer_token_margin > 0.1", kind="eager")
    stubborn = Unheld(rule="answer_token_margin > 0.1", kind="stubborn")
    choice = chosen(record(), min_rounds=2, policies=("fixed-1", eager, stubborn))
    candidates = {one.candidate.policy.name: one.candidate for one in choice.ranked}
    assert "fixed-1" not in candidates
    assert "round 2" in choice.left_out["fixed-1"]
    assert "round 2" in choice.left_out["stubborn"]
    rules = [one.policy.label for one in candidates.values() if one.group == "rule"]
    assert all(rule.startswith("round >= 2 and ") for rule in rules)
    for one in candidates.values():
        if isinstance(one.policy.policy, Rule):
            assert one.policy.policy.rule.startswith("round >= 2 and (")
            assert "round >= 2 and (round" not in one.policy.policy.rule


def test_an_aim_without_a_promise_takes_the_best_where_candidates_are_ranked() -> None:
    choice = chosen(record(), cost_per_error=1e-6, cost="rounds")
    assert choice.promised is None
    assert choice.ranked[0].cost == min(one.cost for one in choice.ranked)
    choice = chosen(record(), max_cost=2.0, cost="rounds")
    able = [one.loss for one in choice.ranked if one.cost <= 2.0]
    assert choice.ranked[0].loss == min(able)


@pytest.mark.parametrize(
    ("traces", "given", "said"),
    [
        (record(60, labelled=10), {}, "at least 4 questions with gold answers"),
        (record(60, reached=(0.5,)), {}, "choose"),
        (record(60, splits=("tune", "eval"), labelled=9), {"metric": "em"}, "label more"),
        (record(60), {"path": "answer_token_margin > x"}, "--levels"),
        (record(60, splits=("tune",)), {"tune_split": "x"}, "'x'"),
        (record(60), {"metric": "score"}, "score"),
        (record(60), {"confidence": 1.5, "max_cost": 2.0}, "confidence"),
        (record(60), {"max_cost": 0.5, "cost": "rounds"}, "candidate"),
        (record(60), {"min_rounds": 9}, "min_rounds"),
    ],
)
def test_what_is_refused(traces: TraceSet, given: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception, match=said):
        chosen(traces, **given)


def test_questions_with_a_round_to_which_nobody_answered_count_at_their_worst() -> None:
    records = reaching(240)
    lacking = [
        replace(one, rounds=(replace(one.rounds[0], answer=None), *one.rounds[1:]))
        if number % 4 == 0
        else one
        for number, one in enumerate(records)
    ]
    choice, whole = chosen(to_trace_set(lacking)), chosen(to_trace_set(records))
    assert choice.parts["all"] == 240
    assert choice.incomplete in choice.notes
    assert "60 labeled questions" in " ".join(choice.screen())
    once, before = (one.whole.policy("fixed-1") for one in (choice, whole))
    right = [one.rounds[0].answer == "Oslo" for one in records[::4]]
    assert before.score is not None
    assert once.score == pytest.approx(before.score - sum(right) / 240)


def test_of_a_cut_record_the_worst_is_assumed_and_said() -> None:
    cut = run_live(reaching(200), [1 if number % 7 == 0 else 3 for number in range(200)], None)
    choice = chosen(to_trace_set(cut), max_loss=0.4)
    assert any("the worst is assumed" in note for note in choice.notes)
    assert choice.answers()["Do more rounds help?"][0].startswith("Not known:")
