"""The frame, grid and names of a plot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from suffice.report.formats import tick
from suffice.report.markup import Html
from suffice.report.svg import Box, Scale, line, text, ticks

__all__ = ["FRAME", "SIZE", "Axes", "enclosing"]

SIZE = (460.0, 360.0)
FRAME = Box(46, 34, 448, 310)


@dataclass(frozen=True, slots=True)
class Axes:
    """Where values lie inside :data:`FRAME`, and the round values that are marked."""

    x: Scale
    y: Scale
    x_ticks: Sequence[float]
    y_ticks: Sequence[float]

    def drawn(self, x_name: str, y_name: str, *, shares: bool = True) -> list[Html]:
        """Grid, ticks and names; ``shares``: the upright axis is in percent."""
        bottom, x, y = FRAME.bottom, self.x, self.y
        drawn = [line((FRAME.left, y(v)), (FRAME.right, y(v)), "grid") for v in self.y_ticks]
        drawn += [
            text((FRAME.left - 6, y(v) + 4), f"{100 * v:g}" if shares else tick(v), "tick end")
            for v in self.y_ticks
        ]
        drawn += [line((x(v), bottom), (x(v), bottom + 4), "axis") for v in self.x_ticks]
        drawn += [text((x(v), bottom + 18), tick(v), "tick mid") for v in self.x_ticks]
        drawn.append(line((FRAME.left, bottom), (FRAME.right, bottom), "axis"))
        middle = (FRAME.left + FRAME.right) / 2
        drawn.append(text((middle, bottom + 40), x_name, "axis-name mid"))
        drawn.append(text((FRAME.left - 40, 16), y_name, "axis-name"))
        return drawn


def enclosing(across: Iterable[float], upwards: Iterable[float]) -> Axes:
    """Axes that hold all the values; at least one each."""
    xs, ys = tuple(across), tuple(upwards)
    x_ticks, y_ticks = ticks(min(xs), max(xs)), ticks(min(ys), max(ys))
    return Axes(
        x=Scale(x_ticks[0], x_ticks[-1], FRAME.left + 14, FRAME.right - 14),
        y=Scale(y_ticks[0], y_ticks[-1], FRAME.bottom - 6, FRAME.top + 6),
        x_ticks=x_ticks,
        y_ticks=y_ticks,
    )
