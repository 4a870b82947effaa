"""The evaluation of MiCP as one page: coverage, rounds and retention against target, with bands."""

from __future__ import annotations

from collections.abc import Sequence

from suffice.bench.micp.found import BASELINE, WAYS, MiCPStudy, MiCPTraces
from suffice.bench.micp.table import OURS, named, of_what, target
from suffice.bench.repetitions import Band, band, percent_band
from suffice.policies.method import Preset
from suffice.report.draw.lines import Line, Lines, lines
from suffice.report.draw.marks import legend
from suffice.report.page.frame import study_page
from suffice.report.page.section import Block, Chart, columns, folded, listed, plain, stacked
from suffice.results.formats import percent
from suffice.results.markup import Html, data_table, element, join, visible

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
        f"thresholds (seed {study.settings.seed}). Budget divided for the composite."
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
        f"Mean rounds; without early stop each takes {traces.record.rounds}. Budget divided for the "
        "composite."
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
