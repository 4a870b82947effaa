"""The hidden-constraint experiment as one page: success against cost and retrieval, and every number."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from studies.hidden_constraints.results import (
    AgentFigures,
    ExampleRun,
    ExampleStep,
    GateVariant,
    HiddenConstraintsStudy,
    StepTrace,
    TaskMean,
)
from studies.hidden_constraints.runs import ORACLE
from studies.hidden_constraints.show import (
    agreed,
    estimate,
    explained,
    figures_of,
    of_what,
    percent_estimate,
)
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
_MARKS = {
    "vanilla": "V",
    "fixed-top-k": "F",
    "always-retrieve": "A",
    "self-rag": "S",
    GATED: "C",
}
_RETRIEVER_MARKS = {"tfidf": "T", "dense": "D", "dense-30": "30", "hybrid": "H", "oracle": "O"}
_MOST_GATES = 9  # what a mark of two letters can number


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
    return study_page(
        "Hidden constraints: what retrieval allows and what control saves",
        "Suffice bench hidden-constraints",
        "Hidden constraints: what retrieval allows, what control saves",
        plain(of_what(study), " ", explained(study)),
        plain(agreed(agreement)) if agreement is not None else "",
        listed(map(visible, study.notes)),
        main=[*sections, _numbers(study)],
    )


# --- success against documents -------------------------------------------------------------------
def _family(agent: str) -> Family:
    """A fixed budget, or an agent that decides."""
    control = AGENTS.get(agent)
    fixed = control is not None and not control.reviews and agent != GATED
    return "fixed" if fixed else "adaptive"


def _marks(study: HiddenConstraintsStudy) -> dict[str, str]:
    """A mark for every agent: a letter, and G with a number for a gate of the user's."""
    agents = dict.fromkeys(cell.agent for cell in study.cells)
    gates = [agent for agent in agents if agent not in _MARKS]
    numbered = {
        gate: f"G{number}" if number <= _MOST_GATES else "G"
        for number, gate in enumerate(gates, start=1)
    }
    return {agent: _MARKS.get(agent) or numbered[agent] for agent in agents}


def _frontiers(study: HiddenConstraintsStudy) -> list[Chart]:
    """One panel a retriever; all but the oracle's share heights. An agent without one stands in each."""
    panels = {retriever: _panel(study, retriever) for retriever in study.settings.retrievers}
    real = [
        (0.0, end)
        for retriever, points in panels.items()
        if retriever != ORACLE
        for point in points.values()
        for end in point.interval or ()
    ]
    charts = []
    for retriever, points in panels.items():
        if not points:
            continue
        heading = f"Semantic success against documents read, {retriever}"
        cells = [cell for cell in study.cells if cell.retriever in (None, retriever)]
        caption = (
            "Up is better, left is cheaper; repeats are counted. Whiskers: 95% interval of resampled "
            "tasks. Squares: agents that retrieve by a fixed rule."
        )
        picture = _scatter(
            heading,
            list(points.values()),
            "mean documents read",
            held=() if retriever == ORACLE else real,
        )
        marks = key((point.mark, point.family, agent) for agent, point in points.items())
        charts.append(
            Chart(
                heading=heading,
                pictures=[picture],
                caption=join([marks, caption]),
                table=_measured(heading, cells),
            )
        )
    return charts


def _panel(study: HiddenConstraintsStudy, retriever: str) -> dict[str, Point]:
    """The agents' points."""
    marks = _marks(study)
    points: dict[str, Point] = {}
    for cell in study.cells:
        documents = cell.mean("documents_read")
        if cell.retriever in (None, retriever) and documents is not None:
            point = _point(cell, marks[cell.agent], cell.agent, documents)
            points |= {} if point is None else {cell.agent: point}
    return points


def _point(cell: AgentFigures, mark: str, name: str, across: float) -> Point | None:
    """A cell in a plane of semantic success; ``None`` where no plan was judged."""
    success = cell.measures.get("semantic")
    if success is None:
        return None
    return Point(
        mark=mark,
        family=_family(cell.agent),
        x=across,
        y=success.mean,
        name=name,
        said=f"{percent(success.mean)}% at {decimal(across)}",
        interval=_ends(success),
    )


def _ends(measured: TaskMean) -> tuple[float, float]:
    return measured.clustered.low, measured.clustered.high


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


def _measured(caption: str, cells: Sequence[AgentFigures]) -> Html:
    return columns(
        caption,
        cells,
        ("agent", lambda cell: cell.agent),
        ("semantic %", lambda cell: percent_estimate(cell.measures.get("semantic"))),
        ("documents", lambda cell: estimate(cell.measures.get("documents_read"))),
    )


# --- what retrieval allows -----------------------------------------------------------------------
def _quality(study: HiddenConstraintsStudy) -> list[Chart]:
    """The best agent and the gated one of every retriever against its recall@10."""
    cells = {(cell.agent, cell.retriever): cell for cell in study.cells}
    best: list[Point] = []
    gated: list[Point] = []
    rows = []
    for name, recall, success, agent in sorted(study.decomposition, key=lambda row: row[1]):
        mark, across = _RETRIEVER_MARKS.get(name, name[:2]), 100 * recall
        point = _point(cells[agent, name], mark, f"{name}, best: {agent}", across)
        best += [] if point is None else [replace(point, family="fixed")]
        own = cells.get((GATED, name))
        known = None if own is None else own.mean("semantic")
        if own is not None and known is not None and known < success:
            point = _point(own, mark, f"{name}, {GATED}", across)
            gated += [] if point is None else [point]
        rows.append((name, percent(recall), percent(success), agent, percent(known)))
    if not best:
        return []
    heading = "Semantic success against recall@10"
    marks = key((_RETRIEVER_MARKS.get(name, name[:2]), "fixed", name) for name, *_ in rows)
    caption = (
        f"Squares: the best agent of each retriever, joined by the line; circles: {GATED} where "
        "another is better. Whiskers: 95% interval of resampled tasks. The best of several is chosen on "
        "the tasks it is shown for."
    )
    head = ("retriever", "recall@10 %", "best semantic %", "of agent", f"{GATED} %")
    frontier = [(point.x, point.y) for point in best]
    picture = _scatter(heading, [*best, *gated], "recall@10, %", frontier=frontier)
    return [
        Chart(
            heading=heading,
            pictures=[picture],
            caption=join([marks, caption]),
            table=data_table(heading, head, rows),
        )
    ]


# --- confidence by step --------------------------------------------------------------------------
def _steps(trace: StepTrace) -> Chart:
    """Confidence and contradiction by step: means with an error band, medians with a wide one."""
    heading = f"Confidence by step, {trace.agent} with {trace.retriever}"
    steps = range(1, len(trace.count) + 1)
    errors = [
        (mean - error, mean + error)
        for mean, error in zip(trace.confidence, trace.error, strict=True)
    ]
    wide = list(zip(trace.low, trace.high, strict=True))
    chart = Lines(
        title=heading,
        description=f"{len(steps)} steps; the key names the lines, the table has the numbers.",
        x_name="step",
        y_name="c and CD",
        lines=[
            Line(colour="fixed", at=steps, values=trace.contradiction),
            Line(colour="output", at=steps, values=trace.median, band=wide),
            Line(colour="adaptive", at=steps, values=trace.confidence, band=errors),
        ],
        shares=False,
        ticks=range(1, max(2, len(steps)) + 1),
        held=(0, 1),
    )
    colours = legend((("adaptive", "mean c"), ("output", "median c"), ("fixed", "mean CD")))
    caption = (
        "Confidence c with one standard error around the mean and from the 10th to the 90th percentile "
        "around the median, and the contradiction score CD, over the tasks that reach the step. First "
        "seed."
    )
    return Chart(
        heading=heading,
        pictures=[lines(chart)],
        caption=join([colours, caption]),
        table=_steps_table(heading, trace),
    )


def _steps_table(heading: str, trace: StepTrace) -> Html:
    rows = [
        (
            str(step + 1),
            f"{trace.count[step]:,}",
            f"{trace.confidence[step]:.3f} (error {trace.error[step]:.3f})",
            f"{trace.median[step]:.3f} [{trace.low[step]:.3f}, {trace.high[step]:.3f}]",
            f"{trace.contradiction[step]:.3f}",
            ", ".join(f"{name} {taken:,}" for name, taken in sorted(trace.actions[step].items())),
        )
        for step in range(len(trace.count))
    ]
    head = ("step", "decisions", "mean c", "median c [10%, 90%]", "mean CD", "actions")
    return data_table(heading, head, rows)


def _example(run: ExampleRun) -> Chart:
    """Confidence by step between the thresholds, with the action of each step."""
    heading = f"Confidence and actions of one run, {run.agent} with {run.retriever}"
    numbers = range(1, len(run.steps) + 1)
    decided = [
        (number, step)
        for number, step in zip(numbers, run.steps, strict=True)
        if math.isfinite(step.confidence)
    ]
    ends = (1, max(2, len(run.steps)))
    chart = Lines(
        title=heading,
        description=f"{len(run.steps)} steps; the key names the lines, the table has the numbers.",
        x_name="step",
        y_name="c",
        lines=[
            Line(colour="fixed", at=ends, values=(run.tau_low, run.tau_low)),
            Line(colour="output", at=ends, values=(run.tau_high, run.tau_high)),
            Line(
                colour="adaptive",
                at=[number for number, _ in decided],
                values=[step.confidence for _, step in decided],
                hints=[f"step {number}: {_taken(step)}" for number, step in decided],
            ),
        ],
        shares=False,
        uprights=[(number, step.action) for number, step in zip(numbers, run.steps, strict=True)],
        ticks=range(1, ends[1] + 1),
        held=(0, 1),
    )
    colours = legend(
        (
            ("adaptive", "c"),
            ("fixed", f"tau_low {run.tau_low:g}"),
            ("output", f"tau_high {run.tau_high:g}"),
        )
    )
    judged = {True: "satisfied", False: "not satisfied", None: "not asked"}[run.semantic]
    caption = (
        f"Task {run.task}: {sentence(run.goal)} RETRIEVE up to tau_low, EXECUTE from tau_high. A document "
        f"that carries the constraint was {'' if run.covered else 'not '}retrieved, the plan "
        f"{'names' if run.proxy else 'does not name'} its token, the judge was {judged}. Of the runs of seed "
        f"{run.seed} it is the one with most different actions, then most steps."
    )
    return Chart(
        heading=heading,
        pictures=[lines(chart)],
        caption=join([colours, caption]),
        table=columns(
            heading,
            zip(numbers, run.steps, strict=True),
            ("step", lambda row: str(row[0])),
            ("c", lambda row: f"{row[1].confidence:.3f}"),
            ("CD", lambda row: f"{row[1].contradiction:.3f}"),
            ("action", lambda row: row[1].action),
            ("blocked by", lambda row: row[1].blocked or ""),
            ("documents", lambda row: f"{row[1].documents:,}"),
            ("step appended", lambda row: visible(row[1].chosen or "")),
        ),
    )


def _taken(step: ExampleStep) -> str:
    blocked = "" if step.blocked is None else f", a retrieval blocked by the {step.blocked}"
    documents = f", {counted(step.documents, 'document')}" if step.documents else ""
    return f"c {step.confidence:.3f}, {step.action}{documents}{blocked}"


# --- thresholds ----------------------------------------------------------------------------------
Swept = Sequence[tuple[float, GateVariant]]  # lower thresholds with what they gave


def _sweep(study: HiddenConstraintsStudy) -> list[Chart]:
    swept = [(variant.taus[0], variant) for variant in study.variants if variant.taus is not None]
    if not swept:
        return []
    shown = (
        ("Documents by threshold", "mean documents read", {"documents_read": "documents read"}),
        ("Success by threshold", "success, %", {"semantic": "semantic", "proxy": "proxy"}),
    )
    charts = (_swept(study, swept, *which) for which in shown)
    return [chart for chart in charts if chart is not None]


def _swept(
    study: HiddenConstraintsStudy,
    swept: Swept,
    heading: str,
    y_name: str,
    measures: Mapping[str, str],
) -> Chart | None:
    colours = dict(zip(measures, ("adaptive", "output"), strict=False))
    drawn = [
        line for name, colour in colours.items() if (line := _line(swept, name, colour)) is not None
    ]
    if not drawn:
        return None
    shares = "documents_read" not in measures
    chart = Lines(
        title=heading,
        description="The key names the lines, the table has the numbers.",
        x_name="tau_low",
        y_name=y_name,
        lines=drawn,
        shares=shares,
        held=(0.0, _LEAST if shares else 1.0),
    )
    caption = (
        f"The published gate with {swept[0][1].cell.retriever}, seed {study.settings.seed}. "
        "Bands: 95% interval of resampled tasks."
    )
    keys = legend((colours[name], said) for name, said in measures.items())
    return Chart(
        heading=heading,
        pictures=[lines(chart)],
        caption=join([keys, caption]),
        table=_swept_table(heading, (variant for _, variant in swept)),
    )


def _line(swept: Swept, measure: str, colour: str) -> Line | None:
    known = [
        (low, value)
        for low, variant in swept
        if (value := variant.cell.measures.get(measure)) is not None
    ]
    if not known:
        return None
    return Line(
        colour=colour,
        at=[low for low, _ in known],
        values=[value.mean for _, value in known],
        band=[_ends(value) for _, value in known],
    )


def _swept_table(heading: str, variants: Iterable[GateVariant]) -> Html:
    return columns(
        heading,
        variants,
        ("tau_low, tau_high", lambda variant: ", ".join(f"{tau:g}" for tau in variant.taus or ())),
        ("semantic %", lambda variant: percent_estimate(variant.cell.measures.get("semantic"))),
        ("proxy %", lambda variant: percent_estimate(variant.cell.measures.get("proxy"))),
        ("documents", lambda variant: estimate(variant.cell.measures.get("documents_read"))),
        ("retrievals", lambda variant: decimal(variant.cell.mean("retrievals"))),
    )


# --- every number --------------------------------------------------------------------------------
def _numbers(study: HiddenConstraintsStudy) -> Html:
    tables = (folded(table.name, table.html()) for table in figures_of(study))
    return element("section", element("h2", "Every number"), *tables, class_="more")
