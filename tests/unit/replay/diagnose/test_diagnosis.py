"""Signals and policies in one document."""

from __future__ import annotations

import json
from dataclasses import replace

from suffice.replay.diagnose.diagnosis import diagnosis
from suffice.replay.settings import DiagnosisSettings, DiagnosticsSettings
from suffice.testing.traces import make_record, random_records, to_trace_set
from suffice.trace.rounds.table import TraceSet

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


def test_closed_book_is_no_round_of_the_breakdown() -> None:
    made = []
    for number in range(20):
        record = make_record(
            f"q{number:02d}", ["Rome", "Rome", "Oslo"], gold=["Oslo"],
            split="tune" if number % 2 else "eval",
        )  # fmt: skip
        made.append(replace(record, closed_book=replace(record.rounds[0], passages=())))
    settings = DiagnosisSettings(
        signals=DiagnosticsSettings(signals=("answer_stable",), resamples=20),
        policies=("closed-book", "fixed-1"),
    )
    found = diagnosis(to_trace_set(made), settings)
    assert [each["policy"] for each in found.types[0]["policies"]] == ["fixed-1", "fixed-3"]
    assert [each.name for each in found.replayed.policies] == ["closed-book", "fixed-1", "fixed-3"]
