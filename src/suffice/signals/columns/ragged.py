"""A column of lists: where each begins, and the values of all end to end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.signals.columns.texts import Texts

_BLOCK = 1 << 16  # values at a time: what is made of them stays in the cache


@dataclass(frozen=True, eq=False)
class Ragged:
    """Lists of different lengths, one a row.

    ``offsets`` (n_rows + 1,) are where each begins in ``values``; ``valid`` (n_rows,) is false for a null,
    which is as long as an empty one. ``read`` gives the values, or structs that have at least the field
    named, which of a list in a struct is ``LIST.FIELD``.
    """

    offsets: NDArray[np.int64]
    valid: NDArray[np.bool_]
    read: Callable[[str], pa.Array]

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> Ragged:
        """The lists of a column of Arrow lists."""
        array = _one_array(column)
        values = array.flatten()  # which leaves out what lies under nulls
        return cls(*_shape(array), lambda _: values)

    @classmethod
    def reading(cls, cells: Callable[[str], pa.Array | pa.ChunkedArray], slim: str = "") -> Ragged:
        """The lists of a column whose fields ``cells`` reads; where they begin is that of field ``slim``."""
        return cls(
            *_shape(_one_array(cells(slim))), lambda field: _one_array(cells(field)).flatten()
        )

    def __len__(self) -> int:
        return len(self.valid)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """How many values each list has, (n_rows,); 0 for a null."""
        return np.diff(self.offsets)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """The row of every value, (n_values,)."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def field(self, name: str) -> pa.Array:
        """A field of every value that is a struct; null where the struct is."""
        return pc.struct_field(self.read(name), name)

    @cached_property
    def values(self) -> pa.Array:
        """Those of all lists, end to end."""
        return self.read("")

    def texts(self, name: str | None = None) -> Texts:
        """The values as texts, or a field of them."""
        return Texts.of(self.values if name is None else self.field(name))

    def numbers(self, name: str | None = None) -> NDArray[np.float64]:
        """The values as float64, or a field of them; NaN for a null."""
        values = self.values if name is None else self.field(name)
        return np.asarray(pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False), np.float64)

    def lists(self, name: str, slim: str = "") -> Ragged:
        """A field of every value that is a list itself: its rows are the values; ``slim`` as above."""

        def cells(field: str) -> pa.Array:
            return pc.struct_field(self.read(f"{name}.{field}" if field else name), name)

        return Ragged.reading(cells, slim)


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    if len(column.chunks) == 1:
        return column.chunk(0)
    return pa.concat_arrays([*column.chunks, pa.array([], column.type)])


def _shape(array: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    return offsets, pc.is_valid(array).to_numpy(zero_copy_only=False)


def ranges(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """The numbers from each begin to before its end, one range after the other.

    >>> ranges(np.array([4, 9, 7]), np.array([6, 9, 8]))
    array([4, 5, 7])
    """
    lengths = ends - begins
    return np.repeat(ends - np.cumsum(lengths), lengths) + np.arange(lengths.sum())


def by_length(
    values: NDArray[np.float64],
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    statistic: Callable[[NDArray[np.float64]], NDArray[np.float64]],
) -> NDArray[np.float64]:
    """A statistic of each range of ``values``, (n_ranges,); NaN of an empty one.

    ``statistic`` takes ranges of one length as rows, (n, length): numpy sums a row as it sums an array of
    that length by itself, bit for bit.
    """
    lengths = ends - begins
    of_each = np.full(len(lengths), np.nan)
    order = np.argsort(lengths, kind="stable")
    bounds = np.flatnonzero(np.diff(lengths[order], prepend=0, append=-1)).tolist()
    for first, last in pairwise(bounds):
        length = int(lengths[order[first]])
        step = max(1, _BLOCK // length)
        for start in range(first, last, step):
            some = order[start : min(start + step, last)]
            of_each[some] = statistic(values[begins[some, None] + np.arange(length)])
    return of_each


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
