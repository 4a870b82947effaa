"""What was said of rounds 1 to t stays when rounds are added, changed or removed after t."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.every_policy import policies
from tests.hostile_records import records, rounds
from tests.properties import examples

from suffice.signals.derived import DERIVATIONS
from suffice.signals.known_signals import SignalSpec, computed_signals, resolve
from suffice.signals.signal_table import GrowingRecord, lack, signal_columns, signal_table
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import LoopView, QuestionRecord, Round

SIGNALS = [
    *computed_signals(),
    *(
        resolve(f"{how}(1 - overlap{', 2' if made.windowed else ''})")
        for how, made in DERIVATIONS.items()
    ),
    SignalSpec(name="of_a_user", summary="", compute=lambda view: float(len(view.rounds))),
]


@settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(recorded=records(), later=st.lists(rounds(), max_size=3), kept=st.integers(1, 3))
def test_later_rounds_change_nothing(
    recorded: list[QuestionRecord], later: list[Round], kept: int
) -> None:
    changed = [replace(record, rounds=(*record.rounds[:kept], *later)) for record in recorded]
    one, other = to_trace_set(recorded), to_trace_set(changed)
    same = min(kept, one.n_rounds)
    both = one.exists[:, :same]
    columns = signal_columns(one, SIGNALS)
    for spec, before, after in zip(SIGNALS, columns, signal_columns(other, SIGNALS), strict=True):
        np.testing.assert_array_equal(
            before[:, :same][both], after[:, :same][both], err_msg=spec.name
        )
    for question, record in enumerate(one.records()):
        growing = GrowingRecord(LoopView(record.question.text, ()), SIGNALS)
        for number, held in enumerate(record.rounds):
            live = list(growing.observe(held).values())
            np.testing.assert_array_equal(live, [column[question, number] for column in columns])
    for policy in policies():
        if any(lack(spec, traces) for spec in policy.specs for traces in (one, other)):
            continue
        fires = [policy.fires(signal_table(traces, policy.specs)) for traces in (one, other)]
        np.testing.assert_array_equal(
            fires[0][:, :same][both], fires[1][:, :same][both], err_msg=repr(policy)
        )
