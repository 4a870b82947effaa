"""Signals made of another signal, and those whose meaning a policy changed: the same live and by columns."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import pytest

from suffice.errors import UsageError
from suffice.policies.rules.policy import Rule, rule_needs
from suffice.signals.abstained import abstained_signal
from suffice.signals.derived import DerivedName
from suffice.signals.known_signals import SIGNALS, SignalSpec, resolve, undefined_in_words
from suffice.signals.samples import entropy_signal, top_cluster_signal
from suffice.signals.signal_table import GrowingRecord, first_stops, lack, signal_table
from suffice.signals.stored_signals import with_signals
from suffice.testing.conformance import live_stop
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import LoopView


def value_at(spec: SignalSpec, view: LoopView) -> float:
    return GrowingRecord(view, [spec]).value(spec)


def test_a_name_says_it_all() -> None:
    assert str(DerivedName.parse(" stalling(1-x )")) == "stalling(1 - x)"
    assert DerivedName.parse("overlap") is None
    assert rule_needs("since_lowest(error)>=2 or gain(1.5 - overlap) > 1").signals == (
        "since_lowest(error)",
        "gain(1.5 - overlap)",
    )
    assert rule_needs("change > 0.5").signals == ("change",)  # a signal of one's own


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("since_lowset(error)", "did you mean 'since_lowest'"),
        ("change(1 + error)", r"since_lowest\(NAME\)"),
        ("change(eror)", "unknown signal 'eror'"),
        ("calibrated(error", "signal"),
        ("calibrate(error)", "signal"),
    ],
)
def test_no_such_signal(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolve(name, also=("error",))


def test_one_made_of_abstained_means_the_policys_own_phrases() -> None:
    policy = Rule(rule="since_highest(abstained) >= 1", abstention=("pass",))
    record = make_record("a", ["x", "pass", "unknown", "x"], gold=["x"])
    traces = to_trace_set([record])
    (spec,) = policy.specs
    assert spec.own_settings
    live = [
        value_at(spec, LoopView("q", record.rounds[: number + 1]))
        for number in range(len(record.rounds))
    ]
    assert live == [0.0, 0.0, 1.0, 2.0]
    assert signal_table(traces, policy.specs).signal(spec.name).tolist() == [live]
    assert first_stops(policy, signal_table(traces, policy.specs)).tolist() == [3]
    there = pickle.loads(pickle.dumps(spec))
    assert there(LoopView("q", record.rounds)) == 2.0


def test_it_needs_what_its_signal_needs() -> None:
    spec = resolve("since_highest(self_consistency)")
    bare = to_trace_set([make_record("a", ["x", "y"])])
    missing = lack(spec, bare)
    assert missing is not None
    assert missing.spec.name == "self_consistency"
    assert Rule(rule="since_highest(self_consistency) >= 2").needs.samples > 0
    own = lack(resolve("gain(error)", also=("error",)), bare)
    assert own is not None
    assert "'error'" in str(own)


def test_why_it_is_undefined_is_told() -> None:
    spec = resolve("gain(error)", also=("error",))
    rounds = make_record("a", ["x", "y", "z"], signals=[{"error": -1.0}, {}, {"error": 1.0}]).rounds
    said = [undefined_in_words(spec, LoopView("a", rounds[:number])) for number in (1, 2, 3)]
    assert [text.split("(")[1][:25] for text in said] == [
        "there is no earlier round",
        "no value was recorded)",
        "an earlier round has no e",
    ]
    assert math.isnan(value_at(spec, LoopView("a", rounds)))


def test_a_stored_value_of_the_usual_meaning_does_not_stand_in() -> None:
    record = make_record("q", ["none", "unknown", "Oslo"])
    stored = with_signals(to_trace_set([record]), ("abstained",)).traces
    (read_back,) = stored.records()
    assert [each.signals["abstained"] for each in read_back.rounds] == [1.0, 1.0, 0.0]
    usual = Rule(rule="not abstained")
    own = Rule(rule="not abstained", abstention=("unknown",))  # "none" is an answer there
    for policy, expected in ((usual, 3), (own, 1)):
        for question in (record, read_back):
            assert live_stop(policy, question) == expected
            table = signal_table(to_trace_set([question]), policy.specs)
            assert first_stops(policy, table).tolist() == [expected]


@pytest.mark.parametrize(
    "own",
    [abstained_signal(("own",)), entropy_signal("embedding"), top_cluster_signal("embedding")],
)
def test_a_changed_meaning_is_told_from_the_usual_one(own: SignalSpec) -> None:
    assert own.own_settings
    assert own.columns != SIGNALS[own.name].columns
    assert pickle.loads(pickle.dumps(own)).columns == own.columns


def test_a_signal_has_one_definition() -> None:
    with pytest.raises(UsageError, match="abstained"):
        replace(SIGNALS["abstained"], compute=lambda _: 0.5)
