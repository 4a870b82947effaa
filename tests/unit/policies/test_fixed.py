"""Always the same number of rounds."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.errors import UsageError
from suffice.policies.fixed import FixedPolicy
from suffice.protocols import PolicyView, StopPolicy
from suffice.signals.table import SignalTable
from suffice.trace.rounds.records import LoopView, Round


@pytest.mark.parametrize("rounds", [0, -1, 32768])
def test_bounds(rounds: int) -> None:
    with pytest.raises(UsageError, match=f"from 1 to 32767, found {rounds}"):
        FixedPolicy(rounds)
    FixedPolicy(1)
    FixedPolicy(32767)


def test_it_stops_at_its_round_live_and_recorded() -> None:
    policy: StopPolicy = FixedPolicy(2)
    view = LoopView("q", (Round(answer="x"),))
    stops = [policy.decide(PolicyView(round=t, signals={}, loop=view)).stop for t in (1, 2, 3)]
    assert stops == [False, True, True]
    table = SignalTable(values={}, exists=np.ones((3, 1), bool))
    assert policy.stop_rounds(table).tolist() == [2, 2, 2]
    assert (policy.kind, policy.signals, policy.specs) == ("fixed", (), ())
