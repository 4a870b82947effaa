"""The logistic map: fits with known answers, fallbacks, its two entries, its file form."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.maps import at

from suffice.errors import DataError
from suffice.stats.maps import IsotonicMap, LogisticMap, constant_map, fit_platt

NAN = math.nan
finite = st.floats(allow_nan=False, allow_infinity=False)
maps = st.builds(
    LogisticMap, slope=finite, intercept=finite, undefined=st.none() | st.floats(0.0, 1.0)
)


def test_two_values_are_fitted_through_their_smoothed_shares() -> None:
    """With two distinct x a logistic curve passes through both mean targets, which is a closed form."""
    x = [0.0] * 4 + [2.0] * 6
    y = [1, 0, 0, 0, 1, 1, 1, 1, 0, 1]  # 6 right, 4 wrong
    high, low = 7 / 8, 1 / 6
    at_0, at_2 = (high + 3 * low) / 4, (5 * high + low) / 6
    fitted = fit_platt(x, y)
    assert isinstance(fitted, LogisticMap)
    assert at(fitted, 0.0) == pytest.approx(at_0, abs=1e-12)
    assert at(fitted, 2.0) == pytest.approx(at_2, abs=1e-12)
    logits = [math.log(p / (1 - p)) for p in (at_0, at_2)]
    assert fitted.slope == pytest.approx((logits[1] - logits[0]) / 2, abs=1e-10)
    assert fitted.intercept == pytest.approx(logits[0], abs=1e-10)


@pytest.mark.parametrize("unit", [1e-30, 1e-3, 1.0, 1e6, 1e200])
def test_the_unit_of_the_signal_does_not_matter(unit: float) -> None:
    rng = np.random.default_rng(3)
    x = rng.normal(2, 1, 60)
    y = (rng.random(60) < 1 / (1 + np.exp(2 - x))).astype(float)
    plain, scaled = fit_platt(x, y), fit_platt(x * unit, y)
    np.testing.assert_allclose(scaled.predict(x * unit), plain.predict(x), rtol=1e-9)


@pytest.mark.parametrize(
    ("x", "y", "mean"),
    [
        ([1, 2, 3, 4], [0, 0, 1, 1], 0.5),  # four rows
        ([1, 2, 3, 4, NAN], [0, 0, 1, 1, 1], 0.6),  # four usable; the mean is over five
        ([7] * 6, [0, 0, 0, 1, 1, 0], 1 / 3),  # one value
        (range(8), [0] * 8, 0.0),  # one class
        (range(8), [1] * 8, 1.0),
    ],
)
def test_degenerate_rows_fall_back_to_the_mean(x: list[float], y: list[float], mean: float) -> None:
    assert fit_platt(x, y) == IsotonicMap(x=(0.0,), y=(mean,))
    assert fit_platt(x, y, undefined=0.5) == constant_map(mean, 0.5)
    assert at(fit_platt(x, y, undefined=0.5), NAN) == mean


def test_values_too_close_for_a_slope_fall_back() -> None:
    tiny = [math.ulp(0.0) * n for n in range(8)]
    assert fit_platt(tiny, [0, 0, 0, 1, 0, 1, 1, 1]) == constant_map(0.5)


def test_infinite_signals_do_not_enter_the_fit_and_go_to_the_ends() -> None:
    fitted = fit_platt([*range(8), math.inf, -math.inf], [0, 0, 1, 0, 1, 1, 0, 1, 0, 1])
    assert fitted == fit_platt(range(8), [0, 0, 1, 0, 1, 1, 0, 1])
    assert fitted.predict(np.array([-math.inf, math.inf])).tolist() == [0.0, 1.0]
    flat = LogisticMap(slope=0.0, intercept=0.0)
    assert at(flat, math.inf) == at(flat, -math.inf) == 0.5


@given(maps, st.lists(st.floats(), max_size=30))
def test_one_and_many_give_the_same_bits(fitted: LogisticMap, values: list[float]) -> None:
    one = np.array([at(fitted, value) for value in values], np.float64)
    many = fitted.predict(np.array(values, np.float64))
    np.testing.assert_array_equal(np.isnan(many), np.isnan(one))
    defined = ~np.isnan(one)
    np.testing.assert_array_equal(many[defined].view(np.int64), one[defined].view(np.int64))
    assert ((many[defined] >= 0) & (many[defined] <= 1)).all()


@given(maps)
def test_json_gives_back_the_same_map(fitted: LogisticMap) -> None:
    assert (
        LogisticMap.from_json(json.loads(json.dumps(fitted.to_json(), allow_nan=False))) == fitted
    )


@pytest.mark.parametrize(
    ("changes", "column"),
    [
        ({"slope": None}, "slope"),
        ({"slope": NAN}, "slope"),
        ({"intercept": math.inf}, "intercept"),
        ({"intercept": "0"}, "intercept"),
        ({"undefined": 1.5}, "undefined"),
        ({"x": []}, "x"),
    ],
)
def test_a_broken_map_is_named_by_its_field(changes: dict[str, object], column: str) -> None:
    document = {**LogisticMap(slope=1.0, intercept=0.0).to_json(), **changes}
    with pytest.raises(DataError) as caught:
        LogisticMap.from_json(document)
    assert caught.value.column == column
