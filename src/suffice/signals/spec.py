"""What a signal is: a column over the rounds of a record, of which each value reads the rounds so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from suffice.contracts import Absence, Charge, Signal
from suffice.errors import UsageError
from suffice.trace.rounds.records import LoopView

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from suffice.signals.asking.whole_record import Asking
    from suffice.signals.columns.rounds import RoundColumns

UNDEFINED = math.nan
Direction = Literal["high", "low"]


def _charge(calls: str) -> Charge:
    kinds = ("prompt", "cached", "completion")
    return Charge(f"{calls}_calls", tuple(f"{calls}_{kind}_tokens" for kind in kinds))


SAMPLES = _charge("sample")
VERDICTS = _charge("judge")
RERANKS = Charge("rerank_calls")


def unrecorded(column: str, what: str, remedy: str = "") -> Absence:
    """The round does not carry a column: ``what`` was not recorded."""
    return Absence(
        f"{what} not recorded",
        lambda view: getattr(view.current, column) is None,
        remedy,
        input=f"{column}=...",
    )


Columns = Callable[["RoundColumns"], "NDArray[np.float64]"]
"""A signal in every recorded round at once: (n_rows,), NaN where undefined; row t reads rounds 1..t only."""


@dataclass(frozen=True, slots=True)
class WithSettings:
    """:data:`Columns` of a function that takes settings; equal where function and settings are."""

    function: Callable[..., NDArray[np.float64]]
    settings: tuple[Hashable, ...]

    def __call__(self, rounds: RoundColumns) -> NDArray[np.float64]:
        """The values of every row."""
        return self.function(rounds, *self.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSpec:
    """A signal's declaration."""

    name: str
    summary: str
    needs: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    answers: bool = True
    charges: tuple[Charge, ...] = ()
    low: float = -math.inf
    high: float = math.inf
    direction: Direction = "high"
    columns: Columns | None = None
    compute: Callable[[LoopView], float] | None = None
    binary: bool = False
    instead: str = ""
    asking: Asking | None = field(default=None, repr=False)
    undefined: tuple[Absence, ...] = field(default=(), repr=False)
    variant_of: str = ""
    own_settings: bool = False
    of: SignalSpec | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.columns is not None and self.compute is not None:
            raise UsageError(f"signal {self.name!r} has two definitions; give columns or compute")

    def __call__(self, view: LoopView) -> float:
        """The value at the view's last round; NaN when undefined or only recorded."""
        if self.columns is None:
            return UNDEFINED if self.compute is None else self.compute(view)
        from suffice.signals.table import GrowingRecord

        return GrowingRecord(view, [self]).computed(self)

    def __reduce__(self) -> tuple[Callable[..., SignalSpec], tuple[Any, ...]]:
        """For another process: a signal with a fixed name by that name, others without their absences."""
        return _restored, (self.name, self._own())

    def _own(self) -> dict[str, Any] | None:
        from suffice.signals.registry import SIGNALS

        if SIGNALS.get(self.name) == self:
            return None
        kept = {one.name: getattr(self, one.name) for one in fields(self)}
        return kept | {"undefined": (), "asking": None}

    @property
    def asks(self) -> str:
        """The option of ``suffice signals`` that names the model it needs; empty: none does."""
        return "" if self.asking is None else self.asking.option

    @property
    def recorded_only(self) -> bool:
        """Whether computing it asks a model, so that it is only read from a record."""
        return self.compute is None and self.columns is None

    @property
    def absences(self) -> tuple[Absence, ...]:
        """All cases in which it is undefined: that nobody recorded it first, where nothing computes it."""
        if not self.recorded_only:
            return self.undefined
        nobody_recorded = Absence(
            "no value was recorded",
            lambda view: self.name not in view.current.signals,
            f"compute it with suffice signals {self.asks}" if self.asks else "",
            input=f"signals={{{self.name!r}: ...}}",
        )
        return (nobody_recorded, *self.undefined)


share = partial(SignalSpec, low=0.0, high=1.0)
"""The declaration of a signal from 0 to 1."""


def _restored(name: str, own: dict[str, Any] | None) -> SignalSpec:
    from suffice.signals.registry import SIGNALS

    return SIGNALS[name] if own is None else SignalSpec(**own)


def given_by(signal: Signal) -> Signal:
    """What a loop or a record must give for it: the signal that it is made of, else itself."""
    of = signal.of if isinstance(signal, SignalSpec) else None
    return signal if of is None else of


_RECORDED_SO = Absence("it was recorded as undefined", lambda _: True)


_NOT_ASKED = Absence(
    "the loop was not asked for an answer in this round",
    lambda view: view.current.answer is None,
    "record an answer in every round, or ask for it afterwards: suffice probe",
)


def unanswered(signal: Signal, view: LoopView) -> bool:
    """Whether the signal reads the answer of a round in which the loop was not asked for one.

    One made of another signal reads that one's values, which may be recorded all the same.
    """
    return signal.answers and given_by(signal) is signal and _NOT_ASKED.holds(view)


def why_undefined(signal: Signal, view: LoopView) -> Absence | None:
    """The case at the last round of a view where the signal is undefined; ``None``: none is known."""
    of = given_by(signal)
    if unanswered(of, view) and (of is signal or of.name not in view.current.signals):
        return _NOT_ASKED
    for absence in signal.absences:
        if absence.holds(view):
            return absence
    return _RECORDED_SO if signal.name in view.current.signals else None


def undefined_in_words(signal: Signal, view: LoopView) -> str:
    """``undefined``, and in brackets why, for a decision's reason."""
    absence = why_undefined(signal, view) if view.rounds else None
    return "undefined" if absence is None else f"undefined ({absence.why})"
