"""The pictures of the hidden-constraint experiment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from suffice.bench.hidden_constraints.results import (
    Estimate,
    StepTrace,
)
from suffice.report.axes import FRAME, SIZE, Axes, enclosing
from suffice.report.formats import decimal, percent
from suffice.report.marks import Family
from suffice.report.markup import Html
from suffice.report.svg import (
    Scale,
    area,
    badge,
    canvas,
    dot,
    line,
    place_badges,
    polyline,
    speck,
    ticks,
    whisker,
)

__all__ = ["Line", "Marked", "enclosing_all", "lines_chart", "scatter", "steps_chart"]

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
