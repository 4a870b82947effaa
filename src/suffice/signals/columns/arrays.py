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

from suffice.stats.units import Array, Mask

Codes = NDArray[np.int64]
NONE = -1  # the code of a null


@dataclass(frozen=True, slots=True, eq=False)
class Texts:
    """Hold texts as positions in their distinct values.

    ``codes`` (n,) has :data:`NONE` for a null. ``distinct`` holds each text once, so equal codes mean equal
    texts.
    """

    codes: Codes
    distinct: pa.Array

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> Texts:
        """Read a column of texts, dictionary-encoded or plain."""
        column = _one_array(column)
        if not isinstance(column, pa.DictionaryArray):
            column = column.dictionary_encode()
        codes = pc.fill_null(column.indices, NONE).to_numpy(zero_copy_only=False)
        return cls(codes.astype(np.int64), column.dictionary)

    def __len__(self) -> int:
        return len(self.codes)

    def mapped(self, form: Callable[[pa.Array], pa.Array]) -> Texts:
        """Return the texts in another form; equal forms get equal codes."""
        forms = form(self.distinct).dictionary_encode()
        codes = forms.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        return Texts(self.through(codes, NONE), forms.dictionary)

    def through(self, values: NDArray[Any], null: object) -> NDArray[Any]:
        """Return each text's entry of ``values`` (n_distinct,); ``null`` for a null."""
        return np.append(values, np.array([null], values.dtype))[self.codes]

    def code_of(self, text: str) -> int:
        """Return the code of a text; an unused code if the text is not there."""
        place = pc.index(self.distinct, pa.scalar(text, self.distinct.type)).as_py()
        return len(self.distinct) if place < 0 else int(place)

    def take(self, rows: Mask | NDArray[np.integer]) -> Texts:
        """Return the texts of some rows; the distinct values stay."""
        return Texts(self.codes[rows], self.distinct)


def by_text(one: Callable[[str], str]) -> Callable[[pa.Array], pa.Array]:
    """Turn a function of one text into one for :meth:`Texts.mapped`."""
    return lambda texts: pa.array([one(text) for text in texts.to_pylist()], pa.string())


_BLOCK = 1 << 16  # values at a time: what is made of them stays in the cache


@dataclass(frozen=True, eq=False)
class Ragged:
    """Hold lists of different lengths, one per row.

    Row i holds the values from ``offsets[i]`` to before ``offsets[i + 1]``. ``valid`` (n_rows,) is false for
    a null, which has length 0. ``read`` returns the values, or structs with the named field (``LIST.FIELD``
    if nested).
    """

    offsets: NDArray[np.int64]
    valid: Mask
    read: Callable[[str], pa.Array]

    @classmethod
    def of(cls, column: pa.Array | pa.ChunkedArray) -> Ragged:
        """Read a column of Arrow lists."""
        array = _one_array(column)
        values = array.flatten()  # which leaves out what lies under nulls
        return cls(*_shape(array), lambda _: values)

    @classmethod
    def reading(cls, cells: Callable[[str], pa.Array | pa.ChunkedArray], slim: str = "") -> Ragged:
        """Read a column of lists lazily by ``cells``; field ``slim`` tells where lists begin."""
        return cls(
            *_shape(_one_array(cells(slim))), lambda field: _one_array(cells(field)).flatten()
        )

    def __len__(self) -> int:
        return len(self.valid)

    @cached_property
    def lengths(self) -> NDArray[np.int64]:
        """Return the length of each list, (n_rows,); 0 for a null."""
        return np.diff(self.offsets)

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        """Return the row of every value, (n_values,)."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def field(self, name: str) -> pa.Array:
        """Return one field of every struct; null where the struct is."""
        return pc.struct_field(self.read(name), name)

    @cached_property
    def values(self) -> pa.Array:
        """Return the values of all lists, end to end."""
        return self.read("")

    def texts(self, name: str | None = None) -> Texts:
        """Return the values, or one of their fields, as texts."""
        return Texts.of(self.values if name is None else self.field(name))

    def numbers(self, name: str | None = None) -> Array:
        """Return the values, or one of their fields, as float64; NaN for a null."""
        values = self.values if name is None else self.field(name)
        return np.asarray(pc.cast(values, pa.float64()).to_numpy(zero_copy_only=False), np.float64)

    def lists(self, name: str, slim: str = "") -> Ragged:
        """Return a field that holds lists; its rows are the values."""

        def cells(field: str) -> pa.Array:
            return pc.struct_field(self.read(f"{name}.{field}" if field else name), name)

        return Ragged.reading(cells, slim)


def _one_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if not isinstance(column, pa.ChunkedArray):
        return column
    if len(column.chunks) == 1:
        return column.chunk(0)
    return pa.concat_arrays([*column.chunks, pa.array([], column.type)])


def _shape(array: pa.Array) -> tuple[NDArray[np.int64], Mask]:
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])
    return offsets, pc.is_valid(array).to_numpy(zero_copy_only=False)


def ranges(begins: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the numbers from each begin to before its end, one range after the other."""
    lengths = ends - begins
    return np.repeat(ends - np.cumsum(lengths), lengths) + np.arange(lengths.sum())


def by_length(
    values: Array,
    begins: NDArray[np.int64],
    ends: NDArray[np.int64],
    statistic: Callable[[Array], Array],
) -> Array:
    """Compute a statistic of each range of ``values``, (n_ranges,); NaN for an empty range.

    ``statistic`` takes ranges of one length as rows, (n, length). So numpy sums each as it sums it alone, bit
    for bit.
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


def segment_sums(values: Array, offsets: NDArray[np.int64]) -> Array:
    """Sum every segment with one rounding, whatever the order, (n_segments,); 0 for an empty one.

    Segment i lies from ``offsets[i]`` to before ``offsets[i + 1]``; ``offsets`` (n_segments + 1,) never fall.
    """
    bounds = pairwise(offsets.tolist())
    return np.array([math.fsum(values[start:end].tolist()) for start, end in bounds], np.float64)


def segment_means(values: Array, offsets: NDArray[np.int64]) -> Array:
    """Average every segment from its rounded sum, (n_segments,); NaN for an empty one."""
    lengths = np.diff(offsets)
    means = segment_sums(values, offsets)
    means[lengths == 0] = np.nan
    means /= np.maximum(lengths, 1)
    return means
