"""Policies that a loop cannot serve are refused before the first call, with what to type."""

from __future__ import annotations

from typing import Any

import pytest

from suffice.errors import UsageError
from suffice.live.requirements import LoopOutput, check_policy, has_confidence
from suffice.loops.ranked import BudgetedSettings, CumulativeSettings
from suffice.loops.react import ReactSettings
from suffice.policies.ab_rag.policy import ABRagPolicy
from suffice.policies.fixed import FixedPolicy
from suffice.policies.rules.policy import RulePolicy
from suffice.stats.maps.isotonic import IsotonicMap
from suffice.stats.maps.per_round import PerRoundCalibrator

BUDGETED = BudgetedSettings(certainty="token_probability")
VOTING = BudgetedSettings(certainty="self_consistency", samples=3)


@pytest.mark.parametrize(
    ("rule", "loop", "there", "parts"),
    [
        (
            "answer_token_margin > 1",
            CumulativeSettings(),
            {"logprobs": False},
            ("no log-probabilities", "self_consistency"),
        ),
        ("self_consistency > 0.5", CumulativeSettings(), {}, ("samples",)),
        ("judge_support >= 4", CumulativeSettings(samples=3), {}, ("recorded value",)),
        ("malformed_actions > 0", BUDGETED, {}, ("--pipeline react",)),
        ("llm_stop", ReactSettings(verdicts=False), {}, ("--pipeline react",)),
        ("q_stop > 0", ReactSettings(), {}, ("recorded value",)),
        ("evidence_consistency > 0.5", BUDGETED, {}, ("--encoder minilm",)),
        (
            "rerank_variance < 0.1",
            BUDGETED,
            {"encoder": True},
            ("--retriever hybrid+rerank --reranker PATH",),
        ),
        ("evidence_entailment > 0.5", BUDGETED, {"encoder": True}, ("entailment",)),
        (
            "verbalized_confidence > 3",
            CumulativeSettings(prompt="no-confidence"),
            {},
            ("the prompt no-confidence asks for no confidence", "--prompt answer-first"),
        ),
        ("token_probability > 0.5", VOTING, {}, ("sampled", "self_consistency")),
    ],
)
def test_a_policy_is_refused_before_the_first_call(
    rule: str, loop: Any, there: dict[str, Any], parts: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError) as refused:
        check_policy(RulePolicy(rule=rule), LoopOutput(settings=loop, **there))
    name = rule.split(maxsplit=1)[0]
    for part in (f"the rule policy reads what is not given: signal {name!r} ", *parts):
        assert part in str(refused.value)


@pytest.mark.parametrize(
    ("rule", "loop"),
    [
        (
            "answer_token_margin > 1 and self_consistency > 0.5 and overlap > 0.1 and "
            "retrieval_gap > 0 and verbalized_confidence >= 4 and answer_in_evidence",
            CumulativeSettings(samples=3),
        ),
        ("token_probability > 0.5 and answer_stable", BUDGETED),
        ("self_consistency > 0.5 and normalized_entropy < 0.5", VOTING),
        (
            "answer_stable and answer_token_margin > 1",
            BudgetedSettings(certainty="token_probability", prompt="no-confidence"),
        ),
        ("llm_stop and malformed_actions < 1 and answer_stable", ReactSettings()),
        (
            "malformed_actions < 1 and self_consistency > 0.5",
            ReactSettings(samples=3, verdicts=False),
        ),
        ("judge_support >= 4", BudgetedSettings(certainty="token_probability", judge=True)),
    ],
)
def test_what_the_loop_gives_is_accepted(rule: str, loop: Any) -> None:
    check_policy(RulePolicy(rule=rule), LoopOutput(settings=loop))


def test_who_has_a_confidence() -> None:
    assert not has_confidence(FixedPolicy(2))
    assert not has_confidence(RulePolicy(rule="answer_stable"))
    assert has_confidence(ABRagPolicy.published())
    half = PerRoundCalibrator(maps=(IsotonicMap(x=(0.0, 2.0), y=(0.0, 1.0)),) * 2)
    calibrated = "answer_stable and calibrated(answer_token_margin) > 0.25"
    assert has_confidence(RulePolicy(rule=calibrated, calibrators={"answer_token_margin": half}))
