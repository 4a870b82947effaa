"""Sums by segment are those of math.fsum, bit for bit, whatever the magnitudes."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tests.properties import examples

from suffice.signals.columns import sums
from suffice.signals.columns.sums import segment_means, segment_sums

_numbers = st.one_of(
    st.floats(-1e290, 1e290),
    st.floats(0, 1),
    st.builds(math.ldexp, st.integers(-(2**53), 2**53), st.integers(-1074, 800)),
    st.builds(math.ldexp, st.sampled_from((1.0, -1.0, 1.5, 2.0**53 - 1)), st.integers(-120, 120)),
    st.sampled_from((0.0, -0.0, 5e-324, -5e-324, math.inf, math.nan)),
)


def _ragged(segments: list[list[float]]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    offsets = np.concatenate([[0], np.cumsum([len(segment) for segment in segments], dtype=int)])
    return np.array([value for segment in segments for value in segment], float), offsets


def _assert_those_of_fsum(segments: list[list[float]]) -> None:
    values, offsets = _ragged(segments)
    expected = np.array([math.fsum(segment) for segment in segments])
    found = segment_sums(values, offsets)
    assert (
        np.where(np.isnan(found), 0, found).tobytes()
        == np.nan_to_num(expected, nan=0.0, posinf=math.inf).tobytes()
    ), segments
    assert (np.isnan(found) == np.isnan(expected)).all()


@given(st.lists(st.lists(_numbers, max_size=12), max_size=6))
@settings(max_examples=examples(400), deadline=None)
def test_hostile_magnitudes(segments: list[list[float]]) -> None:
    _assert_those_of_fsum(segments)


_tie = math.ldexp(1.0, -53)


@pytest.mark.parametrize(
    "segment",
    [
        [1.0, _tie, math.ldexp(1.0, -200)],
        [1.0, _tie, -math.ldexp(1.0, -200)],
        [1.0, -_tie / 2, -math.ldexp(1.0, -107)],
        [1.0 + 2 * _tie, _tie, math.ldexp(-1.0, -110)],
        [1.0, _tie, math.ldexp(1.0, -120), -math.ldexp(1.0, -300)],
        [1e16, 1.0, -1e16],
        [1e308, -1e308, 1.0],
    ],
)
def test_a_tie_is_broken_by_what_is_far_below_it(segment: list[float]) -> None:
    _assert_those_of_fsum([segment, segment[::-1], [-value for value in segment]])


def test_blocks_end_where_segments_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "_BLOCK", 5)
    draw = np.random.default_rng(0)
    segments = [draw.normal(size=size).tolist() for size in (0, 3, 0, 9, 2, 2, 1, 0, 5, 6, 0)]
    _assert_those_of_fsum(segments)


def test_probabilities_need_no_fsum(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.exp(np.random.default_rng(1).uniform(-30, 0, 4000))
    offsets = np.arange(0, 4001, 20)
    expected = [statistics.fmean(values[start : start + 20]) for start in offsets[:-1]]
    monkeypatch.delattr(math, "fsum")
    assert segment_means(values, offsets).tolist() == expected


def test_what_fsum_refuses_is_refused() -> None:
    with pytest.raises(OverflowError):
        segment_sums(np.array([1e308, 1e308]), np.array([0, 2]))
    with pytest.raises(ValueError, match="-inf"):
        segment_sums(np.array([math.inf, -math.inf]), np.array([0, 2]))
