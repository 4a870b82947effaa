"""What the evaluation of MiCP is asked for and what it found, as data and as tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from pathlib import PurePath
from typing import Annotated, Any, Literal, get_args

import numpy as np

from studies.repetitions import Band, seeds_named
from suffice._version import VERSION
from suffice.errors import UsageError
from suffice.numbers.conformal.order_statistics import exact_level
from suffice.numbers.intervals.bootstrap import Interval
from suffice.numbers.tests.tails import exact_interval
from suffice.options import Option, read_grid, read_names
from suffice.policies.method import Preset
from suffice.policies.micp.settings import MiCPSettings
from suffice.protocols import Retention
from suffice.results.as_json import as_json
from suffice.results.formats import counted, percent
from suffice.results.markup import visible
from suffice.results.table import Cell, Column, Table, Value, notes_table
from suffice.results.tabular import Tabular

Way = Literal["rounds", "no early stop", "answer-rate", "composite", "composite-rates"]
WAYS: tuple[Way, ...] = get_args(Way)
OURS: Way = "rounds"
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
    """What is evaluated over random divisions of the questions, by seeds ``seed``, ``seed`` + 1, ...

    ``fit`` is how MiCP is fitted; its alphas, objective, allocation, share and seed play no part.
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
        values = [float(getattr(scored, name)) for scored in self.divisions]
        return Band(float(np.mean(values)), min(values), max(values))

    def to_json(self) -> dict[str, Any]:
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
        return Band.of([getattr(kept, name) for kept in self.divisions])

    def to_json(self) -> dict[str, Any]:
        return {
            "alpha": self.alpha,
            "preset": self.preset,
            **{name: as_json(self.band(name)) for name in ("passages", "all", "shown")},
            "divisions": as_json(self.divisions),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class MiCPTraces:
    """A trace set evaluated; ``parts`` are the questions that optimise, calibrate and test."""

    source: str
    pipeline: str | None
    unlabelled: int
    rounds: int
    samples: int
    relevance: str | None
    parts: tuple[int, int, int]
    questions: int
    cells: tuple[MiCPCell, ...]
    retention: tuple[RetentionCell, ...]
    notes: tuple[str, ...]

    def cell(self, alpha: float, preset: Preset, way: Way) -> MiCPCell:
        wanted = (alpha, preset, way)
        return next(cell for cell in self.cells if (cell.alpha, cell.preset, cell.way) == wanted)

    @property
    def name(self) -> str:
        """The file's name and, where the record states it, the pipeline."""
        pipeline = "" if self.pipeline is None else f" ({visible(self.pipeline)})"
        return f"{visible(PurePath(self.source).name)}{pipeline}"

    def to_json(self) -> dict[str, Any]:
        return {
            "traces": self.source,
            "pipeline": self.pipeline,
            "questions": self.questions,
            "unlabelled": self.unlabelled,
            **dict(zip(PARTS, self.parts, strict=True)),
            "rounds": self.rounds,
            "samples": self.samples,
            "relevance": self.relevance,
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
        return tuple(note for traces in self.traces for note in traces.notes)

    def tables(self) -> Sequence[Table]:
        """Of every trace set: ways to divide the budget, coverage against target, the passage filter."""
        explained = Table(
            name="explanation",
            title="In brackets: least and greatest over divisions of the same questions, a band and no "
            "confidence interval. Exact: 95% interval (Clopper and Pearson) of what the first division's "
            "thresholds cover; the promise is about the mean over calibrations. Low objectives are good.",
        )
        return (*(table for one in self.traces for table in _tables_of(self, one)), explained)

    def of_what(self, traces: MiCPTraces) -> str:
        """Questions, rounds and divisions of a trace set in a sentence."""
        seeds, parts = self.settings, traces.parts
        return (
            f"{counted(traces.questions, 'labelled question')}, {parts[0]:,} to optimise, "
            f"{parts[1]:,} to calibrate on, {parts[2]:,} to test; {traces.rounds} rounds of "
            f"{traces.samples} samples; {counted(seeds.divisions, 'random division')} "
            f"({seeds_named(seeds.seed, seeds.divisions)})."
        )

    def to_json(self) -> dict[str, Any]:
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


# --- tables ---------------------------------------------------------------------------------------
_TARGET = Column(name="target", head="target %", kind="percent")
_COVERAGE = Column(name="coverage", head="coverage %", kind="percent", interval=True)
_ROUNDS = Column(name="rounds", kind="number", digits=2, interval=True)
_SIZE = Column(name="set_size", head="set size", kind="number", digits=1, interval=True)
_RATE = Column(name="answer_rate", head="answer rate %", kind="percent", digits=0, interval=True)
_OBJECTIVE = Column(name="objective", kind="number", digits=2, interval=True)
_FIGURES = ("coverage", "mean_rounds", "set_size", "answer_rate", "objective")


def _tables_of(study: MiCPStudy, traces: MiCPTraces) -> Iterator[Table]:
    presets, alpha = study.settings.presets, study.settings.shown
    yield Table(name="record", title=f"{traces.name}: {study.of_what(traces)}")
    for preset in presets:
        cells = [traces.cell(alpha, preset, way) for way in WAYS]
        yield Table(
            name=f"{preset}, ways",
            title=f"{preset.capitalize()}, alpha {alpha:g}: by what the error budget is divided for.",
            columns=[Column(name="way", head="budget for"), *_bands()],
            rows=[(cell.way, *map(cell.band, _FIGURES)) for cell in cells],
        )
    yield from (coverage_table(study, traces, preset) for preset in presets)
    if traces.retention:
        yield filter_table(study, traces)
    yield from notes_table(traces.notes)


def _bands() -> tuple[Column, ...]:
    return (_COVERAGE, _ROUNDS, _SIZE, _RATE, _OBJECTIVE)


def _target(alpha: float) -> Cell:
    return Cell(1 - alpha, f"{100 * (1 - alpha):.6g}")


def coverage_table(study: MiCPStudy, traces: MiCPTraces, preset: Preset) -> Table:
    """Coverage, rounds and set size against the target, budget divided for rounds."""
    rows = []
    for alpha in study.settings.alphas:
        ours, without = traces.cell(alpha, preset, OURS), traces.cell(alpha, preset, BASELINE)
        first = ours.divisions[0]
        low, high = first.exact
        exact = Interval(estimate=first.coverage, low=low, high=high)
        rows.append(
            (
                _target(alpha),
                ours.band("coverage"),
                Cell(exact, f"[{percent(low)}, {percent(high)}]"),
                ours.band("mean_rounds"),
                ours.band("set_size").mean,
                without.band("coverage"),
                without.band("set_size").mean,
            )
        )
    exact_head = f"seed {study.settings.seed} exact"
    return Table(
        name=f"{preset}, coverage",
        title=f"{preset.capitalize()}: coverage against target, budget divided for {OURS}.",
        columns=[
            _TARGET,
            _COVERAGE,
            Column(name="exact", head=exact_head, kind="percent", interval=True),
            _ROUNDS,
            Column(name="set_size", head="set size", kind="number", digits=2),
            Column(name="no_stop", head="no stop: coverage", kind="percent", interval=True),
            Column(name="no_stop_set_size", head="set size", kind="number", digits=2),
        ],
        rows=rows,
    )


def filter_table(study: MiCPStudy, traces: MiCPTraces) -> Table:
    """What the passage filter keeps."""
    heads = {"passages": "passages kept", "all": "all kept", "shown": "shown"}
    shares = {"published": ("passages", "all", "shown"), "corrected": ("all", "passages", "shown")}
    columns, asked = [_TARGET], []
    for preset in study.settings.presets:
        for place, name in enumerate(shares[preset]):
            asked.append((preset, name, place == 0))
            head = f"{preset}: {heads[name]}" if place == 0 else heads[name]
            key = f"{preset}_{name}"
            columns.append(Column(name=key, head=head, kind="percent", interval=place == 0))
    cells = {(cell.alpha, cell.preset): cell for cell in traces.retention}
    rows = []
    for alpha in study.settings.alphas:
        row: list[Value] = [_target(alpha)]
        for preset, name, promised in asked:
            band = cells[alpha, preset].band(name)
            row.append(band if promised or band is None else band.mean)
        rows.append(row)
    return Table(
        name="passage filter",
        title="The passage filter, in percent: right passages kept (mean over questions), questions that "
        "keep all of theirs, and passages still shown. Each preset promises its first column.",
        columns=columns,
        rows=rows,
    )
