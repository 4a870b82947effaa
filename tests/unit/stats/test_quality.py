"""Brier, log loss and calibration error: values by hand, ties, undefined rows, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

from suffice.errors import DataError, UsageError
from suffice.stats.quality import brier, expected_calibration_error, log_loss, squared_errors

NAN = math.nan
P, Y = [0.1, 0.4, 0.8, NAN, 0.9], [0.0, 1.0, 1.0, 1.0, NAN]


def test_values_by_hand() -> None:
    assert brier(P, Y) == pytest.approx((0.01 + 0.36 + 0.04) / 3)
    assert log_loss(P, Y) == pytest.approx(-(math.log(0.9) + math.log(0.4) + math.log(0.8)) / 3)
    assert expected_calibration_error(P, Y, buckets=1) == pytest.approx(2 / 3 - 1.3 / 3)
    assert expected_calibration_error(P, Y, buckets=3) == pytest.approx((0.1 + 0.6 + 0.2) / 3)
    # no bucket ends within the three of .5
    ties = [0.5, 0.5, 0.5, 0.9], [1.0, 0.0, 1.0, 1.0]
    assert expected_calibration_error(*ties, buckets=2) == pytest.approx((3 / 6 + 0.1) / 4)


def test_a_certain_error_costs_what_the_clip_says() -> None:
    assert log_loss([0.0], [1.0]) == pytest.approx(-math.log(1e-15))
    assert log_loss([1.0], [0.0]) == pytest.approx(-math.log(1e-15), rel=1e-2)
    assert 0 <= log_loss([1.0, 0.0], [1.0, 0.0]) < 1e-14


def test_undefined_rows_are_left_out_and_nothing_left_is_undefined() -> None:
    assert np.isnan(squared_errors(P, Y)).tolist() == [False, False, False, True, True]
    for score in (brier, log_loss, expected_calibration_error):
        assert math.isnan(score([], []))
        assert math.isnan(score([NAN, 0.5], [1.0, NAN]))
        assert score(P, Y) == score(P[:3], Y[:3])


def test_refusals() -> None:
    for score in (brier, log_loss, expected_calibration_error):
        with pytest.raises(DataError, match=r"column predicted: .* found 1.5"):
            score([1.5], [1.0])
        with pytest.raises(DataError, match=r"column outcome: .* found -1.0"):
            score([0.5], [-1.0])
        with pytest.raises(DataError, match="outcomes"):
            score([0.5, 0.5], [1.0])
    with pytest.raises(UsageError, match="at least 1, found 0"):
        expected_calibration_error([0.5], [1.0], buckets=0)
