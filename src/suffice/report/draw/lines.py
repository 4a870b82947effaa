"""Lines over an axis with bands and intervals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from suffice.report.draw.svg import (
    FRAME,
    SIZE,
    Axes,
    Family,
    Span,
    area,
    canvas,
    dot,
    enclosing,
    line,
    polyline,
    speck,
    text,
    whisker,
)
from suffice.results.markup import Html

_APART = 5.0  # user units between the whiskers of two lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Values along the axis; ``band`` and ``intervals`` hold the ends at each.

    With ``hints`` the values are points of the ``colour``'s family that say them under a pointer.
    """

    colour: Family | str
    at: Sequence[float]
    values: Sequence[float]
    band: Sequence[Span] = ()
    intervals: Sequence[Span] = ()
    hints: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Lines that share axes; ``shares``: heights are shown in percent.

    ``uprights`` are named places on the axis; the axes also hold the heights ``held``.
    """

    title: str
    description: str
    x_name: str
    y_name: str
    lines: Sequence[Line]
    shares: bool = True
    uprights: Sequence[tuple[float, str]] = ()
    held: Sequence[float] = ()


def lines(chart: Lines) -> Html:
    """Bands below named places below lines."""
    axes = _axes(chart)
    drawn = axes.drawn(chart.x_name, chart.y_name, shares=chart.shares)
    drawn += [_band(curve, axes) for curve in chart.lines if curve.band]
    drawn += chain.from_iterable(
        _upright(axes.x(at), name, row) for row, (at, name) in enumerate(chart.uprights)
    )
    for number, curve in enumerate(chart.lines):
        drawn += _line(curve, axes, (number - (len(chart.lines) - 1) / 2) * _APART)
    return canvas(SIZE, chart.title, chart.description, drawn)


def _axes(chart: Lines) -> Axes:
    heights = [*chart.held]
    for curve in chart.lines:
        heights += [*curve.values, *chain.from_iterable((*curve.band, *curve.intervals))]
    return enclosing([at for curve in chart.lines for at in curve.at], heights)


def _band(curve: Line, axes: Axes) -> Html:
    at = [axes.x(value) for value in curve.at]
    upper = [*zip(at, (axes.y(high) for _, high in curve.band), strict=True)]
    lower = [*zip(at, (axes.y(low) for low, _ in curve.band), strict=True)]
    return area([*upper, *reversed(lower)], f"band {curve.colour}")


def _line(curve: Line, axes: Axes, moved: float) -> Iterator[Html]:
    for value, (low, high) in zip(curve.at, curve.intervals, strict=False):
        at = axes.x(value) + moved
        yield whisker(((at, axes.y(low)), (at, axes.y(high))), f"whisker {curve.colour}")
    places = [(axes.x(at), axes.y(up)) for at, up in zip(curve.at, curve.values, strict=True)]
    yield polyline(places, f"curve {curve.colour}")
    for place, hint in zip(places, curve.hints, strict=False):
        yield dot(place, "fixed" if curve.colour == "fixed" else "adaptive", hint)
    if not curve.hints:
        yield from (speck(place, curve.colour) for place in places)


def _upright(x: float, name: str, row: int) -> Iterator[Html]:
    top = FRAME.top - 2 + 14 * row
    side, away = ("end", -5.0) if x > (FRAME.left + FRAME.right) / 2 else ("", 5.0)
    yield line((x, top - 8), (x, FRAME.bottom), "chosen")
    yield text((x + away, top), name, f"value {side}".strip())
