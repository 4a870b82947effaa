"""Sums over segments of a long array, rounded once as ``math.fsum`` rounds them."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
_BLOCK = 1 << 16  # values at a time: what is made of them stays in the cache
_PASSES = 3


def segment_sums(values: Array, offsets: NDArray[np.int64]) -> Array:
    """The sum of every segment as ``math.fsum`` gives it, bit for bit, (n_segments,); 0 of an empty one.

    ``offsets`` (n_segments + 1,) do not fall and say where each begins in ``values``. Values are split into
    parts whose sums are exact in any order (Rump, Ogita and Oishi, "Accurate floating-point summation I",
    2008, Algorithm 3.2); a segment that three parts do not exhaust, whose sum lies too near to the middle of
    two numbers or overflows goes through ``math.fsum``.
    """
    sums = np.zeros(len(offsets) - 1)
    filled = np.flatnonzero(np.diff(offsets))
    starts, ends = offsets[filled], offsets[filled + 1]
    first = 0
    while first < len(filled):
        last = max(first + 1, int(np.searchsorted(ends, starts[first] + _BLOCK, "right")))
        block = values[starts[first] : ends[last - 1]]
        sums[filled[first:last]] = _block_sums(block, starts[first:last] - starts[first])
        first = last
    return sums


def segment_means(values: Array, offsets: NDArray[np.int64]) -> Array:
    """The mean of every segment as ``statistics.fmean`` gives it, (n_segments,); NaN of an empty one."""
    lengths = np.diff(offsets)
    means = segment_sums(values, offsets)
    means[lengths == 0] = np.nan
    means /= np.maximum(lengths, 1)
    return means


def _block_sums(values: Array, starts: NDArray[np.int64]) -> Array:
    """Sums of segments none of which is empty."""
    lengths = np.diff(starts, append=len(values))
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        sums, certain = _split_sums(values, starts, lengths)
    for index in np.flatnonzero(~certain).tolist():
        start = starts[index]
        sums[index] = math.fsum(values[start : start + lengths[index]].tolist())
    return sums


def _split_sums(
    values: Array, starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> tuple[Array, NDArray[np.bool_]]:
    """The sums, and which of them are known to be rounded right."""
    room = np.frexp(lengths + 2.0)[1]  # bits that the sum of so many takes more than each
    largest = np.maximum.reduceat(np.abs(values), starts)
    unit = np.ldexp(1.0, np.frexp(largest)[1] + room)
    certain = np.isfinite(unit) & np.isfinite(largest)
    rest = values
    parts = np.zeros((_PASSES, len(starts)))
    for part in parts:
        of_value = np.repeat(unit, lengths)
        upper = (of_value + rest) - of_value
        part[:] = np.add.reduceat(upper, starts)
        rest = rest - upper
        if not rest.any():
            break
        unit = np.ldexp(unit, room - 53)
    else:
        certain &= ~np.logical_or.reduceat(rest != 0, starts)
    return _rounded(parts, certain)


def _rounded(parts: Array, certain: NDArray[np.bool_]) -> tuple[Array, NDArray[np.bool_]]:
    """Three addends (3, n_segments), each much smaller than the one before, as one number."""
    high, middle, low = parts
    for _ in range(2):
        middle, low = _two_sum(middle, low)
        high, middle = _two_sum(high, middle)
    middle, low = _two_sum(middle, low)
    # half a unit exactly, that the third addend moves off the tie; or a second one that is too large
    tied = (low != 0) & ((high + 2 * middle) - high == 2 * middle) & (middle != 0)
    certain &= ~tied & (high + middle == high)
    return high + 0.0, certain  # the sum of negative zeros is 0, as there


def _two_sum(one: Array, other: Array) -> tuple[Array, Array]:
    """The rounded sum, and what rounding took."""
    total = one + other
    part = total - one
    return total, (one - (total - part)) + (other - part)
