"""Answering one question: what ends the loop, and what is refused before it starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffice.errors import BackendError, DataError, UsageError
from suffice.pipelines.answering import Answered, Budgets, answer, check_policy
from suffice.pipelines.controller import Controller
from suffice.pipelines.cumulative import CumulativeSettings
from suffice.pipelines.live_policy import DEFAULT_RULE, live_policy
from suffice.pipelines.sources import OwnParagraphs
from suffice.policies.file import save_policy
from suffice.policies.fixed import FixedPolicy
from suffice.policies.rule import RulePolicy
from suffice.protocols import StopPolicy
from suffice.testing.models import Failures, ScriptedModel
from suffice.trace.records import Passage

PASSAGES = tuple(Passage(id=f"p{n}", title=f"Page {n}", text=f"Fact {n} of five") for n in range(5))
CHANGING = [f"Answer: {word}" for word in ("a", "b", "c", "d", "e")]


def ask(
    policy: StopPolicy,
    model: ScriptedModel,
    *,
    max_rounds: int | None = None,
    budgets: Budgets | None = None,
    rounds: int = 9,
) -> Answered:
    return answer(
        "Which fact?",
        OwnParagraphs(PASSAGES),
        model,
        Controller(policy, max_rounds=max_rounds),
        CumulativeSettings(rounds=rounds),
        budgets or Budgets(),
    )


def test_the_policy_stops_it() -> None:
    model = ScriptedModel(["Answer: a", "Answer: b", "Answer: b", "Answer: c"])
    found = ask(RulePolicy(rule="answer_stable"), model)
    assert (found.answer, found.stopped_by, len(found.rounds)) == ("b", "policy", 3)
    assert len(model.requests) == 3
    assert [each.stop for each in found.decisions] == [False, False, True]


def test_the_round_budget_stops_it() -> None:
    found = ask(RulePolicy(rule="answer_stable"), ScriptedModel(CHANGING), max_rounds=2)
    assert (found.answer, found.stopped_by, len(found.rounds)) == ("b", "budget", 2)
    assert "budget of 2 rounds" in found.reason


def test_the_token_budget_stops_it() -> None:
    found = ask(FixedPolicy(5), ScriptedModel(CHANGING), budgets=Budgets(tokens=1))
    assert (found.stopped_by, len(found.rounds)) == ("budget", 1)
    assert "1 tokens" in found.reason


def test_a_judge_is_asked_each_round_and_its_tokens_count() -> None:
    """Ratings 1, 1, 4: the rule stops at round 3; with the judge's tokens the budget is spent before."""
    policy = RulePolicy(rule="judge_support >= 4")
    settings = CumulativeSettings(rounds=9, judge=True)
    check_policy(policy, settings, logprobs=True)
    script = ["Answer: a", "1", "Answer: b", "1", "Answer: c", "4", "Answer: d", "5"]

    def run(budgets: Budgets) -> tuple[Answered, ScriptedModel]:
        model = ScriptedModel(script)
        found = answer(
            "Which?", OwnParagraphs(PASSAGES), model, Controller(policy), settings, budgets
        )
        return found, model

    found, model = run(Budgets())
    assert (found.answer, found.stopped_by, len(model.requests)) == ("c", "policy", 6)
    assert [each.signals["judge_support"] for each in found.rounds] == [1.0, 1.0, 4.0]
    assert [each.usage.judge_calls for each in found.rounds] == [1, 1, 1]
    answers = sum(
        (each.usage.prompt_tokens or 0) + (each.usage.completion_tokens or 0)
        for each in found.rounds[:2]
    )
    cut, _ = run(Budgets(tokens=answers + 1))
    assert (cut.stopped_by, len(cut.rounds)) == ("budget", 2)


def test_the_clock_stops_it() -> None:
    found = ask(
        FixedPolicy(5), ScriptedModel(CHANGING, delay_s=0.02), budgets=Budgets(seconds=0.01)
    )
    assert (found.stopped_by, len(found.rounds)) == ("budget", 1)


def test_the_end_of_the_passages_stops_it() -> None:
    found = ask(RulePolicy(rule="answer_stable"), ScriptedModel(CHANGING))
    assert (found.answer, found.stopped_by, len(found.rounds)) == ("e", "end", 5)


def test_the_rounds_of_the_loop_are_a_budget_too() -> None:
    found = ask(RulePolicy(rule="answer_stable"), ScriptedModel(CHANGING), rounds=3)
    assert (found.answer, found.stopped_by, len(found.rounds)) == ("c", "budget", 3)
    assert "budget of 3 rounds" in found.reason


def test_a_failure_after_a_round_keeps_the_last_answer() -> None:
    model = ScriptedModel(CHANGING, failures=Failures(containing=("Fact 1",), times=99))
    found = ask(FixedPolicy(5), model)
    assert found.stopped_by == "error"
    assert found.answer == "a"
    assert len(found.rounds) >= 1
    model = ScriptedModel(CHANGING, failures=Failures(first=99))
    with pytest.raises(BackendError):
        ask(FixedPolicy(5), model)


@pytest.mark.parametrize(
    ("rule", "logprobs", "samples", "parts"),
    [
        ("answer_token_margin > 1", False, 0, ("no log-probabilities", "self_consistency")),
        ("self_consistency > 0.5", True, 0, ("samples",)),
        ("judge_support >= 4", True, 3, ("recorded value",)),
    ],
)
def test_a_policy_is_refused_before_the_first_call(
    rule: str, logprobs: bool, samples: int, parts: tuple[str, ...]
) -> None:
    settings = CumulativeSettings(samples=samples)
    with pytest.raises(UsageError) as refused:
        check_policy(RulePolicy(rule=rule), settings, logprobs=logprobs)
    for part in parts:
        assert part in str(refused.value)


def test_what_the_loop_gives_is_accepted() -> None:
    rule = (
        "answer_token_margin > 1 and self_consistency > 0.5 and overlap > 0.1 and "
        "retrieval_gap > 0 and verbalized_confidence >= 4 and answer_in_evidence"
    )
    check_policy(RulePolicy(rule=rule), CumulativeSettings(samples=3), logprobs=True)


def test_live_policies(tmp_path: Path) -> None:
    assert getattr(live_policy(None).policy, "rule", None) == DEFAULT_RULE
    assert live_policy("fixed-4").max_rounds == 4
    assert getattr(live_policy("overlap > 0.5").policy, "rule", None) == "overlap > 0.5"
    file = save_policy(FixedPolicy(2), tmp_path / "p.json", max_rounds=7)
    assert live_policy(str(file)).max_rounds == 7
    with pytest.raises(UsageError, match="suffice fit tasr"):
        live_policy("tasr-corrected")
    with pytest.raises(UsageError, match="gold answers"):
        live_policy("oracle-f1")
    with pytest.raises(UsageError, match="decides nothing live"):
        live_policy("closed-book")
    with pytest.raises(UsageError, match="must be fitted"):
        live_policy("calibrated(overlap) > 0.2")
    with pytest.raises(DataError, match="no such policy file"):
        live_policy("missing.json")


def test_a_rule_too_long_for_a_path_is_a_rule() -> None:
    rule = " or ".join(["answer_stable"] * 40)
    assert getattr(live_policy(rule).policy, "rule", None) == rule


def test_an_empty_question_is_refused_before_the_first_call() -> None:
    model = ScriptedModel(CHANGING)
    with pytest.raises(UsageError, match="question is empty"):
        answer(
            "  ", OwnParagraphs(PASSAGES), model, Controller(FixedPolicy(1)), CumulativeSettings()
        )
    assert not model.requests
