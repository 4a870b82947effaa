"""Badges stand where a slow, obvious search puts them, and are no more than can be read."""

from __future__ import annotations

import math

import numpy as np
import pytest

from suffice.report.charts import label_places
from suffice.report.svg import BADGE_RADIUS, FRAME

Place = tuple[float, float]
Segment = tuple[Place, Place]


def places_of(points: list[Place], lines: list[Segment]) -> list[Place]:
    """Those of all."""
    frame = (FRAME.left, FRAME.top, FRAME.right, FRAME.bottom)
    numbers = range(len(points))
    return label_places(points, lines, wanted=numbers, frame=frame, radius=BADGE_RADIUS)


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
