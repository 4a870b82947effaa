"""Always the same number of rounds."""

from __future__ import annotations

import numpy as np

from suffice.contracts import StopPolicy
from suffice.policies.unfitted import FixedPolicy
from suffice.signals.table import SignalTable, first_stops


def test_it_stops_at_its_round_live_and_recorded() -> None:
    policy: StopPolicy = FixedPolicy(2)
    table = SignalTable(values={}, exists=np.ones((1, 3), bool))
    assert policy.fires(table).tolist() == [[False, True, True]]
    table = SignalTable(values={}, exists=np.ones((3, 1), bool))
    assert first_stops(policy, table).tolist() == [2, 2, 2]
    assert (policy.kind, policy.signals, policy.specs) == ("fixed", (), ())
