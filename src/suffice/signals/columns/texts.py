"""A column of texts by distinct value, so that what is computed of a text is computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Codes = NDArray[np.int64]
NONE = -1
"""The code of a null."""


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
        """The texts in another form, equal ones with equal codes.

        ``form`` takes the distinct texts and gives as many, without nulls.
        """
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
