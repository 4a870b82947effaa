"""The contract of a stopping method: its settings, its fit, and its policies' files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, get_args, runtime_checkable

from suffice.contracts import Certainty, LoopNeeds, StopPolicy
from suffice.errors import DataError, UsageError
from suffice.options import Option
from suffice.policies.defaults import FIT_SPLIT, CalibratorKind
from suffice.signals.abstained import abstained_signal
from suffice.signals.known_signals import LLM_STOP, SignalSpec, given_by
from suffice.stats.fields import Fields

if TYPE_CHECKING:  # the registry loads no kind but the one that a file holds
    from suffice.measures.measures import Measures
    from suffice.trace.plan_traces import PlanSet
    from suffice.trace.rounds.trace_set import TraceSet

Preset = Literal["published", "corrected"]
"""The version of the paper or its code, or our corrected one."""
PRESETS: tuple[Preset, ...] = get_args(Preset)
USUAL_SAMPLES = 3
"""Sampled answers a round where a policy reads samples and states no number."""


# --- a policy in its file ------------------------------------------------------------------------
class PolicyKind(ABC):
    """A kind of policy in files; errors without a field of their own name its ``main_field``."""

    main_field: str

    @abstractmethod
    def read(self, document: Mapping[str, Any], file: Path) -> StopPolicy:
        """Return the policy of a document; ``file`` is its place, with :func:`weights_beside`."""


@runtime_checkable
class Weighted(Protocol):
    """A policy with a file of weights beside its policy file."""

    def weights_file(self) -> bytes:
        """Return the weights as a safetensors file."""


def weights_beside(file: Path) -> Path:
    return file.with_suffix(".safetensors")


def read_told(fields: Fields) -> dict[str, Any]:
    """Return the fields ``preset``, ``fitted_on`` and ``notes`` of a policy file."""
    return {
        "preset": fields.of("preset", str),
        "fitted_on": fields.of("fitted_on", dict, {}),
        "notes": fields.strings("notes") or (),
    }


def read_abstention(fields: Fields) -> tuple[str, ...] | None:
    """Return the phrases that count as an abstention; ``None``: the usual ones."""
    phrases = fields.strings("abstention")
    try:
        abstained_signal(phrases or ())
    except UsageError as error:
        raise DataError(str(error), column="abstention") from error
    return phrases


def loop_needs(
    specs: Iterable[SignalSpec], *, samples: int = USUAL_SAMPLES, **own: Any
) -> LoopNeeds:
    """Return the inputs that a policy with these signals needs from a loop."""
    read = tuple(map(given_by, specs))
    asks = {spec.asks for spec in read}
    columns = {column for spec in read for column in spec.needs}
    return LoopNeeds(
        answers=any(spec.answers for spec in read),
        tokens="tokens" in columns,
        samples=samples if "samples" in columns else 0,
        judge="--llm" in asks,
        verdicts=any(spec.name == LLM_STOP.name for spec in read),
        encoder="--encoder" in asks,
        **own,
    )


# --- fits ----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class FitRun:
    """The observer of a long fit.

    The fit calls ``progress`` with an object of four fields: ``done`` of ``total`` units, their ``label``
    as in ``trained steps``, and ``said``, one line of news or an empty text.
    """

    progress: Callable[[Any], None] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A fitted policy and the messages of ``suffice fit``.

    ``max_rounds`` is the budget in its file. ``lines`` are for people, with ``{traces}`` and ``{policy}``
    for the two paths; ``notes`` go to stderr.
    """

    policy: StopPolicy
    max_rounds: int | None = None
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


# --- methods -------------------------------------------------------------------------------------
class Method(PolicyKind):
    """A stopping method: its settings, its fit and its file. The registry names one object a folder.

    The kind of its policies is its ``name``. They have a ``document()``, which :meth:`read` reads, and a
    ``weights_file()`` if they have weights (:class:`Weighted`). ``summary`` is its decision in a line,
    ``source`` the paper, ``about`` a line about its options, and ``presets`` are its versions.

    Presets in ``fitted`` learn from questions; others read only which signals the traces hold, without a
    split. ``reads`` are sets of splits to fit on; the first set that the traces have counts. Presets in
    ``unfitted`` run live without a fit: the policy by the model's source of certainty. ``options`` is the
    dataclass of its options, if all presets share one; otherwise override :meth:`settings`. A fit that is
    not ``quick`` also takes a :class:`FitRun`, ``fit(..., run)``, and a choice fits it only by name.
    ``variants`` are quick additional versions in a choice: changed settings by a label.
    """

    name: str
    summary: str
    source: str = ""
    about: str = ""
    presets: tuple[Preset, ...] = PRESETS
    fitted: frozenset[Preset] = frozenset(PRESETS)
    reads: tuple[frozenset[str], ...] = (frozenset({FIT_SPLIT}),)
    unfitted: Mapping[Preset, Callable[[Certainty], StopPolicy]] = MappingProxyType({})
    options: type[Any]
    quick: bool = True
    variants: Mapping[str, Mapping[str, Any]] = MappingProxyType({})

    def settings(self, preset: Preset) -> type[Any]:
        """Return the dataclass of its options; a command makes its options from the fields."""
        del preset
        return self.options

    @abstractmethod
    def fit(self, measures: Measures, preset: Preset, settings: Any, split: str) -> StopPolicy:
        """Fit on the questions of ``split``."""

    def can_read(self, traces: TraceSet) -> bool:
        """Return whether the traces have the splits that it reads."""
        return any(splits <= set(traces.splits) for splits in self.reads)


@runtime_checkable
class PlanMethod(Protocol):
    """A method that can also be fitted on plan traces of agents."""

    def plan_settings(self, preset: Preset) -> type[Any]:
        """Return the dataclass of its options for plan traces."""

    def fit_plans(self, plans: PlanSet, preset: Preset, settings: Any) -> Fitted:
        """Fit on judged runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedSettings:
    """Options of methods whose rules hold ``calibrated(...)``."""

    calibrator: Annotated[
        CalibratorKind,
        Option(help="how to fit calibrated(...) (default: isotonic, one map a round)"),
    ] = "isotonic"
