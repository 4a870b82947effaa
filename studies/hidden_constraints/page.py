"""The hidden-constraint experiment as one page: success against cost and retrieval, and every number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from studies.hidden_constraints.results import (
    AgentFigures,
    ExampleRun,
    ExampleStep,
    HiddenConstraintsStudy,
    StepTrace,
    decomposition_table,
    explained,
    figures_of,
    of_what,
    variants_table,
)
from studies.hidden_constraints.runs import ORACLE
from suffice.loops.planning.controls import AGENTS, GATED
from suffice.report.draw.lines import Line, Lines, lines
from suffice.report.draw.marks import key, legend
from suffice.report.draw.scatter import Point, Scatter, scatter
from suffice.report.draw.svg import Family
from suffice.report.page.frame import study_page
from suffice.report.page.section import Chart, columns, folded, listed, plain, sentence, stacked
from suffice.results.formats import counted, decimal, percent
from suffice.results.markup import Html, data_table, element, join, visible

_LEAST = 0.1  # of an axis of shares, so that a row of zeros is not stretched over it
_MARKS = dict(zip(AGENTS, "VFASC", strict=True))
_RETRIEVER_MARKS = {"tfidf": "T", "dense": "D", "dense-30": "30", "hybrid": "H", "oracle": "O"}


def hidden_constraints_page(study: HiddenConstraintsStudy) -> str:
    """One self-contained HTML document; texts of the record are escaped."""
    agreement = study.agreement
    parts = (
        ("Success against documents read", _frontiers(study)),
        ("What retrieval allows", _quality(study)),
        ("Confidence by step", [_steps(trace) for trace in study.steps]),
        ("One run, step by step", [_example(run) for run in study.examples]),
        ("Thresholds", _sweep(study)),
    )
    sections = [
        element("section", element("h2", heading), stacked(charts), class_="more")
        for heading, charts in parts
        if charts
    ]
    numbers = (folded(table.name, table.html()) for table in figures_of(study))
    judged = "Judge against the deterministic checker"
    return study_page(
        "Hidden constraints: what retrieval allows and what control saves",
        "python -m studies.hidden_constraints",
        "Hidden constraints: what retrieval allows, what control saves",
        plain(of_what(study), " ", explained(study)),
        "" if agreement is None else plain(agreement.sentence(judged)),
        listed(map(visible, study.notes)),
        main=[
            *sections,
            element("section", element("h2", "Every number"), *numbers, class_="more"),
        ],
    )


def _chart(heading: str, picture: Html, keys: Html, caption: str, table: Html) -> Chart:
    return Chart(heading=heading, pictures=[picture], caption=join([keys, caption]), table=table)


# --- success against documents, and against what retrieval allows ---------------------------------
def _point(cell: AgentFigures, mark: str, name: str, across: float | None) -> Point | None:
    """A cell in a plane of semantic success; ``None`` where no plan was judged."""
    success = cell.measures.get("semantic")
    if success is None or across is None:
        return None
    control = AGENTS.get(cell.agent)
    fixed = control is not None and not control.reviews and cell.agent != GATED
    family: Family = "fixed" if fixed else "adaptive"
    return Point(
        mark=mark,
        family=family,
        x=across,
        y=success.mean,
        name=name,
        said=f"{percent(success.mean)}% at {decimal(across)}",
        interval=(success.clustered.low, success.clustered.high),
    )


def _frontiers(study: HiddenConstraintsStudy) -> list[Chart]:
    """One panel a retriever; all but the oracle's share heights. An agent without one stands in each."""
    agents = list(dict.fromkeys(cell.agent for cell in study.cells))
    own = [agent for agent in agents if agent not in _MARKS]
    marks = {**_MARKS, **{gate: f"G{number}" for number, gate in enumerate(own, start=1)}}
    panels: dict[str, dict[str, Point]] = {}
    for retriever in study.settings.retrievers:
        here = [cell for cell in study.cells if cell.retriever in (None, retriever)]
        made = (
            (one.agent, _point(one, marks[one.agent][:2], one.agent, one.mean("documents_read")))
            for one in here
        )
        panels[retriever] = {agent: point for agent, point in made if point is not None}
    real = [
        (0.0, end)
        for retriever, points in panels.items()
        if retriever != ORACLE
        for point in points.values()
        for end in point.interval or ()
    ]
    caption = (
        "Up is better, left is cheaper; repeats are counted. Whiskers: 95% interval of resampled tasks. "
        "Squares: agents that retrieve by a fixed rule."
    )
    charts = []
    for retriever, points in panels.items():
        if not points:
            continue
        heading = f"Semantic success against documents read, {retriever}"
        held = () if retriever == ORACLE else real
        table = columns(
            heading,
            [cell for cell in study.cells if cell.retriever in (None, retriever)],
            ("agent", lambda cell: cell.agent),
            ("semantic %", lambda cell: _shown(cell, "semantic")),
            ("documents", lambda cell: _shown(cell, "documents_read")),
        )
        picture = _scatter(heading, list(points.values()), "mean documents read", held=held)
        keys = key((point.mark, point.family, agent) for agent, point in points.items())
        charts.append(_chart(heading, picture, keys, caption, table))
    return charts


def _shown(cell: AgentFigures, name: str) -> str:
    shown = cell.cell(name, share=name == "semantic")
    return "-" if shown is None else shown.shown


def _scatter(
    heading: str,
    points: Sequence[Point],
    x_name: str,
    *,
    frontier: Sequence[tuple[float, float]] = (),
    held: Sequence[tuple[float, float]] = (),
) -> Html:
    """Semantic success against something, both from 0."""
    chart = Scatter(
        title=heading,
        description=f"{len(points)} points; the key names the marks, the table has the numbers.",
        x_name=x_name,
        y_name="semantic success, %",
        points=points,
        frontier=frontier,
        held=[(0.0, 0.0), (0.0, _LEAST), *held],
    )
    return scatter(chart)


def _quality(study: HiddenConstraintsStudy) -> list[Chart]:
    """The best agent and the gated one of every retriever against its recall@10."""
    cells = {(cell.agent, cell.retriever): cell for cell in study.cells}
    best: list[Point] = []
    gated: list[Point] = []
    ordered = sorted(study.decomposition, key=lambda row: row[1])
    for name, recall, success, agent in ordered:
        mark, across = _RETRIEVER_MARKS[name], 100 * recall
        point = _point(cells[agent, name], mark, f"{name}, best: {agent}", across)
        best += [] if point is None else [replace(point, family="fixed")]
        own = cells.get((GATED, name))
        if own is not None and (own.mean("semantic") or success) < success:
            point = _point(own, mark, f"{name}, {GATED}", across)
            gated += [] if point is None else [point]
    if not best:
        return []
    heading = "Semantic success against recall@10"
    keys = key((_RETRIEVER_MARKS[name], "fixed", name) for name, *_ in ordered)
    caption = (
        f"Squares: the best agent of each retriever, joined by the line; circles: {GATED} where another is "
        "better. Whiskers: 95% interval of resampled tasks. The best of several is chosen on the tasks it is "
        "shown for."
    )
    line = [(point.x, point.y) for point in best]
    picture = _scatter(heading, [*best, *gated], "recall@10, %", frontier=line)
    return [_chart(heading, picture, keys, caption, decomposition_table(study).html())]


# --- step by step --------------------------------------------------------------------------------
def _steps(trace: StepTrace) -> Chart:
    """Confidence and contradiction by step: means with an error band, medians with a wide one."""
    heading = f"Confidence by step, {trace.agent} with {trace.retriever}"
    steps = range(1, len(trace.count) + 1)
    means = zip(trace.confidence, trace.error, strict=True)
    wide = list(zip(trace.low, trace.high, strict=True))
    picture = lines(
        Lines(
            title=heading,
            description=f"{len(steps)} steps; the key names the lines, the table has the numbers.",
            x_name="step",
            y_name="c and CD",
            lines=[
                Line(colour="fixed", at=steps, values=trace.contradiction),
                Line(colour="output", at=steps, values=trace.median, band=wide),
                Line(
                    colour="adaptive",
                    at=steps,
                    values=trace.confidence,
                    band=[(mean - error, mean + error) for mean, error in means],
                ),
            ],
            shares=False,
            ticks=range(1, max(2, len(steps)) + 1),
            held=(0, 1),
        )
    )
    keys = legend((("adaptive", "mean c"), ("output", "median c"), ("fixed", "mean CD")))
    caption = (
        "Confidence c with one standard error around the mean and from the 10th to the 90th percentile "
        "around the median, and the contradiction score CD, over the tasks that reach the step. First seed."
    )
    rows = [
        (
            str(at + 1),
            f"{trace.count[at]:,}",
            f"{trace.confidence[at]:.3f} (error {trace.error[at]:.3f})",
            f"{trace.median[at]:.3f} [{trace.low[at]:.3f}, {trace.high[at]:.3f}]",
            f"{trace.contradiction[at]:.3f}",
            ", ".join(f"{name} {taken:,}" for name, taken in sorted(trace.actions[at].items())),
        )
        for at in range(len(trace.count))
    ]
    head = ("step", "decisions", "mean c", "median c [10%, 90%]", "mean CD", "actions")
    return _chart(heading, picture, keys, caption, data_table(heading, head, rows))


def _example(run: ExampleRun) -> Chart:
    """Confidence by step between the thresholds, with the action of each step."""
    heading = f"Confidence and actions of one run, {run.agent} with {run.retriever}"
    numbered = list(enumerate(run.steps, start=1))
    decided = [(number, step) for number, step in numbered if math.isfinite(step.confidence)]
    ends = (1, max(2, len(run.steps)))
    thresholds = (("fixed", "tau_low", run.tau_low), ("output", "tau_high", run.tau_high))
    picture = lines(
        Lines(
            title=heading,
            description=f"{len(run.steps)} steps; the key names the lines, the table has the numbers.",
            x_name="step",
            y_name="c",
            lines=[
                *(Line(colour=colour, at=ends, values=(tau, tau)) for colour, _, tau in thresholds),
                Line(
                    colour="adaptive",
                    at=[number for number, _ in decided],
                    values=[step.confidence for _, step in decided],
                    hints=[f"step {number}: {_taken(step)}" for number, step in decided],
                ),
            ],
            shares=False,
            uprights=[(number, step.action) for number, step in numbered],
            ticks=range(1, ends[1] + 1),
            held=(0, 1),
        )
    )
    named = ((colour, f"{name} {tau:g}") for colour, name, tau in thresholds)
    judged = {True: "satisfied", False: "not satisfied", None: "not asked"}[run.semantic]
    caption = (
        f"Task {run.task}: {sentence(run.goal)} RETRIEVE up to tau_low, EXECUTE from tau_high. A document "
        f"that carries the constraint was {'' if run.covered else 'not '}retrieved, the plan "
        f"{'names' if run.proxy else 'does not name'} its token, the judge was {judged}. Of the runs of seed "
        f"{run.seed} it is the one with most different actions, then most steps."
    )
    table = columns(
        heading,
        numbered,
        ("step", lambda row: str(row[0])),
        ("c", lambda row: f"{row[1].confidence:.3f}"),
        ("CD", lambda row: f"{row[1].contradiction:.3f}"),
        ("action", lambda row: row[1].action),
        ("blocked by", lambda row: row[1].blocked or ""),
        ("documents", lambda row: f"{row[1].documents:,}"),
        ("step appended", lambda row: visible(row[1].chosen or "")),
    )
    return _chart(heading, picture, legend([("adaptive", "c"), *named]), caption, table)


def _taken(step: ExampleStep) -> str:
    blocked = "" if step.blocked is None else f", a retrieval blocked by the {step.blocked}"
    documents = f", {counted(step.documents, 'document')}" if step.documents else ""
    return f"c {step.confidence:.3f}, {step.action}{documents}{blocked}"


# --- thresholds ----------------------------------------------------------------------------------
def _sweep(study: HiddenConstraintsStudy) -> list[Chart]:
    swept = [(one.taus[0], one.cell) for one in study.variants if one.taus is not None]
    charts = []
    for heading, y_name, measures in (
        ("Documents by threshold", "mean documents read", {"documents_read": "documents read"}),
        ("Success by threshold", "success, %", {"semantic": "semantic", "proxy": "proxy"}),
    ):
        colours = dict(zip(measures, ("adaptive", "output"), strict=False))
        drawn = []
        for name, colour in colours.items():
            known = [(low, one.measures[name]) for low, one in swept if name in one.measures]
            if known:
                line = Line(
                    colour=colour,
                    at=[low for low, _ in known],
                    values=[value.mean for _, value in known],
                    band=[(value.clustered.low, value.clustered.high) for _, value in known],
                )
                drawn.append(line)
        if not drawn:
            continue
        shares = "documents_read" not in measures
        picture = lines(
            Lines(
                title=heading,
                description="The key names the lines, the table has the numbers.",
                x_name="tau_low",
                y_name=y_name,
                lines=drawn,
                shares=shares,
                held=(0.0, _LEAST if shares else 1.0),
            )
        )
        caption = (
            f"The published gate with {swept[0][1].retriever}, seed {study.settings.seed}. Bands: 95% "
            "interval of resampled tasks."
        )
        keys = legend((colours[name], said) for name, said in measures.items())
        table = variants_table(study, "sweep", "other thresholds (low, high)").html()
        charts.append(_chart(heading, picture, keys, caption, table))
    return charts
