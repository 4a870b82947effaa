"""Bars in rows: upright ones side by side, or level ones in columns, each perhaps of several parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from suffice.report.draw.svg import Family, badge, bar, canvas, line, outlying, text
from suffice.results.markup import Html, element, join, shorten, visible

_WIDTH = 460.0
_NAMES = 144.0  # where bars begin, right of the rows' names
_ROW, _GAP, _TALLEST = 46.0, 16.0, 24.0
_MOST_LABELLED, _MOST_TICKS = 8, 12
_BEYOND = 1.4  # a broken bar is drawn so many times as long as the longest of the others
_BROKEN_AT = 0.84


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A part of a bar, of a class of the style; ``hint`` shows under a pointer."""

    size: float
    class_: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """What is written above a bar and what it is made of; without segments it is the words alone."""

    label: str
    segments: Sequence[Segment] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BarRow:
    """A marked name with a bar for every column."""

    mark: str
    family: Family
    name: str
    hint: str
    bars: Sequence[Bar]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Rows under the columns ``heads``.

    With ``widths``, the longest of each column in user units, bars are level, and one many times as long as
    the others is broken; without, they are upright shares of 1 over a common axis ``x_name``.
    """

    title: str
    description: str
    rows: Sequence[BarRow]
    heads: Sequence[object]
    widths: Sequence[float] = ()
    x_name: str = ""


def bars(chart: Bars) -> Html:
    """The rows, each with its mark and name."""
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
        others = outlying(sizes)
        most = max(sizes, default=0.0) if others is None else others * _BEYOND
        for number, (stack, size) in enumerate(zip(here, sizes, strict=True)):
            scale = width / max(most, size) if most else 0.0
            drawn += _lying(stack, (left, 16 + _ROW * number), scale)
            if size > most:
                drawn += _break((left + width * _BROKEN_AT, 16 + _ROW * number))
        left += width + _GAP
    return drawn, _ROW * len(chart.rows) + 24


def _break(at: tuple[float, float]) -> Iterator[Html]:
    """Two slanted lines over a bar that is longer than it is drawn."""
    left, top = at
    for moved in (0, 5):
        yield line((left + moved, top + 39), (left + moved + 4, top + 19), "break")


def _lying(stack: Bar, at: tuple[float, float], scale: float) -> Iterator[Html]:
    left, top = at
    yield text((left, top + (17 if stack.segments else 28)), stack.label, "value")
    for segment in stack.segments:
        length = scale * segment.size
        yield bar((left, top + 22), (length, 14), f"bar {segment.class_}", segment.hint)
        left += length
