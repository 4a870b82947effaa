"""What the evaluation of MiCP is asked for, and what it found as tables read from its document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Annotated, Any, Literal, get_args

from studies.command import FirstSeed, check_names, names_option, seeds_named
from suffice.errors import UsageError, counted
from suffice.options import Option, read_grid
from suffice.policies.method import Preset
from suffice.policies.micp.micp_settings import MiCPSettings
from suffice.results.formats import percent
from suffice.results.markup import visible
from suffice.results.table import Cell, Column, Table, Value
from suffice.stats.conformal import exact_level
from suffice.stats.intervals import Interval

Way = Literal["rounds", "no early stop", "answer-rate", "composite", "composite-rates"]
WAYS: tuple[Way, ...] = get_args(Way)
OURS: Way = "rounds"
BASELINE: Way = "no early stop"
ALPHAS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
PRESETS: tuple[Preset, ...] = ("published", "corrected")
PARTS = ("optimize", "calibrate", "test")
_USUAL = 0.1


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
    presets: Annotated[tuple[Preset, ...], names_option(PRESETS)] = PRESETS
    divisions: Annotated[
        int, Option(name="seeds", metavar="N", at_least=1, help="random divisions")
    ] = 3
    seed: FirstSeed = 42
    shares: Annotated[
        tuple[float, ...],
        Option(
            metavar="O,C,T",
            help="of the questions, how many optimise, calibrate and test, as in 0.2,0.5,0.3 (default: a "
            "third each)",
        ),
    ] = (1 / 3, 1 / 3, 1 / 3)
    fit: MiCPSettings = field(default_factory=MiCPSettings)

    def __post_init__(self) -> None:
        for alpha in self.alphas:
            exact_level(alpha)
        if len(set(self.alphas)) != len(self.alphas) or not self.alphas:
            raise UsageError(f"alphas must be given, each once, found {self.alphas}")
        check_names("--presets", self.presets, PRESETS)
        if len(self.shares) != 3 or min(self.shares) <= 0.0 or sum(self.shares) > 1.0 + 1e-9:
            raise UsageError(
                "three shares to optimise, calibrate and test must be above 0 and sum to at most 1, found "
                f"{', '.join(f'{share:g}' for share in self.shares)}"
            )

    @property
    def shown(self) -> float:
        """The alpha of the tables of rounds and sets; the document holds all."""
        return _USUAL if _USUAL in self.alphas else self.alphas[0]

    @property
    def seeds(self) -> range:
        return range(self.seed, self.seed + self.divisions)


def tables_of(settings: MiCPStudySettings, records: Sequence[Mapping[str, Any]]) -> Iterator[Table]:
    """Of every trace set: ways to divide the budget, coverage against target, the passage filter."""
    for record in records:
        yield from _tables_of(settings, record)
    yield Table(
        name="explanation",
        title="In brackets: least and greatest over divisions of the same questions, a band and no "
        "confidence interval. Exact: 95% interval (Clopper and Pearson) of what the first division's "
        "thresholds cover; the promise is about the mean over calibrations. Low objectives are good.",
    )


_TARGET = Column(name="target", head="target %", kind="percent")
_COVERAGE = Column(name="coverage", head="coverage %", kind="percent", interval=True)
_ROUNDS = Column(name="rounds", kind="number", digits=2, interval=True)
_FIGURES = {
    "coverage": _COVERAGE,
    "mean_rounds": _ROUNDS,
    "set_size": Column(name="set_size", head="set size", kind="number", digits=1, interval=True),
    "answer_rate": Column(
        name="answer_rate", head="answer rate %", kind="percent", digits=0, interval=True
    ),
    "objective": Column(name="objective", kind="number", digits=2, interval=True),
}
FIGURES = tuple(_FIGURES)
"""Of a division's thresholds; ``objective`` is the composite, ``set_size`` counts "Can't Answer"."""


def _tables_of(settings: MiCPStudySettings, record: Mapping[str, Any]) -> Iterator[Table]:
    pipeline = "" if record["pipeline"] is None else f" ({visible(record['pipeline'])})"
    seeds = seeds_named(settings.seed, settings.divisions)
    parts = [record[part] for part in PARTS]
    yield Table(
        name="record",
        title=f"{visible(PurePath(record['traces']).name)}{pipeline}: "
        f"{counted(record['questions'], 'labelled question')}, {parts[0]:,} to optimise, {parts[1]:,} to "
        f"calibrate on, {parts[2]:,} to test; {record['rounds']} rounds of {record['samples']} samples; "
        f"{counted(settings.divisions, 'random division')} ({seeds}).",
    )
    cells = {(cell["alpha"], cell["preset"], cell["budget_for"]): cell for cell in record["cells"]}
    alpha = settings.shown
    for preset in settings.presets:
        yield Table(
            name=f"{preset}, ways",
            title=f"{preset.capitalize()}, alpha {alpha:g}: by what the error budget is divided for.",
            columns=[Column(name="way", head="budget for"), *_FIGURES.values()],
            rows=[(way, *(cells[alpha, preset, way][name] for name in FIGURES)) for way in WAYS],
        )
    for preset in settings.presets:
        yield _coverage(settings, cells, preset)
    if record["retention"]:
        yield _filter(settings, record["retention"])


def _target(alpha: float) -> Cell:
    return Cell(1 - alpha, f"{100 * (1 - alpha):.6g}")


def _coverage(
    settings: MiCPStudySettings, cells: Mapping[Any, Mapping[str, Any]], preset: Preset
) -> Table:
    rows = []
    for alpha in settings.alphas:
        ours, without = cells[alpha, preset, OURS], cells[alpha, preset, BASELINE]
        first = ours["divisions"][0]
        low, high = first["coverage_exact_95"]
        exact = Interval(estimate=first["coverage"], low=low, high=high)
        rows.append(
            (
                *(_target(alpha), ours["coverage"]),
                Cell(exact, f"[{percent(low)}, {percent(high)}]"),
                *(ours["mean_rounds"], ours["set_size"].mean),
                *(without["coverage"], without["set_size"].mean),
            )
        )
    exact_head = f"seed {settings.seed} exact"
    size = Column(name="set_size", head="set size", kind="number", digits=2)
    return Table(
        name=f"{preset}, coverage",
        title=f"{preset.capitalize()}: coverage against target, budget divided for {OURS}.",
        columns=[
            *(_TARGET, _COVERAGE),
            Column(name="exact", head=exact_head, kind="percent", interval=True),
            *(_ROUNDS, size),
            Column(name="no_stop", head="no stop: coverage", kind="percent", interval=True),
            replace(size, name="no_stop_set_size"),
        ],
        rows=rows,
    )


def _filter(settings: MiCPStudySettings, retention: Sequence[Mapping[str, Any]]) -> Table:
    heads = {"passages": "passages kept", "all": "all kept", "shown": "shown"}
    shares = {"published": ("passages", "all", "shown"), "corrected": ("all", "passages", "shown")}
    asked = [(preset, name) for preset in settings.presets for name in shares[preset]]
    columns, rows = [_TARGET], []
    for preset, name in asked:
        first = name == shares[preset][0]
        head = f"{preset}: {heads[name]}" if first else heads[name]
        columns.append(Column(name=f"{preset}_{name}", head=head, kind="percent", interval=first))
    cells = {(cell["alpha"], cell["preset"]): cell for cell in retention}
    for alpha in settings.alphas:
        row: list[Value] = [_target(alpha)]
        for preset, name in asked:
            band = cells[alpha, preset][name]
            row.append(band if name == shares[preset][0] or band is None else band.mean)
        rows.append(row)
    return Table(
        name="passage filter",
        title="The passage filter, in percent: right passages kept (mean over questions), questions that "
        "keep all of theirs, and passages still shown. Each preset promises its first column.",
        columns=columns,
        rows=rows,
    )
