"""The evaluation of Stop-RAG as one page: F1 against rounds, differences, every number of every record."""

from __future__ import annotations

from string import ascii_uppercase

from studies.stop_rag.results import (
    Contender,
    RecordStudy,
    StopRAGStudy,
    contrasts_table,
    explained,
    of_what,
    policies_table,
    roles,
    trainings_table,
    worth_of_text,
)
from suffice.report.draw.forest import Estimated, Forest, ForestRow, forest
from suffice.report.draw.marks import key
from suffice.report.draw.scatter import Point, Scatter, scatter
from suffice.report.page.frame import study_page
from suffice.report.page.section import Block, Chart, folded, listed, plain, stacked
from suffice.results.formats import decimal, percent, points
from suffice.results.markup import Html, element, join, visible


def stop_rag_page(study: StopRAGStudy) -> str:
    """One self-contained HTML document; texts of the records are escaped."""
    return study_page(
        "Stop-RAG: what a learned value of stopping is worth",
        "python -m studies.stop_rag",
        "Stop-RAG: is it worth learning when to stop?",
        main=[*map(_record, study.records), listed(map(visible, study.notes))],
    )


def _record(study: RecordStudy) -> Html:
    worth = worth_of_text(study)
    every_run = policies_table(study, every_run=True).html()
    trainings = trainings_table(study).html()
    blocks: list[Block] = [
        plain(of_what(study)),
        plain(worth) if worth else Html(),
        _frontier(study),
        _differences(study),
        folded("Every policy and seed", element("div", every_run, class_="rules")),
        folded("Every training", element("div", trainings, class_="rules")),
        plain(roles(study), " ", explained(study), small=True),
    ]
    return element("section", element("h2", visible(study.place)), stacked(blocks), class_="more")


def _frontier(study: RecordStudy) -> Chart:
    letters = iter(ascii_uppercase)
    marked: list[tuple[Point, Contender]] = []
    for contender in study.of_kind("learned", "llm-stop", "fixed"):
        fixed = contender.kind == "fixed"
        mark = contender.name.partition("-")[2] if fixed else next(letters)
        rounds, f1 = contender.mean("mean_rounds") or 0.0, contender.mean("f1") or 0.0
        seeds = contender.runs if len(contender.runs) > 1 else ()
        point = Point(
            mark=mark,
            family="fixed" if fixed else "adaptive",
            x=rounds,
            y=f1,
            name=f"{mark}  {contender.name}",
            said=f"F1 {percent(f1)}%, {decimal(rounds)} rounds",
            around=[(run.mean("mean_rounds") or 0.0, run.mean("f1") or 0.0) for run in seeds],
        )
        marked.append((point, contender))
    heading = "F1 against mean rounds"
    picture = scatter(
        Scatter(
            title=heading,
            description=f"{len(marked)} policies; the key names the marks, the table has the numbers.",
            x_name="mean rounds",
            y_name="F1, %",
            points=[point for point, _ in marked],
            frontier=[(point.x, point.y) for point, _ in marked if point.family == "fixed"],
        )
    )
    keys = key((p.mark, p.family, one.name) for p, one in marked if p.family == "adaptive")
    caption = (
        "Up is better, left is cheaper. Line and squares: fixed budgets. Small points: the seeds of a "
        "variant, whose mean is the circle. The oracle is in the table only."
    )
    table = policies_table(study).html()
    return Chart(heading=heading, pictures=[picture], caption=join([keys, caption]), table=table)


def _differences(study: RecordStudy) -> Chart:
    heading = "Differences of F1"
    rows = []
    for one in study.contrasts:
        pair, alone, wide = f"{one.of} - {one.against}", one.interval, one.at_once
        mark = Estimated(
            family="adaptive",
            value=100 * alone.estimate,
            hint=f"{pair}: {points(alone)}",
            interval=(100 * alone.low, 100 * alone.high),
            wide=(100 * wide.low, 100 * wide.high),
        )
        rows.append(ForestRow(name=pair, estimates=[mark]))
    picture = forest(
        Forest(
            title=heading,
            description="One row a difference, with both intervals; the numbers are in the table below.",
            rows=rows,
            none=(0.0, "no difference"),
            x_name="points of F1",
        )
    )
    caption = (
        "Points of F1, paired by question, averaged over seeds. Thick: the 95% interval of each; thin: those "
        "that hold for all at once. Right of the line the first is better."
    )
    table = contrasts_table([study]).html()
    return Chart(heading=heading, pictures=[picture], caption=caption, table=table)
