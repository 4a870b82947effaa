"""The contract of a method: one object with everything that the package uses of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, get_args, runtime_checkable

from suffice.contracts import Certainty, LoopNeeds, StopPolicy
from suffice.errors import DataError, UsageError
from suffice.options import Option
from suffice.policies.defaults import FIT_SPLIT, CalibratorKind
from suffice.scoring import F1Kind
from suffice.signals.abstained import abstained_signal
from suffice.signals.known_signals import LLM_STOP, SignalSpec, given_by
from suffice.stats.fields import Fields

if TYPE_CHECKING:  # the registry loads no kind but the one that a file holds
    from suffice.measures.measures import Measures
    from suffice.policies.rules.policy import Rule
    from suffice.trace.plan_traces import PlanSet
    from suffice.trace.rounds.trace_set import TraceSet

Preset = Literal["published", "corrected"]
"""As the paper or its code has it, or with its defects mended."""
PRESETS: tuple[Preset, ...] = get_args(Preset)
USUAL_SAMPLES = 3
"""Sampled answers a round for a policy that reads samples and does not say how many."""


# --- a policy in its file ------------------------------------------------------------------------
class PolicyKind(ABC):
    """A kind of policy that a file can hold; ``main_field`` is named where what it says makes no policy."""

    main_field: str

    @abstractmethod
    def read(self, document: Mapping[str, Any], file: Path) -> StopPolicy:
        """The policy of the document that stands in ``file``; :func:`weights_beside` may lie there."""


class RuleKind(PolicyKind):
    """Rules: of one's own, of the methods that write one, and those that certified choice found."""

    main_field = "rule"

    def read(self, document: Mapping[str, Any], file: Path) -> Rule:
        """A rule with its fitted maps."""
        from suffice.policies.rules.policy import read_rule

        del file
        return read_rule(document)


RULE_KIND = RuleKind()


@runtime_checkable
class Weighted(Protocol):
    """A policy whose file has a file of weights beside it."""

    def weights_file(self) -> bytes:
        """The weights as a safetensors file."""


def weights_beside(file: Path) -> Path:
    """Where the weights of a policy file lie."""
    return file.with_suffix(".safetensors")


def read_told(fields: Fields) -> dict[str, Any]:
    """What most policies say of their fit: ``preset``, ``fitted_on`` and ``notes``."""
    return {
        "preset": fields.of("preset", str),
        "fitted_on": fields.of("fitted_on", dict, {}),
        "notes": fields.strings("notes") or (),
    }


def read_abstention(fields: Fields) -> tuple[str, ...] | None:
    """Phrases that count as an abstention; ``None``: the usual ones."""
    phrases = fields.strings("abstention")
    try:
        abstained_signal(phrases or ())
    except UsageError as error:
        raise DataError(str(error), column="abstention") from error
    return phrases


def loop_needs(
    specs: Iterable[SignalSpec], *, samples: int = USUAL_SAMPLES, **own: Any
) -> LoopNeeds:
    """What a loop must give a policy that reads these signals."""
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


# --- who watches a fit ---------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class FitRun:
    """Who watches a fit that takes long.

    ``progress`` is called with how far it is: ``label``, what is counted, as in ``trained steps``;
    ``done`` of ``total``; ``said``, what there is to say in a line, or nothing.
    """

    progress: Callable[[Any], None] | None = None


# --- what is said of a fitted policy -------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A fitted policy with what ``suffice fit`` says of it.

    ``max_rounds`` is the budget that its file states; ``lines`` are for people, with ``{traces}`` and
    ``{policy}`` for the two paths; ``notes`` go to stderr.
    """

    policy: StopPolicy
    max_rounds: int | None = None
    lines: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


# --- methods -------------------------------------------------------------------------------------
class Method(PolicyKind):
    """A stopping method: how it is set, fitted and read. One object a folder, named in the registry.

    Its policies have a kind of its name, a ``document()`` that :meth:`read` reads, and ``weights_file()``
    where a file of weights lies beside (:class:`Weighted`).

    Attributes
    ----------
    name, summary
        For people.
    source
        The paper.
    about
        What its options are about, in a line; may be empty.
    presets
        The versions of it there are.
    fitted
        Presets that learn something. Others read of the traces only which signals they hold, and need
        no split.
    reads
        Splits it is fitted on: the first of these sets that the traces have.
    unfitted
        Presets that run live without being fitted: the policy for what a model gives.
    options
        The dataclass of its options, where all presets have one; else :meth:`settings` says it.
    quick
        Whether a fit takes seconds. Others take a :class:`FitRun` too, ``fit(..., run)``; where everything
        is compared they are fitted when they are named.
    variants
        What else it is fitted as where everything is compared: settings that differ, by what they are called.
        They are quick.
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
        """The dataclass of its options; a command makes its options from the fields."""
        del preset
        return self.options

    @abstractmethod
    def fit(self, measures: Measures, preset: Preset, settings: Any, split: str) -> StopPolicy:
        """Fit on the questions of ``split``."""

    def can_read(self, traces: TraceSet) -> bool:
        """Whether the traces have splits it is fitted on."""
        return any(splits <= set(traces.splits) for splits in self.reads)


@runtime_checkable
class PlanMethod(Protocol):
    """A method that is fitted on the plan traces of agents too."""

    def plan_settings(self, preset: Preset) -> type[Any]:
        """The dataclass of its options there."""

    def fit_plans(self, plans: PlanSet, preset: Preset, settings: Any) -> Fitted:
        """Fit on judged runs."""


# --- what several methods share ------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class NoSettings:
    """Of a preset without options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedSettings:
    """Of methods whose rule holds ``calibrated(...)``."""

    calibrator: Annotated[
        CalibratorKind,
        Option(help="how to fit calibrated(...) (default: isotonic, one map a round)"),
    ] = "isotonic"


F1ToChooseBy = Annotated[
    F1Kind,
    Option(
        name="f1", help="F1 to choose by. hotpotqa: a wrong yes or no scores 0. squad: plain F1."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenSettings:
    """Of methods that choose a number by F1."""

    f1_kind: F1ToChooseBy = "hotpotqa"


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedChoiceSettings(CalibratedSettings):
    """Of those of them whose rule holds ``calibrated(...)``."""

    f1_kind: F1ToChooseBy = "hotpotqa"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFit:
    """How a rule is fitted, on which questions."""

    preset: Preset
    split: str = FIT_SPLIT
    calibrator: CalibratorKind = "isotonic"
    f1_kind: F1Kind = "hotpotqa"


class RuleMethod(RuleKind, Method):
    """A method whose policies are rules; how their maps are fitted is a choice of the corrected preset."""

    chosen_by_f1: frozenset[Preset] = frozenset()

    def settings(self, preset: Preset) -> type[Any]:
        """How its maps are fitted, which the published preset settles, and by which F1 it chooses."""
        if preset in self.chosen_by_f1:
            return CalibratedChoiceSettings if preset == "corrected" else ChosenSettings
        return CalibratedSettings if preset == "corrected" else NoSettings

    def fit(self, measures: Measures, preset: Preset, settings: Any, split: str) -> Rule:
        """See :meth:`fit_rule`; a signal that the record seldom gives is warned of."""
        from suffice.policies.fitting import warn_of_rule

        how = RuleFit(preset=preset, split=split, **asdict(settings))
        policy = self.fit_rule(measures, how)
        warn_of_rule(policy, measures.only_split(split), self.name)
        return policy

    @abstractmethod
    def fit_rule(self, measures: Measures, how: RuleFit) -> Rule:
        """The rule with its maps."""
