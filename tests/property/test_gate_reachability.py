"""What a gate says it can never choose, against every state of a grid and every history of retrievals."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.gates import published_settings
from tests.properties import examples

from suffice.policies.gate.gate_settings import (
    MARKERS,
    ORDERS,
    GateSettings,
    PlanAction,
    RiskModel,
    chosen_action,
    remaining_share,
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


def test_the_published_ranges() -> None:
    """R in [1/6, 4] and c in [0.018, 0.458]; so EXECUTE is out of reach."""
    chosen = published_settings()
    found = [confidence for confidence, _ in states(chosen)]
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
