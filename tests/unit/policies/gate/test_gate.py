"""The gate's decisions: both orders, budget, cool-down, fall-through and odd inputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.gates import published_settings

from suffice.errors import SufficeWarning, UsageError
from suffice.policies.gate.gate import Gate, GateDecision
from suffice.policies.gate.gate_settings import (
    GateCosts,
    GateSettings,
    PlanAction,
    RiskModel,
    chosen_action,
    remaining_share,
    retrieval_depth,
)

ALIKE = ["Open port 443", "Open port 443"]
APART = ["Open port 443", "Create the subnet"]


class Says:
    """Always the same contradiction; keeps what it was asked."""

    def __init__(self, value: float) -> None:
        self.value = value
        self.asked: list[tuple[str, str]] = []

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        self.asked += pairs
        return np.full(len(pairs), self.value)


def published(detector: Says | None = None, **changes: Any) -> Gate:
    return Gate(published_settings(**changes), detector)


def actions(gate: Gate, steps: int, **given: Any) -> list[str]:
    asked = {"candidates": APART, "plan": [], "total_steps": 6, **given}
    return [str(gate.act(step=step, **asked).action) for step in range(1, steps + 1)]


class TestTheWorkedExample:
    def decided(self, **changes: Any) -> GateDecision:
        gate = published(Says(1.0), **changes)
        return gate.act(ALIKE, [f"step {number}" for number in range(5)], step=6, total_steps=6)

    def test_algorithm_1_retrieves(self) -> None:
        decision = self.decided()
        assert decision.action is PlanAction.RETRIEVE
        assert decision.values["candidate_agreement"] == 1.0
        assert decision.values["contradiction"] == 1.0
        assert decision.values["remaining_share"] == pytest.approx(1 / 6)
        assert decision.values["risk"] == pytest.approx(13 / 6)
        assert decision.values["confidence"] == pytest.approx(0.103, abs=5e-4)
        assert decision.k == 1 + round(5 * (1 - decision.values["confidence"] / 0.25)) == 4
        assert "is at or below tau_low 0.25" in decision.reason

    def test_equation_18_replans(self) -> None:
        decision = self.decided(order="replan-first")
        assert (decision.action, decision.k, decision.conflict) == (PlanAction.REPLAN, 0, 0)
        assert decision.blocked is None
        assert "contradiction 1 is above kappa 0.5" in decision.reason


class TestBudgetAndCoolDown:
    def test_after_the_budget_it_falls_through_to_ask(self) -> None:
        gate = published(budget=2)
        assert actions(gate, 4) == ["RETRIEVE", "RETRIEVE", "ASK", "ASK"]
        assert gate.retrievals == 2

    def test_a_budget_of_none_is_no_limit_and_of_zero_is_no_retrieval(self) -> None:
        assert actions(published(budget=None), 9) == ["RETRIEVE"] * 9
        gate = published(budget=0)
        decision = gate.act(APART, [], step=1, total_steps=6)
        assert (decision.action, decision.blocked) == (PlanAction.ASK, "budget")
        assert "a retrieval was blocked by the budget" in decision.reason

    @pytest.mark.parametrize(("cooldown", "every"), [(0, 1), (1, 1), (2, 2), (3, 3)])
    def test_a_retrieval_at_t_allows_the_next_at_t_plus_the_cool_down(
        self, cooldown: int, every: int
    ) -> None:
        found = actions(published(budget=None, cooldown=cooldown), 7)
        expected = ["RETRIEVE" if step % every == 0 else "ASK" for step in range(7)]
        assert found == expected

    @pytest.mark.parametrize("order", ["retrieve-first", "replan-first"])
    def test_a_blocked_retrieval_falls_through_to_replan(self, order: str) -> None:
        gate = published(Says(1.0), budget=0, order=order)
        decision = gate.act(ALIKE, ["Close it"], step=2, total_steps=6)
        assert decision.action is PlanAction.REPLAN
        # replan-first never came to ask for one
        assert decision.blocked == ("budget" if order == "retrieve-first" else None)


@pytest.mark.parametrize(
    ("confidence", "contradiction", "may_retrieve", "expected"),
    [
        (0.30, 0.0, True, "RETRIEVE"),
        (0.30, 0.0, False, "ASK"),
        (0.10, 0.0, False, "STOP"),
        (0.31, 0.0, True, "ASK"),
        (0.60, 0.0, True, "EXECUTE"),
        (0.60, 0.5, True, "EXECUTE"),
        (0.60, 0.51, True, "REPLAN"),
        (0.10, 0.51, True, "RETRIEVE"),
        (0.10, 0.51, False, "REPLAN"),
    ],
)
def test_algorithm_1_state_by_state(
    confidence: float, contradiction: float, may_retrieve: bool, expected: str
) -> None:
    """Limits belong to RETRIEVE, EXECUTE and STOP; kappa itself is no conflict."""
    model = RiskModel(disagreement=3.0, contradiction=2.0, remaining=3.0, intercept=2.0)
    settings = GateSettings(risk=model, tau_low=0.3, tau_high=0.6, tau_stop=0.2)
    found = chosen_action(settings, confidence, contradiction, may_retrieve=may_retrieve)
    assert str(found) == expected


class TestOddInputs:
    def test_empty_candidates_agree_on_nothing_and_contradict_nothing(self) -> None:
        detector = Says(1.0)
        decision = published(detector).act(["", ""], ["Open it"], step=2, total_steps=6)
        assert decision.values["candidate_agreement"] == 0.0
        assert decision.values["contradiction"] == 0.0
        assert (detector.asked, decision.conflict) == ([], None)

    def test_only_the_candidate_that_has_text_is_compared(self) -> None:
        detector = Says(1.0)
        published(detector).act(["", "Close it"], ["Open it", "Tag it"], step=3, total_steps=6)
        assert detector.asked == [("Open it", "Close it"), ("Tag it", "Close it")]

    def test_no_candidates_and_no_steps_are_refused(self) -> None:
        with pytest.raises(UsageError, match="needs candidates"):
            published().act([], [], step=1, total_steps=6)
        with pytest.raises(UsageError, match="total_steps=0"):
            published().act(ALIKE, [], step=1, total_steps=0)

    def test_the_contradicted_step_is_named(self) -> None:
        plan = ["Tag the image", "Do not open port 443 to anyone", "Create the subnet"]
        decision = published(budget=0).act(ALIKE, plan, step=4, total_steps=6)
        assert (decision.action, decision.conflict) == (PlanAction.REPLAN, 1)


class TestOneTask:
    def test_a_step_of_another_task_is_refused(self) -> None:
        gate = published()
        gate.act(APART, [], step=3, total_steps=6)
        with pytest.raises(UsageError, match=r"step 1 comes before step 3.*gate\.start"):
            gate.act(APART, [], step=1, total_steps=6)

    def test_a_started_one_has_its_budget_and_its_steps_again(self) -> None:
        gate = published(budget=1, cooldown=3)
        assert actions(gate, 2) == ["RETRIEVE", "ASK"]
        assert gate.start() is gate
        assert gate.retrievals == 0
        assert actions(gate, 2) == ["RETRIEVE", "ASK"]


def test_another_detector_must_be_given() -> None:
    graded = published_settings(detector="nli")
    with pytest.raises(UsageError, match="fitted with the detector 'nli'"):
        Gate(graded)
    assert Gate(graded, Says(0.4)).settings.detector == "nli"


def test_the_remaining_share_falls_to_zero_and_stays() -> None:
    assert [remaining_share(done, 5) for done in range(8)] == [1.0, 0.8, 0.6, 0.4, 0.2, 0, 0, 0]
    with pytest.raises(UsageError, match="total_steps=0"):
        remaining_share(0, 0)


def test_a_retrieval_asks_for_more_the_lower_the_confidence() -> None:
    """1 + round(5 (1 - c / tau_low)), held in 1..6."""
    depths = [retrieval_depth(step / 1000, 0.25, 6) for step in range(251)]
    assert depths == sorted(depths, reverse=True)
    assert (depths[0], depths[-1]) == (6, 1)
    assert set(depths) == {1, 2, 3, 4, 5, 6}
    assert retrieval_depth(0.1, 0.25, 6) == 1 + round(5 * 0.6)


# --- settings -------------------------------------------------------------------------------------
FITTED = RiskModel(disagreement=2.0, contradiction=1.0, remaining=0.5, intercept=1.5)


class TestCosts:
    def test_asking_and_ending_have_their_own(self) -> None:
        alike = GateCosts(retrieval=1.0, failure=4.0)
        assert (alike.tau_low, alike.tau_high, alike.tau_stop) == (0.75, 0.75, None)
        own = GateCosts(retrieval=1.0, failure=4.0, ask=0.5, stop=3.0)
        assert (own.tau_low, own.tau_high, own.tau_stop) == (0.75, 0.875, 0.25)


class TestPresets:
    def test_published_are_the_papers_numbers(self) -> None:
        chosen = published_settings()
        assert (chosen.risk, chosen.tau_low, chosen.tau_high) == (RiskModel(), 0.25, 0.75)
        assert (chosen.order, chosen.revises, chosen.k_max) == ("retrieve-first", False, 6)
        assert (chosen.kappa, chosen.budget, chosen.cooldown) == (0.5, 3, 1)

    def test_corrected_has_fitted_numbers_and_real_actions(self) -> None:
        chosen = GateSettings.corrected(FITTED, GateCosts(retrieval=1.0, failure=2.0), budget=1)
        assert (chosen.risk, chosen.tau_low, chosen.tau_high) == (FITTED, 0.5, 0.5)
        assert (chosen.preset, chosen.revises, chosen.budget) == ("corrected", True, 1)


class TestWarnings:
    def test_a_stop_that_was_asked_for_is(self) -> None:
        costs = GateCosts(retrieval=1.0, failure=2.0, stop=1.99)
        with pytest.warns(SufficeWarning, match="STOP can never be chosen"):
            GateSettings.corrected(FITTED, costs)
