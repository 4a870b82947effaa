"""The definition of a signal, and every signal by name, imported on first use."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache, partial
from importlib import import_module
from operator import getitem
from typing import TYPE_CHECKING, Any, Literal, overload

from suffice.contracts import Absence, Charge
from suffice.errors import DataError, UsageError, did_you_mean, unknown_name
from suffice.trace.rounds.records import LoopView, Round

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from suffice.signals.asking.whole_record import Asking
    from suffice.signals.columns.rounds import RoundColumns

UNDEFINED = math.nan
READS = "reads what is not given"
NOT_GIVEN = rf"the \S+ policy {READS}: "
"""How the warning of a policy whose inputs do not come begins, for a filter of warnings."""
Direction = Literal["high", "low"]


def _charge(calls: str) -> Charge:
    kinds = ("prompt", "cached", "completion")
    return Charge(f"{calls}_calls", tuple(f"{calls}_{kind}_tokens" for kind in kinds))


SAMPLES = _charge("sample")
VERDICTS = _charge("judge")
LOOKS = _charge("look")
RERANKS = Charge("rerank_calls")


def unrecorded(column: str, what: str, remedy: str = "") -> Absence:
    """Describe the case that ``what`` is undefined because the round lacks a column."""
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
    """Bind settings to a function of :data:`Columns`; equal functions and settings compare equal."""

    function: Callable[..., NDArray[np.float64]]
    settings: tuple[Hashable, ...]

    def __call__(self, rounds: RoundColumns) -> NDArray[np.float64]:
        return self.function(rounds, *self.settings)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalSpec:
    """Declare a signal: what it means and needs, its range, and how it is computed.

    Without a ``name`` it is called like the function of its ``columns``.
    """

    name: str = ""
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
    running: Callable[[], Callable[[Round], float]] | None = None
    binary: bool = False
    instead: str = ""
    asking: Asking | None = field(default=None, repr=False)
    undefined: tuple[Absence, ...] = field(default=(), repr=False)
    variant_of: str = ""
    own_settings: bool = False
    of: SignalSpec | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.name:
            object.__setattr__(self, "name", getattr(self.columns, "__name__", ""))
        if self.columns is not None and self.compute is not None:
            raise UsageError(f"signal {self.name!r} has two definitions; give columns or compute")

    def __call__(self, view: LoopView) -> float:
        """Return the value at the last round; NaN if it is undefined or only recorded."""
        if self.columns is None:
            return UNDEFINED if self.compute is None else self.compute(view)
        from suffice.signals.signal_table import GrowingRecord

        return GrowingRecord(view, [self]).computed(self)

    def __reduce__(self) -> tuple[Callable[..., SignalSpec], tuple[Any, ...]]:
        """Pickle a signal with a fixed name by that name, another one without its absences."""
        if SIGNALS.get(self.name) == self:
            return getitem, (SIGNALS, self.name)
        state = {one.name: getattr(self, one.name) for one in fields(self)}
        return partial(SignalSpec, **state | {"undefined": (), "asking": None}), ()

    @property
    def asks(self) -> str:
        """Return the option of ``suffice signals`` for the model that it needs; empty if none."""
        return "" if self.asking is None else self.asking.option

    @property
    def recorded_only(self) -> bool:
        """Say whether only a model, loop or policy gives it, so that it is read from a record."""
        return self.compute is None and self.columns is None

    @property
    def absences(self) -> tuple[Absence, ...]:
        """Return all cases in which it is undefined, in the order of checking."""
        if not self.recorded_only:
            return self.undefined
        nobody_recorded = Absence(
            "no value was recorded",
            lambda view: self.name not in view.current.signals,
            f"compute it with suffice signals {self.asks}" if self.asks else "",
            input=f"signals={{{self.name!r}: ...}}",
        )
        return (nobody_recorded, *self.undefined)


share: partial[SignalSpec] = partial(SignalSpec, low=0.0, high=1.0)  # a signal from 0 to 1


def given_by(signal: SignalSpec) -> SignalSpec:
    """Return the signal that a loop must give: the one that a derived signal is made of, else itself."""
    return signal if signal.of is None else signal.of


_RECORDED_SO = Absence("it was recorded as undefined", lambda _: True)


_NOT_ASKED = Absence(
    "this round has no answer",
    lambda view: view.current.answer is None,
    "record an answer in every round, or add it later: suffice probe",
)


def unanswered(signal: SignalSpec, view: LoopView) -> bool:
    """Say whether the signal reads an answer that the loop was not asked for in this round.

    A derived signal is never unanswered: the values of the signal it is made of may be recorded.
    """
    return signal.answers and given_by(signal) is signal and _NOT_ASKED.holds(view)


def why_undefined(signal: SignalSpec, view: LoopView) -> Absence | None:
    """Return why the signal is undefined at the last round; ``None`` if no case is known."""
    of = given_by(signal)
    if unanswered(of, view) and (of is signal or of.name not in view.current.signals):
        return _NOT_ASKED
    for absence in signal.absences:
        if absence.holds(view):
            return absence
    return _RECORDED_SO if signal.name in view.current.signals else None


def undefined_in_words(signal: SignalSpec, view: LoopView) -> str:
    """Return ``undefined`` with the reason in brackets, for a decision's reason."""
    absence = why_undefined(signal, view) if view.rounds else None
    return "undefined" if absence is None else f"undefined ({absence.why})"


# --- recorded by a loop or a policy, computed by nothing here ------------------------------------
LLM_STOP = share(
    name="llm_stop",
    summary="1 if the model says that it would stop",
    answers=False,
    charges=(VERDICTS,),
    binary=True,
)
Q_STOP = SignalSpec(name="q_stop", summary="learned value of stopping here")
Q_CONT = SignalSpec(name="q_cont", summary="learned value of continuing")
REMAINING_SHARE = share(
    name="remaining_share", summary="share of the steps still to come", answers=False
)
MALFORMED_ACTIONS = SignalSpec(
    name="malformed_actions",
    summary="unreadable replies so far: actions, follow-up questions, verdicts",
    answers=False,
    low=0.0,
    direction="low",
)


# the modules of the signals; every SignalSpec at the top of one is a signal, in this order
_FAMILIES = (
    "answer_stability",
    "model_confidence",
    "evidence",
    "retrieval_scores",
    "asking.judge_support",
    "abstained",
    "samples",
    "asking.evidence_models",
    "asking.looks",
    "known_signals",
)


@cache
def _specs() -> dict[str, SignalSpec]:
    modules = (import_module(f"suffice.signals.{family}") for family in _FAMILIES)
    declared = (value for module in modules for value in vars(module).values())
    return {spec.name: spec for spec in declared if isinstance(spec, SignalSpec)}


class _Signals(Mapping[str, SignalSpec]):
    def __getitem__(self, name: str) -> SignalSpec:
        return _specs()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(_specs())

    def __len__(self) -> int:
        return len(_specs())


SIGNALS: Mapping[str, SignalSpec] = _Signals()
_OWN: dict[str, SignalSpec] = {}  # those that the decorator made, in this process
Function = Callable[[str, Sequence[Round]], "float | None"]


@dataclass(frozen=True, slots=True)
class _OfPrefix:
    """Call a user's function at the last round of a view."""

    function: Function

    def __call__(self, view: LoopView) -> float:
        name = getattr(self.function, "__name__", "signal")
        where = f"signal {name!r} at round {len(view.rounds)} of {view.question!r:.60}"
        try:
            value = self.function(view.question, view.rounds)
        except Exception as error:
            raise DataError(f"{where} failed: {type(error).__name__}: {error}") from error
        if not isinstance(value, int | float | None):
            raise DataError(f"{where} gave {value!r:.40}; return a number, or None if undefined")
        return math.nan if value is None else float(value)


@overload
def signal(function: Function, /, **declared: Any) -> SignalSpec: ...
@overload
def signal(**declared: Any) -> Callable[[Function], SignalSpec]: ...
def signal(
    function: Function | None = None, /, **declared: Any
) -> SignalSpec | Callable[[Function], SignalSpec]:
    """Make a signal of a function of a question and its rounds so far, known to rules by its name.

    It is called for every prefix of every question, in replay and in live loops, so it cannot look ahead. A
    recorded value of that name replaces it. ``declared`` are fields of :class:`SignalSpec`, such as
    ``summary``, ``needs`` (columns), ``low`` and ``high``.

    Raises
    ------
    UsageError
        For a name that another signal has, or that no rule can write.

    Examples
    --------
    >>> @signal(low=0.0, answers=False)
    ... def rounds_so_far(question, rounds):
    ...     return len(rounds)
    >>> from suffice.policies.rules.policy import Rule
    >>> Rule(rule="rounds_so_far >= 3").specs[0] is rounds_so_far
    True
    """
    if function is None:
        return lambda decorated: signal(decorated, **declared)
    name = getattr(function, "__name__", "")
    if name in SIGNALS or not name.isidentifier():
        raise UsageError(
            f"a signal is named by its function, and {name!r} is taken or no name; rename it"
        )
    declared = {"summary": "one's own", **declared}
    _OWN[name] = SignalSpec(name=name, compute=_OfPrefix(function), **declared)
    return _OWN[name]


@cache
def computed_signals() -> tuple[SignalSpec, ...]:
    """Return the signals that a record gives without asking a model."""
    return tuple(spec for spec in SIGNALS.values() if not spec.recorded_only)


def askings() -> tuple[Asking, ...]:
    """Return the ways to ask models for signals, in the order of the signals."""
    return tuple(dict.fromkeys(spec.asking for spec in SIGNALS.values() if spec.asking is not None))


def asked_by(asking: Asking) -> tuple[str, ...]:
    """Return the names of the signals that this model call gives."""
    return tuple(name for name, spec in SIGNALS.items() if spec.asking == asking)


def is_usual(spec: SignalSpec) -> bool:
    """Say whether the signal has its default meaning, without a policy's own settings."""
    return SIGNALS.get(spec.name, spec) == spec


_OWN_RECORDED = (
    "; one of your own is a function under @suffice.signal, or stands in the rounds' signals, "
    "Round(signals={NAME: VALUE}), and a rule in Python is told it: Rule(rule=..., "
    "own_signals=(NAME,))"
)


def own_among(names: Iterable[str], recorded: Iterable[str]) -> tuple[str, ...]:
    """Return the user's own ``recorded`` signals among these names or beneath them."""
    known = tuple(recorded)
    given = (given_by(resolve(name, also=known)).name for name in names)
    return tuple(dict.fromkeys(name for name in given if name in known and name not in SIGNALS))


def resolve(name: str, *, also: Iterable[str] = ()) -> SignalSpec:
    """Return the declaration of a signal; ``also`` names the user's own recorded signals."""
    if name in SIGNALS or name in _OWN:
        return SIGNALS[name] if name in SIGNALS else _OWN[name]
    if "(" in name:
        from suffice.signals.derived import DerivedName, derived_signal

        made_of_another = DerivedName.parse(name)
        if made_of_another is not None:
            return derived_signal(made_of_another, also)
    own = sorted(set(also))
    if name in own:
        return SignalSpec(name=name, summary="recorded by the user")
    known = dict.fromkeys([*sorted(SIGNALS), *_OWN, *own])
    how = "" if did_you_mean(name, known) else _OWN_RECORDED
    raise UsageError(f"{unknown_name('signal', name, known)}{how}")
