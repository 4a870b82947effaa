"""What the evaluation of Stop-RAG is asked for and what it found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from suffice._version import VERSION
from studies.repetitions import Band
from suffice.errors import UsageError
from suffice.numbers.intervals.bootstrap import Interval
from suffice.options import Option, read_names
from suffice.policies.defaults import EVAL_SPLIT, FIT_SPLIT
from suffice.policies.method import Preset
from suffice.policies.stop_rag.fit import VALIDATION_SPLIT
from suffice.policies.stop_rag.settings import PACKAGED_ENCODER, StopRAGSettings, Target
from suffice.results.as_json import as_json
from suffice.results.table import Table
from suffice.results.tabular import Tabular
from suffice.scoring import F1Kind

Variant = Literal["q-lambda", "mc", "q0", "binary", "signals"]
VARIANTS: tuple[Variant, ...] = get_args(Variant)
DEFAULT: Variant = "q-lambda"
SIGNALS: Variant = "signals"
LLM_STOPS = "llm-stop"
ORACLE = "oracle-f1"
LEARNED: Mapping[Variant, Target] = MappingProxyType(
    {"q-lambda": "q-lambda", "mc": "mc", "q0": "q0", "binary": "binary", "signals": "q-lambda"}
)
Kind = Literal["learned", "llm-stop", "fixed", "oracle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRAGStudySettings:
    """What is evaluated.

    Parameters
    ----------
    variants
        Networks over texts by what they learn towards, and ``signals``, the default target over the
        signals of a round alone.
    seeds, seed
        Every variant is trained with ``seed``, ``seed`` + 1, ...; the first is also that of resampling.
    preset, fit_split
        How, and on which split; a split ``validation`` is read beside it where there is one.
    split
        The questions scored.
    text, signals
        How networks over texts and over signals are trained; target, reward and seed play no part.
    f1_kind
        The F1 of answers, and of the rewards learned from.
    resamples
        Of the questions.
    folder
        Where fitted policies are kept, ``VARIANT-SEED`` each, and found again.
    """

    variants: Annotated[
        tuple[Variant, ...],
        Option(
            metavar="A,B,...", parse=read_names, help=f"of {', '.join(VARIANTS)} (default: all)"
        ),
    ] = VARIANTS
    seeds: Annotated[int, Option(metavar="N", at_least=1, help="trainings a variant")] = 3
    seed: Annotated[
        int,
        Option(
            at_least=0,
            help="of the first training, each next one's is 1 more, and of the resampling",
        ),
    ] = 42
    preset: Annotated[Preset, Option(help="settings for small data, or the paper's")] = "corrected"
    fit_split: str = FIT_SPLIT
    split: Annotated[str, Option(metavar="S", help="questions to score")] = EVAL_SPLIT
    text: StopRAGSettings = field(default_factory=StopRAGSettings)
    signals: StopRAGSettings = field(default_factory=lambda: StopRAGSettings(features="signals"))
    f1_kind: Annotated[
        F1Kind,
        Option(name="f1", help="which F1, of answers and of rewards; the paper's is squad"),
    ] = "squad"
    resamples: Annotated[
        int, Option(name="bootstrap", metavar="N", at_least=1, help="resamples")
    ] = 1000
    folder: Path | None = None

    def __post_init__(self) -> None:
        unknown = [variant for variant in self.variants if variant not in VARIANTS]
        if unknown or not self.variants or len(set(self.variants)) < len(self.variants):
            raise UsageError(
                f"variants must be of {', '.join(VARIANTS)}, each once, found "
                f"{', '.join(self.variants) or 'none'}"
            )
        if self.seeds < 1 or self.seed < 0 or self.resamples < 1:
            raise UsageError(
                f"seeds and resamples must be at least 1 and the first seed at least 0, found "
                f"{self.seeds}, {self.resamples} and {self.seed}"
            )
        if (self.text.features, self.signals.features) != ("text", "signals"):
            raise UsageError("text must be trained on features text, and signals on signals")
        if self.split in (self.fit_split, VALIDATION_SPLIT):
            raise UsageError(
                f"split {self.split!r} is fitted on; name another one to score, as in --split {EVAL_SPLIT}"
            )

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds trained with."""
        return tuple(range(self.seed, self.seed + self.seeds))


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingOptions:
    """What a command says of the training of every network; ``None``: as the preset has it."""

    encoder: Annotated[str, Option(metavar="PATH_OR_NAME", help="of networks over texts")] = (
        PACKAGED_ENCODER
    )
    epochs: Annotated[float | None, Option(metavar="E", help="passes over the questions")] = None
    min_steps: Annotated[
        int | None,
        Option(metavar="N", at_least=1, help="optimiser steps at least, of every network"),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScores:
    """A policy on the questions.

    Scores are shares, means over the questions; ``llm_calls`` is the mean a question (``None``: unknown).
    ``precision`` and ``recall`` are of the passages retrieved up to the stop, means over the questions
    where they are defined (``None``: nowhere). ``stops`` and ``f1_of`` (n_questions,) are the round taken
    and the F1 there; ``beyond_record`` counts questions that end before the round it wanted.
    """

    seed: int | None = None
    em: float
    f1: float
    acc: float
    mean_rounds: float
    llm_calls: float | None
    precision: float | None
    recall: float | None
    stops: NDArray[np.int16]
    f1_of: NDArray[np.float64]
    beyond_record: int

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null where unknown; without what is per question."""
        rounds, counts = np.unique(self.stops, return_counts=True)
        return {
            "seed": self.seed,
            **{name: getattr(self, name) for name in _FIGURES},
            "stop_rounds": {str(r): int(c) for r, c in zip(rounds, counts, strict=True)},
            "beyond_record": self.beyond_record,
        }


_FIGURES = ("em", "f1", "acc", "mean_rounds", "llm_calls", "precision", "recall")


@dataclass(frozen=True, slots=True, kw_only=True)
class FitFacts:
    """How one network was trained (``loaded``: found so), and what deciding with it takes.

    Of ``trajectories`` (questions) with ``decisions`` (states before the last) the ``informative`` states are
    in the loss; ``validated`` questions chose checkpoint and threshold. ``seconds`` are those of its last
    sitting, ``truncated`` is the share of states that lost text (``None``: it reads none), ``state_seconds``
    what a recorded state took to value on this machine.
    """

    seed: int
    loaded: bool
    threshold: float
    trajectories: int
    decisions: int
    informative: int
    validated: int
    steps: int
    seconds: float
    truncated: float | None
    state_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """A policy, or a variant in its seeds; ``fits`` are those of ``runs``, empty unless it is learned."""

    name: str
    kind: Kind
    runs: tuple[RunScores, ...]
    fits: tuple[FitFacts, ...] = ()

    def band(self, name: str) -> Band | None:
        """Mean, least and greatest over seeds of a figure of :class:`RunScores`; ``None``: unknown."""
        return Band.of([getattr(run, name) for run in self.runs])

    def mean(self, name: str) -> float | None:
        """The mean over seeds alone."""
        over_seeds = self.band(name)
        return None if over_seeds is None else over_seeds.mean

    @property
    def point(self) -> tuple[float, float]:
        """Mean rounds and mean F1, over seeds."""
        rounds = np.mean([run.mean_rounds for run in self.runs])
        return float(rounds), float(np.mean([run.f1 for run in self.runs]))

    @property
    def f1_of(self) -> NDArray[np.float64]:
        """F1 of each question (n_questions,), averaged over seeds."""
        return np.asarray(np.mean([run.f1_of for run in self.runs], axis=0))

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null where unknown."""
        return {
            "name": self.name,
            "kind": self.kind,
            **{name: as_json(self.band(name)) for name in _FIGURES},
            "runs": as_json(self.runs),
            **({"fits": as_json(self.fits)} if self.fits else {}),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class F1Difference:
    """F1 of one contender minus that of another.

    ``interval`` is its own 95% interval; ``low`` and ``high`` hold for all contrasts of the study at once.
    """

    of: str
    against: str
    interval: Interval
    low: float
    high: float

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "of": self.of,
            "against": self.against,
            **as_json(self.interval),
            "simultaneous": {"low": self.low, "high": self.high},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Unread:
    """Actions (queries and verdicts) that could not be read, in ``rounds`` rounds of the questions."""

    actions: int
    questions: int
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class StopRAGStudy(Tabular):
    """Every contender on the same questions.

    Parameters
    ----------
    questions
        RunScores; ``unlabelled`` others of the split were left out.
    fitting
        Labelled questions of the splits fitted on, by name of the split.
    with_gold_passages
        Questions whose precision and recall are known after their last round.
    full, best
        The fixed budgets compared with: all rounds, and the one with the best F1 on the splits fitted on.
    critical
        Bootstrap errors on either side of a simultaneous interval.
    unread
        ``None``: the record does not count them.
    """

    settings: StopRAGStudySettings
    source: str
    questions: int
    unlabelled: int
    rounds: int
    fitting: Mapping[str, int]
    with_gold_passages: int
    contenders: tuple[Contender, ...]
    full: str
    best: str
    contrasts: tuple[F1Difference, ...]
    critical: float
    unread: Unread | None
    notes: tuple[str, ...]

    def tables(self) -> Sequence[Table]:
        """Every policy, differences, trainings."""
        from studies.stop_rag.show import tables_of

        return tables_of(self)

    def contender(self, name: str) -> Contender | None:
        """The contender of this name."""
        return next((policy for policy in self.contenders if policy.name == name), None)

    def of_kind(self, *kinds: Kind) -> Sequence[Contender]:
        """The contenders of these kinds, in order."""
        return [policy for policy in self.contenders if policy.kind in kinds]

    def contrast(self, of: str, against: str) -> F1Difference | None:
        """The contrast of these two."""
        wanted = (of, against)
        return next(
            (contrast for contrast in self.contrasts if (contrast.of, contrast.against) == wanted),
            None,
        )

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null where undefined."""
        wanted = self.settings
        return {
            "traces": self.source,
            "split": wanted.split,
            "questions": self.questions,
            "unlabelled": self.unlabelled,
            "rounds": self.rounds,
            "fitted_on": dict(self.fitting),
            "with_gold_passages": self.with_gold_passages,
            "variants": list(wanted.variants),
            "seeds": list(wanted.all_seeds),
            "preset": wanted.preset,
            "encoder": wanted.text.encoder,
            "f1_kind": wanted.f1_kind,
            "bootstrap": wanted.resamples,
            "version": VERSION,
            "full_budget": self.full,
            "best_fixed": self.best,
            "policies": as_json(self.contenders),
            "contrasts": as_json(self.contrasts),
            "critical": self.critical,
            "unread": as_json(self.unread),
            "band": "mean, least and greatest over seeds",
            "notes": list(self.notes),
        }
