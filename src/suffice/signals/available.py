"""Which signals a record gives: stored ones, and those that it holds the inputs of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suffice.errors import UsageError
from suffice.protocols import Signal
from suffice.signals.registry import SIGNALS

if TYPE_CHECKING:
    from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Why a record does not give a signal.

    Parameters
    ----------
    spec
        The signal.
    columns
        Columns that it, or the model that computes it, would read and that are not there.
    source
        Where the record was read from.
    """

    spec: Signal
    columns: tuple[str, ...]
    source: str

    @property
    def unrecorded(self) -> bool:
        """Whether only a recorded value would do."""
        return self.spec.recorded_only

    @property
    def no_columns(self) -> str:
        """The columns that are not there, as a sentence; empty: all are."""
        return f"the trace has no {' and no '.join(self.columns)}" if self.columns else ""

    @property
    def why(self) -> str:
        """The reason, for a list of what was left out."""
        if not self.unrecorded:
            return self.no_columns
        by = f" (suffice signals {self.spec.asks})" if self.spec.asks else ""
        return f"needs a model{by}, and is not recorded"

    @property
    def needed(self) -> str:
        """What is needed, and where it was looked for."""
        what = "a recorded value" if self.unrecorded else f"column {' and '.join(self.columns)}"
        return f"needs {what}, which {self.source} does not hold"

    @property
    def remedy(self) -> str:
        """What to type, for the end of an error message; may be empty."""
        return remedy(self.spec) if self.unrecorded else ""


def remedy(spec: Signal) -> str:
    """How a model gives the signal, for the end of an error message; empty where none does."""
    return f"; compute it with suffice signals {spec.asks}" if spec.asks else ""


def is_stored(spec: Signal, traces: TraceSet) -> bool:
    """Whether the record holds values of the signal as the policy means it."""
    return spec.name in traces.signal_names and not spec.own_settings


def lack(spec: Signal, traces: TraceSet) -> Lack | None:
    """Why the record gives the signal in no round; ``None``: it is stored or can be computed.

    Given means that values may be read or computed, though each may be undefined.
    """
    if is_stored(spec, traces):
        return None
    columns = tuple(column for column in spec.needs if not traces.has(column))
    if not columns and not spec.recorded_only:
        return None
    return Lack(spec=spec, columns=columns, source=traces.origin.source)


def refuse_lacking(specs: Iterable[Signal], traces: TraceSet) -> None:
    """Refuse signals that the record does not give, all at once.

    Raises
    ------
    UsageError
        Saying of each what it needs and what to type or use instead.
    """
    lacking: dict[str, list[str]] = {}
    for spec in specs:
        why = lack(spec, traces)
        if why is not None:
            instead = f"; use {spec.instead} instead" if spec.instead else ""
            lacking.setdefault(f"{why.needed}{why.remedy}{instead}", []).append(repr(spec.name))
    if lacking:
        told = (
            f"signal{'s' * (len(names) > 1)} {' and '.join(names)} {'each ' * (len(names) > 1)}{why}"
            for why, names in lacking.items()
        )
        raise UsageError("; also, ".join(told))


def given_signals(traces: TraceSet) -> tuple[str, ...]:
    """Names of the signals that the record gives: those with a fixed name, then the user's own."""
    fixed = (name for name, spec in SIGNALS.items() if lack(spec, traces) is None)
    return (*fixed, *(name for name in traces.signal_names if name not in SIGNALS))
