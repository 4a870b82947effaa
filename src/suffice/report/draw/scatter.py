"""Scores against cost, and what every chart of the report has: a caption and its numbers as a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from suffice.measures.costs import CostAxis
from suffice.numbers.intervals.bootstrap import Interval
from suffice.replay.run.results import PolicyResult, ReplayResult
from suffice.report.draw.marks import Marked
from suffice.report.draw.svg import (
    FRAME,
    SIZE,
    Scale,
    badge,
    canvas,
    dot,
    enclosing,
    line,
    place_badges,
    whisker,
)
from suffice.results.formats import amount, bracket, percent
from suffice.results.markup import Html, data_table, element


def figure(picture: Html, caption: object, table: Html, heading: str) -> Html:
    """A chart with its caption and, folded, its numbers."""
    numbers = element("details", element("summary", f"Numbers: {heading}"), table)
    return element(
        "figure",
        element("h3", heading),
        picture,
        element("figcaption", caption),
        numbers,
    )


def legend(keys: Iterable[tuple[str, str]]) -> Html:
    """What the colours mean: (class, name) each."""
    swatches = (
        element("span", element("i", class_=f"swatch {class_}"), name, class_="key")
        for class_, name in keys
    )
    return element("span", *swatches, class_="keys")


def _cost(policy: PolicyResult, axis: CostAxis) -> float:
    paid = policy.costs.get(axis.name)
    return policy.mean_rounds if paid is None else paid


def name_of(each: Marked) -> str:
    """Mark and name, the baseline said."""
    return f"{each.mark}  {each.result.name}{' (baseline)' if each.baseline else ''}"


@dataclass(frozen=True, slots=True)
class _Point:
    """A policy in the plane of cost and score; ``value`` and ``interval`` are shares."""

    marked: Marked
    cost: float
    value: float
    interval: Interval | None


@dataclass(frozen=True, slots=True)
class _Plot:
    """What is drawn: the policies, the line of fixed budgets as (cost, score), and the axes' names."""

    points: Sequence[_Point]
    curve: Sequence[tuple[float, float]]
    score: str
    cost: str


def f1_figure(result: ReplayResult, policies: Sequence[Marked]) -> Html | None:
    """F1 against mean cost with intervals and the fixed-k frontier; ``None``: nothing is labelled."""
    frontier = result.frontier
    if frontier is None:
        return None
    points = [
        _Point(each, _cost(each.result, result.cost), each.result.f1, each.result.f1_interval)
        for each in policies
        if each.result.f1 is not None
    ]
    curve = list(zip(frontier.costs, frontier.f1, strict=True))
    plot = _Plot(points, curve, "F1", result.cost.per_question)
    rows = [
        (_name(each), amount(each.cost), percent(each.value), bracket(each.interval))
        for each in points
    ]
    rows += [
        (f"frontier, k = {number}", amount(cost), percent(value), "")
        for number, (cost, value) in enumerate(curve, 1)
    ]
    head = ("policy", f"mean {plot.cost}", "F1 %", "95% interval")
    caption = (
        f"Up is better, left is cheaper. Whiskers: 95% intervals of {result.resamples} resamples of "
        "the questions. Line: the fixed-k frontier; a policy earns its place above it."
    )
    table = data_table("F1 and cost of every policy", head, rows)
    return figure(_scatter(plot), caption, table, "F1 against cost")


def em_figure(result: ReplayResult, policies: Sequence[Marked]) -> Html | None:
    """EM against mean cost; a line joins the fixed-k policies; ``None``: nothing is labelled."""
    frontier = result.frontier
    if frontier is None:
        return None
    points = [
        _Point(each, _cost(each.result, result.cost), each.result.em, None)
        for each in policies
        if each.result.em is not None
    ]
    curve = sorted((each.cost, each.value) for each in points if each.marked.family == "fixed")
    plot = _Plot(points, curve, "EM", result.cost.per_question)
    table = data_table(
        "EM and cost of every policy",
        ("policy", f"mean {plot.cost}", "EM %"),
        [(_name(each), amount(each.cost), percent(each.value)) for each in points],
    )
    caption = (
        "Up is better, left is cheaper. The line joins the fixed-k policies shown. "
        "Intervals are computed for F1 only."
    )
    return figure(_scatter(plot), caption, table, "EM against cost")


def _name(point: _Point) -> str:
    return name_of(point.marked)


def _scatter(plot: _Plot) -> Html:
    heights = [each.value for each in plot.points] + [value for _, value in plot.curve]
    intervals = [each.interval for each in plot.points if each.interval is not None]
    heights += [end for each in intervals for end in (each.low, each.high)]
    reached = [each.cost for each in plot.points] + [cost for cost, _ in plot.curve]
    axes = enclosing(reached, heights)
    x, y = axes.x, axes.y
    path = [(x(cost), y(value)) for cost, value in plot.curve]
    drawn = axes.drawn(f"mean {plot.cost}", f"{plot.score}, %")
    drawn += [line(*ends, class_="frontier") for ends in pairwise(path)]
    drawn += [
        element("circle", cx=f"{px:.1f}", cy=f"{py:.1f}", r="2.5", class_="frontier-point")
        for px, py in path
    ]
    drawn += _policies(plot, x, y, path)
    described = f"{len(plot.points)} policies; the key names the marks, the table has the numbers."
    return canvas(SIZE, f"{plot.score} against mean {plot.cost}", described, drawn)


def _policies(plot: _Plot, x: Scale, y: Scale, path: Sequence[tuple[float, float]]) -> list[Html]:
    """Whiskers below leaders below points below badges, so that what is small stays on top."""
    at = [(x(each.cost), y(each.value)) for each in plot.points]
    whiskers = [
        ((x(each.cost), y(each.interval.low)), (x(each.cost), y(each.interval.high)))
        for each in plot.points
        if each.interval is not None
    ]
    places = place_badges(FRAME, at, [*whiskers, *pairwise(path)])
    families = [each.marked.family for each in plot.points if each.interval is not None]
    drawn = [
        whisker(ends, f"whisker {family}") for ends, family in zip(whiskers, families, strict=True)
    ]
    drawn += [line(start, end, "leader") for start, end in zip(at, places, strict=True)]
    for point, place in zip(plot.points, at, strict=True):
        scored = f"{plot.score} {percent(point.value)}%, {amount(point.cost)} {plot.cost}"
        drawn.append(dot(place, point.marked.family, f"{_name(point)}: {scored}"))
    for point, place in zip(plot.points, places, strict=True):
        drawn.append(badge(place, point.marked.mark, point.marked.family))
    return drawn
