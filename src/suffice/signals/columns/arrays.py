"""Columns of texts by distinct value, and columns of lists end to end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Codes = NDArray[np.int64]
NONE = -1  # the code of a null


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Texts as positions in their distinct values.

    ``codes`` (n,) has :data:`NONE` for a null; ``distinct`` is an Arrow array of strings without nulls, each
    once: texts are equal where their codes are.
    """

    codes: Codes
    distinct: pa.Array

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> Texts:
        """The texts of a column, dictionary-encoded or plain."""
        if isinstance(column, pa.ChunkedArray):
            column = column.combine_chunks()
        if isinstance(column, pa.ChunkedArray):  # no chunk, or more than fits one
            column = pa.concat_arrays([*column.chunks, pa.array([], column.type)])
        if not isinstance(column, pa.DictionaryArray):
            column = column.dictionary_encode()
        codes = pc.fill_null(column.indices, NONE).to_numpy(zero_copy_only=False)
        return cls(codes.astype(np.int64), column.dictionary)

    def __len__(self) -> int:
        return len(self.codes)

    def mapped(self, form: Callable[[pa.Array], pa.Array]) -> Texts:
        """The texts in another form, equal ones with equal codes."""
        forms = form(self.distinct).dictionary_encode()
        codes = forms.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return Texts(self.through(codes, NONE), forms.dictionary)

    def through(self, values: NDArray[Any], null: object) -> NDArray[Any]:
        """Of every text what ``values`` (n_distinct,) holds of it; ``null`` for a null."""
        return np.append(values, np.array([null], values.dtype))[self.codes]

    def code_of(self, text: str) -> int:
        """The code of a text, one that no text has where it is not among them."""
        place = pc.index(self.distinct, pa.scalar(text, self.distinct.type)).as_py()
        return len(self.distinct) if place < 0 else int(place)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.integer]) -> Texts:
        """Those of some rows; the distinct values stay those of all."""
        return Texts(self.codes[rows], self.distinct)


def by_text(one: Callable[[str], str]) -> Callable[[pa.Array], pa.Array]:
    """A form that a function of one text gives, for :meth:`Texts.mapped`."""
    return lambda texts: pa.array([one(text) for text in texts.to_pylist()], pa.string())


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
    """The numbers from each begin to before its end, one range after the other."""
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


def segment_sums(values: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """The sum of every segment, rounded once whatever the order, (n_segments,); 0 of an empty one.

    ``offsets`` (n_segments + 1,) do not fall and say where each begins in ``values``.
    """
    sums = np.zeros(len(offsets) - 1)
    first = 0
    while first < len(sums):
        last = max(first + 1, int(np.searchsorted(offsets, offsets[first] + _BLOCK, "right")) - 1)
        block = values[offsets[first] : offsets[last]].tolist()
        bounds = (offsets[first : last + 1] - offsets[first]).tolist()
        sums[first:last] = [math.fsum(block[start:end]) for start, end in pairwise(bounds)]
        first = last
    return sums


def segment_means(values: NDArray[np.float64], offsets: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean of every segment, rounded as its sum is, (n_segments,); NaN of an empty one."""
    lengths = np.diff(offsets)
    means = segment_sums(values, offsets)
    means[lengths == 0] = np.nan
    means /= np.maximum(lengths, 1)
    return means
