"""Estimates with their intervals, one row each, against what none would be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from suffice.report.draw.svg import (
    Family,
    Scale,
    Span,
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
    """A value, ``None`` where it is undefined."""

    family: Family
    value: float | None
    hint: str
    interval: Span | None = None


Row = tuple[str, Sequence[Estimated]]  # a name and its estimates, one below the other


def forest(title: str, description: str, rows: Sequence[Row], none: tuple[float, str]) -> Html:
    """Names on the left, estimates over the axis on the right; ``none`` is the value of no effect, named."""
    nothing, said = none
    marked = ticks(*_ends(rows, nothing))
    names = _LETTER * min(_LONGEST, max((len(name) for name, _ in rows), default=0))
    x = Scale(marked[0], marked[-1], names + 12, _WIDTH - 12)
    bottom = _TOP + _ROW * len(rows)
    drawn = [line((x(value), _TOP - 6), (x(value), bottom), "grid") for value in marked]
    drawn += [text((x(value), bottom + 16), tick(value), "tick mid") for value in marked]
    drawn.append(line((x(nothing), _TOP - 6), (x(nothing), bottom), "diagonal"))
    drawn.append(text((x(nothing), _TOP - 12), said, "tick mid"))
    for number, (name, estimates) in enumerate(rows):
        middle = _TOP + _ROW * (number + 0.5)
        titled = join([element("title", visible(name)), shorten(visible(name), _LONGEST)])
        drawn.append(text((names, middle + 4), titled, "row-name end"))
        drawn += _row(estimates, x, middle, x(nothing))
    return canvas((_WIDTH, bottom + 26), title, description, drawn)


def _ends(rows: Sequence[Row], nothing: float) -> tuple[float, float]:
    ends = [nothing]
    for estimated in (estimated for _, estimates in rows for estimated in estimates):
        known = () if estimated.value is None else (estimated.value,)
        ends += [*known, *(estimated.interval or ())]
    return min(ends), max(ends)


def _row(estimates: Sequence[Estimated], x: Scale, middle: float, nothing: float) -> Iterator[Html]:
    for number, estimated in enumerate(estimates):
        height = middle + 11 * (number - (len(estimates) - 1) / 2)
        if estimated.interval is not None:
            low, high = map(x, estimated.interval)
            yield whisker(((low, height), (high, height)), f"whisker {estimated.family}")
        if estimated.value is None:
            yield text((nothing + 6, height + 4), UNKNOWN, "value")
        else:
            yield dot((x(estimated.value), height), estimated.family, estimated.hint)
