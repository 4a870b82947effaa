"""One policy from a record: what is chosen, promised, guessed and refused."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.choice_population import reaching
from tests.cut_population import run_live

from suffice.errors import SufficeWarning, UsageError
from suffice.measures.measures import Measures
from suffice.policies.file import policy_document
from suffice.policies.rules.policy import RulePolicy
from suffice.replay.choose import candidates
from suffice.replay.choose.choice import Choice
from suffice.replay.choose.procedure import choose
from suffice.replay.run.named_policies import AskedPolicy, NamedPolicy, asked_policies
from suffice.replay.settings import ChoiceSettings
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.table import TraceSet


@pytest.fixture(autouse=True)
def few_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    """A control alone stands for the methods: what is fitted longest is tested with its method."""
    monkeypatch.setattr(candidates, "nameable_methods", lambda: ("stable-base-rate",))


def record(count: int = 240, **given: Any) -> TraceSet:
    """Questions that are answered early, late or never."""
    return to_trace_set(reaching(count, **given))


def chosen(traces: TraceSet, *, certificates: Path | None = None, **given: Any) -> Choice:
    asked = ChoiceSettings(
        **{"resamples": 5, "signals": ("answer_token_margin",), "max_signals": 1, **given}
    )
    return choose(traces, asked, certificates=certificates)


def said_of(choice: Choice) -> dict[str, str]:
    return {answer.question: answer.text for answer in choice.answers()}


def test_the_cheapest_that_is_proven_is_chosen_and_carries_its_promise() -> None:
    choice = chosen(record(600), max_loss=0.1)
    assert choice.outcome is not None
    assert not choice.outcome.fell_back
    assert choice.guess is None
    assert choice.chosen.proven
    assert choice.policy.facts.guarantee["max_loss"] == 0.1
    proven = [one for one in choice.ranked if one.proven]
    assert choice.ranked[0].candidate.policy.name == choice.chosen.candidate.policy.name
    assert all(one.cost >= choice.chosen.cost - 0.1 for one in proven)
    assert said_of(choice)["How sure is that?"].startswith(
        "Proven at 95% confidence: it will lose at most 10.0 points of F1"
    )
    assert choice.headline.endswith(
        "% of the evaluated tokens, proven to lose at most 10.0 points of F1"
    )
    assert choice.parts == {"tune": 300, "rank": 100, "prove": 200}
    json.dumps(choice.to_json(), allow_nan=False)


def test_a_proven_budget_is_written_as_a_rule_with_its_promise() -> None:
    choice = chosen(record(600, reached=(0.9, 0.91)), max_loss=0.05)
    assert choice.chosen.candidate.policy.name == "fixed-1"
    assert policy_document(choice.policy)["rule"] == "round >= 1"
    assert choice.policy.facts.guarantee["p_value"] <= 0.05
    assert choice.headline.startswith("Stop after round 1: saves ")


def test_where_nothing_is_proven_the_guess_is_measured_beside_the_full_budget() -> None:
    choice = chosen(record(100, reached=(0.3, 0.9, 0.9)), max_loss=0.03)
    assert choice.outcome is not None
    assert choice.outcome.fell_back
    assert choice.chosen.candidate.policy.name == "fixed-3"
    assert choice.guess is not None
    assert choice.guess.loss <= 0.03
    document = choice.to_json()
    assert document["guess"]["measured"]["delta_full"] is not None
    said = said_of(choice)
    assert f"To try, not proven: {choice.guess.candidate.label}" in said["Which policy?"]
    assert "The guess, " in said["What does it cost, what does it save?"]
    table = choice.tables()[1]
    assert [row[4] for row in table.rows].count("guess") == 1


def test_where_nothing_is_proven_a_cap_is_kept_before_the_full_budget() -> None:
    choice = chosen(record(60), max_loss=0.02, max_cost=2.0, cost="rounds")
    assert choice.outcome is not None
    assert choice.outcome.fell_back
    within = [one for one in choice.ranked if one.cost <= 2.0]
    assert choice.chosen in within
    assert choice.chosen.loss == min(one.loss for one in within)
    assert choice.guess is None
    said = {answer.question: answer.text for answer in choice.answers()}
    assert (
        "the full budget costs 3 rounds per question, above the 2 allowed" in said["Which policy?"]
    )
    assert "nothing is cut short" not in said["How sure is that?"]
    assert "not proven to lose at most" in choice.headline
    assert not choice.policy.facts.guarantee
    measured = choice.measured.costs["rounds"]
    assert measured is not None
    saving = said["What does it cost, what does it save?"]
    assert ("That is above the 2 allowed." in saving) == (measured > 2.0)
    # where the full budget is within the cap it stays
    choice = chosen(
        record(60, reached=(0.1, 0.9, 0.0)), max_loss=0.02, max_cost=2.99, cost="rounds"
    )
    assert choice.chosen.cost <= 2.99


def test_budgets_are_ranked_by_the_questions_of_tune_too() -> None:
    traces = record(120, seed=3)
    choice = chosen(traces, max_loss=0.02)
    scores, tune = Measures.of(traces).scores().compared, traces.in_split("tune")
    fixed = next(one for one in choice.ranked if one.candidate.policy.name == "fixed-1")
    on_tune = float((scores[tune, -1] - scores[tune, 0]).mean())
    assert choice.parts == {"tune": 60, "rank": 20, "prove": 40}
    on_rank = (80 * fixed.loss - 60 * on_tune) / 20
    assert on_rank * 20 == pytest.approx(round(on_rank * 20), abs=1e-6)  # a share of 20 questions


def test_questions_out_of_reach_are_no_advice() -> None:
    said = said_of(chosen(record(60, reached=(0.5, 0.52, 0.54)), max_loss=0.02))
    assert (
        "would do" not in said["How sure is that?"] or "there are 30" in said["How sure is that?"]
    )


def test_several_promises_hold_together() -> None:
    choice = chosen(record(900), max_loss=0.1, max_wrong_stops=0.1, max_cost=2.7, cost="rounds")
    assert choice.outcome is not None
    assert [part.bound.of for part in choice.outcome.parts] == ["signed", "wrong-stop", "cost"]
    assert not choice.outcome.fell_back
    greatest = np.max([part.p_values for part in choice.outcome.parts], axis=0)
    np.testing.assert_array_equal(choice.outcome.p_values, greatest)
    proven = [one.loss for one in choice.ranked if one.proven]
    assert choice.chosen.loss == min(proven)
    assert len(choice.policy.facts.guarantee["bounds"]) == 3


class Unheld(RulePolicy):
    """A policy that reads and cannot be held back."""

    from_round = None  # type: ignore[assignment]


def test_no_candidate_stops_before_the_least_round() -> None:
    eager = RulePolicy(rule="answer_token_margin > 0.1", kind="eager")
    stubborn = Unheld(rule="answer_token_margin > 0.1", kind="stubborn")
    choice = chosen(record(), min_rounds=2, policies=("fixed-1", eager, stubborn))
    candidates = {one.candidate.policy.name: one.candidate for one in choice.ranked}
    assert "fixed-1" not in candidates
    assert "round 2" in choice.left_out["fixed-1"]
    assert "cannot be held back" in choice.left_out["stubborn"]
    rules = [one.label for one in candidates.values() if one.group == "rule"]
    assert all(rule.startswith("round >= 2 and ") for rule in rules)
    for one in candidates.values():
        if isinstance(one.policy.policy, RulePolicy):
            assert one.policy.policy.rule.startswith("round >= 2 and (")
            assert "round >= 2 and (round" not in one.policy.policy.rule


def test_promises_are_counted_in_their_folder(tmp_path: Path) -> None:
    traces = record()
    first, again = (chosen(traces, certificates=tmp_path, attempts=2) for _ in range(2))
    assert first.attempt is not None
    assert again.attempt is not None
    assert first.attempt.level == again.attempt.level == pytest.approx(0.025)
    second = chosen(traces, certificates=tmp_path, attempts=2, max_loss=0.1)
    assert "used for 1 certificate" in said_of(second)["How sure is that?"]
    with pytest.raises(UsageError, match="nothing is left"):
        chosen(traces, certificates=tmp_path, max_loss=0.2)
    capped = chosen(traces, certificates=tmp_path, max_cost=2.0, cost="rounds")
    assert capped.attempt is None


def test_an_aim_without_a_promise_takes_the_best_where_candidates_are_ranked() -> None:
    choice = chosen(record(), cost_per_error=1e-6, cost="rounds")
    assert choice.outcome is None
    assert choice.chosen.cost == min(one.cost for one in choice.ranked)
    choice = chosen(record(), max_cost=2.0, cost="rounds")
    able = [one.loss for one in choice.ranked if one.cost <= 2.0]
    assert choice.chosen.loss == min(able)


def test_what_fits_warn_of_is_kept_with_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    def warned(*given: Any, **more: Any) -> list[AskedPolicy]:
        asked = asked_policies(*given, **more)

        def build(one: AskedPolicy = asked[0]) -> NamedPolicy:
            warnings.warn("few questions", SufficeWarning, stacklevel=1)
            return one.build()

        return [AskedPolicy(name=asked[0].name, build=build), *asked[1:]] if asked else []

    monkeypatch.setattr(candidates, "asked_policies", warned)
    choice = chosen(record())
    assert "fixed-1: few questions" in choice.warned
    assert choice.to_json()["warnings"] == list(choice.warned)


def test_variants_of_a_method_with_one_preset_are_candidates(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(candidates, "nameable_methods", lambda: ("patience",))
    choice = chosen(record())
    assert "patience (2 rounds, token_probability)" in {
        one.candidate.policy.name for one in choice.ranked
    }


def test_what_decides_by_gold_answers_is_left_out() -> None:
    choice = chosen(record(), policies=("oracle-em",))
    assert "oracle-em" in choice.left_out


# --- bad input -------------------------------------------------------------------------------------
def test_without_labels_agreement_is_compared() -> None:
    choice = chosen(record(labelled=0), max_loss=0.3)
    assert choice.metric.agreement
    assert choice.wrong_count >= 0


@pytest.mark.parametrize(
    ("traces", "given", "said"),
    [
        (record(60, labelled=10), {}, "at least 4 questions with gold answers to fit on"),
        (record(60, reached=(0.5,)), {}, "has one round, so there is nothing to choose"),
        (record(60, reached=(1.0, 1.0)), {}, "is the same in every round"),
        (record(60, splits=("tune", "eval"), labelled=9), {"metric": "em"}, "label more"),
        (record(60, splits=("tune",)), {"tune_split": "x"}, "no question lies in split 'x'"),
        (record(60), {"metric": "score"}, "score"),
        (record(60), {"confidence": 1.5, "max_cost": 2.0}, "confidence must lie above 0"),
        (record(60), {"max_cost": 0.5, "cost": "rounds"}, "no candidate costs at most 0.5"),
        (record(60), {"min_rounds": 9}, "min_rounds is 9 and the full budget"),
        (record(60), {"max_loss": 0.1, "max_cost": 5.0, "cost": "rounds"}, "kept by every policy"),
    ],
)
def test_what_is_refused(traces: TraceSet, given: dict[str, Any], said: str) -> None:
    with pytest.raises(Exception, match=said):
        chosen(traces, **given)


def test_a_record_without_the_usual_splits_is_divided() -> None:
    choice = chosen(record(100, splits=("tune",)))
    assert choice.parts == {"tune": 40, "rank": 20, "prove": 40}
    assert any("no splits tune and eval" in note for note in choice.notes)


def test_of_a_cut_record_the_worst_is_assumed_and_said() -> None:
    cut = run_live(reaching(200), [1 if number % 7 == 0 else 3 for number in range(200)], None)
    choice = chosen(to_trace_set(cut), max_loss=0.4)
    assert any("the worst is assumed" in note for note in choice.notes)
    assert said_of(choice)["Does looping pay here?"].startswith(
        "Not known: after round 1 questions"
    )
