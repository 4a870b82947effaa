"""Signals and policies in one document."""

from __future__ import annotations

from suffice.evaluation.diagnose.diagnosis import diagnosis
from suffice.evaluation.settings import DiagnosisSettings
from suffice.testing.traces import random_records, to_trace_set
from suffice.trace.rounds.trace_set import TraceSet

SIGNALS = DiagnosisSettings(signals=("answer_stable", "answer_token_margin"), resamples=20)


def random_traces() -> TraceSet:
    return to_trace_set(random_records(30))


def test_without_a_policy_every_fixed_k_is_broken_down() -> None:
    found = diagnosis(random_traces(), SIGNALS)
    assert [each.name for each in found.replayed.policies] == ["fixed-1", "fixed-2", "fixed-3"]
    assert found.replayed.split == "eval"
    assert found.selective == ()
    assert not any("confidence" in note for note in found.notes)
