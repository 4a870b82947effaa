"""What the evaluation of MiCP is asked for and what it found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import numpy as np

from suffice._version import VERSION
from studies.repetitions import Band
from suffice.errors import UsageError
from suffice.numbers.conformal.order_statistics import exact_level, smallest_sample
from suffice.numbers.tests.tails import exact_interval
from suffice.options import Option, read_grid, read_names
from suffice.policies.method import Preset
from suffice.policies.micp.notes import few_notes, refound_notes, unsampled_notes
from suffice.policies.micp.settings import MiCPSettings
from suffice.policies.micp.stage2 import Objective, Sampled, Stage2
from suffice.protocols import Retention
from suffice.results.as_json import as_json
from suffice.results.table import Table
from suffice.results.tabular import Tabular

if TYPE_CHECKING:
    from studies.micp.run import LabelledRecord

Way = Literal["rounds", "no early stop", "answer-rate", "composite", "composite-rates"]
WAYS: tuple[Way, ...] = get_args(Way)
BASELINE: Way = "no early stop"
ALPHAS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
PRESETS: tuple[Preset, ...] = ("published", "corrected")
PARTS = ("optimize", "calibrate", "test")
_LEVEL = 0.05
_USUAL = 0.1


def read_shares(text: str) -> tuple[float, ...]:
    """Three shares in the order of the parts, or by their names.

    >>> read_shares("test=1/2,optimize=0.25,calibrate=1/4")
    (0.25, 0.25, 0.5)
    """
    shares: dict[str, float] = {}
    for position, part in enumerate(text.split(",")):
        name, named, share = part.rpartition("=")
        key = name.strip() if named else PARTS[position] if position < len(PARTS) else ""
        try:
            value = float(Fraction(share.strip()))
        except (ValueError, ZeroDivisionError):
            value = -1.0
        if key not in PARTS or key in shares or value <= 0.0:
            break
        shares[key] = value
    else:
        if len(shares) == len(PARTS):
            return tuple(shares[part] for part in PARTS)
    raise ValueError(
        f"must be three shares above 0, as in 1/3,1/3,1/3 or {PARTS[0]}=0.2,{PARTS[1]}=0.5,{PARTS[2]}=0.3, "
        f"found {text!r}"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MiCPStudySettings:
    """What is evaluated.

    Parameters
    ----------
    alphas
        Errors promised: of the answer sets, and of the passage filter.
    presets
        How thresholds are calibrated.
    divisions, seed
        How many random divisions of the questions, by seeds ``seed``, ``seed`` + 1, ...
    shares
        Of the questions, how many optimise, calibrate and test; they sum to at most 1.
    at
        The one of ``alphas`` that tables of rounds and sets are of; ``None``: 0.1 where that is among them,
        else the first.
    fit
        How MiCP is fitted; its alphas, objective, allocation, share and seed play no part.
    """

    alphas: Annotated[
        tuple[float, ...],
        Option(
            metavar="LOW:HIGH:STEP|A,B,...",
            parse=read_grid,
            help="errors promised, of answer sets and of the passage filter (default: 0.05:0.3:0.05)",
        ),
    ] = ALPHAS
    at: Annotated[
        float | None,
        Option(
            metavar="A",
            help="alpha of the tables of rounds and sets (default: 0.1 where it is among --alphas, else "
            "the first); --json and --out hold all",
        ),
    ] = None
    presets: Annotated[
        tuple[Preset, ...],
        Option(metavar="A,B", parse=read_names, help=f"of {', '.join(PRESETS)} (default: both)"),
    ] = PRESETS
    divisions: Annotated[
        int, Option(name="seeds", metavar="N", at_least=1, help="random divisions")
    ] = 3
    seed: Annotated[int, Option(at_least=0, help="of the first; each next one's is 1 more")] = 42
    shares: Annotated[
        tuple[float, float, float],
        Option(
            metavar="O,C,T",
            parse=read_shares,
            help="of the questions, how many optimise, calibrate and test, as in 1/3,1/3,1/3 or "
            "optimize=0.2,calibrate=0.5,test=0.3 (default: a third each)",
        ),
    ] = (1 / 3, 1 / 3, 1 / 3)
    fit: MiCPSettings = field(default_factory=MiCPSettings)

    def __post_init__(self) -> None:
        for alpha in self.alphas:
            exact_level(alpha)
        if len(set(self.alphas)) != len(self.alphas) or not self.alphas:
            raise UsageError(f"alphas must be given, each once, found {self.alphas}")
        unknown = [preset for preset in self.presets if preset not in PRESETS]
        if unknown or not self.presets:
            raise UsageError(f"presets must be of {', '.join(PRESETS)}, found {self.presets}")
        if self.divisions < 1 or self.seed < 0:
            raise UsageError(
                f"at least 1 division and a seed from 0, found {self.divisions} and {self.seed}"
            )
        if min(self.shares) <= 0.0 or sum(self.shares) > 1.0 + 1e-9:
            raise UsageError(
                "shares to optimise, calibrate and test must be above 0 and sum to at most 1, found "
                f"{', '.join(f'{share:g}' for share in self.shares)}"
            )
        if self.at is not None and self.at not in self.alphas:
            listed = ", ".join(f"{alpha:g}" for alpha in self.alphas)
            raise UsageError(f"--at {self.at:g} is not among --alphas {listed}")

    @property
    def shown(self) -> float:
        """The alpha of the tables that are of one."""
        wanted = (self.at, _USUAL)
        return next(
            (alpha for alpha in wanted if alpha in self.alphas and alpha is not None),
            self.alphas[0],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DivisionScores:
    """Thresholds of one division on its ``questions`` to test; ``covered`` counts.

    ``set_size`` counts "Can't Answer" as a member; ``objective`` is the composite, low is good.
    """

    seed: int
    questions: int
    covered: int
    mean_rounds: float
    set_size: float
    answer_rate: float
    objective: float

    @property
    def coverage(self) -> float:
        """Share covered."""
        return self.covered / self.questions

    @property
    def exact(self) -> tuple[float, float]:
        """Clopper and Pearson's 95% interval of the coverage of this division's thresholds."""
        return exact_interval(self.covered, self.questions, _LEVEL)


@dataclass(frozen=True, slots=True, kw_only=True)
class MiCPCell:
    """A level, a preset and what divided the budget, over divisions."""

    alpha: float
    preset: Preset
    way: Way
    divisions: tuple[DivisionScores, ...]

    def band(self, name: str) -> Band:
        """Of a figure of :class:`DivisionScores`."""
        values = [float(getattr(scored, name)) for scored in self.divisions]
        return Band(float(np.mean(values)), min(values), max(values))

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        names = ("coverage", "mean_rounds", "set_size", "answer_rate", "objective")
        return {
            "alpha": self.alpha,
            "preset": self.preset,
            "budget_for": self.way,
            **{name: as_json(self.band(name)) for name in names},
            "divisions": [
                {
                    **asdict(scored),
                    "coverage": scored.coverage,
                    "coverage_exact_95": list(scored.exact),
                }
                for scored in self.divisions
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionCell:
    """What the passage filter of a level and preset leaves of the questions to test."""

    alpha: float
    preset: Preset
    divisions: tuple[Retention, ...]

    @property
    def promised(self) -> Band | None:
        """What the preset promises at least 1 - alpha of: right passages, or questions that keep all."""
        return self.band("passages" if self.preset == "published" else "all")

    def band(self, name: str) -> Band | None:
        """Of a figure of :class:`~suffice.policies.micp.relevance_fit.Retention`."""
        return Band.of([getattr(kept, name) for kept in self.divisions])

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null where undefined."""
        return {
            "alpha": self.alpha,
            "preset": self.preset,
            **{name: as_json(self.band(name)) for name in ("passages", "all", "shown")},
            "divisions": as_json(self.divisions),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MiCPTraces:
    """A trace set evaluated; ``parts`` are the questions that optimise, calibrate and test."""

    record: LabelledRecord
    parts: tuple[int, int, int]
    cells: tuple[MiCPCell, ...]
    retention: tuple[RetentionCell, ...]
    notes: tuple[str, ...]

    def cell(self, alpha: float, preset: Preset, way: Way) -> MiCPCell:
        """The cell of these."""
        wanted = (alpha, preset, way)
        return next(cell for cell in self.cells if (cell.alpha, cell.preset, cell.way) == wanted)

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        record = self.record
        return {
            "traces": record.source,
            "pipeline": record.pipeline,
            "questions": len(record.question_ids),
            "unlabelled": record.unlabelled,
            **dict(zip(PARTS, self.parts, strict=True)),
            "rounds": record.rounds,
            "samples": record.samples,
            "relevance": None if record.relevances is None else record.relevances.relevance,
            "cells": as_json(self.cells),
            "retention": as_json(self.retention),
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MiCPStudy(Tabular):
    """Every trace set evaluated alike."""

    settings: MiCPStudySettings
    traces: tuple[MiCPTraces, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Those of every trace set."""
        return tuple(note for traces in self.traces for note in traces.notes)

    def tables(self) -> Sequence[Table]:
        """Of every trace set: ways to divide the budget, coverage against target, the passage filter."""
        from studies.micp.show import tables_of

        return tables_of(self)

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null where undefined."""
        wanted, fit = self.settings, self.settings.fit
        return {
            "alphas": list(wanted.alphas),
            "presets": list(wanted.presets),
            "seeds": [wanted.seed + number for number in range(wanted.divisions)],
            "shares": dict(zip(PARTS, wanted.shares, strict=True)),
            "fit": {
                "grid": fit.grid,
                "steps": fit.steps,
                "weight": fit.weight,
                "stop_on": fit.stop_on,
                "penalty": fit.penalty,
                "clusters": fit.clusters or "string",
                "match_f1": fit.match_f1,
            },
            "band": "mean, least and greatest over divisions of the same questions",
            "version": VERSION,
            "trace_sets": as_json(self.traces),
        }


# --- notes ---------------------------------------------------------------------------------------
@dataclass(slots=True, kw_only=True)
class StudyNotes:
    """Gathers what fits of all divisions have to say; ``sizes`` are those of the parts."""

    record: LabelledRecord
    sizes: tuple[int, int, int]
    _held: dict[str, None] = field(default_factory=dict)
    _asked: dict[Fraction, int] = field(default_factory=dict)
    _never: dict[Fraction, int] = field(default_factory=dict)

    def held(self, calibration: Sampled) -> None:
        """Look at the questions a division calibrates on."""
        self._held.update(dict.fromkeys(unsampled_notes(calibration)))

    def fitted(
        self, alpha: Fraction, levels: Sequence[Fraction], thresholds: Stage2, objective: Objective
    ) -> None:
        """Look at the thresholds of one fit."""
        self._asked[alpha] = self._asked.get(alpha, 0) + 1
        if few_notes(self.sizes[:2], alpha, levels, thresholds, objective):
            self._never[alpha] = self._never.get(alpha, 0) + 1

    def said(self) -> tuple[str, ...]:
        """The sentences."""
        return (*self._about_the_record(), *self._held, *self._few(), *self._without_stop())

    def _about_the_record(self) -> list[str]:
        record, said = self.record, []
        if record.unlabelled:
            said.append(f"{record.unlabelled} questions without gold answers are left out")
        short = int((record.last_rounds < record.rounds).sum())
        if short:
            said.append(
                f"{short} questions hold fewer than {record.rounds} rounds: they sample nothing in the "
                "ones they lack"
            )
        if record.filtered:
            said.append(
                "no retention: its passages were filtered when it was recorded, and those dropped are not "
                "in it"
            )
        elif record.relevances is None:
            said.append(
                "no retention: the record holds no relevance of passages, or no gold passages"
            )
        else:
            said += refound_notes(record.relevances.unrecorded)
        return said

    def _few(self) -> list[str]:
        few = [level for level in self._asked if min(self.sizes[:2]) < smallest_sample(level)]
        if not few:
            return []
        needed = ", ".join(f"{smallest_sample(level)} for {float(level):g}" for level in few)
        return [
            f"too few questions ({self.sizes[0]} to optimise, {self.sizes[1]} to calibrate on) for "
            f"alpha = {', '.join(f'{float(level):g}' for level in few)}: each part needs at least {needed}"
        ]

    def _without_stop(self) -> list[str]:
        if not self._never:
            return []
        shares = ", ".join(
            f"{self._never[level]} of {self._asked[level]} at alpha {float(level):g}"
            for level in sorted(self._never)
        )
        return [
            f"fits without any early stop, presets, objectives and divisions together: {shares}. Either too "
            "few questions for a threshold, or no division of the budget was better on those to optimise"
        ]
