"""The isotonic map: hand-made fits, its two entries, its file form."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.maps import at

from suffice.errors import DataError
from suffice.stats.maps import IsotonicMap, fit_isotonic, fit_per_round

NAN = math.nan
CONSTANT_OF_2_IN_5 = IsotonicMap(x=(0.0,), y=(0.4,))


@st.composite
def maps(draw: st.DrawFn) -> IsotonicMap:
    """Any map, with breakpoints as close as floats allow."""
    wild = st.floats(-1e300, 1e300) | st.integers(-3, 3).map(float) | st.floats(1.0, 1.0 + 1e-14)
    x = sorted({value + 0.0 for value in draw(st.lists(wild, max_size=8))})
    y = sorted(draw(st.lists(st.floats(0, 1), min_size=len(x), max_size=len(x))))
    undefined = draw(st.none() | st.floats(0, 1))
    return IsotonicMap(x=tuple(x), y=tuple(y), undefined=undefined)


def around(fitted: IsotonicMap) -> list[float]:
    """Breakpoints, their neighbours and midpoints, and both ends of the line."""
    near = [math.nextafter(x, end) for x in fitted.x for end in (-math.inf, math.inf)]
    middle = [a / 2 + b / 2 for a, b in pairwise(fitted.x)]
    return sorted([*fitted.x, *near, *middle, -math.inf, math.inf, -0.0, 0.0])


def test_equal_x_are_averaged_then_violators_pooled() -> None:
    # x = 1: mean 1/2 of (1, 0); x = 2: 0; pooled over the 3 rows 1/3. x = 3: 1/2. x = 4: 1.
    fitted = fit_isotonic([1, 1, 2, 3, 3, 4], [1, 0, 0, 1, 0, 1])
    assert fitted.x == (1.0, 2.0, 3.0, 4.0)
    assert fitted.y == (1 / 3, 1 / 3, 0.5, 1.0)


def test_too_few_rows_or_one_x_give_the_labelled_mean() -> None:
    # Four usable rows; the mean is over all five labelled ones.
    assert fit_isotonic([1, 2, 3, 4, NAN], [0, 0, 1, 0, 1]) == CONSTANT_OF_2_IN_5
    assert fit_isotonic([7] * 5, [0, 0, 1, 0, 1]) == CONSTANT_OF_2_IN_5
    assert fit_isotonic([NAN] * 5, [0, 0, 1, 0, 1]) == CONSTANT_OF_2_IN_5
    # Unlabelled rows do not count.
    assert fit_isotonic([1, 2, 3, 4, 5, 6], [0, 0, 1, NAN, 1, NAN]).y == (0.5,)
    assert len(fit_isotonic([1, 2, 3, 4], [0, 0, 1, 1], minimum_rows=4).x) == 4


def test_without_a_label_everything_is_undefined() -> None:
    for empty in (fit_isotonic([], []), fit_isotonic([1.0, 2.0], [NAN, NAN])):
        assert empty.x == ()
        assert math.isnan(at(empty, 1.0))
        assert np.isnan(empty.predict(np.array([1.0, NAN]))).all()
    published = fit_isotonic([], [], undefined=0.5)
    assert published.predict(np.array([1.0, NAN])).tolist() == [0.5, 0.5]


def test_undefined_values_stay_so_unless_told_otherwise() -> None:
    rows = [1, 2, 3, 4, 5], [0, 0, 1, 0, 1]
    assert math.isnan(at(fit_isotonic(*rows), NAN))
    assert np.isnan(fit_isotonic(*rows).predict(np.array([NAN, 2.0]))).tolist() == [True, False]
    published = fit_isotonic(*rows, undefined=0.5)
    assert published.predict(np.array([NAN]))[0] == at(published, NAN) == 0.5
    # A constant of the published kind covers undefined values too.
    constant = fit_isotonic([7] * 5, [0, 0, 1, 0, 1], undefined=0.5)
    assert at(constant, NAN) == at(constant, 3.0) == 0.4
    assert math.isnan(at(CONSTANT_OF_2_IN_5, NAN))


def test_bad_outcomes_are_refused() -> None:
    with pytest.raises(DataError, match=r"\[0, 1\], found 2.0"):
        fit_isotonic([1, 2], [0, 2])
    with pytest.raises(DataError, match="outcomes"):
        fit_isotonic([1, 2, 3], [0, 1])


@given(maps(), st.lists(st.floats(), max_size=20))
def test_one_and_many_give_the_same_bits(fitted: IsotonicMap, values: list[float]) -> None:
    asked = np.array(values + around(fitted))
    one = np.array([at(fitted, value) for value in asked.tolist()], np.float64)
    many = fitted.predict(asked)
    np.testing.assert_array_equal(np.isnan(many), np.isnan(one))
    # bits, so that -0.0 and 0.0 differ; what a NaN carries beside being one means nothing
    defined = ~np.isnan(one)
    np.testing.assert_array_equal(many[defined].view(np.int64), one[defined].view(np.int64))


@given(maps(), st.lists(st.floats(allow_nan=False), max_size=20))
def test_it_never_falls_and_stays_in_range(fitted: IsotonicMap, values: list[float]) -> None:
    if not fitted.x:
        return
    found = fitted.predict(np.array(sorted(values + around(fitted))))
    assert (np.diff(found) >= 0).all()
    assert found.min() >= fitted.y[0]
    assert found.max() <= fitted.y[-1]
    assert fitted.predict(np.array(fitted.x)).tolist() == list(fitted.y)


@given(
    st.lists(
        st.tuples(
            st.floats(-9, 9) | st.integers(-2, 2).map(float) | st.just(NAN),
            st.floats(0, 1) | st.sampled_from([0.0, 1.0, NAN]),
        ),
        max_size=30,
    ),
    st.none() | st.floats(0, 1),
)
def test_any_fit_is_a_valid_map_and_survives_json(
    rows: list[tuple[float, float]], undefined: float | None
) -> None:
    x, y = [row[0] for row in rows], [row[1] for row in rows]
    fitted = fit_isotonic(x, y, undefined=undefined)
    assert IsotonicMap.from_json(json.loads(json.dumps(fitted.to_json()))) == fitted


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([1], "undefined"),
        ({"y": []}, "column x"),
        ({"x": [1], "y": "1"}, "column y"),
        ({"x": [1, 2], "y": [0.5]}, "2 x and 1 y"),
        ({"x": [1, "2"], "y": [0, 1]}, "column x"),
        ({"x": [1, True], "y": [0, 1]}, "column x"),
        ({"x": [1, None], "y": [0, 1]}, "column x"),
        ({"x": [2, 1], "y": [0, 1]}, "column x"),
        ({"x": [1, 1], "y": [0, 1]}, "column x"),
        ({"x": [1, 2], "y": [0.5, 0.4]}, "column y"),
        ({"x": [1, 2], "y": [0.5, 1.5]}, "column y"),
        ({"x": [1, 2], "y": [-0.5, 0.5]}, "column y"),
        ({"x": [1, math.inf], "y": [0, 1]}, "column x"),
        ({"x": [1, math.nan], "y": [0, 1]}, "column x"),
        ({"x": [1, 2], "y": [0, math.nan]}, "column y"),
        ({"x": [1, 10**400], "y": [0, 1]}, "^column x: .* too large"),
        ({"x": [-1.7e308, 1.7e308], "y": [0, 1]}, "^column x: .* wider than"),
        ({"x": [1], "y": [0], "undefined": 2}, "column undefined"),
        ({"x": [1], "y": [0], "undefined": "a"}, "column undefined"),
        ({"x": [1], "y": [0], "z": 1}, "^column z: unknown field"),
    ],
)
def test_a_malformed_document_is_refused(document: object, message: str) -> None:
    with pytest.raises(DataError, match=message):
        IsotonicMap.from_json(document)


def test_each_round_has_its_own_fit_and_its_own_fallback() -> None:
    values = np.array(
        [[1, 9, NAN], [2, 9, 1], [3, 9, 2], [4, 9, 3], [5, 9, NAN], [6, NAN, NAN]], float
    )
    em = np.array([[0, 1, 1], [0, 0, 1], [0, 0, 0], [1, 0, 0], [1, 0, NAN], [NAN, 0, NAN]], float)
    first, second, third = fit_per_round(values, em)
    assert first == fit_isotonic([1, 2, 3, 4, 5], [0, 0, 0, 1, 1])
    assert second.y == (1 / 6,)  # one distinct value: the mean of six labelled rows
    assert third.y == (0.5,)  # three usable rows, four labelled ones
    assert fit_per_round(values, em, undefined=0.5)[0].undefined == 0.5
    with pytest.raises(DataError, match="shape"):
        fit_per_round(values, em[:, :2])
