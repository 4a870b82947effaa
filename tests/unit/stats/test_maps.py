"""Calibration maps: fits with known answers, mixtures, one value and many, their documents."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.maps import at

from suffice.contracts import Calibrator
from suffice.errors import DataError, UsageError
from suffice.stats.logistic import fit_logistic, sigmoids
from suffice.stats.maps import (
    STRENGTH,
    IsotonicMap,
    LogisticMap,
    PerRoundCalibrator,
    StepMap,
    constant_map,
    fit_isotonic,
    fit_per_round,
    fit_platt,
    fit_shrunken,
    fit_venn_abers,
    mix,
    read_calibrator,
    read_map,
)

NAN = math.nan


WILD = st.floats(-1e300, 1e300) | st.integers(-3, 3).map(float) | st.floats(1.0, 1.0 + 1e-14)
UNDEFINED = st.none() | st.floats(0, 1)


@st.composite
def isotonic_maps(draw: st.DrawFn) -> IsotonicMap:
    """Any map, with breakpoints as close as floats allow."""
    x = sorted({value + 0.0 for value in draw(st.lists(WILD, max_size=8))})
    y = sorted(draw(st.lists(st.floats(0, 1), min_size=len(x), max_size=len(x))))
    undefined = draw(UNDEFINED)
    return IsotonicMap(x=tuple(x), y=tuple(y), undefined=undefined)


LOGISTIC_MAPS = st.builds(
    LogisticMap,
    slope=st.floats(allow_nan=False, allow_infinity=False),
    intercept=st.floats(allow_nan=False, allow_infinity=False),
    undefined=UNDEFINED,
)


@st.composite
def step_maps(draw: st.DrawFn) -> StepMap:
    x = sorted({value + 0.0 for value in draw(st.lists(WILD, max_size=6))})
    size = 2 * len(x) + 1
    levels = sorted(draw(st.lists(st.floats(0, 1), min_size=size, max_size=size)))
    return StepMap(
        x=tuple(x), at=tuple(levels[1::2]), between=tuple(levels[0::2]), undefined=draw(UNDEFINED)
    )


def around(fitted: Any) -> list[float]:
    """Breakpoints, their neighbours and midpoints, and both ends of the line."""
    points = getattr(fitted, "x", ())
    near = [math.nextafter(x, end) for x in points for end in (-math.inf, math.inf)]
    middle = [a / 2 + b / 2 for a, b in pairwise(points)]
    return sorted([*points, *near, *middle, -math.inf, math.inf, -0.0, 0.0])


ANY_MAP = st.one_of(isotonic_maps(), LOGISTIC_MAPS, step_maps())


@given(ANY_MAP, st.lists(st.floats(), max_size=20))
def test_one_and_many_give_the_same_bits(fitted: Any, values: list[float]) -> None:
    asked = np.array(values + around(fitted))
    one = np.array([at(fitted, value) for value in asked.tolist()], np.float64)
    many = fitted.predict(asked)
    np.testing.assert_array_equal(np.isnan(many), np.isnan(one))
    # bits, so that -0.0 and 0.0 differ; what a NaN carries beside being one means nothing
    defined = ~np.isnan(one)
    np.testing.assert_array_equal(many[defined].view(np.int64), one[defined].view(np.int64))
    assert ((many[defined] >= 0) & (many[defined] <= 1)).all()
    if not isinstance(fitted, LogisticMap):
        ordered = fitted.predict(np.array(sorted(asked[~np.isnan(asked)])))
        assert not (np.diff(ordered) < 0).any()


@given(ANY_MAP)
def test_json_gives_back_the_same_map(fitted: Any) -> None:
    text = json.dumps(fitted.to_json(), allow_nan=False)
    assert type(fitted).from_json(json.loads(text)) == fitted


ISOTONIC = IsotonicMap(x=(0.1, 1 / 3), y=(0.2, 0.7), undefined=0.5)
LINE = LogisticMap(slope=1.0, intercept=0.0)
STEPS = StepMap(x=(0.0, 1.0), at=(0.2, 0.6), between=(0.1, 0.4, 0.8))


@pytest.mark.parametrize(
    ("good", "changes", "column"),
    [
        (ISOTONIC, {"x": [0.1]}, "y"),
        (ISOTONIC, {"x": [0.5, 0.1]}, "x"),
        (ISOTONIC, {"x": "01"}, "x"),
        (ISOTONIC, {"x": [0.1, True]}, "x"),
        (ISOTONIC, {"x": [0.1, 10**400]}, "x"),
        (ISOTONIC, {"x": [-1.7e308, 1.7e308]}, "x"),
        (ISOTONIC, {"y": [0.7, 0.2]}, "y"),
        (ISOTONIC, {"y": [0.2, 1.2]}, "y"),
        (ISOTONIC, {"y": [0.2, NAN]}, "y"),
        (ISOTONIC, {"undefined": "half"}, "undefined"),
        (ISOTONIC, {"z": 1}, "z"),
        (LINE, {"slope": NAN}, "slope"),
        (LINE, {"intercept": "0"}, "intercept"),
        (LINE, {"undefined": 1.5}, "undefined"),
        (LINE, {"x": []}, "x"),
        (STEPS, {"x": [0.0]}, "at"),
        (STEPS, {"between": [0.1, 0.8]}, "between"),
        (STEPS, {"x": [1.0, 1.0]}, "x"),
        (STEPS, {"x": [0.0, math.inf]}, "x"),
        (STEPS, {"at": [0.2, NAN]}, "at"),
        (STEPS, {"at": [0.5, 0.6]}, "at"),
        (STEPS, {"between": [0.1, 0.4, 0.5]}, "at"),
        (STEPS, {"between": "012"}, "between"),
        (STEPS, {"y": []}, "y"),
    ],
)
def test_a_broken_map_is_named_by_its_field(
    good: Any, changes: dict[str, object], column: str
) -> None:
    with pytest.raises(DataError) as caught:
        type(good).from_json({**good.to_json(), **changes})
    assert caught.value.column == column


# --- isotonic -------------------------------------------------------------------------------------
CONSTANT_OF_2_IN_5 = IsotonicMap(x=(0.0,), y=(0.4,))


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


# --- Platt ----------------------------------------------------------------------------------------


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
        # values too close for a slope
        ([math.ulp(0.0) * n for n in range(8)], [0, 0, 0, 1, 0, 1, 1, 1], 0.5),
    ],
)
def test_platt_on_degenerate_rows_fall_back_to_the_mean(
    x: list[float], y: list[float], mean: float
) -> None:
    assert fit_platt(x, y) == IsotonicMap(x=(0.0,), y=(mean,))
    assert fit_platt(x, y, undefined=0.5) == constant_map(mean, 0.5)
    assert at(fit_platt(x, y, undefined=0.5), NAN) == mean


def test_infinite_signals_do_not_enter_the_fit_and_go_to_the_ends() -> None:
    fitted = fit_platt([*range(8), math.inf, -math.inf], [0, 0, 1, 0, 1, 1, 0, 1, 0, 1])
    assert fitted == fit_platt(range(8), [0, 0, 1, 0, 1, 1, 0, 1])
    assert fitted.predict(np.array([-math.inf, math.inf])).tolist() == [0.0, 1.0]
    flat = LogisticMap(slope=0.0, intercept=0.0)
    assert at(flat, math.inf) == at(flat, -math.inf) == 0.5


# --- Venn-Abers -----------------------------------------------------------------------------------
def test_venn_abers_on_degenerate_rows_fall_back_to_the_mean() -> None:
    assert fit_venn_abers([1, 2, 3, 4, NAN], [0, 0, 1, 0, 1]) == IsotonicMap(x=(0.0,), y=(0.4,))
    assert fit_venn_abers([7] * 5, [0, 0, 1, 0, 1], undefined=0.5) == constant_map(0.4, 0.5)
    assert fit_venn_abers([1.0], [NAN]) == IsotonicMap(x=(), y=())
    infinite = fit_venn_abers([1, 2, 3, 4, 5, math.inf], [0, 0, 1, 0, 1, 0])
    assert infinite == fit_venn_abers([1, 2, 3, 4, 5], [0, 0, 1, 0, 1])


# --- mixtures -------------------------------------------------------------------------------------
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


# --- a map a round --------------------------------------------------------------------------------
MAPS: tuple[Calibrator, ...] = (
    IsotonicMap(x=(0.0, 1.0), y=(0.2, 0.8)),
    LogisticMap(slope=-2.0, intercept=0.5, undefined=0.5),
    StepMap(x=(0.5,), at=(0.4,), between=(0.1, 0.9)),
)


def test_a_map_without_a_kind_is_isotonic() -> None:
    document = MAPS[0].to_json()
    assert "kind" not in document
    assert read_map({**document, "kind": "isotonic"}) == read_map(document) == MAPS[0]


@pytest.mark.parametrize(
    ("document", "column"),
    [
        (3, "c"),
        ({}, "c"),
        ({"rounds": {}}, "c"),
        ({"rounds": [], "absent": 2}, "c.absent"),
        ({"rounds": [], "absent": "x"}, "c.absent"),
        ({"rounds": [], "beyond": 3}, "c.beyond"),
        ({"rounds": [], "beyond": {"kind": "no"}}, "c.beyond.kind"),
        ({"rounds": [MAPS[0].to_json(), {"kind": "step", "x": 1}]}, "c.rounds[1].x"),
        ({"rounds": [{"kind": "logistic", "slope": 1}]}, "c.rounds[0].intercept"),
    ],
)
def test_a_fault_is_placed(document: object, column: str) -> None:
    with pytest.raises(DataError) as caught:
        read_calibrator(document, column.partition(".")[0])
    assert caught.value.column == column


def test_rounds_past_the_last_fitted_one() -> None:
    values = np.array([0.5, math.nan])
    for calibrator, expected in (
        (PerRoundCalibrator(maps=MAPS[:1]), math.nan),
        (PerRoundCalibrator(maps=MAPS[:1], absent=0.5), 0.5),
        (PerRoundCalibrator(maps=MAPS[:1], beyond=MAPS[2]), 0.4),
    ):
        assert calibrator.predict(1, values)[0] == 0.5
        np.testing.assert_equal(calibrator.predict(2, values)[0], expected)
        np.testing.assert_equal(at(calibrator, 2, 0.5), expected)
    everywhere = PerRoundCalibrator(beyond=MAPS[0])
    assert [at(everywhere, number, 0.5) for number in (1, 2, 99)] == [0.5] * 3


def test_sigmoids_are_those_of_single_numbers_to_the_bit() -> None:
    ends = [0.0, -0.0, 1e-300, 36.8, -36.8, 745.2, -745.2, 1e308, math.inf, -math.inf, math.nan]
    logits = np.concatenate([ends, np.random.default_rng(0).normal(0.0, 20.0, 989)])
    one_by_one = np.array([sigmoids(np.array(logit)).item() for logit in logits.tolist()])
    assert sigmoids(logits.reshape(10, 100)).tobytes() == one_by_one.tobytes()


@pytest.mark.parametrize(("outcome", "share"), [(1.0, 5 / 6), (0.0, 1 / 6)])
def test_one_class_gives_a_smoothed_constant(outcome: float, share: float) -> None:
    fit = fit_logistic(np.arange(4.0)[:, None], np.full(4, outcome))
    assert fit.weights == (0.0,)
    assert sigmoids(np.array(fit.intercept)) == pytest.approx(share)
