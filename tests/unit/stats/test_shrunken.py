"""Mixed maps: the mixture is exact everywhere, the weights are what the page says."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.maps import at

from suffice.errors import UsageError
from suffice.stats.maps import (
    STRENGTH,
    IsotonicMap,
    constant_map,
    fit_isotonic,
    fit_per_round,
    fit_shrunken,
    mix,
)

NAN = math.nan


@st.composite
def maps(draw: st.DrawFn) -> IsotonicMap:
    x = sorted(set(draw(st.lists(st.floats(-9, 9), min_size=1, max_size=6))))
    y = sorted(draw(st.lists(st.floats(0, 1), min_size=len(x), max_size=len(x))))
    return IsotonicMap(x=tuple(x), y=tuple(y), undefined=draw(st.none() | st.floats(0, 1)))


@given(maps(), maps(), st.floats(0, 1), st.lists(st.floats(-12, 12), max_size=20))
def test_a_mix_is_the_weighted_mean_of_both_everywhere(
    first: IsotonicMap, second: IsotonicMap, weight: float, values: list[float]
) -> None:
    mixed = mix(first, second, weight)
    for value in [*values, *first.x, *second.x]:
        expected = weight * at(first, value) + (1 - weight) * at(second, value)
        steepest = max(
            (
                abs(b - a)
                for each in (first, second)
                for a, b in zip(each.y, each.y[1:], strict=False)
            ),
            default=0.0,
        )
        gaps = [b - a for a, b in zip(mixed.x, mixed.x[1:], strict=False)]
        # a segment narrower than the rounding of its ends has no exact slope
        slack = 1e-12 if not gaps or min(gaps) > 1e-3 else 1e-12 + steepest
        assert at(mixed, value) == pytest.approx(expected, abs=slack)
    if first.undefined is None or second.undefined is None:
        assert 0.0 < weight < 1.0 or mixed in (first, second)


def test_a_mix_by_hand() -> None:
    first = IsotonicMap(x=(0.0, 2.0), y=(0.0, 1.0), undefined=0.2)
    second = IsotonicMap(x=(1.0, 3.0), y=(0.5, 0.5), undefined=0.6)
    mixed = mix(first, second, 0.25)
    assert mixed.x == (0.0, 1.0, 2.0, 3.0)
    assert mixed.y == (0.375, 0.5, 0.625, 0.625)
    assert mixed.undefined == pytest.approx(0.5)
    assert mix(constant_map(0.0), constant_map(1.0), 0.25) == constant_map(0.75)
    empty = IsotonicMap(x=(), y=())
    assert mix(empty, second, 0.9) == second
    assert mix(first, empty, 0.1) == first
    for weight in (-0.1, 1.1, NAN):
        with pytest.raises(UsageError, match="weight"):
            mix(first, second, weight)


def rows(n_questions: int, n_rounds: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(n_questions)
    values = rng.normal(size=(n_questions, n_rounds))
    em = (rng.random(values.shape) < 1 / (1 + np.exp(-values))).astype(float)
    values[rng.random(values.shape) < 0.2] = NAN
    em[rng.random(values.shape) < 0.1] = NAN
    return values, em


def test_every_round_is_drawn_to_the_global_map_by_its_rows() -> None:
    values, em = rows(80, 3)
    values[10:, 2] = NAN
    values[10:, 2] = np.where(np.arange(70) < 3, 0.5, NAN)
    fitted = fit_shrunken(values, em)
    own, pooled = fit_per_round(values, em), fit_isotonic(values, em)
    grid = np.linspace(-3, 3, 101)
    for number in range(3):
        n = int((np.isfinite(values[:, number]) & np.isfinite(em[:, number])).sum())
        weight = n / (n + STRENGTH)
        expected = weight * own[number].predict(grid) + (1 - weight) * pooled.predict(grid)
        np.testing.assert_allclose(fitted.predict(number + 1, grid), expected, atol=1e-12)
    np.testing.assert_array_equal(fitted.predict(4, grid), pooled.predict(grid))


def test_strength_runs_from_per_round_to_global() -> None:
    values, em = rows(60, 2)
    assert fit_shrunken(values, em, strength=0).maps == fit_per_round(values, em)
    far = fit_shrunken(values, em, strength=1e12)
    pooled = fit_isotonic(values, em)
    grid = np.linspace(-3, 3, 101)
    np.testing.assert_allclose(far.predict(1, grid), pooled.predict(grid), atol=1e-9)
    for strength in (-1.0, math.inf, NAN):
        with pytest.raises(UsageError, match="strength"):
            fit_shrunken(values, em, strength=strength)
