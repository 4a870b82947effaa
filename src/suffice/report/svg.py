"""Shapes, scales, panels of shares and rows of intervals as inline SVG, in user units, y downwards."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

from suffice.results.formats import UNKNOWN, tick
from suffice.results.markup import Html, element, join, shorten, visible

BADGE_RADIUS = 9.0

Family = Literal["fixed", "adaptive", "oracle"]
Point = tuple[float, float]
Span = tuple[float, float]  # the ends of an interval, low first


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values from [low, high] to positions from ``start`` to ``end``."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)


@dataclass(frozen=True, slots=True)
class Box:
    left: float
    top: float
    right: float
    bottom: float


def ticks(low: float, high: float, most: int = 6) -> tuple[float, ...]:
    """Return at most ``most`` round values that enclose [low, high], by steps of 1, 2 or 5 times 10^n.

    >>> ticks(0.27, 0.63)
    (0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
    """
    if not high > low:
        low, high = low - 0.5, high + 0.5
    exponent = math.floor(math.log10((high - low) / most))
    for power, factor in product(range(exponent, exponent + 3), (1, 2, 5)):
        step = factor * 10.0**power
        first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
        if last - first < most:
            break
    return tuple(round(number * step, max(0, -power)) for number in range(first, last + 1))


def _at(value: float) -> str:
    return f"{value:.1f}"


def canvas(
    size: tuple[float, float], title: str, description: str, content: Iterable[object]
) -> Html:
    """Return a picture with a name and a description for screen readers."""
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *content,
        viewBox=f"0 0 {size[0]:g} {size[1]:g}",
        role="img",
        aria_label=f"{title}. {description}",
    )


def line(start: Point, end: Point, class_: str) -> Html:
    (x1, y1), (x2, y2) = start, end
    return element("line", x1=_at(x1), y1=_at(y1), x2=_at(x2), y2=_at(y2), class_=class_)


def _path(points: Iterable[Point]) -> str:
    return " ".join(f"{_at(x)},{_at(y)}" for x, y in points)


def whisker(ends: tuple[Point, Point], class_: str, reach: float = 3.0) -> Html:
    """Draw an upright or level interval with caps."""
    (x1, y1), (x2, y2) = ends
    dx, dy = (reach, 0.0) if abs(x2 - x1) <= abs(y2 - y1) else (0.0, reach)
    return join(
        [
            line((x1, y1), (x2, y2), class_),
            *(line((x - dx, y - dy), (x + dx, y + dy), class_) for x, y in ends),
        ]
    )


def speck(at: Point, class_: str) -> Html:
    return element("circle", cx=_at(at[0]), cy=_at(at[1]), r="2", class_=class_)


def text(at: Point, content: object, class_: str = "") -> Html:
    """Draw a line of text; classes ``mid`` and ``end`` anchor it there."""
    return element("text", content, x=_at(at[0]), y=_at(at[1]), class_=class_ or None)


def bar(corner: Point, size: Point, class_: str, hint: str | None = None) -> Html:
    """Draw a rectangle; ``hint`` shows under a pointer."""
    return element(
        "rect",
        *(() if hint is None else (element("title", hint),)),
        x=_at(corner[0]),
        y=_at(corner[1]),
        width=_at(size[0]),
        height=_at(size[1]),
        class_=class_,
    )


def dot(at: Point, family: Family, hint: str, radius: float = 4.5) -> Html:
    """Draw a point: square for a fixed budget, circle for a policy, diamond for an oracle."""
    x, y = at
    hinted = element("title", hint)
    if family == "adaptive":
        return element("circle", hinted, cx=_at(x), cy=_at(y), r=_at(radius), class_="dot adaptive")
    reach = 4.2 if family == "fixed" else 6.0
    corners = (
        ((-reach, -reach), (reach, -reach), (reach, reach), (-reach, reach))
        if family == "fixed"
        else ((0.0, -reach), (reach, 0.0), (0.0, reach), (-reach, 0.0))
    )
    points = _path((x + dx, y + dy) for dx, dy in corners)
    return element("polygon", hinted, points=points, class_=f"dot {family}")


def badge(at: Point, mark: str, family: Family) -> Html:
    """Draw a policy's mark: in a square for a fixed budget, else in a disc."""
    x, y = at
    corner = 3.0 if family == "fixed" else BADGE_RADIUS
    shape = element(
        "rect",
        x=_at(x - BADGE_RADIUS),
        y=_at(y - BADGE_RADIUS),
        width=_at(2 * BADGE_RADIUS),
        height=_at(2 * BADGE_RADIUS),
        rx=_at(corner),
        class_=f"badge {family}",
    )
    return join([shape, text((x, y + 4), mark, "badge-text mid")])


SIZE = (460.0, 360.0)
FRAME = Box(46, 34, 448, 310)


@dataclass(frozen=True, slots=True)
class Axes:
    """Scales inside :data:`FRAME`, and their ticks."""

    x: Scale
    y: Scale
    x_ticks: Sequence[float]
    y_ticks: Sequence[float]

    def drawn(self, x_name: str, y_name: str) -> list[Html]:
        """Draw grid, ticks and names; the upright axis is in percent."""
        bottom, x, y = FRAME.bottom, self.x, self.y
        drawn = [line((FRAME.left, y(v)), (FRAME.right, y(v)), "grid") for v in self.y_ticks]
        drawn += [
            text((FRAME.left - 6, y(v) + 4), f"{100 * v:g}", "tick end") for v in self.y_ticks
        ]
        drawn += [line((x(v), bottom), (x(v), bottom + 4), "axis") for v in self.x_ticks]
        drawn += [text((x(v), bottom + 18), tick(v), "tick mid") for v in self.x_ticks]
        drawn.append(line((FRAME.left, bottom), (FRAME.right, bottom), "axis"))
        middle = (FRAME.left + FRAME.right) / 2
        drawn.append(text((middle, bottom + 40), x_name, "axis-name mid"))
        drawn.append(text((FRAME.left - 40, 16), y_name, "axis-name"))
        return drawn


def enclosing(across: Iterable[float], upwards: Iterable[float]) -> Axes:
    xs, ys = tuple(across), tuple(upwards)
    x_ticks = ticks(min(xs), max(xs))
    y_ticks = ticks(min(ys), max(ys))
    return Axes(
        x=Scale(x_ticks[0], x_ticks[-1], FRAME.left + 14, FRAME.right - 14),
        y=Scale(y_ticks[0], y_ticks[-1], FRAME.bottom - 6, FRAME.top + 6),
        x_ticks=x_ticks,
        y_ticks=y_ticks,
    )


_SIZE = (220.0, 216.0)
_FRAME = Box(36, 26, 210, 178)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spot:
    """A point of ``weight`` (up to 1) with the interval of its height."""

    x: float
    y: float
    hint: str
    interval: Span
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSquare:
    """A panel with spots or a path, and a dashed line at ``level`` or on the diagonal."""

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
        path = _path((x(at), y(up)) for at, up in panel.path)
        drawn.append(element("polyline", points=path, class_="curve adaptive"))
    if not panel.spots and not panel.path:
        drawn.append(text((x(0.5), y(0.5)), panel.said, "value mid"))
    return canvas(_SIZE, panel.title, panel.description, drawn)


def _spot(spot: Spot, x: Scale, y: Scale) -> Iterator[Html]:
    at = x(spot.x)
    low, high = spot.interval
    yield line((at, y(low)), (at, y(high)), "whisker adaptive")
    yield dot((at, y(spot.y)), "adaptive", spot.hint, 2.5 + 3 * math.sqrt(spot.weight))


_WIDTH, _ROW, _TOP = 460.0, 30.0, 30.0
_LETTER = 7.7  # user units that a letter of a name takes at most, on a phone
_LONGEST = 28


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    """A value with its interval; ``None``: undefined."""

    family: Family
    value: float | None
    hint: str
    interval: Span | None = None


Row = tuple[str, Sequence[Estimated]]  # a name and its estimates, one below the other


def forest(title: str, description: str, rows: Sequence[Row], none: tuple[float, str]) -> Html:
    """Draw names on the left and estimates on the right; ``none`` is the value of no effect, named."""
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
