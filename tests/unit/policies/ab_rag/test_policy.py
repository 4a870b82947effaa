"""AB-RAG: the published confidence, what can be reached, the weights learned on tune."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.builders import with_rounds

from suffice.errors import SufficeWarning, UsageError
from suffice.evaluation.replay.runner import stop_rounds
from suffice.live.controller import Controller
from suffice.policies.ab_rag.policy import ABRagPolicy
from suffice.policies.policy_file import policy_hash
from suffice.policies.registry import fit_method
from suffice.signals.signal_table import first_stops, signal_table
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import Passage, QuestionRecord, Round
from suffice.trace.rounds.trace_set import TraceSet

S = ("self_consistency", "evidence_consistency", "rerank_variance")


def signal_record(
    name: str,
    rows: list[tuple[float, float, float]],
    *,
    answers: list[str] | None = None,
    split: str = "tune",
) -> QuestionRecord:
    signals = [dict(zip(S, row, strict=True)) for row in rows]
    answers = answers or ["Oslo"] * len(rows)
    return make_record(name, answers, gold=["Oslo"], split=split, signals=signals)


def simulated(count: int, *, seed: int = 0, weight: float = 6.0) -> TraceSet:
    """Agreement tells right answers, the cosine and the variance tell nothing."""
    rng = np.random.default_rng(seed)
    records = []
    for number in range(count):
        rows = [
            (float(rng.integers(1, 4)) / 3, float(rng.random()), float(rng.random()) / 4)
            for _ in range(3)
        ]
        right = [rng.random() < 1 / (1 + math.exp(-weight * (row[0] - 0.7))) for row in rows]
        answers = ["Oslo" if each else "Rome" for each in right]
        split = "tune" if number % 2 else "eval"
        records.append(signal_record(f"q{number:04d}", rows, answers=answers, split=split))
    return to_trace_set(records)


def fitted(traces: TraceSet, **options: Any) -> ABRagPolicy:
    policy = fit_method("ab-rag", traces, "corrected", "tune", **options)
    assert isinstance(policy, ABRagPolicy)
    return policy


class TestPublished:
    def test_the_worked_confidence(self) -> None:
        """0.70 S1 + 0.05 S2 + 0.25 S3, and the threshold itself stops."""
        policy = ABRagPolicy.published("self_consistency", threshold=0.7)
        table = signal_table(
            to_trace_set(
                [signal_record("a", [(2 / 3, 0.8, 0.1), (1.0, 0.0, 0.0), (1.0, 1.0, 0.25)])]
            ),
            policy.specs,
        )
        found = policy.confidence(table)[0]
        assert found == pytest.approx([0.4666667 + 0.04 + 0.025, 0.70, 0.8125])
        assert first_stops(policy, table).tolist() == [2]

    @pytest.mark.parametrize("threshold", [0.82, 1.0])
    def test_a_threshold_out_of_reach_is_told_when_built(self, threshold: float) -> None:
        with pytest.warns(SufficeWarning, match=r"never be reached.* at most 0\.8125"):
            ABRagPolicy.published(threshold=threshold)

    def test_a_threshold_always_reached_is_told_when_built(self) -> None:
        with pytest.warns(SufficeWarning, match="always stops after round 1"):
            ABRagPolicy.published(threshold=0.0)

    def test_plateaus_of_three_samples(self) -> None:
        low, high = ABRagPolicy.published("self_consistency").plateaus
        assert (high.low, high.high) == pytest.approx((0.57916667, 0.70))
        assert (low.low, low.high) == pytest.approx((0.34583333, 0.46666667))
        assert "self_consistency is at least 1" in str(high)
        assert ABRagPolicy.published("token_probability").plateaus == ()

    def test_undefined_never_stops(self) -> None:
        policy = ABRagPolicy.published("self_consistency")
        traces = to_trace_set([signal_record("a", [(1.0, math.nan, 0.2), (math.nan, 1.0, 0.2)])])
        assert np.isnan(policy.confidence(signal_table(traces, policy.specs))).all()
        assert stop_rounds(policy, traces).tolist() == [2]
        decision = Controller(policy).observe(
            Round(answer="Oslo", signals={S[0]: 1.0, S[1]: math.nan, S[2]: 0.2})
        )
        assert (decision.stop, decision.confidence) == (False, None)
        assert "confidence is undefined" in decision.reason

    def test_an_agreeing_unknown_stops_it(self) -> None:
        """As published: only the corrected preset knows an abstention."""
        unknown = signal_record(
            "a", [(1.0, 0.7, 0.2), (1.0, 0.7, 0.2)], answers=["Unknown", "Unknown"]
        )
        policy = ABRagPolicy.published("self_consistency")
        assert stop_rounds(policy, to_trace_set([unknown])).tolist() == [1]
        assert stop_rounds(
            replace(policy, reads_abstention=True), to_trace_set([unknown])
        ).tolist() == [2]


class TestChoiceOfS1:
    def test_it_is_made_by_the_record_and_told(self) -> None:
        policy = fit_method("ab-rag", simulated(6), "published", "no such split")
        assert isinstance(policy, ABRagPolicy)
        assert next(iter(policy.weights)) == "self_consistency"
        assert "self_consistency" in policy.facts.notes[0]
        assert policy.levels == pytest.approx((1 / 3, 2 / 3, 1.0))

    def test_token_probabilities_come_first(self) -> None:
        made = make_record("a", ["Oslo", "Oslo"], gold=["Oslo"], margins=[1.0, 2.0])
        others = {"evidence_consistency": 0.8, "rerank_variance": 0.1}
        traces = to_trace_set([with_rounds(made, signals=others)])
        policy = fit_method("ab-rag", traces, "published", "tune")
        assert isinstance(policy, ABRagPolicy)
        assert next(iter(policy.weights)) == "token_probability"
        assert policy.plateaus == ()

    def test_neither_is_an_error_that_says_what_to_record(self) -> None:
        with pytest.raises(UsageError, match="--samples 3"):
            fit_method("ab-rag", to_trace_set([make_record("a", ["Oslo"])]), "published", "tune")


class TestCorrected:
    def test_its_confidence_is_the_true_probability_on_other_questions(self) -> None:
        traces = simulated(2000, seed=3)
        policy = fitted(traces, support="evidence_consistency")
        table = signal_table(traces.only_split("eval"), policy.specs)
        agreement, confidence = table.signal("self_consistency"), policy.confidence(table)
        for level in policy.levels:
            truth = 1 / (1 + math.exp(-6.0 * (level - 0.7)))
            assert confidence[agreement == level].mean() == pytest.approx(truth, abs=0.05)

    def test_answer_in_evidence_has_its_own_number_where_undefined(self) -> None:
        rng = np.random.default_rng(1)
        records = []
        for number in range(80):
            yes = number % 4 == 0
            answer = "yes" if yes else str(rng.choice(["Oslo", "Rome"]))
            made = make_record(
                f"q{number:02d}", [answer, answer], gold=["yes" if yes else "Oslo"], split="tune"
            )
            signals = {"self_consistency": float(rng.integers(1, 4)) / 3, "rerank_variance": 0.1}
            seen = (Passage(id="p", text="Oslo lies in Norway."),)
            records.append(with_rounds(made, signals=signals, passages=seen))
        policy = fitted(to_trace_set(records), threshold=0.5)
        assert tuple(policy.weights) == (
            "self_consistency",
            "answer_in_evidence",
            "rerank_variance",
        )
        assert policy.weights["answer_in_evidence"] > 1.0
        assert policy.weights["rerank_variance"] == 0.0  # constant there
        assert policy.undefined["answer_in_evidence"] > 1.0  # every yes was right
        assert "S2 is answer_in_evidence" in policy.facts.notes[1]

    def test_one_outcome_is_told_and_gives_one_confidence(self) -> None:
        traces = to_trace_set(
            [signal_record(f"q{n}", [(n % 3 / 3 + 1 / 3, 0.5, 0.1)] * 2) for n in range(8)]
        )
        told = "all answers to the labeled questions .* are right"
        with (
            pytest.warns(SufficeWarning, match=told),
            pytest.warns(SufficeWarning, match="is always reached"),
        ):
            policy = fitted(traces, support="evidence_consistency")
        assert set(policy.weights.values()) == {0.0}

    def test_an_abstention_never_stops_whatever_the_threshold(self) -> None:
        with pytest.warns(SufficeWarning, match="always stops after round 1, unless the answer"):
            policy = fitted(simulated(60), support="evidence_consistency", threshold=0.0)
        unknown = signal_record("a", [(1.0, 0.5, 0.1)] * 3, answers=["Unknown", "Oslo", "Oslo"])
        assert stop_rounds(policy, to_trace_set([unknown])).tolist() == [2]
        live = Controller(policy)
        assert [live.observe(each).stop for each in unknown.rounds[:2]] == [False, True]

    def test_signals_are_chosen_by_where_they_are_defined(self) -> None:
        """Texts that were not recorded give no answer_in_evidence: the cosine is taken and told."""
        textless = (Passage(id="p", text=None),)
        bare = [with_rounds(each, passages=textless) for each in simulated(40).records()]
        policy = fitted(to_trace_set(bare), threshold=0.5)
        assert tuple(policy.weights)[1] == "evidence_consistency"
        assert any("S2 is evidence_consistency" in remark for remark in policy.facts.notes)


class TestFile:
    def test_what_decides_nothing_is_not_in_its_hash(self) -> None:
        policy = ABRagPolicy.published("self_consistency")
        assert policy_hash(policy) == policy_hash(replace(policy, notes=("said",), levels=()))
        assert policy_hash(policy) != policy_hash(replace(policy, threshold=0.61))
