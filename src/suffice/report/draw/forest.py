"""Estimates with their intervals, one row each, against what none would be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from suffice.report.draw.svg import (
    Family,
    Scale,
    Span,
    bar,
    canvas,
    dot,
    line,
    text,
    ticks,
    whisker,
)
from suffice.results.formats import UNKNOWN, tick
from suffice.results.markup import Html, element, join, shorten, visible

_WIDTH, _ROW, _TOP = 460.0, 30.0, 30.0
_LETTER = 7.7  # user units that a letter of a name takes at most, on a phone
_LONGEST = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """A value, ``None`` where it is undefined; with ``wide`` the interval is drawn thick inside it."""

    family: Family
    value: float | None
    hint: str
    interval: Span | None = None
    wide: Span | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestRow:
    """A name and its estimates, one below the other."""

    name: str
    estimates: Sequence[Estimated]


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """Rows over one axis; ``none`` is the value of no effect, with its name."""

    title: str
    description: str
    rows: Sequence[ForestRow]
    none: tuple[float, str]
    x_name: str = ""


def forest(chart: Forest) -> Html:
    """Names on the left, estimates over the axis on the right."""
    nothing, name = chart.none
    marked = ticks(*_ends(chart))
    names = _LETTER * min(_LONGEST, max((len(row.name) for row in chart.rows), default=0))
    x = Scale(marked[0], marked[-1], names + 12, _WIDTH - 12)
    bottom = _TOP + _ROW * len(chart.rows)
    drawn = [line((x(value), _TOP - 6), (x(value), bottom), "grid") for value in marked]
    drawn += [text((x(value), bottom + 16), tick(value), "tick mid") for value in marked]
    drawn.append(line((x(nothing), _TOP - 6), (x(nothing), bottom), "diagonal"))
    drawn.append(text((x(nothing), _TOP - 12), name, "tick mid"))
    for number, row in enumerate(chart.rows):
        middle = _TOP + _ROW * (number + 0.5)
        titled = join([element("title", visible(row.name)), shorten(visible(row.name), _LONGEST)])
        drawn.append(text((names, middle + 4), titled, "row-name end"))
        drawn += _row(row, x, middle, x(nothing))
    if chart.x_name:
        centre = (x.start + x.end) / 2
        drawn.append(text((centre, bottom + 36), chart.x_name, "axis-name mid"))
    size = (_WIDTH, bottom + (44 if chart.x_name else 26))
    return canvas(size, chart.title, chart.description, drawn)


def _ends(chart: Forest) -> tuple[float, float]:
    ends = [chart.none[0]]
    for estimated in (estimated for row in chart.rows for estimated in row.estimates):
        known = () if estimated.value is None else (estimated.value,)
        ends += [*known, *(estimated.interval or ()), *(estimated.wide or ())]
    return min(ends), max(ends)


def _row(row: ForestRow, x: Scale, middle: float, nothing: float) -> Iterator[Html]:
    for number, estimated in enumerate(row.estimates):
        height = middle + 11 * (number - (len(row.estimates) - 1) / 2)
        thin = estimated.wide or estimated.interval
        if thin is not None:
            ends = ((x(thin[0]), height), (x(thin[1]), height))
            yield whisker(ends, f"whisker {estimated.family}")
        if estimated.wide is not None and estimated.interval is not None:
            low, high = map(x, estimated.interval)
            yield bar((low, height - 2), (high - low, 4), f"bar {estimated.family}")
        if estimated.value is None:
            yield text((nothing + 6, height + 4), UNKNOWN, "value")
        else:
            yield dot((x(estimated.value), height), estimated.family, estimated.hint)
