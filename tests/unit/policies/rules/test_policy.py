"""The rule policy: refused when built, explains itself, keeps chunks apart."""

from __future__ import annotations

import math

import numpy as np
import pytest

from suffice.contracts import Action, Decision
from suffice.errors import UsageError
from suffice.policies.rules.policy import Rule
from suffice.signals.signal_table import SignalTable, decide
from suffice.stats.maps import IsotonicMap, PerRoundCalibrator
from suffice.trace.rounds.records import LoopView, Round

HALF = PerRoundCalibrator(maps=(IsotonicMap(x=(0.0, 2.0), y=(0.0, 1.0)),) * 2)


def decided(policy: Rule, round_number: int, **signals: list[float]) -> Decision:
    rounds = tuple(Round(answer="x") for _ in range(round_number))
    return decide(policy, SignalTable.of_loop(LoopView("q", rounds), signals, "q"))


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("answer_stabel", "unknown signal 'answer_stabel'; did you mean 'answer_stable'"),
        ("calibrated(margn) > 0.2", "unknown signal 'margn'"),
        ("answer_stable and", "invalid syntax"),
        ("overlap > 1", "can never hold"),
        ("calibrated(overlap) > 0.5", r"calibrated\(overlap\), which was not fitted"),
        ("overlap > base_rate()", r"base_rate\(\), which was not fitted"),
    ],
)
def test_what_cannot_run_is_refused_when_built(rule: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        Rule(rule=rule)


def test_own_signals_are_allowed_by_name() -> None:
    policy = Rule(rule="mine > 3", own_signals=("mine",))
    assert policy.signals == ("mine",)
    assert policy.specs[0].recorded_only
    with pytest.raises(UsageError, match="unknown signal 'mine'"):
        Rule(rule="mine > 3")


def test_a_decision_gives_the_reason_and_its_values() -> None:
    policy = Rule(
        rule="answer_stable and calibrated(answer_token_margin) > 0.25 and round > base_rate()",
        calibrators={"answer_token_margin": HALF},
        base_rates=(0.1, 0.5),
    )
    decision = decided(policy, 2, answer_stable=[math.nan, 1.0], answer_token_margin=[5.0, 1.0])
    assert decision.action is Action.STOP
    assert decision.values == {
        "answer_stable": 1.0,
        "calibrated(answer_token_margin)": 0.5,
        "round": 2,
        "base_rate()": 0.5,
    }
    assert decision.reason == (
        f"{policy.rule} holds at round 2: answer_stable = 1, "
        "calibrated(answer_token_margin) = 0.5, round = 2, base_rate() = 0.5"
    )
    first = decided(policy, 1, answer_stable=[math.nan], answer_token_margin=[math.nan])
    assert first.action is Action.CONTINUE
    assert first.values["answer_stable"] is None
    assert "does not hold at round 1: answer_stable = undefined" in first.reason


def test_rounds_past_the_fit_are_undefined() -> None:
    policy = Rule(
        rule="calibrated(overlap) >= 0 or base_rate() >= 0",
        calibrators={"overlap": HALF},
        base_rates=(0.5,),
    )
    assert decided(policy, 2, overlap=[0.1, 0.1]).stop
    assert not decided(policy, 3, overlap=[0.1, 0.1, 0.1]).stop


def test_abstention_phrases_reach_the_signal() -> None:
    usual = Rule(rule="abstained")
    mine = Rule(rule="abstained", abstention=("no idea",))
    shown = LoopView("q", (Round(answer="No idea!"),))
    assert usual.specs[0](shown) == 0.0
    assert mine.specs[0](shown) == 1.0
    with pytest.raises(UsageError, match='"no"'):
        Rule(rule="abstained", abstention=("no",))


def test_confidence_is_the_smallest_calibrated_value() -> None:
    """HALF maps x to x / 2 in rounds 1 and 2 and is not fitted for round 3."""
    signals = {
        "overlap": np.array([[0.2, 1.0, 1.0], [0.8, math.nan, 1.0]]),
        "answer_token_margin": np.array([[1.0, 0.4, 1.0], [0.6, 2.0, 1.0]]),
    }
    table = SignalTable(values=signals, exists=np.ones((2, 3), bool))
    both = Rule(
        rule="calibrated(overlap) > 0.3 or calibrated(answer_token_margin) > 0.3 and overlap > 0.1",
        calibrators={"overlap": HALF, "answer_token_margin": HALF},
    )
    found = both.confidence(table)
    assert found is not None
    np.testing.assert_allclose(found, [[0.1, 0.2, math.nan], [0.3, math.nan, math.nan]])
    assert Rule(rule="overlap > 0.3").confidence(table) is None
