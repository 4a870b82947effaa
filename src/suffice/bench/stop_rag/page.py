"""The evaluation of Stop-RAG as one page: F1 against rounds, differences, and every number."""

from __future__ import annotations

from string import ascii_uppercase

from suffice.bench.stop_rag.found import Contender, Contrast, StopRAGStudy
from suffice.bench.stop_rag.table import (
    explained,
    f1_spread,
    milliseconds,
    named,
    of_what,
    roles,
    rounds_spread,
    simultaneous,
    worth_of_text,
)
from suffice.report.draw.forest import Estimated, Forest, ForestRow, forest
from suffice.report.draw.marks import key
from suffice.report.draw.scatter import Point, Scatter, scatter
from suffice.report.page.frame import study_page
from suffice.report.page.section import Block, Chart, columns, folded, listed, plain, stacked
from suffice.results.formats import decimal, percent, points
from suffice.results.markup import Html, element, join, visible


def stop_rag_page(study: StopRAGStudy) -> str:
    """One self-contained HTML document; texts of the record are escaped."""
    worth = worth_of_text(study)
    blocks: list[Block] = [
        plain(of_what(study)),
        plain(worth) if worth else Html(),
        _frontier(study),
        _differences(study),
        folded("Every policy and seed", element("div", _policies(study), class_="rules")),
        folded("Every training", element("div", _fits(study), class_="rules")),
        listed(map(visible, study.notes)),
    ]
    return study_page(
        "Stop-RAG: what a learned value of stopping is worth",
        "Suffice bench stop-rag",
        "Stop-RAG: is it worth learning when to stop?",
        plain(roles(study), " ", explained(study)),
        main=[element("section", element("h2", named(study)), stacked(blocks), class_="more")],
    )


# --- F1 against rounds ---------------------------------------------------------------------------
def _frontier(study: StopRAGStudy) -> Chart:
    letters = iter(ascii_uppercase)
    contenders = study.of_kind("learned", "llm-stop", "fixed")
    marks = [
        each.name.partition("-")[2] if each.kind == "fixed" else next(letters)
        for each in contenders
    ]
    marked = [_point(each, mark) for each, mark in zip(contenders, marks, strict=True)]
    heading = "F1 against mean rounds"
    chart = Scatter(
        title=heading,
        description=f"{len(marked)} policies; the key names the marks, the table has the numbers.",
        x_name="mean rounds",
        y_name="F1, %",
        points=marked,
        frontier=[(point.x, point.y) for point in marked if point.family == "fixed"],
    )
    adaptive = (
        (point.mark, point.family, each.name)
        for point, each in zip(marked, contenders, strict=True)
        if point.family == "adaptive"
    )
    caption = (
        "Up is better, left is cheaper. Line and squares: fixed budgets. Small points: the seeds of a "
        "variant, whose mean is the circle. The oracle is in the table only."
    )
    table = columns(
        "F1 and rounds of every policy",
        study.contenders,
        ("policy", lambda each: each.name),
        ("F1 %, seeds", f1_spread),
        ("rounds, seeds", rounds_spread),
    )
    return Chart(
        heading=heading,
        pictures=[scatter(chart)],
        caption=join([key(adaptive), caption]),
        table=table,
    )


def _point(contender: Contender, mark: str) -> Point:
    rounds, f1 = contender.point
    runs = contender.runs if len(contender.runs) > 1 else ()
    return Point(
        mark=mark,
        family="fixed" if contender.kind == "fixed" else "adaptive",
        x=rounds,
        y=f1,
        name=f"{mark}  {contender.name}",
        said=f"F1 {percent(f1)}%, {decimal(rounds)} rounds",
        around=[(run.mean_rounds, run.f1) for run in runs],
    )


# --- differences ---------------------------------------------------------------------------------
def _differences(study: StopRAGStudy) -> Chart:
    heading = "Differences of F1"
    chart = Forest(
        title=heading,
        description="One row a difference, with both intervals; the numbers are in the table below.",
        rows=[
            ForestRow(name=_pair(each), estimates=[_estimated(each)]) for each in study.contrasts
        ],
        none=(0.0, "no difference"),
        x_name="points of F1",
    )
    table = columns(
        "Differences of F1 in points",
        study.contrasts,
        ("F1 of, minus", _pair),
        ("difference [95%]", lambda each: points(each.interval)),
        ("all at once [95%]", simultaneous),
    )
    return Chart(
        heading=heading,
        pictures=[forest(chart)],
        caption="Points of F1, paired by question, averaged over seeds. Thick: the 95% interval of each; "
        "thin: those that hold for all at once. Right of the line the first is better.",
        table=table,
    )


def _pair(contrast: Contrast) -> str:
    return f"{contrast.of} - {contrast.against}"


def _estimated(contrast: Contrast) -> Estimated:
    interval = contrast.interval
    return Estimated(
        family="adaptive",
        value=100 * interval.estimate,
        hint=f"{_pair(contrast)}: {points(interval)}",
        interval=(100 * interval.low, 100 * interval.high),
        wide=(100 * contrast.low, 100 * contrast.high),
    )


# --- everything ----------------------------------------------------------------------------------
def _policies(study: StopRAGStudy) -> Html:
    return columns(
        "Every policy in every seed",
        [(each.name, run) for each in study.contenders for run in each.runs],
        ("policy", lambda row: row[0] if row[1].seed is None else f"{row[0]}, seed {row[1].seed}"),
        ("EM %", lambda row: percent(row[1].em)),
        ("F1 %", lambda row: percent(row[1].f1)),
        ("Acc %", lambda row: percent(row[1].acc)),
        ("rounds", lambda row: decimal(row[1].mean_rounds)),
        ("calls", lambda row: decimal(row[1].llm_calls)),
        ("precision %", lambda row: percent(row[1].precision)),
        ("recall %", lambda row: percent(row[1].recall)),
    )


def _fits(study: StopRAGStudy) -> Html:
    return columns(
        "Every training",
        [(each.name, fit) for each in study.of_kind("learned") for fit in each.fits],
        ("training", lambda row: f"{row[0]}, seed {row[1].seed}"),
        ("threshold", lambda row: f"{row[1].threshold:+.3f}"),
        ("trajectories", lambda row: f"{row[1].trajectories:,}"),
        ("states in the loss", lambda row: f"{row[1].informative:,} of {row[1].decisions:,}"),
        ("validated on", lambda row: f"{row[1].validated:,}"),
        ("steps", lambda row: f"{row[1].steps:,}"),
        ("seconds", lambda row: f"{row[1].seconds:.0f}"),
        ("states cut %", lambda row: percent(row[1].truncated)),
        ("ms a state", lambda row: milliseconds(row[1].state_seconds)),
    )
