"""A column of lists: where each begins, and the values of all end to end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.columns.texts import Texts

_BLOCK = 1 << 16  # values at a time: what is made of them stays in the cache


@dataclass(frozen=True, eq=False)
class Ragged:
    """Lists of different lengths, one a row.

    ``offsets`` (n_rows + 1,) are where each begins in ``values``; ``valid`` (n_rows,) is false for a null,
    which is as long as an empty one.
    """

    offsets: NDArray[np.int64]
    valid: NDArray[np.bool_]
    values: pa.Array

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> Ragged:
        """The lists of a column of Arrow lists."""
        chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
        none = pa.array([], column.type)
        array = chunks[0] if len(chunks) == 1 else pa.concat_arrays([*chunks, none])
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
        valid = pc.is_valid(array).to_numpy(zero_copy_only=False)
        return cls(offsets, valid, array.flatten())  # which leaves out what lies under nulls

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
        return pc.struct_field(self.values, name)

    def texts(self, name: str | None = None) -> Texts:
        """The values as texts, or a field of them."""
        return Texts.of(self.values if name is None else self.field(name))

    def numbers(self, name: str | None = None) -> NDArray[np.float64]:
        """The values as float64, or a field of them; NaN for a null."""
        values = self.values if name is None else self.field(name)
        return np.asarray(pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False), np.float64)

    def lists(self, name: str) -> Ragged:
        """A field of every value that is a list itself: its rows are the values."""
        return Ragged.of(self.field(name))


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
