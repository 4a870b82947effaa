"""Which signals a record, a loop or a round gives, and in what words it is said that one does not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suffice.contracts import Signal, StopPolicy
from suffice.errors import UsageError
from suffice.signals.registry import SIGNALS
from suffice.signals.spec import given_by
from suffice.trace.rounds.records import POLICY_STOP

if TYPE_CHECKING:
    from suffice.trace.rounds.records import LoopView, Round
    from suffice.trace.rounds.table import TraceSet

_NOT_GIVEN = "reads what is not given"
NOT_GIVEN = rf"the \S+ policy {_NOT_GIVEN}: "
"""How the warning of a policy whose inputs do not come begins, for a filter of warnings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lack:
    """Why a record, a loop that is to run, or a round of one (``source``), does not give a signal.

    ``columns`` are those it lacks; ``give``: what to type so that it is, ``None``: what a record needs.
    """

    spec: Signal
    columns: tuple[str, ...]
    source: str
    because: str = ""
    give: str | None = None

    @property
    def no_columns(self) -> str:
        """The columns that are not there, as a sentence; empty: all are."""
        return f"the trace has no {' and no '.join(self.columns)}" if self.columns else ""

    @property
    def why(self) -> str:
        """The reason, for a list of what was left out."""
        if not self.spec.recorded_only:
            return self.no_columns
        by = f" (suffice signals {self.spec.asks})" if self.spec.asks else ""
        return f"needs a model{by}, and is not recorded"

    @property
    def needed(self) -> str:
        """What is needed, and where it was looked for."""
        if not self.spec.recorded_only and not self.columns:
            return f"cannot be computed from {self.source}"
        what = (
            "a recorded value"
            if self.spec.recorded_only
            else f"column {' and '.join(self.columns)}"
        )
        return f"needs {what}, which {self.source} does not hold"

    @property
    def predicate(self) -> str:
        """What is said of the signal, and what to do."""
        because = f": {self.because}" if self.because else ""
        give = f"; {self.give}" if self.give else ""
        if self.give is None and self.spec.recorded_only:
            give = remedy(self.spec)
        instead = f"; use {self.spec.instead} instead" if self.spec.instead else ""
        return f"{self.needed}{because}{give}{instead}"

    def __str__(self) -> str:
        """The whole, as replay, ``ask``, recording and a controller say it."""
        return f"signal {self.spec.name!r} {self.predicate}"


def remedy(spec: Signal) -> str:
    """How a model gives the signal, for the end of an error message; empty where none does."""
    return f"; compute it with suffice signals {spec.asks}" if spec.asks else ""


def is_stored(spec: Signal, traces: TraceSet) -> bool:
    """Whether the record holds values of the signal as the policy means it."""
    if spec.own_settings:
        return False
    return spec.name in traces.signal_names


def lack(spec: Signal, traces: TraceSet) -> Lack | None:
    """Why the record gives the signal in no round; ``None``: it is stored or can be computed.

    Given means that values may be read or computed, though each may be undefined.
    """
    if is_stored(spec, traces):
        return None
    if (of := given_by(spec)) is not spec:
        return lack(of, traces)
    columns = tuple(column for column in spec.needs if not traces.has(column))
    if columns or spec.recorded_only:
        return Lack(spec=spec, columns=columns, source=traces.origin.source)
    from suffice.trace.rounds.table import is_veiled

    if is_veiled(traces.origin.run) and (spec.answers or _TEXTS & {*spec.needs, *spec.reads}):
        return Lack(
            spec=spec,
            columns=(),
            source=traces.origin.source,
            because="its texts were not recorded, and no value of this signal was",
            give="",
        )
    return None


_TEXTS = frozenset({"passages", "query", "samples", "tokens", "response", "action"})


def in_words(lacks: Iterable[Lack]) -> str:
    """The lacks as a sentence, with those of which the same is to say together."""
    names: dict[str, list[str]] = {}
    for lacking in lacks:
        alike = names.setdefault(lacking.predicate, [])
        if (name := repr(lacking.spec.name)) not in alike:  # several are made of one
            alike.append(name)
    return "; also, ".join(
        f"signal {alike[0]} {predicate}"
        if len(alike) == 1
        else f"signals {' and '.join(alike)} each {predicate.replace('needs', 'need', 1)}"
        for predicate, alike in names.items()
    )


def policy_lacks(policy: StopPolicy, lacks: Iterable[Lack]) -> str:
    """That a policy cannot decide as it should, and why."""
    return f"the {policy.kind} policy {_NOT_GIVEN}: {in_words(lacks)}"


def lack_live(spec: Signal, view: LoopView) -> Lack | None:
    """Why somebody's loop hardly ever gives a signal that is undefined in the last round of a view.

    ``None``: its inputs are there, and other rounds may define it.
    """
    here = view.current
    if spec.name in here.signals and not spec.own_settings:
        return None  # given as undefined
    case = next((case for case in spec.absences if case.input and case.holds(view)), None)
    columns = tuple(column for column in spec.needs if not _gives(here, column))
    if case is None and not columns:
        return None
    written, because = ", ".join(f"{column}=..." for column in columns), ""
    if case is not None and (spec.recorded_only or not columns):
        written = case.input
        because = f"it holds {', '.join(map(repr, here.signals))}" if here.signals else ""
    if case is not None and not spec.recorded_only and not columns:
        because = case.why
    return Lack(
        spec=spec,
        columns=columns,
        source=f"round {len(view.rounds)} of this loop",
        because=because,
        give=f"write suffice.Round(answer=..., {written})",
    )


def _gives(here: Round, column: str) -> bool:
    """Whether a round holds a column; the model may forget its rating in one reply and not in the next."""
    rated = column == "verbalized_confidence" and here.response is not None
    return rated or getattr(here, column, None) is not None


def refuse_lacking(specs: Iterable[Signal], traces: TraceSet) -> None:
    """Refuse signals that the record does not give, all at once."""
    lacks = [why for spec in specs if (why := lack(spec, traces)) is not None]
    if lacks:
        raise UsageError(in_words(lacks))


def given_signals(traces: TraceSet) -> tuple[str, ...]:
    """Names of the signals that the record gives: those with a fixed name, then the user's own.

    Where the policy that ran said stop is no signal.
    """
    fixed = (name for name, spec in SIGNALS.items() if lack(spec, traces) is None)
    other = {*SIGNALS, POLICY_STOP}
    return (*fixed, *(name for name in traces.signal_names if name not in other))
