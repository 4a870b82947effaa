"""Points in a plane with intervals and marks, and the line that they are held against."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from suffice.report.draw.svg import (
    FRAME,
    SIZE,
    Axes,
    Family,
    Span,
    badge,
    canvas,
    dot,
    enclosing,
    line,
    place_badges,
    polyline,
    speck,
    text,
    whisker,
)
from suffice.results.markup import Html

_STEPS = 12  # of a straight part of a line


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A marked point that shows ``name`` and what is ``said`` of it under a pointer.

    Without a ``mark`` it has no badge. ``interval`` is of its height, ``narrow`` another one beside it;
    ``around`` are small points tied to it.
    """

    mark: str
    family: Family
    name: str
    said: str
    x: float
    y: float
    interval: Span | None = None
    narrow: Span | None = None
    around: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """Shares against an amount.

    ``frontier`` is a dashed line through places, ``level`` one at a height with its name; ``specks`` are
    a crowd without names; the axes also hold the places ``held``. With ``log`` the level axis is
    logarithmic: every amount is above 0 there.
    """

    title: str
    description: str
    x_name: str
    y_name: str
    points: Sequence[Point]
    frontier: Sequence[tuple[float, float]] = ()
    specks: Sequence[tuple[float, float]] = ()
    level: tuple[float, str] | None = None
    held: Sequence[tuple[float, float]] = ()
    log: bool = False


def scatter(chart: Scatter) -> Html:
    """Whiskers below leaders below points below badges, so that what is small stays on top."""
    axes = _axes(chart)
    x, y = axes.x, axes.y
    drawn = axes.drawn(chart.x_name, chart.y_name)
    if chart.level is not None:
        height, name = y(chart.level[0]), chart.level[1]
        drawn.append(line((FRAME.left, height), (FRAME.right, height), "frontier"))
        drawn.append(text((FRAME.right, 16), name, "tick end"))
    corners = [(x(across), y(up)) for across, up in chart.frontier]
    if chart.log:  # one line, so that its dashes run on around the bends
        drawn.append(polyline([(x(at), y(up)) for at, up in _bent(chart.frontier)], "frontier"))
    else:
        drawn += [line(*ends, class_="frontier") for ends in pairwise(corners)]
    drawn += [speck(place, "frontier-point") for place in corners]
    crowd = ((round(2 * x(across)) / 2, round(2 * y(up)) / 2) for across, up in chart.specks)
    drawn += [speck(place, "speck") for place in dict.fromkeys(crowd)]
    drawn += _points(chart.points, axes, corners)
    return canvas(SIZE, chart.title, chart.description, drawn)


def _axes(chart: Scatter) -> Axes:
    places = [*chart.frontier, *chart.specks, *chart.held]
    for point in chart.points:
        heights = (point.y, *(point.interval or ()))
        places += [*((point.x, height) for height in heights), *point.around]
    levels = () if chart.level is None else (chart.level[0],)
    upwards = [*(up for _, up in places), *levels]
    return enclosing([across for across, _ in places], upwards, log=chart.log)


def _bent(path: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """A line of straight parts as points close to each other, for an axis on which they are bent."""
    yield from path[:1]
    for (x1, y1), (x2, y2) in pairwise(path):
        for step in range(1, _STEPS + 1):
            share = step / _STEPS
            yield x1 + share * (x2 - x1), y1 + share * (y2 - y1)


def _points(
    points: Sequence[Point], axes: Axes, path: Sequence[tuple[float, float]]
) -> Iterator[Html]:
    x, y = axes.x, axes.y
    at = [(x(point.x), y(point.y)) for point in points]
    whiskers = []
    for point, place in zip(points, at, strict=True):
        if point.interval is not None:
            ends = [(place[0], y(end)) for end in point.interval]
            whiskers.append((ends[0], ends[1]))
            yield whisker(whiskers[-1], f"whisker {point.family}")
        if point.narrow is not None:
            low, high = ((place[0] + 4, y(end)) for end in point.narrow)
            yield line(low, high, "alone")
        for across, up in point.around:
            small = (x(across), y(up))
            yield line(place, small, f"whisker {point.family}")
            yield speck(small, point.family)
    badges = place_badges(FRAME, at, [*whiskers, *pairwise(path)])
    for point, place, end in zip(points, at, badges, strict=True):
        if point.mark:
            yield line(place, end, "leader")
    for point, place in zip(points, at, strict=True):
        yield dot(place, point.family, f"{point.name}: {point.said}")
    for point, end in zip(points, badges, strict=True):
        if point.mark:
            yield badge(end, point.mark, point.family)
