"""Signals of another signal, by columns."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from suffice.signals.by_columns.rounds import RoundColumns
from suffice.signals.derived import DerivedName
from suffice.signals.spec import SignalSpec
from suffice.signals.table import declared, signal_columns


def derived(
    rounds: RoundColumns, name: DerivedName, made_of: SignalSpec | None
) -> NDArray[np.float64]:
    """Any of :data:`suffice.signals.derived.DERIVATIONS`, of a signal whose meaning a policy changed too."""
    spec = declared(name.of, rounds.traces, also=(name.of,)) if made_of is None else made_of
    (values,) = signal_columns(rounds.traces, [spec])
    return name.apply(values)[rounds.traces.exists]
