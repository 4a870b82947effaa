"""Fitting the gate on question traces and on plan traces."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest
from tests.gates import AGREE, DIFFER, informative, judged, plan, question, step

from suffice.errors import SufficeWarning, UsageError
from suffice.evaluation.replay.runner import stop_rounds
from suffice.policies.gate.fit import fit_gate, fit_gate_policy, fit_risk
from suffice.policies.gate.gate_settings import GateCosts
from suffice.policies.gate.policy import GatePolicy
from suffice.policies.registry import fit_method
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.plan_traces import PlanSet


class TestRisk:
    def test_a_signal_that_points_the_wrong_way_gets_none(self) -> None:
        values = np.array([[1.0, 0.0, 0.5], [0.0, 0.0, 0.5]] * 20)
        model = fit_risk(values, [0.0, 1.0] * 20, np.arange(40))
        assert (model.disagreement, model.contradiction, model.remaining) == (0.0, 0.0, 0.0)
        assert math.copysign(1.0, model.disagreement) == 1.0
        assert model.intercept == pytest.approx(0.0, abs=1e-9)

    def test_a_group_counts_once_however_many_rows_it_has(self) -> None:
        """Ten rows of one question weigh as much as the one row of another."""
        one = np.array([[1.0, 0.0, 0.5], [0.0, 0.0, 0.5], [1.0, 0.0, 0.5], [0.0, 0.0, 0.5]])
        right = np.array([1.0, 0.0, 0.0, 1.0])
        often = [0] * 10 + [1, 2, 3]
        plain = fit_risk(one, right, np.arange(4))
        repeated = fit_risk(one[often], right[often], np.array(often))
        assert repeated.disagreement == pytest.approx(plain.disagreement, abs=1e-9)
        assert repeated.intercept == pytest.approx(plain.intercept, abs=1e-9)
        unweighted = fit_risk(one[often], right[often], np.arange(13))
        assert unweighted.intercept > plain.intercept + 0.1


class TestQuestions:
    def test_it_learns_that_agreement_means_right(self) -> None:
        policy = fit_gate_policy(informative(), "tune")
        model = policy.settings.risk
        assert model.disagreement > 1.0
        assert (policy.rounds, policy.samples, policy.preset) == (4, 2, "corrected")
        assert (policy.settings.tau_low, policy.settings.tau_high) == (0.5, 0.5)
        assert policy.settings.fitted_on == {
            "source": "memory",
            "split": "tune",
            "questions": 60,
            "labelled": 60,
            "rounds": 4,
            "fitted_rounds": 240,
        }
        stops = stop_rounds(policy, informative().only_split("eval"))
        assert 1 < stops.mean() < 4

    def test_what_the_split_does_not_hold_is_not_read(self) -> None:
        traces = informative()
        other = to_trace_set(
            [
                each
                if each.question.split == "tune"
                else replace(each, gold=replace(each.gold, answers=("nothing",)))
                for each in traces.records()
            ]
        )
        assert fit_gate_policy(other, "tune") == fit_gate_policy(traces, "tune")

    def test_rounds_without_samples_are_left_out_and_the_rest_still_weigh_one(self) -> None:
        records = [
            question("a", [True, True], [None, AGREE]),
            question("b", [False, False], [DIFFER, DIFFER]),
            question("c", [True, False], [AGREE, DIFFER]),
        ]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SufficeWarning)
            policy = fit_gate_policy(to_trace_set(records), "tune")
        assert policy.settings.fitted_on["fitted_rounds"] == 5

    def test_it_says_when_it_never_stops(self) -> None:
        with pytest.warns(SufficeWarning) as found:
            fit_gate_policy(informative(), "tune", GateCosts(retrieval=1.0, failure=200.0))
        said = [str(each.message) for each in found]
        assert any(each.startswith("EXECUTE can never be chosen") for each in said)

    def test_all_right_or_all_wrong_gives_one_number(self) -> None:
        records = [question(f"q{n}", [False, False], [AGREE, DIFFER]) for n in range(6)]
        with pytest.warns(SufficeWarning) as found:
            policy = fit_gate_policy(to_trace_set(records), "tune")
        said = " ".join(str(each.message) for each in found)
        assert "all answers of split 'tune' are wrong: the gate's weights are 0" in said
        model = policy.settings.risk
        assert (model.disagreement, model.contradiction, model.remaining) == (0.0, 0.0, 0.0)
        assert model.confidence(0.0) == pytest.approx(1 / 8)

    @pytest.mark.parametrize("preset", ["published", "corrected"])
    def test_without_samples_it_is_refused(self, preset: str) -> None:
        traces = to_trace_set([make_record("a", ["Oslo", "Oslo"], gold=["Oslo"], split="tune")])
        if preset == "published":
            with pytest.warns(SufficeWarning, match="EXECUTE can never be chosen"):
                policy = fit_method("gate", traces, "published", "")
            with pytest.raises(UsageError, match="samples"):
                stop_rounds(policy, traces)
            return
        with pytest.raises(UsageError, match="samples"):
            fit_method("gate", traces, "corrected", "tune")

    def test_signals_that_are_never_defined_together_are_refused(self) -> None:
        records = [question("a", [True, True], [None, AGREE])]
        blank = replace(records[0].rounds[1], answer="")
        made = replace(records[0], rounds=(records[0].rounds[0], blank))
        with pytest.raises(UsageError, match="defined together in no labeled round"):
            fit_gate_policy(to_trace_set([made]), "tune")


class TestPublished:
    def test_it_reads_the_rounds_and_needs_no_split(self) -> None:
        with pytest.warns(SufficeWarning, match="EXECUTE can never be chosen"):
            policy = fit_method("gate", informative(), "published", "")
        assert isinstance(policy, GatePolicy)
        assert (policy.rounds, policy.preset) == (4, "published")
        assert set(stop_rounds(policy, informative())) == {4}


class TestPlans:
    def test_it_learns_from_the_judges_verdict(self) -> None:
        chosen = fit_gate(judged(), GateCosts(retrieval=1.0, failure=4.0))
        assert chosen.risk.disagreement > 1.0
        assert (chosen.tau_low, chosen.preset, chosen.revises) == (0.75, "corrected", True)
        assert chosen.fitted_on["judged"] == chosen.fitted_on["labelled"] == 40
        assert chosen.fitted_on["source"] == "plans"

    @pytest.mark.filterwarnings("ignore:.*can never be chosen")
    def test_each_step_weighs_one_over_the_steps_of_its_run(self) -> None:
        short = [plan("a", [step(1.0)], True), plan("b", [step(0.0)], False)]
        short += [plan("c", [step(1.0)], True), plan("d", [step(0.0)], True)]
        long = [plan("a", [step(1.0)] * 9, True), *short[1:]]
        found = [fit_gate(PlanSet(records=tuple(each))).risk for each in (short, long)]
        assert found[0].intercept == pytest.approx(found[1].intercept, abs=1e-9)
        assert found[0].disagreement == pytest.approx(found[1].disagreement, abs=1e-9)
        assert found[0].disagreement > 0.1

    def test_runs_nobody_judged_are_left_out_and_counted(self) -> None:
        unjudged = [plan(f"u{n}", [step(0.0)], None) for n in range(3)]
        plans = PlanSet(records=(*judged().records, *unjudged), source="plans")
        with pytest.warns(SufficeWarning, match="verdict: 3 of 43 runs of plans"):
            chosen = fit_gate(plans)
        assert chosen.risk == fit_gate(judged()).risk
        assert chosen.fitted_on["runs"] == 43

    def test_steps_that_lack_a_value_are_counted(self) -> None:
        bare = plan("x", [step(1.0), {"confidence": 0.2}], True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SufficeWarning)
            fitted_on = fit_gate(PlanSet(records=(bare,))).fitted_on
        assert (fitted_on["steps"], fitted_on["fitted_steps"]) == (2, 1)

    def test_without_a_verdict_or_a_value_it_is_refused(self) -> None:
        with pytest.raises(UsageError, match="no judge's verdict on the 1 run of plans"):
            fit_gate(PlanSet(records=(plan("a", [step(1.0)], None),), source="plans"))
        with pytest.raises(UsageError, match="no step of the 1 judged runs of plans"):
            fit_gate(PlanSet(records=(plan("a", [{}], True),), source="plans"))
