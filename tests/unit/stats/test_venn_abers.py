"""Venn-Abers: against its definition row by row, its two entries, its file form."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.maps import at
from tests.properties import examples

from suffice.errors import DataError
from suffice.stats.maps import IsotonicMap, StepMap, constant_map, fit_isotonic, fit_venn_abers

NAN = math.nan


def by_definition(x: list[float], y: list[float], value: float) -> float:
    """Fit the rows twice, with the value added as wrong and as right, and merge the two."""
    p0, p1 = (
        at(fit_isotonic([*x, value], [*y, label], minimum_rows=1), value) for label in (0.0, 1.0)
    )
    return p1 / (1 - p0 + p1)


@settings(deadline=None, max_examples=examples(60))
@given(
    st.lists(
        st.tuples(st.integers(-4, 8).map(float), st.sampled_from([0.0, 1.0, 0.5])),
        min_size=5,
        max_size=14,
    )
)
def test_it_is_two_isotonic_fits_at_every_place(rows: list[tuple[float, float]]) -> None:
    x, y = [each[0] for each in rows], [each[1] for each in rows]
    if len(set(x)) < 2:
        return
    fitted = fit_venn_abers(x, y)
    for value in [*x, *(each + 0.5 for each in x), min(x) - 3, max(x) + 3]:
        assert at(fitted, value) == pytest.approx(by_definition(x, y, value), abs=1e-12)


def test_a_fit_by_hand() -> None:
    # below all: wrong alone gives p0 = 0, right pooled with the three wrong gives p1 = 1/4
    fitted = fit_venn_abers([1, 2, 3, 4, 5], [0, 0, 0, 1, 1])
    assert at(fitted, 0.0) == pytest.approx(0.25 / 1.25)
    # above all: p1 = 1, wrong pooled with the two right gives p0 = 2/3
    assert at(fitted, 9.0) == pytest.approx(1 / (1 - 2 / 3 + 1))


def test_degenerate_rows_fall_back_to_the_mean() -> None:
    assert fit_venn_abers([1, 2, 3, 4, NAN], [0, 0, 1, 0, 1]) == IsotonicMap(x=(0.0,), y=(0.4,))
    assert fit_venn_abers([7] * 5, [0, 0, 1, 0, 1], undefined=0.5) == constant_map(0.4, 0.5)
    assert fit_venn_abers([1.0], [NAN]) == IsotonicMap(x=(), y=())
    infinite = fit_venn_abers([1, 2, 3, 4, 5, math.inf], [0, 0, 1, 0, 1, 0])
    assert infinite == fit_venn_abers([1, 2, 3, 4, 5], [0, 0, 1, 0, 1])


@st.composite
def steps(draw: st.DrawFn) -> StepMap:
    wild = st.floats(-1e300, 1e300) | st.integers(-3, 3).map(float) | st.floats(1.0, 1.0 + 1e-14)
    x = sorted({value + 0.0 for value in draw(st.lists(wild, max_size=6))})
    size = 2 * len(x) + 1
    levels = sorted(draw(st.lists(st.floats(0, 1), min_size=size, max_size=size)))
    return StepMap(
        x=tuple(x),
        at=tuple(levels[1::2]),
        between=tuple(levels[0::2]),
        undefined=draw(st.none() | st.floats(0, 1)),
    )


def around(fitted: StepMap) -> list[float]:
    near = [math.nextafter(x, end) for x in fitted.x for end in (-math.inf, math.inf)]
    return [*fitted.x, *near, -math.inf, math.inf, -0.0, 0.0]


@given(steps(), st.lists(st.floats(), max_size=20))
def test_one_and_many_give_the_same_bits(fitted: StepMap, values: list[float]) -> None:
    asked = np.array(values + around(fitted))
    one = np.array([at(fitted, value) for value in asked.tolist()], np.float64)
    many = fitted.predict(asked)
    np.testing.assert_array_equal(np.isnan(many), np.isnan(one))
    defined = ~np.isnan(one)
    np.testing.assert_array_equal(many[defined].view(np.int64), one[defined].view(np.int64))
    ordered = fitted.predict(np.array(sorted(asked[~np.isnan(asked)])))
    assert (np.diff(ordered) >= 0).all()


@given(steps())
def test_json_gives_back_the_same_map(fitted: StepMap) -> None:
    assert StepMap.from_json(json.loads(json.dumps(fitted.to_json(), allow_nan=False))) == fitted


GOOD = StepMap(x=(0.0, 1.0), at=(0.2, 0.6), between=(0.1, 0.4, 0.8))


@pytest.mark.parametrize(
    ("changes", "column"),
    [
        ({"x": [0.0]}, "at"),
        ({"between": [0.1, 0.8]}, "between"),
        ({"x": [1.0, 1.0]}, "x"),
        ({"x": [0.0, math.inf]}, "x"),
        ({"x": [0.0, NAN]}, "x"),
        ({"at": [0.2, 1.5]}, "at"),
        ({"at": [0.2, NAN]}, "at"),
        ({"at": [0.5, 0.6]}, "at"),
        ({"between": [0.1, 0.4, 0.5]}, "at"),
        ({"at": None}, "at"),
        ({"between": "012"}, "between"),
        ({"undefined": -1}, "undefined"),
        ({"y": []}, "y"),
    ],
)
def test_a_broken_map_is_named_by_its_field(changes: dict[str, object], column: str) -> None:
    with pytest.raises(DataError) as caught:
        StepMap.from_json({**GOOD.to_json(), **changes})
    assert caught.value.column == column
