"""What a live loop can be told to stop by."""

from __future__ import annotations

from pathlib import Path

import pytest

from suffice.errors import DataError, UsageError
from suffice.pipelines.live.choice import live_policy, names_ab_rag, samples_read
from suffice.pipelines.loops.settings import LoopSettings
from suffice.policies.ab_rag.policy import ABRagPolicy
from suffice.policies.file import save_policy
from suffice.policies.fixed import FixedPolicy


def test_live_policies(tmp_path: Path) -> None:
    assert getattr(live_policy(None).policy, "rule", None) == LoopSettings.default_rule
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


@pytest.mark.parametrize("name", ["ab-rag", "ab-rag-published"])
def test_the_published_ab_rag_needs_no_fitting(name: str) -> None:
    assert names_ab_rag(name)
    for certainty in ("token_probability", "self_consistency"):
        policy = live_policy(name, certainty=certainty).policy
        assert policy.kind == "ab-rag"
        assert policy.signals[0] == certainty


def test_the_corrected_ab_rag_must_be_fitted() -> None:
    assert not any(map(names_ab_rag, ("ab-rag-corrected", "tasr", "answer_stable", None)))
    with pytest.raises(UsageError, match="suffice fit ab-rag"):
        live_policy("ab-rag-corrected")


def test_as_many_samples_as_the_policy_was_fitted_on() -> None:
    fifths = tuple(n / 5 for n in range(1, 6))
    assert samples_read(ABRagPolicy(weights={"self_consistency": 1.0}, levels=fifths)) == 5
    assert samples_read(ABRagPolicy(weights={"self_consistency": 1.0})) == 3
    assert samples_read(ABRagPolicy.published("self_consistency")) == 3
    assert samples_read(ABRagPolicy.published("token_probability")) == 0
    assert samples_read(live_policy("self_consistency > 0.5").policy) == 3
    assert samples_read(FixedPolicy(2)) == 0
