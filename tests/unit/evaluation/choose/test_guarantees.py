"""Promises are read from policy files, which may say anything."""

from __future__ import annotations

from typing import Any

from suffice.evaluation.diagnose.report_data import guarantees
from suffice.evaluation.replay.named_policies import NamedPolicy
from suffice.evaluation.replay.runner import replay
from suffice.evaluation.settings import ComparisonSettings
from suffice.policies.rules.policy import Rule
from suffice.testing.traces import make_record, to_trace_set


def read(terms: dict[str, Any], fitted_on: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    policy = Rule(rule="round >= 2", guarantee=terms, fitted_on=fitted_on)
    traces = to_trace_set([make_record("q", ["a", "a"], gold=["a"])])
    built = [
        NamedPolicy(name="p", kind="certified", preset=None, policy=policy),
        NamedPolicy(name="plain", kind="rule", preset=None, policy=Rule(rule="round >= 1")),
    ]
    return guarantees(replay(traces, built, ComparisonSettings(baseline="p", resamples=5)))


def test_terms_are_read_and_other_policies_have_none() -> None:
    terms = {
        "max_loss": 0.02, "confidence": 0.95, "loss": "signed", "metric": "f1", "units": 88,
        "tested": 18, "certified": 9, "p_value": 1e-5, "fell_back": False, "cost": "llm_calls",
        "seed": 42, "alpha": 0.1,
    }  # fmt: skip
    (found,) = read(terms, {"source": "elsewhere.parquet", "split": "tune"})
    assert (found["policy"], found["rule"]) == ("p", "round >= 2")
    assert (found["max_loss"], found["confidence"], found["units"]) == (0.02, 0.95, 88)
    assert found["split"] == "tune"
    assert (found["cost"], found["cost_label"]) == ("llm_calls", "model calls")
    assert found["fell_back"] is False
    assert found["elsewhere"]
    assert found["more"] == {"alpha": "0.1"}
