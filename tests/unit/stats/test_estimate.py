"""Estimates with intervals, or with the reason they have none."""

from __future__ import annotations

import math

import numpy as np

from suffice.stats.intervals import Estimate, difference, from_draws, undefined


def test_percentiles_of_the_defined_draws() -> None:
    draws = np.arange(101.0)
    found = from_draws(50.0, draws)
    assert found == Estimate(estimate=50.0, low=2.5, high=97.5)
    with_gaps = np.concatenate([draws, np.full(5, np.nan)])
    assert from_draws(50.0, with_gaps) == found


def test_too_many_undefined_draws_leave_no_interval() -> None:
    draws = np.concatenate([np.arange(90.0), np.full(10, np.nan)])
    found = from_draws(7.0, draws)
    assert (found.estimate, found.low, found.high) == (7.0, None, None)
    assert found.reason == "no interval: undefined in 10 of 100 resamples"
    assert from_draws(math.nan, draws).estimate is None
    assert from_draws(1.0, np.full(3, np.nan)).low is None


def test_differences_are_of_independent_draws_and_pass_reasons_on() -> None:
    later = from_draws(3.0, np.array([2.0, 4.0])), np.array([2.0, 4.0])
    earlier = from_draws(1.0, np.array([1.0, 0.0])), np.array([1.0, 0.0])
    found = difference(later, earlier)
    assert found.estimate == 2.0
    assert (found.low, found.high) == (1.0 + 0.025 * 3, 4.0 - 0.025 * 3)
    gone = undefined("one class"), np.full(2, np.nan)
    assert difference(later, gone).reason == "one class"
    assert difference(gone, earlier).estimate is None
