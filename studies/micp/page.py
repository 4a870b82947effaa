"""The evaluation of MiCP as one page with its figures: bands over divisions."""

from __future__ import annotations

from collections.abc import Sequence

from studies.micp.results import (
    OURS,
    MiCPStudy,
    MiCPTraces,
    coverage_table,
    every_cell,
    filter_table,
)
from studies.repetitions import Band
from suffice.policies.method import Preset
from suffice.report.draw.lines import Line, Lines, lines
from suffice.report.draw.marks import legend
from suffice.report.page.frame import study_page
from suffice.report.page.section import Block, Chart, folded, listed, plain, stacked
from suffice.results.markup import Html, element, join, visible

_COLOURS = {"published": "output", "corrected": "adaptive"}


def micp_page(study: MiCPStudy) -> str:
    """One self-contained HTML document; texts of the record are escaped."""
    return study_page(
        "MiCP: coverage and retention against target",
        "python -m studies.micp",
        "MiCP: what is promised and what is measured",
        plain(
            "Questions are divided at random into some that divide the error budget, some that set "
            "thresholds and some to test. Lines: mean over divisions; bands: least and greatest. "
            "Divisions share their questions, so a band is no confidence interval."
        ),
        main=[_of_traces(study, traces) for traces in study.traces],
    )


def _of_traces(study: MiCPStudy, traces: MiCPTraces) -> Html:
    presets = study.settings.presets
    coverage = join(coverage_table(study, traces, preset).html() for preset in presets)
    seed = study.settings.seed
    charts = [
        _against_target(
            study,
            traces,
            "Coverage against target",
            "coverage",
            "Share of questions whose set holds the right answer, or says that it cannot answer where none "
            "was sampled. On or above the dashed line: as promised. Whiskers: exact 95% interval of one "
            f"division's thresholds (seed {seed}). Budget divided for mean rounds.",
            coverage,
        ),
        _against_target(
            study,
            traces,
            "Rounds against target",
            "mean_rounds",
            f"Mean rounds; without early stop each takes {traces.rounds}. Budget divided for mean rounds.",
            coverage,
        ),
    ]
    if any(kept.promised is not None for kept in traces.retention):
        charts.append(
            _against_target(
                study,
                traces,
                "Retention of right passages against target",
                "kept",
                "The passage filter. Published: share of right passages kept, mean over questions; "
                "corrected: share of questions that keep all of theirs. The numbers also say how much is "
                "still shown.",
                filter_table(study, traces).html(),
            )
        )
    numbers = element("div", every_cell(traces).html(), class_="rules")
    blocks: list[Block] = [
        plain(study.of_what(traces)),
        *charts,
        folded("Every level, preset and objective", numbers),
        listed(map(visible, traces.notes)),
    ]
    return element("section", element("h2", traces.name), stacked(blocks), class_="more")


def _against_target(
    study: MiCPStudy, traces: MiCPTraces, title: str, figure: str, caption: str, table: Html
) -> Chart:
    """A line a preset over the targets; ``kept`` is what the passage filter promises."""
    drawn = []
    for preset in study.settings.presets:
        known = [
            (alpha, band)
            for alpha in sorted(study.settings.alphas, reverse=True)
            if (band := _band(traces, figure, alpha, preset)) is not None
        ]
        if not known:
            continue
        exact: Sequence[tuple[float, float]] = ()
        if figure == "coverage":
            exact = [traces.cell(alpha, preset, OURS).divisions[0].exact for alpha, _ in known]
        drawn.append(
            Line(
                colour=_COLOURS[preset],
                at=[100 * (1 - alpha) for alpha, _ in known],
                values=[band.mean for _, band in known],
                band=[(band.low, band.high) for _, band in known],
                intervals=exact,
            )
        )
    across = [at for line in drawn for at in line.at]
    shares = figure != "mean_rounds"
    picture = lines(
        Lines(
            title=title,
            description="The key names the lines; the numbers are in the table below.",
            x_name="target 1 - alpha, %",
            y_name=f"{figure}, %" if shares else "mean rounds",
            lines=drawn,
            shares=shares,
            guide=[(at, at / 100) for at in (min(across), max(across))] if shares else (),
        )
    )
    keys = legend((_COLOURS[preset], preset) for preset in study.settings.presets)
    told = join([keys, caption])
    return Chart(heading=title, pictures=[picture], caption=told, table=table)


def _band(traces: MiCPTraces, figure: str, alpha: float, preset: Preset) -> Band | None:
    if figure != "kept":
        return traces.cell(alpha, preset, OURS).band(figure)
    kept = (cell for cell in traces.retention if (cell.alpha, cell.preset) == (alpha, preset))
    return next(kept).promised
