"""A signal whose meaning a policy changed is computed, also where the usual one is stored."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from suffice.errors import UsageError
from suffice.policies.rules.policy import RulePolicy
from suffice.signals.abstained import abstained_signal
from suffice.signals.registry import SIGNALS, SignalSpec
from suffice.signals.samples import entropy_signal, top_cluster_signal
from suffice.signals.store import with_signals
from suffice.signals.table import first_stops, signal_table
from suffice.testing.conformance import live_stop
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.records import QuestionRecord


def test_a_stored_value_of_the_usual_meaning_does_not_stand_in() -> None:
    record = make_record("q", ["none", "unknown", "Oslo"])
    stored = with_signals(to_trace_set([record]), ("abstained",)).traces
    (read_back,) = stored.records()
    assert [each.signals["abstained"] for each in read_back.rounds] == [1.0, 1.0, 0.0]
    usual = RulePolicy(rule="not abstained")
    own = RulePolicy(rule="not abstained", abstention=("unknown",))  # "none" is an answer there
    for policy, expected in ((usual, 3), (own, 1)):
        for question in (record, read_back):
            assert live_stop(policy, question) == expected
            assert _replayed(policy, question) == expected


def _replayed(policy: RulePolicy, record: QuestionRecord) -> int:
    table = signal_table(to_trace_set([record]), policy.specs)
    return int(first_stops(policy, table)[0])


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
