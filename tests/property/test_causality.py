"""What was said of rounds 1 to t stays when rounds are added, changed or removed after t."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.every_policy import policies
from tests.hostile_records import records, rounds
from tests.properties import examples

import suffice
from suffice.signals import registry
from suffice.signals.available import lack
from suffice.signals.derived import DERIVATIONS
from suffice.signals.registry import SIGNALS, resolve
from suffice.signals.samples import entropy_signal, top_cluster_signal
from suffice.signals.spec import SignalSpec
from suffice.signals.table import signal_columns, signal_table
from suffice.testing.conformance import check_signal
from suffice.testing.traces import to_trace_set
from suffice.trace.rounds.records import QuestionRecord, Round


@pytest.fixture(scope="module")
def signals() -> Iterator[list[SignalSpec]]:
    """Every signal that is computed, each way to make one of another, and one of a user's own."""

    @suffice.signal
    def passages_so_far(question: str, rounds: tuple[Round, ...]) -> float:
        return sum(len(held.passages or ()) for held in rounds)

    yield [
        *(spec for spec in SIGNALS.values() if not spec.recorded_only),
        *(resolve(f"{how}(1 - overlap)") for how in DERIVATIONS),
        *(make("embedding") for make in (entropy_signal, top_cluster_signal)),
        passages_so_far,
    ]
    registry._OWN.clear()


@settings(deadline=None, max_examples=examples(40), suppress_health_check=[HealthCheck.too_slow])
@given(recorded=records(), later=st.lists(rounds(), max_size=3), kept=st.integers(1, 3))
def test_later_rounds_change_nothing(
    signals: list[SignalSpec], recorded: list[QuestionRecord], later: list[Round], kept: int
) -> None:
    changed = [
        replace(record, rounds=(*record.rounds[:kept], *later)[: max(kept, len(later))])
        for record in recorded
    ]
    one, other = to_trace_set(recorded), to_trace_set(changed)
    same = min(kept, one.n_rounds, other.n_rounds)
    both = one.exists[:, :same] & other.exists[:, :same]
    both &= np.arange(1, same + 1) <= np.minimum(one.last_rounds, kept)[:, None]
    for spec, before, after in zip(
        signals, signal_columns(one, signals), signal_columns(other, signals), strict=True
    ):
        np.testing.assert_array_equal(
            before[:, :same][both], after[:, :same][both], err_msg=spec.name
        )
        if spec.name in SIGNALS:
            check_signal(spec, recorded)
    for policy in policies():
        if any(lack(spec, traces) for spec in policy.specs for traces in (one, other)):
            continue
        fires = [policy.fires(signal_table(traces, policy.specs)) for traces in (one, other)]
        np.testing.assert_array_equal(
            fires[0][:, :same][both], fires[1][:, :same][both], err_msg=repr(policy)
        )
