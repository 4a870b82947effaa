"""Badges stand where a slow, obvious search puts them, and are no more than can be read."""

from __future__ import annotations

import math
import re
from itertools import product

import numpy as np
import pytest

from suffice.report.draw.scatter import Point, Scatter, label_places, scatter
from suffice.report.draw.svg import BADGE_RADIUS, FRAME

Place = tuple[float, float]
Segment = tuple[Place, Place]
RADII = (17.0, 22.0, 28.0, 36.0, 46.0, 58.0, 72.0, 90.0)
ANGLES = [math.radians(22.5 * step) for step in range(16)]


def places_of(points: list[Place], lines: list[Segment]) -> list[Place]:
    """Those of all."""
    frame = (FRAME.left, FRAME.top, FRAME.right, FRAME.bottom)
    numbers = range(len(points))
    return label_places(points, lines, wanted=numbers, frame=frame, radius=BADGE_RADIUS)


def slow_places(points: list[Place], lines: list[Segment]) -> list[Place]:
    """The same by one distance at a time."""
    placed: dict[int, Place] = {}
    for number in sorted(range(len(points)), key=lambda index: points[index]):
        x, y = points[number]
        around = [
            (x + radius * math.sin(angle), y - radius * math.cos(angle))
            for radius, angle in product(RADII, ANGLES)
        ]
        leaders = [(points[other], place) for other, place in placed.items()]
        bad = [_badness(place, points[number], points, lines, leaders) for place in around]
        placed[number] = around[bad.index(min(bad))]
    return [placed[number] for number in range(len(points))]


def _badness(
    place: Place, own: Place, points: list[Place], lines: list[Segment], leaders: list[Segment]
) -> float:
    reach = BADGE_RADIUS + 1
    overlap = sum(max(0.0, 2 * reach - math.dist(place, other)) for _, other in leaders)
    overlap += sum(max(0.0, reach + 7 - math.dist(place, point)) for point in points)
    x, y = place
    gaps = (x - FRAME.left, FRAME.right - x, y - FRAME.top, FRAME.bottom - y)
    overlap += sum(max(0.0, reach - gap) for gap in gaps)
    covered = sum(_from_segment(place, *segment) < BADGE_RADIUS for segment in lines)
    crossing = sum(_cross(own, place, *leader) for leader in leaders)
    crossing += sum(
        _from_segment(point, own, place) < 7 for point in points if math.dist(point, own) > 1
    )
    return round(100 * overlap + math.dist(place, own) + 20 * covered + 60 * crossing, 6)


def _from_segment(point: Place, start: Place, end: Place) -> float:
    (x1, y1), (x2, y2) = start, end
    dx, dy = x2 - x1, y2 - y1
    length2 = dx * dx + dy * dy
    share = 0.0 if length2 == 0 else ((point[0] - x1) * dx + (point[1] - y1) * dy) / length2
    share = min(1.0, max(0.0, share))
    return math.dist(point, (x1 + share * dx, y1 + share * dy))


def _cross(a: Place, b: Place, c: Place, d: Place) -> bool:
    def side(p: Place, q: Place, r: Place) -> float:
        return (q[0] - p[0]) * (r[1] - p[1]) - (q[1] - p[1]) * (r[0] - p[0])

    return side(a, b, c) * side(a, b, d) < 0 and side(c, d, a) * side(c, d, b) < 0


@pytest.mark.parametrize("seed", range(6))
def test_places_are_those_of_a_slow_search(seed: int) -> None:
    generator = np.random.default_rng(seed)
    drawn = generator.uniform((60, 40), (440, 300), (3 + 3 * seed, 2))
    points = [(float(x), float(y)) for x, y in drawn]
    points += points[:1]  # two at one place
    lines = [((x, y - 30), (x, y + 30)) for x, y in points] + [(points[0], points[0])]
    np.testing.assert_allclose(places_of(points, lines), slow_places(points, lines))


@pytest.mark.parametrize("seed", range(8))
def test_badges_stay_inside_and_apart_even_where_points_crowd(seed: int) -> None:
    generator = np.random.default_rng(seed)
    centre = generator.uniform((80, 80), (400, 260))
    crowd = [tuple(centre + generator.normal(0, 6, 2)) for _ in range(6)]
    spread = [tuple(generator.uniform((60, 50), (430, 290))) for _ in range(6)]
    points = [(float(x), float(y)) for x, y in crowd + spread]
    whiskers = [((x, max(40, y - 60)), (x, min(300, y + 60))) for x, y in points]
    places = places_of(points, whiskers)
    for x, y in places:
        assert FRAME.left <= x - BADGE_RADIUS
        assert x + BADGE_RADIUS <= FRAME.right
        assert FRAME.top <= y - BADGE_RADIUS
        assert y + BADGE_RADIUS <= FRAME.bottom
    for number, place in enumerate(places):
        others = places[:number]
        assert all(math.dist(place, other) >= 2 * BADGE_RADIUS for other in others)
        assert all(math.dist(place, point) >= BADGE_RADIUS + 4 for point in points)


def test_a_chart_of_200_budgets_marks_the_policies_and_some_budgets_first_and_last_among_them() -> (
    None
):
    budgets = [
        Point(mark=str(k), family="fixed", name=f"fixed-{k}", said="", x=k, y=0.3 + k / 500)
        for k in range(1, 201)
    ]
    policies = [
        Point(mark=mark, family="adaptive", name=mark, said="", x=10.0 * n, y=0.8)
        for n, mark in enumerate("ABC", start=1)
    ]
    drawn = str(
        scatter(
            Scatter(
                title="t",
                description="d",
                x_name="x",
                y_name="y",
                points=[*budgets, *policies],
            )
        )
    )
    shown = re.findall(r'badge-text mid">([^<]+)<', drawn)
    assert {"A", "B", "C", "1", "200"} <= set(shown)
    assert len(shown) == 40
    assert drawn.count('class="dot fixed"') == 200
    assert "fixed-117" in drawn  # under its point
