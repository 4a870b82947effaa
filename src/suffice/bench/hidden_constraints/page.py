"""The hidden-constraint experiment as one page: success against cost and retrieval, and every number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from suffice._version import VERSION
from suffice.bench.hidden_constraints.found import (
    Cell,
    Estimate,
    HiddenConstraintsStudy,
    StepTrace,
    Variant,
)
from suffice.bench.hidden_constraints.table import (
    ORACLE,
    Table,
    agreed,
    estimate,
    explained,
    of_what,
    percent_estimate,
    tables_of,
)
from suffice.pipelines.planning.controls import AGENTS, GATED
from suffice.report.draw.marks import Family
from suffice.report.draw.scatter import figure, legend
from suffice.report.draw.svg import (
    FRAME,
    SIZE,
    Axes,
    Scale,
    area,
    badge,
    canvas,
    dot,
    enclosing,
    line,
    place_badges,
    polyline,
    speck,
    ticks,
    whisker,
)
from suffice.report.page.frame import page
from suffice.report.page.section import folded, plain
from suffice.results.formats import UNKNOWN, decimal, percent
from suffice.results.markup import Html, data_table, element, join, visible

_LEAST = 0.1  # of an axis of shares, so that a row of zeros is not stretched over it


@dataclass(frozen=True, slots=True)
class Marked:
    """A point with its mark and name; ``interval`` is of its height."""

    mark: str
    name: str
    family: Family
    x: float
    y: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class Line:
    """Estimates along an axis, with their clustered intervals as a band."""

    class_: str
    at: Sequence[float]
    values: Sequence[Estimate]


def enclosing_all(points: Iterable[Marked], others: Iterable[Marked] = ()) -> Axes:
    """Axes from 0 that hold all points with their intervals, and the heights of the others."""
    found = list(points)
    heights = [end for each in (*found, *others) for end in (each.y, *(each.interval or ()))]
    return enclosing([0.0, *(each.x for each in found)], [0.0, _LEAST, *heights])


def scatter(
    heading: str, found: Sequence[Marked], axes: Axes, x_name: str, joined: Sequence[int] = ()
) -> Html:
    """Success against something; a line goes through the points ``joined``."""
    x, y = axes.x, axes.y
    at = [(x(each.x), y(each.y)) for each in found]
    path = [at[number] for number in joined]
    drawn = axes.drawn(x_name, "semantic success, %")
    drawn += [line(*ends, class_="frontier") for ends in pairwise(path)]
    whiskers = [
        ((x(each.x), y(each.interval[0])), (x(each.x), y(each.interval[1])))
        for each in found
        if each.interval is not None
    ]
    families = [each.family for each in found if each.interval is not None]
    drawn += [
        whisker(ends, f"whisker {family}") for ends, family in zip(whiskers, families, strict=True)
    ]
    places = place_badges(FRAME, at, [*whiskers, *pairwise(path)])
    drawn += [line(start, end, "leader") for start, end in zip(at, places, strict=True)]
    for each, place in zip(found, at, strict=True):
        scored = f"{percent(each.y)}% at {decimal(each.x)}"
        drawn.append(dot(place, each.family, f"{each.name}: {scored}"))
    for each, place in zip(found, places, strict=True):
        drawn.append(badge(place, each.mark, each.family))
    described = f"{len(found)} points; the key names the marks, the table has the numbers."
    return canvas(SIZE, heading, described, drawn)


def lines_chart(heading: str, lines: Sequence[Line], y_name: str, *, shares: bool) -> Html:
    """Figures against the lower threshold, with bands."""
    least = _LEAST if shares else 1.0
    ends = [end for each in lines for one in each.values for end in _ends(one)]
    axes = enclosing([at for each in lines for at in each.at], [0.0, least, *ends])
    x, y = axes.x, axes.y
    drawn = axes.drawn("tau_low", y_name, shares=shares)
    for each in lines:
        spans = [_ends(one) for one in each.values]
        drawn.append(_band(axes, each.at, spans, each.class_))
    for each in lines:
        middle = [(x(at), y(one.mean)) for at, one in zip(each.at, each.values, strict=True)]
        drawn.append(polyline(middle, f"curve {each.class_}"))
        drawn += [speck(place, each.class_) for place in middle]
    described = "The key names the lines, the table has the numbers."
    return canvas(SIZE, heading, described, drawn)


def steps_chart(heading: str, found: StepTrace) -> Html:
    """Confidence and contradiction by step: means with an error band, medians with a wide one."""
    steps = range(1, len(found.count) + 1)
    axes = Axes(
        x=Scale(1, max(2, len(steps)), FRAME.left + 14, FRAME.right - 14),
        y=Scale(0, 1, FRAME.bottom - 6, FRAME.top + 6),
        x_ticks=tuple(steps),
        y_ticks=ticks(0, 1),
    )
    x, y = axes.x, axes.y
    drawn = axes.drawn("step", "c and CD", shares=False)
    errors = [
        (mean - error, mean + error)
        for mean, error in zip(found.confidence, found.error, strict=True)
    ]
    drawn.append(_band(axes, steps, list(zip(found.low, found.high, strict=True)), "output"))
    drawn.append(_band(axes, steps, errors, "adaptive"))
    for values, class_ in (
        (found.contradiction, "fixed"),
        (found.median, "output"),
        (found.confidence, "adaptive"),
    ):
        middle = [(x(step), y(value)) for step, value in zip(steps, values, strict=True)]
        drawn.append(polyline(middle, f"curve {class_}"))
        drawn += [speck(place, class_) for place in middle]
    described = f"{len(steps)} steps; the key names the lines, the table has the numbers."
    return canvas(SIZE, heading, described, drawn)


def _ends(found: Estimate) -> tuple[float, float]:
    return found.clustered.low, found.clustered.high


def _band(
    axes: Axes, at: Iterable[float], spans: Sequence[tuple[float, float]], class_: str
) -> Html:
    places = [axes.x(one) for one in at]
    upper = [*zip(places, (axes.y(high) for _, high in spans), strict=True)]
    lower = [*zip(places, (axes.y(low) for low, _ in spans), strict=True)]
    return area([*upper, *reversed(lower)], f"band {class_}")


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
    notes = element("ul", *(element("li", visible(note)) for note in study.notes), class_="notes")
    agreement = study.agreement
    parts = (
        ("Success against documents read", _frontiers(study)),
        ("What retrieval allows", _quality(study)),
        ("Confidence by step", [_steps(each) for each in study.steps]),
        ("Thresholds", _sweep(study)),
    )
    sections = [
        element(
            "section",
            element("h2", heading),
            element("div", *figures, class_="figures"),
            class_="more",
        )
        for heading, figures in parts
        if figures
    ]
    return page(
        "Hidden constraints: what retrieval allows and what control saves",
        element(
            "header",
            element("p", "Suffice bench hidden-constraints", class_="eyebrow"),
            element("h1", "Hidden constraints: what retrieval allows, what control saves"),
            plain(of_what(study), " ", explained(study)),
            plain(agreed(agreement)) if agreement is not None else "",
            notes if study.notes else "",
        ),
        element("main", *sections, _numbers(study)),
        element("footer", f"Suffice {VERSION}. This file loads nothing from anywhere."),
    )


# --- success against documents --------------------------------------------------------------------
def _family(agent: str) -> Family:
    """A fixed budget, or an agent that decides."""
    control = AGENTS.get(agent)
    fixed = control is not None and not control.reviews and agent != GATED
    return "fixed" if fixed else "adaptive"


def _marks(study: HiddenConstraintsStudy) -> dict[str, str]:
    """A mark for every agent: a letter, and G with a number for a gate of the user's."""
    agents = dict.fromkeys(cell.agent for cell in study.cells)
    gates = [each for each in agents if each not in _MARKS]
    numbered = {
        each: f"G{number}" if number <= _MOST_GATES else "G"
        for number, each in enumerate(gates, start=1)
    }
    return {each: _MARKS.get(each) or numbered[each] for each in agents}


def _frontiers(study: HiddenConstraintsStudy) -> list[Html]:
    """One panel a retriever; all but the oracle's share heights. An agent without one stands in each."""
    marks = _marks(study)
    panels = {each: _panel(study, each, marks) for each in study.settings.retrievers}
    real = [point for each, found in panels.items() if each != ORACLE for point in found]
    figures = []
    for retriever, found in panels.items():
        if not found:
            continue
        axes = enclosing_all(found, () if retriever == ORACLE else real)
        heading = f"Semantic success against documents read, {retriever}"
        cells = [cell for cell in study.cells if cell.retriever in (None, retriever)]
        caption = join(
            [
                _key((each.mark, each.family, each.name) for each in found),
                "Up is better, left is cheaper; repeats are counted. Whiskers: 95% interval of resampled "
                "tasks. Squares: agents that retrieve by a fixed rule.",
            ]
        )
        figures.append(
            figure(
                scatter(heading, found, axes, "mean documents read"),
                caption,
                _measured(heading, cells),
                heading,
            )
        )
    return figures


def _panel(study: HiddenConstraintsStudy, retriever: str, marks: dict[str, str]) -> list[Marked]:
    found = []
    for cell in study.cells:
        documents = cell.mean("documents_read")
        if cell.retriever in (None, retriever) and documents is not None:
            found += _point(cell, marks[cell.agent], cell.agent, documents)
    return found


def _point(cell: Cell, mark: str, name: str, across: float) -> list[Marked]:
    """A cell in a plane of semantic success; nothing where no plan was judged."""
    success = cell.measures.get("semantic")
    if success is None:
        return []
    ends = (success.clustered.low, success.clustered.high)
    return [Marked(mark, name, _family(cell.agent), across, success.mean, ends)]


def _key(found: Iterable[tuple[str, Family, str]]) -> Html:
    keys = (
        element("span", element("span", mark, class_=f"mark {family}"), name, class_="key")
        for mark, family, name in found
    )
    return element("span", *keys, class_="keys")


def _measured(caption: str, cells: Sequence[Cell]) -> Html:
    rows = [
        (
            cell.agent,
            percent_estimate(cell.measures.get("semantic")),
            estimate(cell.measures.get("documents_read")),
        )
        for cell in cells
    ]
    return data_table(caption, ("agent", "semantic %", "documents"), rows)


# --- what retrieval allows ------------------------------------------------------------------------
def _quality(study: HiddenConstraintsStudy) -> list[Html]:
    """The best agent and the gated one of every retriever against its recall@10."""
    cells = {(cell.agent, cell.retriever): cell for cell in study.cells}
    best: list[Marked] = []
    gated: list[Marked] = []
    rows = []
    for name, recall, success, agent in sorted(study.decomposition, key=lambda each: each[1]):
        mark, across = _RETRIEVER_MARKS.get(name, name[:2]), 100 * recall
        best += _point(cells[agent, name], mark, f"{name}, best: {agent}", across)
        own = cells.get((GATED, name))
        known = None if own is None else own.mean("semantic")
        if own is not None and known is not None and known < success:
            gated += _point(own, mark, f"{name}, {GATED}", across)
        rows.append((name, percent(recall), percent(success), agent, percent(known)))
    if not best:
        return []
    best = [_as(each, "fixed") for each in best]
    points = [*best, *gated]
    heading = "Semantic success against recall@10"
    keys = _key((_RETRIEVER_MARKS.get(row[0], row[0][:2]), "fixed", row[0]) for row in rows)
    caption = join(
        [
            keys,
            f"Squares: the best agent of each retriever, joined by the line; circles: {GATED} where "
            "another is better. Whiskers: 95% interval of resampled tasks. The best of several is chosen on "
            "the tasks it is shown for.",
        ]
    )
    head = ("retriever", "recall@10 %", "best semantic %", "of agent", f"{GATED} %")
    picture = scatter(
        heading, points, enclosing_all(points), "recall@10, %", joined=range(len(best))
    )
    return [figure(picture, caption, data_table(heading, head, rows), heading)]


def _as(each: Marked, family: Family) -> Marked:
    return Marked(each.mark, each.name, family, each.x, each.y, each.interval)


# --- confidence by step ---------------------------------------------------------------------------
def _steps(found: StepTrace) -> Html:
    heading = f"Confidence by step, {found.agent} with {found.retriever}"
    rows = [
        (
            str(number),
            f"{count:,}",
            f"{mean:.3f} (error {error:.3f})",
            f"{median:.3f} [{low:.3f}, {high:.3f}]",
            f"{conflict:.3f}",
            ", ".join(f"{name} {taken:,}" for name, taken in sorted(actions.items())),
        )
        for number, (count, mean, error, median, low, high, conflict, actions) in enumerate(
            zip(
                found.count,
                found.confidence,
                found.error,
                found.median,
                found.low,
                found.high,
                found.contradiction,
                found.actions,
                strict=True,
            ),
            start=1,
        )
    ]
    keys = (("adaptive", "mean c"), ("output", "median c"), ("fixed", "mean CD"))
    caption = join(
        [
            legend(keys),
            "Confidence c with one standard error around the mean and from the 10th to the 90th percentile "
            "around the median, and the contradiction score CD, over the tasks that reach the step. First "
            "seed.",
        ]
    )
    head = ("step", "decisions", "mean c", "median c [10%, 90%]", "mean CD", "actions")
    return figure(steps_chart(heading, found), caption, data_table(heading, head, rows), heading)


# --- thresholds -----------------------------------------------------------------------------------
def _sweep(study: HiddenConstraintsStudy) -> list[Html]:
    found = [(at, each) for each in study.variants if (at := each.taus) is not None]
    if not found:
        return []
    named = f"{found[0][1].cell.retriever}, seed {study.settings.seed}"
    rows = [
        (
            f"{low:g}, {high:g}",
            percent_estimate(each.cell.measures.get("semantic")),
            percent_estimate(each.cell.measures.get("proxy")),
            estimate(each.cell.measures.get("documents_read")),
            decimal(each.cell.mean("retrievals")),
        )
        for (low, high), each in found
    ]
    head = ("tau_low, tau_high", "semantic %", "proxy %", "documents", "retrievals")
    shown: tuple[tuple[str, tuple[tuple[str, str, str], ...], str, bool], ...] = (
        (
            "Documents by threshold",
            (("documents_read", "adaptive", "documents read"),),
            "mean documents read",
            False,
        ),
        (
            "Success by threshold",
            (("semantic", "adaptive", "semantic"), ("proxy", "output", "proxy")),
            "success, %",
            True,
        ),
    )
    figures = []
    for heading, measures, y_name, shares in shown:
        lines = [
            line
            for name, class_, _ in measures
            if (line := _swept(found, name, class_)) is not None
        ]
        if not lines:
            continue
        caption = join(
            [
                legend([(class_, said) for _, class_, said in measures]),
                f"The published gate with {named}. Bands: 95% interval of resampled tasks.",
            ]
        )
        picture = lines_chart(heading, lines, y_name, shares=shares)
        figures.append(figure(picture, caption, data_table(heading, head, rows), heading))
    return figures


def _swept(
    found: Sequence[tuple[tuple[float, float], Variant]], measure: str, class_: str
) -> Line | None:
    known = [
        (low, value)
        for (low, _), each in found
        if (value := each.cell.measures.get(measure)) is not None
    ]
    if not known:
        return None
    return Line(class_, [low for low, _ in known], [value for _, value in known])


# --- every number ---------------------------------------------------------------------------------
def _numbers(study: HiddenConstraintsStudy) -> Html:
    tables = (folded(each.name, _as_html(each)) for each in tables_of(study))
    return element("section", element("h2", "Every number"), *tables, class_="more")


def _as_html(found: Table) -> Html:
    kept = [
        column
        for column in range(found.names, len(found.head))
        if any(row[column] for row in found.rows)
    ]
    head = (", ".join(found.head[: found.names]), *(found.head[column] for column in kept))
    rows = [
        (", ".join(_named(row[: found.names])), *(row[column] for column in kept))
        for row in found.rows
    ]
    return data_table(found.title, head, rows)


def _named(names: Sequence[str]) -> Iterator[str]:
    """What a row is about; nothing where it has no retriever."""
    yield from (each for each in names if each != UNKNOWN)
