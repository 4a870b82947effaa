"""Signals and policies in one document."""

from __future__ import annotations

import json

from suffice.replay.diagnose.diagnosis import diagnosis
from suffice.replay.settings import DiagnosisSettings, DiagnosticsSettings
from suffice.testing.traces import random_records, to_trace_set
from suffice.trace.rounds.trace_set import TraceSet

SIGNALS = DiagnosticsSettings(signals=("answer_stable", "answer_token_margin"), resamples=20)
RULE = "answer_stable and calibrated(answer_token_margin) > 0.2"


def random_traces() -> TraceSet:
    return to_trace_set(random_records(30))


def test_without_a_policy_every_fixed_k_is_broken_down() -> None:
    found = diagnosis(random_traces(), DiagnosisSettings(signals=SIGNALS))
    assert [each.name for each in found.replayed.policies] == ["fixed-1", "fixed-2", "fixed-3"]
    assert found.replayed.split == "eval"
    assert found.selective == ()
    assert not any("confidence" in note for note in found.notes)


def test_policies_are_replayed_on_the_eval_split() -> None:
    settings = DiagnosisSettings(signals=SIGNALS, policies=("fixed-1",), rules=(RULE,))
    found = diagnosis(random_traces(), settings)
    assert [each["policy"] for each in found.selective] == [RULE]
    said = "fixed-1 has no confidence of its own; name a signal with --confidence"
    assert any(note.startswith(said) for note in found.notes)
    assert not any(note.startswith("fixed-3 has") for note in found.notes)
    document = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert document["replay"]["questions"] == 15
    assert document["selective"][0]["policy"] == RULE
    assert [each["name"] for each in document["signals"]] == list(SIGNALS.signals or ())
    assert document["types"][0]["labelled"] == 15
