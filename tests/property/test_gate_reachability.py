"""What a gate says it can never choose, against every state of a grid and every history of retrievals."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties import examples

from suffice.policies.gate.risk import RiskModel, remaining_share
from suffice.policies.gate.settings import (
    MARKERS,
    ORDERS,
    GateSettings,
    PlanAction,
    chosen_action,
    unreachable,
)

GRID = np.linspace(0.0, 1.0, 21).tolist()
SHARES = np.linspace(1 / 6, 1.0, 21).tolist()  # DR while a step of a run of six is still to come
# thresholds lie further apart than the confidences of the grid, whose ends are exact
THRESHOLDS = st.sampled_from(
    [-0.1, 0.0, *(round(0.05 * step, 2) for step in range(1, 20)), 1.0, 1.1]
)
WEIGHTS = st.sampled_from([0.0, 0.5, 1.0, 2.0])


@st.composite
def some_settings(draw: st.DrawFn) -> GateSettings:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GateSettings(
            risk=RiskModel(
                disagreement=draw(WEIGHTS),
                contradiction=draw(WEIGHTS),
                remaining=draw(WEIGHTS),
                intercept=draw(st.sampled_from([-2.0, -0.5, 0.0, 0.5, 1.0, 3.0])),
            ),
            tau_low=draw(THRESHOLDS),
            tau_high=draw(THRESHOLDS),
            tau_stop=draw(st.none() | THRESHOLDS),
            kappa=draw(st.sampled_from([-0.5, 0.0, 0.3, 0.5, 0.99, 1.0, 2.0])),
            budget=draw(st.sampled_from([None, 0, 1, 3])),
            cooldown=draw(st.integers(0, 3)),
            order=draw(st.sampled_from(ORDERS)),
            detector=draw(st.sampled_from([MARKERS, "graded"])),
        )


def contradictions(chosen: GateSettings) -> list[float]:
    """What CD can be: 0 or 1 by markers, else a grid with what lies next to kappa."""
    if chosen.detector == MARKERS:
        return [0.0, 1.0]
    near = [chosen.kappa, math.nextafter(chosen.kappa, 2.0)]
    return sorted({*GRID[::4], *(each for each in near if 0.0 <= each <= 1.0)})


def states(chosen: GateSettings) -> list[tuple[float, float]]:
    """Confidence and contradiction of every state of the grid."""
    return [
        (
            chosen.risk.confidence(
                chosen.risk.risk(agreement=agreed, contradiction=conflict, remaining=remaining)
            ),
            conflict,
        )
        for conflict in contradictions(chosen)
        for agreed in GRID
        for remaining in SHARES
    ]


def reachable(chosen: GateSettings) -> set[PlanAction]:
    """Actions that some state leads to after some history, step by step."""
    by_permission = {
        may: {
            chosen_action(chosen, confidence, conflict, may_retrieve=may)
            for confidence, conflict in states(chosen)
        }
        for may in (True, False)
    }
    found: set[PlanAction] = set()
    histories = {(0, 0)}  # retrievals made, steps the cool-down still forbids
    for _ in range(8):
        following = set()
        for made, forbidden in histories:
            spent = chosen.budget is not None and made >= chosen.budget
            actions = by_permission[not spent and forbidden == 0]
            found |= actions
            cooled = max(0, forbidden - 1)
            for action in actions:
                retrieves = action is PlanAction.RETRIEVE
                following.add(
                    (made + 1, max(0, chosen.cooldown - 1)) if retrieves else (made, cooled)
                )
        histories = following
    return found


@settings(deadline=None, max_examples=examples(400))
@given(chosen=some_settings())
def test_unreachable_is_what_no_state_and_no_history_reaches(chosen: GateSettings) -> None:
    said = {each.action for each in chosen.unreachable}
    assert said == set(PlanAction) - reachable(chosen)
    assert all(each.why for each in chosen.unreachable)


def published(**changes: object) -> GateSettings:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return GateSettings.published(**changes)


def test_the_published_ranges() -> None:
    """R in [1/6, 4] and c in [0.018, 0.458]; so EXECUTE is out of reach."""
    chosen = published()
    found = [confidence for confidence, _ in states(chosen)]
    assert chosen.risk.largest == 4.0
    assert min(found) == pytest.approx(0.018, abs=1e-4)
    assert max(found) == pytest.approx(1 / (1 + math.exp(1 / 6))) == pytest.approx(0.458, abs=1e-3)
    assert [each.action for each in chosen.unreachable] == [PlanAction.EXECUTE, PlanAction.STOP]


def test_a_run_ends_before_its_last_share_is_spent() -> None:
    """Tasks of 1 to 9 steps, of which a run takes at most 6: DR >= 1/6 at each decision."""
    shares = {
        remaining_share(done, total) for total in range(1, 10) for done in range(min(total, 6))
    }
    assert min(shares) == 1 / 6
    assert max(shares) == 1.0


@pytest.mark.parametrize(
    ("tau_low", "tau_high", "executes"),
    [
        (0.1, 0.3, True),
        (0.2, 0.4, True),
        (0.3, 0.459, False),
        (0.3, 0.458, True),
        (0.3, 0.5, False),
    ],
)
def test_the_last_step_bounds_confidence(tau_low: float, tau_high: float, executes: bool) -> None:
    """sigmoid(-1/6) = 0.45843: candidates agree, nothing contradicts, one step of six is to come."""
    chosen = published(tau_low=tau_low, tau_high=tau_high)
    said = {unreached.action: unreached.why for unreached in chosen.unreachable}
    assert (PlanAction.EXECUTE in said) is not executes
    if not executes:
        assert "0.458] without a contradiction" in said[PlanAction.EXECUTE]


def test_shorter_runs_bound_it_more_and_longer_ones_less() -> None:
    """sigmoid(-1/2) = 0.378 in two steps, sigmoid(-1/12) = 0.479 in twelve."""
    chosen = published(tau_low=0.3, tau_high=0.47)
    executes, _ = unreachable(chosen, 2)
    assert executes.action is PlanAction.EXECUTE
    assert "0.378] without a contradiction" in executes.why
    assert [unreached.action for unreached in unreachable(chosen, 12)] == [PlanAction.STOP]


def test_without_a_weight_of_what_remains_steps_bound_nothing() -> None:
    chosen = published(risk=RiskModel(remaining=0.0), tau_low=0.3, tau_high=0.5)
    assert [unreached.action for unreached in chosen.unreachable] == [PlanAction.STOP]


def test_the_first_step_has_at_most_sigmoid_of_minus_one() -> None:
    model = RiskModel()
    first = remaining_share(0, 6)
    most = max(
        model.confidence(model.risk(agreement=agreed, contradiction=conflict, remaining=first))
        for agreed in GRID
        for conflict in GRID
    )
    assert most == pytest.approx(1 / (1 + math.e)) == pytest.approx(0.269, abs=1e-3)


def test_a_quarter_is_where_risk_is_the_logarithm_of_three() -> None:
    model = RiskModel()
    for risk in np.linspace(0.0, 4.0, 4001).tolist():
        assert (model.confidence(risk) <= 0.25) == (risk >= math.log(3.0))


def test_without_the_remaining_share_only_a_contradiction_retrieves() -> None:
    """R <= 1 there, so c >= 0.269: why the published ablation hardly reads a document."""
    chosen = published(risk=RiskModel(remaining=0.0))
    by_conflict: dict[float, set[PlanAction]] = {0.0: set(), 1.0: set()}
    for confidence, conflict in states(chosen):
        by_conflict[conflict].add(chosen_action(chosen, confidence, conflict, may_retrieve=True))
    assert by_conflict == {0.0: {PlanAction.ASK}, 1.0: {PlanAction.RETRIEVE}}
    silent = published(risk=RiskModel(remaining=0.0), kappa=1.0, order="replan-first")
    assert PlanAction.REPLAN in {each.action for each in silent.unreachable}
    quiet = published(risk=RiskModel(remaining=0.0), order="replan-first")
    assert PlanAction.RETRIEVE in {each.action for each in quiet.unreachable}


@pytest.mark.parametrize("ratio", [0.1, 0.5])
def test_a_cheap_retrieval_is_made_in_every_state_of_the_published_gate(ratio: float) -> None:
    """tau_low >= 0.5, which c_r / L_f <= 1/2 gives."""
    chosen = published(tau_low=1.0 - ratio, budget=None)
    assert reachable(chosen) == {PlanAction.RETRIEVE}


def test_with_markers_a_published_replan_needs_a_blocked_retrieval() -> None:
    """A contradiction gives R >= 2, c <= 0.119."""
    never = {each.action for each in published(budget=None, cooldown=1).unreachable}
    assert PlanAction.REPLAN in never
    for changes in ({"budget": 1}, {"budget": None, "cooldown": 2}, {"order": "replan-first"}):
        assert PlanAction.REPLAN not in {each.action for each in published(**changes).unreachable}
