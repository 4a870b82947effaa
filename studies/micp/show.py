"""The evaluation of MiCP as tables, and as one page with its figures: bands over divisions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from studies.micp.results import BASELINE, WAYS, MiCPCell, MiCPStudy, MiCPTraces, Way
from studies.repetitions import Band, band, percent_band, seeds_named
from suffice.numbers.intervals.bootstrap import Interval
from suffice.policies.method import Preset
from suffice.report.draw.lines import Line, Lines, lines
from suffice.report.draw.marks import legend
from suffice.report.page.frame import study_page
from suffice.report.page.section import Block, Chart, columns, folded, listed, plain, stacked
from suffice.results.formats import counted, percent
from suffice.results.markup import Html, data_table, element, join, visible
from suffice.results.table import Cell, Column, Table, Value, notes_table

OURS: Way = "rounds"
_ROUNDS = Column(name="rounds", kind="number", digits=2, interval=True)
_COVERAGE = Column(name="coverage", head="coverage %", kind="percent", interval=True)


# --- tables ---------------------------------------------------------------------------------------
def tables_of(study: MiCPStudy) -> tuple[Table, ...]:
    """Of every trace set: ways to divide the budget, coverage against target, the passage filter."""
    explained = Table(
        name="explanation",
        title="In brackets: least and greatest over divisions of the same questions, a band and no "
        "confidence interval. Exact: 95% interval (Clopper and Pearson) of what the first division's "
        "thresholds cover; the promise is about the mean over calibrations. Low objectives are good.",
    )
    return (*(table for traces in study.traces for table in _tables_of(study, traces)), explained)


def _tables_of(study: MiCPStudy, traces: MiCPTraces) -> Iterator[Table]:
    presets = study.settings.presets
    yield Table(name="record", title=f"{named(traces)}: {of_what(study, traces)}")
    yield from (_ways(study, traces, preset) for preset in presets)
    yield from (_against_target(study, traces, preset) for preset in presets)
    if traces.retention:
        yield _filter(study, traces)
    yield from notes_table(traces.notes)


def named(traces: MiCPTraces) -> str:
    """The file's name and, where the record states it, the pipeline."""
    record = traces.record
    pipeline = "" if record.pipeline is None else f" ({visible(record.pipeline)})"
    return f"{visible(PurePath(record.source).name)}{pipeline}"


def of_what(study: MiCPStudy, traces: MiCPTraces) -> str:
    """Questions, rounds and divisions of a trace set in a sentence."""
    record, seeds, parts = traces.record, study.settings, traces.parts
    return (
        f"{counted(len(record.question_ids), 'labelled question')}, {parts[0]:,} to optimise, "
        f"{parts[1]:,} to calibrate on, {parts[2]:,} to test; {record.rounds} rounds of "
        f"{record.samples} samples; {counted(seeds.divisions, 'random division')} "
        f"({seeds_named(seeds.seed, seeds.divisions)})."
    )


def target(alpha: float) -> str:
    """1 - alpha in percent.

    >>> target(0.29)
    '71'
    """
    return f"{100 * (1 - alpha):.6g}"


_TARGET = Column(name="target", head="target %", kind="percent")


def _target(alpha: float) -> Cell:
    return Cell(1 - alpha, target(alpha))


def _ways(study: MiCPStudy, traces: MiCPTraces, preset: Preset) -> Table:
    alpha = study.settings.shown
    measures = ("coverage", "mean_rounds", "set_size", "answer_rate", "objective")
    cells = [traces.cell(alpha, preset, way) for way in WAYS]
    return Table(
        name=f"{preset}, ways",
        title=f"{preset.capitalize()}, alpha {alpha:g}: by what the error budget is divided for.",
        columns=[
            Column(name="way", head="budget for"),
            _COVERAGE,
            _ROUNDS,
            Column(name="set_size", head="set size", kind="number", digits=1, interval=True),
            Column(
                name="answer_rate", head="answer rate %", kind="percent", digits=0, interval=True
            ),
            Column(name="objective", kind="number", digits=2, interval=True),
        ],
        rows=[(cell.way, *(cell.band(measure) for measure in measures)) for cell in cells],
    )


def _against_target(study: MiCPStudy, traces: MiCPTraces, preset: Preset) -> Table:
    rows = []
    for alpha in study.settings.alphas:
        ours, without = traces.cell(alpha, preset, OURS), traces.cell(alpha, preset, BASELINE)
        rows.append(
            (
                _target(alpha),
                ours.band("coverage"),
                _exact(ours),
                ours.band("mean_rounds"),
                ours.band("set_size").mean,
                without.band("coverage"),
                without.band("set_size").mean,
            )
        )
    return Table(
        name=f"{preset}, coverage",
        title=f"{preset.capitalize()}: coverage against target, budget divided for {OURS}.",
        columns=[
            _TARGET,
            _COVERAGE,
            Column(
                name="exact",
                head=f"seed {study.settings.seed} exact",
                kind="percent",
                interval=True,
            ),
            _ROUNDS,
            Column(name="set_size", head="set size", kind="number", digits=2),
            Column(name="no_stop", head="no stop: coverage", kind="percent", interval=True),
            Column(name="no_stop_set_size", head="set size", kind="number", digits=2),
        ],
        rows=rows,
    )


def _exact(cell: MiCPCell) -> Cell:
    first = cell.divisions[0]
    low, high = first.exact
    return Cell(
        Interval(estimate=first.coverage, low=low, high=high), f"[{percent(low)}, {percent(high)}]"
    )


def _filter(study: MiCPStudy, traces: MiCPTraces) -> Table:
    promised = {"published": "passages kept", "corrected": "all kept"}
    other = {"published": ("all", "all kept"), "corrected": ("passages", "passages")}
    presets = study.settings.presets
    table_columns = [_TARGET]
    for preset in presets:
        head = f"{preset}: {promised[preset]}"
        table_columns += [
            Column(name=f"{preset}_promised", head=head, kind="percent", interval=True),
            Column(name=f"{preset}_{other[preset][0]}", head=other[preset][1], kind="percent"),
            Column(name=f"{preset}_shown", head="shown", kind="percent"),
        ]
    cells = {(cell.alpha, cell.preset): cell for cell in traces.retention}
    rows = []
    for alpha in study.settings.alphas:
        row: list[Value] = [_target(alpha)]
        for preset in presets:
            cell = cells[alpha, preset]
            rest = (cell.band(other[preset][0]), cell.band("shown"))
            row += [cell.promised, *(None if one is None else one.mean for one in rest)]
        rows.append(row)
    return Table(
        name="passage filter",
        title="The passage filter, in percent: right passages kept (mean over questions), questions that "
        "keep all of theirs, and passages still shown. Each preset promises its first column.",
        columns=table_columns,
        rows=rows,
    )


# --- page -----------------------------------------------------------------------------------------
_COLOURS = {"published": "output", "corrected": "adaptive"}


def micp_page(study: MiCPStudy) -> str:
    """One self-contained HTML document; texts of the record are escaped."""
    return study_page(
        "MiCP: coverage and retention against target",
        "Suffice bench micp",
        "MiCP: what is promised and what is measured",
        plain(
            "Questions are divided at random into some that divide the error budget, some that set "
            "thresholds and some to test. Lines: mean over divisions; bands: least and greatest. "
            "Divisions share their questions, so a band is no confidence interval."
        ),
        main=[_of_traces(study, traces) for traces in study.traces],
    )


def _of_traces(study: MiCPStudy, traces: MiCPTraces) -> Html:
    charts = (_coverage(study, traces), _rounds(study, traces), _retention(study, traces))
    blocks: list[Block] = [
        plain(of_what(study, traces)),
        *(chart for chart in charts if chart is not None),
        folded(
            "Every level, preset and objective",
            element("div", _all_cells(traces), class_="rules"),
        ),
        listed(map(visible, traces.notes)),
    ]
    return element("section", element("h2", named(traces)), stacked(blocks), class_="more")


# --- charts --------------------------------------------------------------------------------------
def _targets(study: MiCPStudy) -> list[tuple[float, float]]:
    """(target, alpha), rising."""
    return sorted((1.0 - alpha, alpha) for alpha in study.settings.alphas)


def _coverage(study: MiCPStudy, traces: MiCPTraces) -> Chart:
    targets = _targets(study)
    drawn, rows = [], []
    for preset in study.settings.presets:
        cells = [traces.cell(alpha, preset, OURS) for _, alpha in targets]
        bands = [cell.band("coverage") for cell in cells]
        exact = [cell.divisions[0].exact for cell in cells]
        drawn.append(_line(preset, [at for at, _ in targets], bands, exact))
        rows += [
            (f"{preset}, {target(alpha)}", percent_band(over), f"[{percent(low)}, {percent(high)}]")
            for (_, alpha), over, (low, high) in zip(targets, bands, exact, strict=True)
        ]
    head = ("preset, target %", "coverage %, band", f"exact 95%, seed {study.settings.seed}")
    caption = (
        "Share of questions whose set holds the right answer, or says that it cannot answer where none was "
        "sampled. On or above the dashed line: as promised. Whiskers: exact 95% interval of one division's "
        f"thresholds (seed {study.settings.seed}). Budget divided for mean rounds."
    )
    table = data_table("Coverage against target", head, rows)
    chart = _lines("Coverage against target", "coverage, %", drawn, shares=True)
    return _chart(chart, study.settings.presets, caption, table)


def _retention(study: MiCPStudy, traces: MiCPTraces) -> Chart | None:
    drawn, rows = [], []
    for preset in study.settings.presets:
        cells = {cell.alpha: cell for cell in traces.retention if cell.preset == preset}
        known = [
            (at, alpha, kept)
            for at, alpha in _targets(study)
            if alpha in cells and (kept := cells[alpha].promised) is not None
        ]
        if not known:
            continue
        drawn.append(_line(preset, [at for at, _, _ in known], [kept for *_, kept in known]))
        rows += [
            (
                f"{preset}, {target(alpha)}",
                *(percent_band(cells[alpha].band(name)) for name in ("passages", "all", "shown")),
            )
            for _, alpha, _ in known
        ]
    if not drawn:
        return None
    head = ("preset, target %", "right passages kept %", "questions keeping all %", "shown %")
    caption = (
        "The passage filter. Published: share of right passages kept, mean over questions; corrected: share "
        "of questions that keep all of theirs. The numbers also say how much is still shown."
    )
    table = data_table("Retention against target", head, rows)
    chart = _lines("Retention of right passages against target", "kept, %", drawn, shares=True)
    return _chart(chart, study.settings.presets, caption, table)


def _rounds(study: MiCPStudy, traces: MiCPTraces) -> Chart:
    targets = _targets(study)
    drawn, rows = [], []
    for preset in study.settings.presets:
        cells = [traces.cell(alpha, preset, OURS) for _, alpha in targets]
        bands = [cell.band("mean_rounds") for cell in cells]
        drawn.append(_line(preset, [at for at, _ in targets], bands))
        rows += [
            (f"{preset}, {target(alpha)}", band(over), band(cell.band("set_size")))
            for (_, alpha), over, cell in zip(targets, bands, cells, strict=True)
        ]
    head = ("preset, target %", "mean rounds, band", "set size, band")
    caption = (
        f"Mean rounds; without early stop each takes {traces.record.rounds}. Budget divided for "
        "mean rounds."
    )
    table = data_table("Rounds against target", head, rows)
    chart = _lines("Rounds against target", "mean rounds", drawn, shares=False)
    return _chart(chart, study.settings.presets, caption, table)


def _line(
    preset: Preset,
    targets: Sequence[float],
    bands: Sequence[Band],
    exact: Sequence[tuple[float, float]] = (),
) -> Line:
    """Means at the targets, and perhaps the exact interval of one division at each."""
    return Line(
        colour=_COLOURS[preset],
        at=[100 * target for target in targets],
        values=[over.mean for over in bands],
        band=[(over.low, over.high) for over in bands],
        intervals=exact,
    )


def _lines(title: str, y_name: str, drawn: Sequence[Line], *, shares: bool) -> Lines:
    across = [at for line in drawn for at in line.at]
    names = [
        preset
        for preset, colour in _COLOURS.items()
        if any(line.colour == colour for line in drawn)
    ]
    ends = [(at, at / 100) for at in (min(across), max(across))]
    return Lines(
        title=title,
        description=f"{', '.join(names)}; the numbers are in the table below.",
        x_name="target 1 - alpha, %",
        y_name=y_name,
        lines=drawn,
        shares=shares,
        guide=ends if shares else (),
    )


def _chart(chart: Lines, presets: Sequence[Preset], caption: str, table: Html) -> Chart:
    colours = legend((_COLOURS[preset], preset) for preset in presets)
    return Chart(
        heading=chart.title, pictures=[lines(chart)], caption=join([colours, caption]), table=table
    )


# --- everything ----------------------------------------------------------------------------------
def _all_cells(traces: MiCPTraces) -> Html:
    ways = {way: way if way == BASELINE else f"for {way}" for way in WAYS}
    return columns(
        "Means with bands over divisions",
        traces.cells,
        ("fit", lambda cell: f"{cell.preset}, alpha {cell.alpha:g}, {ways[cell.way]}"),
        ("coverage %", lambda cell: percent_band(cell.band("coverage"))),
        ("rounds", lambda cell: band(cell.band("mean_rounds"))),
        ("set size", lambda cell: band(cell.band("set_size"))),
        ("answer rate %", lambda cell: percent_band(cell.band("answer_rate"))),
        ("objective", lambda cell: band(cell.band("objective"))),
    )
