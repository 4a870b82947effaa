"""The gate as a policy that stops a question-answering loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
from tests.gates import AGREE, DIFFER, published_settings

from suffice.errors import SufficeWarning, UsageError
from suffice.evaluation.replay.runner import stop_rounds
from suffice.live.controller import Controller
from suffice.policies.gate.gate_settings import GateCosts, GateSettings, RiskModel
from suffice.policies.gate.policy import GatePolicy
from suffice.policies.policy_file import policy_hash
from suffice.signals.signal_table import first_stops, signal_table
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord, Round

MODEL = RiskModel(disagreement=3.0, contradiction=1.0, remaining=0.5, intercept=1.0)
EVEN = GateCosts(retrieval=1.0, failure=2.0)


def corrected(rounds: int | None = 4, **changes: Any) -> GatePolicy:
    return GatePolicy(settings=GateSettings.corrected(MODEL, EVEN, **changes), rounds=rounds)


def sampled_record(
    samples: Sequence[Sequence[str] | None], answers: Sequence[str] | None = None
) -> QuestionRecord:
    return make_record("q", answers or ["Oslo"] * len(samples), gold=["Oslo"], samples=samples)


def decisions(policy: GatePolicy, made: QuestionRecord) -> list[tuple[float | None, str]]:
    controller = Controller(policy)
    controller.start(made.question.text)
    found = [controller.observe(each) for each in made.rounds]
    return [(each.confidence, each.reason) for each in found]


class TestConfidence:
    def test_by_hand(self) -> None:
        """C = sigmoid(1 - 3 (1 - SC) - CD - (4 - t) / 8)."""
        made = sampled_record(
            [DIFFER, AGREE, AGREE, AGREE],
            ["It is open to all", "It is open to all", "It is not open", "It is not open"],
        )
        table = signal_table(to_trace_set([made]), corrected().specs)
        logits = [1 - 3 - 3 / 8, 1 - 2 / 8, 1 - 1 - 1 / 8, 1.0]
        expected = [1 / (1 + math.exp(-each)) for each in logits]
        assert corrected().confidence(table)[0] == pytest.approx(expected, abs=1e-15)
        assert first_stops(corrected(), table).tolist() == [2]

    def test_without_samples_it_is_undefined_and_goes_on(self) -> None:
        made = sampled_record([None, AGREE])
        with pytest.warns(SufficeWarning, match="'candidate_agreement' needs column samples"):
            (first, why), (second, _) = decisions(corrected(), made)
        assert first is None
        absent = "candidate_agreement is undefined (the round has no samples)"
        assert why == f"confidence is undefined at round 1: {absent}"
        assert second is not None
        assert stop_rounds(corrected(), to_trace_set([made])).tolist() == [2]

    def test_an_empty_answer_leaves_it_undefined_for_two_rounds(self) -> None:
        """An empty answer can neither be contradicted nor contradict."""
        made = sampled_record([AGREE, AGREE, AGREE], ["", "Oslo", "Oslo"])
        found = [each for each, _ in decisions(corrected(), made)]
        assert [each is None for each in found] == [True, True, False]


def test_a_decision_carries_the_five_values_and_its_reason() -> None:
    controller = Controller(corrected())
    controller.start("Where?")
    decision = controller.observe(Round(answer="Oslo", samples=AGREE))
    assert decision.stop
    assert decision.values == {
        "candidate_agreement": 1.0,
        "contradiction": 0.0,
        "remaining_share": 0.75,
        "risk": 0.375,
        "confidence": decision.confidence,
    }
    assert decision.reason.startswith("stops at round 1: confidence 0.6514 reaches tau_high 0.5")


class TestPublished:
    def test_it_equals_the_full_budget_and_says_so(self) -> None:
        policy = GatePolicy(settings=published_settings(), rounds=4)
        made = sampled_record([AGREE] * 4)
        assert stop_rounds(policy, to_trace_set([made])).tolist() == [4]
        (remark,) = policy.facts.notes
        assert "it equals the full budget: it can never stop" in remark
        assert "0.438]; tau_low is 0.25, tau_high 0.75" in remark
        for _, why in decisions(policy, made):
            assert "it can never stop" in why

    def test_without_the_remaining_share_the_last_round_but_one_can_stop(self) -> None:
        """The remark goes by what confidence can reach before the last round, not in it."""
        model = RiskModel(disagreement=1.0, contradiction=1.0, remaining=4.0, intercept=1.5)
        chosen = GateSettings.corrected(model, EVEN)
        assert "full budget" in GatePolicy(settings=chosen, rounds=2).facts.notes[0]
        assert GatePolicy(settings=chosen, rounds=3).facts.notes == ()


def test_budget_and_cool_down_of_the_settings_do_not_apply() -> None:
    made = sampled_record([DIFFER, DIFFER, DIFFER, AGREE])
    for changes in ({"budget": 1}, {"budget": 9}, {"cooldown": 3}):
        policy = corrected(**changes)
        assert stop_rounds(policy, to_trace_set([made])).tolist() == [4]
        assert all(why.startswith("goes on") for _, why in decisions(policy, made)[:3])


class TestPlanGate:
    def test_it_refuses_to_stop_a_loop(self) -> None:
        policy, made = corrected(rounds=None), sampled_record([AGREE])
        traces = to_trace_set([made])
        with pytest.raises(UsageError, match=r"planning agent.*suffice fit gate TRACES"):
            stop_rounds(policy, traces)
        with pytest.raises(UsageError, match="question traces"):
            decisions(policy, made)

    def test_it_may_have_another_detector_and_a_stopping_one_may_not(self) -> None:
        chosen = GateSettings.corrected(MODEL, EVEN, detector="nli")
        assert GatePolicy(settings=chosen).rounds is None
        with pytest.raises(UsageError, match="found the detector 'nli'"):
            GatePolicy(settings=chosen, rounds=3)


class TestFile:
    def test_the_hash_holds_what_decides(self) -> None:
        policy = corrected()
        elsewhere = corrected(fitted_on={"source": "other"})
        assert policy_hash(elsewhere) == policy_hash(policy)
        for other in (corrected(budget=1), corrected(rounds=5), corrected(kappa=0.2)):
            assert policy_hash(other) != policy_hash(policy)
