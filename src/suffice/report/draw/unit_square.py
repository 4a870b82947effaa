"""Small panels whose axes are shares from 0 to 1: reliability, risk against coverage and the like."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from suffice.report.draw.svg import Box, Scale, Span, canvas, line, polyline, text
from suffice.results.markup import Html, element

_SIZE = (220.0, 216.0)
_FRAME = Box(36, 26, 210, 178)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A point of ``weight`` (of the greatest, at most 1) with the interval of its height."""

    x: float
    y: float
    hint: str
    interval: Span
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSquare:
    """A panel with spots or a path; the dashed line is at ``level``, or the diagonal.

    ``said`` is written into a panel that has neither.
    """

    title: str
    description: str
    x_name: str
    y_name: str
    name: str = ""
    spots: Sequence[Spot] = ()
    path: Sequence[tuple[float, float]] = ()
    level: float | None = None
    said: str = ""


def unit_square(panel: UnitSquare) -> Html:
    """One panel."""
    x, y = Scale(0, 1, _FRAME.left, _FRAME.right), Scale(0, 1, _FRAME.bottom, _FRAME.top)
    drawn = [text((_FRAME.left, 16), panel.name, "axis-name")] if panel.name else []
    for value in (0.0, 0.5, 1.0):
        label = f"{100 * value:g}"
        drawn.append(line((x(0), y(value)), (x(1), y(value)), "grid"))
        drawn.append(text((_FRAME.left - 5, y(value) + 4), label, "tick end"))
        drawn.append(text((x(value), _FRAME.bottom + 15), label, "tick mid"))
    low, high = (0, 1) if panel.level is None else (panel.level, panel.level)
    drawn.append(line((x(0), y(low)), (x(1), y(high)), "diagonal"))
    drawn.append(text((x(0.5), _FRAME.bottom + 32), panel.x_name, "tick mid"))
    drawn.append(text((_FRAME.right, 16), panel.y_name, "tick end"))
    for spot in panel.spots:
        drawn += _spot(spot, x, y)
    if panel.path:
        drawn.append(polyline([(x(at), y(up)) for at, up in panel.path], "curve adaptive"))
    if not panel.spots and not panel.path:
        drawn.append(text((x(0.5), y(0.5)), panel.said, "value mid"))
    return canvas(_SIZE, panel.title, panel.description, drawn)


def _spot(spot: Spot, x: Scale, y: Scale) -> Iterator[Html]:
    at = x(spot.x)
    low, high = spot.interval
    yield line((at, y(low)), (at, y(high)), "whisker adaptive")
    yield element(
        "circle",
        element("title", spot.hint),
        cx=f"{at:.1f}",
        cy=f"{y(spot.y):.1f}",
        r=f"{2.5 + 3 * math.sqrt(spot.weight):.1f}",
        class_="dot adaptive",
    )
