"""Points in a plane, and bars in rows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from suffice.report.svg import (
    BADGE_RADIUS,
    FRAME,
    SIZE,
    Axes,
    Family,
    Span,
    badge,
    bar,
    canvas,
    dot,
    enclosing,
    line,
    speck,
    text,
    whisker,
)
from suffice.results.markup import Html, element, join, shorten, visible

At = tuple[float, float]
Floats = NDArray[np.float64]
_AROUND = np.array(
    [
        (radius * math.sin(angle), -radius * math.cos(angle))
        for radius in (17.0, 22.0, 28.0, 36.0, 46.0, 58.0, 72.0, 90.0)
        for angle in (math.radians(22.5 * step) for step in range(16))
    ]
)
"""Where the label of a point may stand, the nearest first."""


def label_places(
    points: Sequence[At],
    lines: Sequence[tuple[At, At]],
    *,
    wanted: Sequence[int],
    frame: tuple[float, float, float, float],
    radius: float,
) -> list[At]:
    """Place labels of the points ``wanted`` inside the frame, clear of points and other labels."""
    at = np.reshape(np.asarray(points, np.float64), (-1, 2))
    # lines as points close to each other
    steps = np.linspace(0.0, 1.0, 12)[:, None, None]
    starts, ends = (np.reshape([one[end] for one in lines], (-1, 2)) for end in (0, 1))
    inked = np.reshape(starts + steps * (ends - starts), (-1, 2))
    reach, placed = radius + 1, dict[int, At]()
    for number in sorted(wanted, key=points.__getitem__):
        places = at[number] + _AROUND
        others = np.reshape([placed[one] for one in placed], (-1, 2))
        overlap = _short(_distance(places[:, None], others), 2 * reach)
        overlap += _short(_distance(places[:, None], at), reach + 7)
        overlap += _short(np.hstack((places - frame[:2], frame[2:] - places)), reach)
        covered = (_distance(places[:, None], inked) < radius).sum(axis=1)
        badness = 100 * overlap + _distance(places, at[number]) + 5 * covered
        x, y = places[int(badness.round(6).argmin())]  # of equal ones the first
        placed[number] = (float(x), float(y))
    return [placed[number] for number in wanted]


def _short(distance: Floats, wanted: float) -> Floats:
    """Sum for every place by how much distances fall short."""
    return np.asarray(np.maximum(0.0, wanted - distance).sum(axis=-1))


def _distance(one: Floats, other: Floats) -> Floats:
    return np.asarray(np.hypot(*np.moveaxis(one - other, -1, 0)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """A marked point; ``name`` and ``said`` show under a pointer."""

    mark: str
    family: Family
    name: str
    said: str
    x: float
    y: float
    interval: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scatter:
    """Shares against an amount.

    ``frontier`` is a dashed line through places, ``steps`` a firm one that rises at each, ``level`` one at
    a height with its name; ``specks`` are a crowd without names.
    """

    title: str
    description: str
    x_name: str
    y_name: str
    points: Sequence[Point]
    frontier: Sequence[tuple[float, float]] = ()
    specks: Sequence[tuple[float, float]] = ()
    steps: Sequence[tuple[float, float]] = ()
    level: tuple[float, str] | None = None


def scatter(chart: Scatter) -> Html:
    """Draw a scatter: whiskers below leaders below points below badges."""
    if not (chart.points or chart.frontier or chart.specks):
        middle = ((FRAME.left + FRAME.right) / 2, (FRAME.top + FRAME.bottom) / 2)
        nothing = text(middle, f"{chart.y_name}: not known", "tick mid")
        return canvas(SIZE, chart.title, chart.description, [nothing])
    axes = _axes(chart)
    x, y = axes.x, axes.y
    drawn = axes.drawn(chart.x_name, chart.y_name)
    if chart.level is not None:
        height, name = y(chart.level[0]), chart.level[1]
        drawn.append(line((FRAME.left, height), (FRAME.right, height), "frontier"))
        drawn.append(text((FRAME.right, 16), name, "tick end"))
    corners = [(x(across), y(up)) for across, up in chart.frontier]
    drawn += [line(*ends, class_="frontier") for ends in pairwise(corners)]
    drawn += [speck(place, "frontier-point") for place in corners]
    stairs = [(x(at), y(up)) for (_, low), (at, up) in pairwise(chart.steps) for up in (low, up)]
    drawn += [line(*ends, class_="curve adaptive") for ends in pairwise(stairs)]
    crowd = ((round(2 * x(across)) / 2, round(2 * y(up)) / 2) for across, up in chart.specks)
    drawn += [speck(place, "speck") for place in dict.fromkeys(crowd)]
    drawn += _points(chart.points, axes, corners)
    return canvas(SIZE, chart.title, chart.description, drawn)


def _axes(chart: Scatter) -> Axes:
    places = [*chart.frontier, *chart.specks, *chart.steps]
    for point in chart.points:
        heights = (point.y, *(point.interval or ()))
        places += [(point.x, height) for height in heights]
    levels = () if chart.level is None else (chart.level[0],)
    upwards = [*(up for _, up in places), *levels]
    return enclosing([across for across, _ in places], upwards)


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
    badged = [number for number, point in enumerate(points) if point.mark]
    badges = label_places(
        at, [*whiskers, *pairwise(path)], wanted=badged, frame=astuple(FRAME), radius=BADGE_RADIUS
    )
    for number, end in zip(badged, badges, strict=True):
        yield line(at[number], end, "leader")
    for point, place in zip(points, at, strict=True):
        yield dot(place, point.family, f"{point.name}: {point.said}")
    for number, end in zip(badged, badges, strict=True):
        yield badge(end, points[number].mark, points[number].family)


_WIDTH = 460.0
_NAMES = 144.0  # where bars begin, right of the rows' names
_ROW, _GAP, _TALLEST = 46.0, 16.0, 24.0
_MOST_LABELLED, _MOST_TICKS = 8, 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a bar, of a CSS class; ``hint`` shows under a pointer."""

    size: float
    class_: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A label above a bar and its segments; without segments the label alone."""

    label: str
    segments: Sequence[Segment] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BarRow:
    mark: str
    family: Family
    name: str
    hint: str
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Rows under the columns ``heads``.

    With ``widths``, the longest of each column in user units, bars are level; without, they are upright
    shares of 1 over a common axis ``x_name``.
    """

    title: str
    description: str
    rows: Sequence[BarRow]
    heads: Sequence[object]
    widths: Sequence[float] = ()
    x_name: str = ""


def bars(chart: Bars) -> Html:
    drawn, height = _level(chart) if chart.widths else _upright(chart)
    return canvas((_WIDTH, height), chart.title, chart.description, drawn)


def _name(row: BarRow, top: float) -> Html:
    hinted = join([element("title", row.hint), shorten(visible(row.name), 14)])
    return join(
        [badge((11, top + 24), row.mark, row.family), text((26, top + 28), hinted, "row-name")]
    )


def _upright(chart: Bars) -> tuple[list[Html], float]:
    slot = (_WIDTH - _NAMES) / max(1, len(chart.heads))
    bottom = _ROW * len(chart.rows) + 10
    drawn: list[Html] = []
    for number, row in enumerate(chart.rows):
        top = number * _ROW
        floor = top + 40
        drawn.append(_name(row, top))
        drawn.append(line((_NAMES, floor), (_WIDTH, floor), "grid"))
        for column, stack in enumerate(row.bars):
            drawn += _standing(stack, (_NAMES + slot * column, floor), slot, len(row.bars))
    every = max(1, -(-len(chart.heads) // _MOST_TICKS))
    drawn += [
        text((_NAMES + slot * (column + 0.5), bottom + 8), head, "tick mid")
        for column, head in enumerate(chart.heads)
        if column % every == 0
    ]
    drawn.append(text(((_NAMES + _WIDTH) / 2, bottom + 28), chart.x_name, "axis-name mid"))
    return drawn, bottom + 36


def _standing(stack: Bar, at: tuple[float, float], slot: float, columns: int) -> Iterator[Html]:
    left, floor = at
    for segment in stack.segments:
        height = max(1.0, _TALLEST * segment.size)
        corner, size = (left + slot * 0.16, floor - height), (slot * 0.68, height)
        yield bar(corner, size, f"bar {segment.class_}", segment.hint)
        if columns <= _MOST_LABELLED:
            yield text((left + slot / 2, floor - 3 - height), stack.label, "value mid")


def _level(chart: Bars) -> tuple[list[Html], float]:
    drawn: list[Html] = [_name(row, 16 + _ROW * number) for number, row in enumerate(chart.rows)]
    left = _NAMES
    for column, (head, width) in enumerate(zip(chart.heads, chart.widths, strict=True)):
        drawn.append(text((left, 12), head, "axis-name"))
        here = [row.bars[column] for row in chart.rows]
        sizes = [sum(part.size for part in stack.segments) for stack in here]
        most = max(sizes, default=0.0)
        for number, stack in enumerate(here):
            drawn += _lying(stack, (left, 16 + _ROW * number), width / most if most else 0.0)
        left += width + _GAP
    return drawn, _ROW * len(chart.rows) + 24


def _lying(stack: Bar, at: tuple[float, float], scale: float) -> Iterator[Html]:
    left, top = at
    yield text((left, top + (17 if stack.segments else 28)), stack.label, "value")
    for segment in stack.segments:
        length = scale * segment.size
        yield bar((left, top + 22), (length, 14), f"bar {segment.class_}", segment.hint)
        left += length
