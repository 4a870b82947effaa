"""The evaluation of MiCP as one page: coverage, rounds and retention against target, with bands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from suffice._version import VERSION
from suffice.bench.micp.found import BASELINE, WAYS, MiCPStudy, MiCPTraces
from suffice.bench.micp.table import OURS, named, of_what, target
from suffice.bench.repetitions import Band, band, percent_band
from suffice.policies.method import Preset
from suffice.report.draw.scatter import figure, legend
from suffice.report.draw.svg import SIZE, area, canvas, enclosing, line, polyline, speck, whisker
from suffice.report.page.frame import page
from suffice.report.page.section import folded, plain
from suffice.results.formats import percent
from suffice.results.markup import Html, data_table, element, join, visible

_CLASS = {"published": "output", "corrected": "adaptive"}
_APART = 2.5  # user units between whiskers of two presets


@dataclass(frozen=True, slots=True)
class _Line:
    """Values against targets, and perhaps the exact interval of one division at each."""

    name: str
    class_: str
    targets: Sequence[float]
    bands: Sequence[Band]
    exact: Sequence[tuple[float, float]] = ()


def micp_page(study: MiCPStudy) -> str:
    """One self-contained HTML document; texts of the record are escaped."""
    sets = [_of_traces(study, each) for each in study.traces]
    return page(
        "MiCP: coverage and retention against target",
        element(
            "header",
            element("p", "Suffice bench micp", class_="eyebrow"),
            element("h1", "MiCP: what is promised and what is measured"),
            plain(
                "Questions are divided at random into some that divide the error budget, some that set "
                "thresholds and some to test. Lines: mean over divisions; bands: least and greatest. "
                "Divisions share their questions, so a band is no confidence interval."
            ),
        ),
        element("main", *sets),
        element("footer", f"Suffice {VERSION}. This file loads nothing from anywhere."),
    )


def _of_traces(study: MiCPStudy, each: MiCPTraces) -> Html:
    figures = [_coverage(study, each), _rounds(study, each)]
    kept = _retention(study, each)
    if kept is not None:
        figures.append(kept)
    notes = element("ul", *(element("li", visible(note)) for note in each.notes), class_="notes")
    return element(
        "section",
        element("h2", named(each)),
        plain(of_what(study, each)),
        element("div", *figures, class_="figures"),
        folded(
            "Every level, preset and objective",
            element("div", _all_cells(each), class_="rules"),
        ),
        notes if each.notes else "",
        class_="more",
    )


# --- figures -------------------------------------------------------------------------------------
def _targets(study: MiCPStudy) -> list[tuple[float, float]]:
    """(target, alpha), rising."""
    return sorted((1.0 - each, each) for each in study.settings.alphas)


def _named(presets: Sequence[Preset]) -> Html:
    return legend([(_CLASS[each], each) for each in presets])


def _coverage(study: MiCPStudy, each: MiCPTraces) -> Html:
    targets = _targets(study)
    lines, rows = [], []
    for preset in study.settings.presets:
        cells = [each.cell(alpha, preset, OURS) for _, alpha in targets]
        bands = [cell.band("coverage") for cell in cells]
        exact = [cell.divisions[0].exact for cell in cells]
        lines.append(_Line(preset, _CLASS[preset], [at for at, _ in targets], bands, exact))
        rows += [
            (
                f"{preset}, {target(alpha)}",
                percent_band(found),
                f"[{percent(low)}, {percent(high)}]",
            )
            for (_, alpha), found, (low, high) in zip(targets, bands, exact, strict=True)
        ]
    head = ("preset, target %", "coverage %, band", f"exact 95%, seed {study.settings.seed}")
    caption = join(
        [
            _named(study.settings.presets),
            "Share of questions whose set holds the right answer, or says that it cannot answer where none "
            "was sampled. On or above the dashed line: as promised. Whiskers: exact 95% interval of one "
            f"division's thresholds (seed {study.settings.seed}). Budget divided for the composite.",
        ]
    )
    table = data_table("Coverage against target", head, rows)
    heading = "Coverage against target"
    return figure(_chart(heading, "coverage, %", lines), caption, table, heading)


def _retention(study: MiCPStudy, each: MiCPTraces) -> Html | None:
    lines, rows = [], []
    for preset in study.settings.presets:
        cells = {one.alpha: one for one in each.retention if one.preset == preset}
        found = [
            (at, alpha, kept)
            for at, alpha in _targets(study)
            if alpha in cells and (kept := cells[alpha].promised) is not None
        ]
        if not found:
            continue
        lines.append(
            _Line(preset, _CLASS[preset], [at for at, _, _ in found], [kept for *_, kept in found])
        )
        rows += [
            (
                f"{preset}, {target(alpha)}",
                *(percent_band(cells[alpha].band(name)) for name in ("passages", "all", "shown")),
            )
            for _, alpha, _ in found
        ]
    if not lines:
        return None
    head = ("preset, target %", "right passages kept %", "questions keeping all %", "shown %")
    caption = join(
        [
            _named(study.settings.presets),
            "The passage filter. Published: share of right passages kept, mean over questions; corrected: "
            "share of questions that keep all of theirs. The numbers also say how much is still shown.",
        ]
    )
    table = data_table("Retention against target", head, rows)
    heading = "Retention of right passages against target"
    return figure(_chart(heading, "kept, %", lines), caption, table, heading)


def _rounds(study: MiCPStudy, each: MiCPTraces) -> Html:
    targets = _targets(study)
    lines, rows = [], []
    for preset in study.settings.presets:
        cells = [each.cell(alpha, preset, OURS) for _, alpha in targets]
        bands = [cell.band("mean_rounds") for cell in cells]
        lines.append(_Line(preset, _CLASS[preset], [at for at, _ in targets], bands))
        rows += [
            (f"{preset}, {target(alpha)}", band(found), band(cell.band("set_size")))
            for (_, alpha), found, cell in zip(targets, bands, cells, strict=True)
        ]
    head = ("preset, target %", "mean rounds, band", "set size, band")
    caption = join(
        [
            _named(study.settings.presets),
            f"Mean rounds; without early stop each takes {each.record.rounds}. Budget divided for the "
            "composite.",
        ]
    )
    table = data_table("Rounds against target", head, rows)
    heading = "Rounds against target"
    return figure(_chart(heading, "mean rounds", lines, shares=False), caption, table, heading)


def _chart(title: str, name: str, lines: Sequence[_Line], *, shares: bool = True) -> Html:
    across = [100 * at for each in lines for at in each.targets]
    upwards = [end for each in lines for found in each.bands for end in (found.low, found.high)]
    upwards += [end for each in lines for ends in each.exact for end in ends]
    if shares:
        upwards += [at / 100 for at in across]
    axes = enclosing(across, upwards)
    x, y = axes.x, axes.y
    drawn = axes.drawn("target 1 - alpha, %", name, shares=shares)
    if shares:
        low, high = min(across), max(across)
        drawn.append(line((x(low), y(low / 100)), (x(high), y(high / 100)), "diagonal"))
    for each in lines:
        at = [x(100 * one) for one in each.targets]
        ends = [*zip(at, (y(one.high) for one in each.bands), strict=True)]
        ends += reversed([*zip(at, (y(one.low) for one in each.bands), strict=True)])
        drawn.append(area(ends, f"band {each.class_}"))
    for number, each in enumerate(lines):
        at = [x(100 * one) for one in each.targets]
        moved = (number - (len(lines) - 1) / 2) * 2 * _APART
        drawn += [
            whisker(((one + moved, y(low)), (one + moved, y(high))), f"whisker {each.class_}")
            for one, (low, high) in zip(at, each.exact, strict=False)
        ]
        middle = [*zip(at, (y(one.mean) for one in each.bands), strict=True)]
        drawn.append(polyline(middle, f"curve {each.class_}"))
        drawn += [speck(one, each.class_) for one in middle]
    described = f"{', '.join(each.name for each in lines)}; the numbers are in the table below."
    return canvas(SIZE, title, described, drawn)


# --- everything ----------------------------------------------------------------------------------
def _all_cells(each: MiCPTraces) -> Html:
    ways = {way: way if way == BASELINE else f"for {way}" for way in WAYS}
    rows = [
        (
            f"{cell.preset}, alpha {cell.alpha:g}, {ways[cell.way]}",
            percent_band(cell.band("coverage")),
            band(cell.band("mean_rounds")),
            band(cell.band("set_size")),
            percent_band(cell.band("answer_rate")),
            band(cell.band("objective")),
        )
        for cell in each.cells
    ]
    head = ("fit", "coverage %", "rounds", "set size", "answer rate %", "objective")
    return data_table("Means with bands over divisions", head, rows)
