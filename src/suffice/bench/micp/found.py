"""What the evaluation of MiCP found, as a table and a page show it and JSON holds it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal, get_args

import numpy as np

from suffice._version import VERSION
from suffice.bench.micp.arrays import Recorded
from suffice.bench.repetitions import Band
from suffice.errors import UsageError
from suffice.numbers.conformal.order_statistics import exact_level
from suffice.numbers.tests.tails import exact_interval
from suffice.policies.method import Preset
from suffice.policies.micp.settings import MiCPSettings
from suffice.protocols import Retention

Way = Literal["composite", "no early stop", "rounds", "answer-rate"]
WAYS: tuple[Way, ...] = get_args(Way)
BASELINE: Way = "no early stop"
ALPHAS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
PRESETS: tuple[Preset, ...] = ("published", "corrected")
PARTS = ("optimize", "calibrate", "test")
_LEVEL = 0.05


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
    fit
        How MiCP is fitted; its alphas, objective, allocation, share and seed play no part.

    Raises
    ------
    UsageError
        For numbers outside their range.
    """

    alphas: tuple[float, ...] = ALPHAS
    presets: tuple[Preset, ...] = PRESETS
    divisions: int = 3
    seed: int = 42
    shares: tuple[float, float, float] = (1 / 3, 1 / 3, 1 / 3)
    fit: MiCPSettings = field(default_factory=MiCPSettings)

    def __post_init__(self) -> None:
        for each in self.alphas:
            exact_level(each)
        if len(set(self.alphas)) != len(self.alphas) or not self.alphas:
            raise UsageError(f"alphas must be given, each once, found {self.alphas}")
        unknown = [each for each in self.presets if each not in PRESETS]
        if unknown or not self.presets:
            raise UsageError(f"presets must be of {', '.join(PRESETS)}, found {self.presets}")
        if self.divisions < 1 or self.seed < 0:
            raise UsageError(
                f"at least 1 division and a seed from 0, found {self.divisions} and {self.seed}"
            )
        if min(self.shares) <= 0.0 or sum(self.shares) > 1.0 + 1e-9:
            raise UsageError(
                "shares to optimise, calibrate and test must be above 0 and sum to at most 1, found "
                f"{', '.join(f'{each:g}' for each in self.shares)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
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
    divisions: tuple[Scored, ...]

    def band(self, name: str) -> Band:
        """Of a figure of :class:`Scored`."""
        values = [float(getattr(each, name)) for each in self.divisions]
        return Band(float(np.mean(values)), min(values), max(values))

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        names = ("coverage", "mean_rounds", "set_size", "answer_rate", "objective")
        return {
            "alpha": self.alpha,
            "preset": self.preset,
            "budget_for": self.way,
            **{name: asdict(self.band(name)) for name in names},
            "divisions": [
                {**asdict(each), "coverage": each.coverage, "coverage_exact_95": list(each.exact)}
                for each in self.divisions
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
        return Band.of([getattr(each, name) for each in self.divisions])

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null where undefined."""
        bands = {name: self.band(name) for name in ("passages", "all", "shown")}
        return {
            "alpha": self.alpha,
            "preset": self.preset,
            **{name: None if each is None else asdict(each) for name, each in bands.items()},
            "divisions": [asdict(each) for each in self.divisions],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MiCPTraces:
    """A trace set evaluated; ``parts`` are the questions that optimise, calibrate and test."""

    record: Recorded
    parts: tuple[int, int, int]
    cells: tuple[MiCPCell, ...]
    retention: tuple[RetentionCell, ...]
    notes: tuple[str, ...]

    def cell(self, alpha: float, preset: Preset, way: Way) -> MiCPCell:
        """The cell of these."""
        wanted = (alpha, preset, way)
        return next(each for each in self.cells if (each.alpha, each.preset, each.way) == wanted)

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
            "cells": [each.to_json() for each in self.cells],
            "retention": [each.to_json() for each in self.retention],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MiCPStudy:
    """Every trace set evaluated alike."""

    settings: MiCPStudySettings
    traces: tuple[MiCPTraces, ...]

    def to_json(self) -> dict[str, Any]:
        """Strict JSON, null where undefined."""
        wanted, fit = self.settings, self.settings.fit
        return {
            "alphas": list(wanted.alphas),
            "presets": list(wanted.presets),
            "seeds": [wanted.seed + number for number in range(wanted.divisions)],
            "shares": dict(zip(PARTS, wanted.shares, strict=True)),
            "fit": {
                "steps": fit.steps,
                "weight": fit.weight,
                "stop_on": fit.stop_on,
                "penalty": fit.penalty,
                "clusters": fit.clusters,
                "match_f1": fit.match_f1,
            },
            "band": "mean, least and greatest over divisions of the same questions",
            "version": VERSION,
            "trace_sets": [each.to_json() for each in self.traces],
        }
