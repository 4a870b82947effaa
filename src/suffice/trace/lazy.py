"""Columns of a large record, read from its files on first use."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.trace.rounds.checks import CHECKED_WITH, row_problems
from suffice.trace.stored_file import (
    Rows,
    StoredFile,
    coerce_column,
    first_error,
    narrowed,
    one_schema,
    within,
)


@dataclass(frozen=True, slots=True)
class Span:
    """Rows ``start`` to ``stop`` of a file."""

    file: StoredFile
    start: int
    stop: int

    @property
    def rows(self) -> int:
        return self.stop - self.start


class LazyTable:
    """Rows of spans, in any order; columns are read on first use and kept."""

    def __init__(self, spans: Sequence[Span], rows: Rows | None = None) -> None:
        self.spans: tuple[Span, ...] = tuple(spans)
        total = sum(span.rows for span in self.spans)
        self.rows: Rows = np.arange(total) if rows is None else rows
        if total <= np.iinfo(np.int32).max:
            self.rows = self.rows.astype(np.int32)
        self._columns: dict[tuple[str, str], pa.ChunkedArray] = {}

    @property
    def column_names(self) -> list[str]:
        of_files = (name for span in self.spans for name in span.file.names)
        return list(dict.fromkeys((*of_files, *(name for name, _ in self._columns))))

    @property
    def num_rows(self) -> int:
        return len(self.rows)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, self._type(name)) for name in self.column_names])

    def _type(self, name: str) -> pa.DataType:
        if (name, "") in self._columns:
            return self._columns[name, ""].type
        known = self.spans[0].file.kind.arrow
        if name in known.names:
            return known.field(name).type
        files = {span.file.file: span.file.stored for span in self.spans}.values()
        return one_schema(
            pa.schema([stored.field(name)]) for stored in files if name in stored.names
        )[0].type

    def column(self, name: str, field: str = "") -> pa.ChunkedArray:
        """Return a column, or only a field of its structs."""
        if (name, "") in self._columns:
            return self._columns[name, ""]
        if (name, field) not in self._columns:
            self._columns[name, field] = self._read(name, field, self.rows)
        return self._columns[name, field]

    def at(self, name: str, rows: Rows) -> pa.ChunkedArray:
        """Return a column in some rows, in this order, without keeping it."""
        if (name, "") in self._columns:
            return self._columns[name, ""].take(pa.array(rows))
        return self._read(name, "", self.rows[rows])

    def place(self, row: int) -> tuple[str, int]:
        """Return the file of a row, and its number there."""
        at, spans = int(self.rows[row]), iter(self.spans)
        while at >= (span := next(spans)).rows:
            at -= span.rows
        return str(span.file.file), at + span.start

    def _read(
        self,
        name: str,
        field: str,
        rows: Rows,
        of: Callable[[pa.ChunkedArray], pa.ChunkedArray] = lambda cells: cells,
    ) -> pa.ChunkedArray:
        ascending = bool((rows[1:] > rows[:-1]).all())
        order = None if ascending else np.argsort(rows, kind="stable")
        empty = pa.chunked_array([], narrowed(self._type(name), field))
        read = [*self.batches(name, field, rows if order is None else rows[order])]
        parts = [of(cells) for cells in read] or [of(empty)]
        cells = pa.chunked_array([chunk for part in parts for chunk in part.chunks], parts[0].type)
        if order is None:
            return cells
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return cells.take(pa.array(back))

    def batches(
        self, name: str, field: str = "", rows: Rows | None = None
    ) -> Iterator[pa.ChunkedArray]:
        """Yield a column in ascending rows of the spans (``None``: this table's), checked, in batches."""
        rows = np.sort(self.rows) if rows is None else rows
        kind, first_row = narrowed(self._type(name), field), 0
        beside = CHECKED_WITH.get(name, "")
        for span in self.spans:
            among = rows[within(rows, first_row, first_row + span.rows)]
            among, first_row = among - first_row + span.start, first_row + span.rows
            if name not in span.file.names:
                yield pa.chunked_array([pa.nulls(len(among), kind)])
                continue
            names = [name, *(one for one in beside if one != name and one in span.file.names)]
            for start, table in span.file.batches(names, among, field):
                places = among[within(among, start, start + table.num_rows)] - start
                cells = table.column(name)
                if problems := [*row_problems(table)]:
                    file = str(span.file.file)
                    raise first_error([one.error(file, start + one.position) for one in problems])
                if cells.type != kind:
                    cells = coerce_column(cells, kind)
                yield cells if len(places) == len(cells) else cells.take(pa.array(places))

    def select(self, names: Sequence[str]) -> pa.Table:
        return pa.table({name: self.column(name) for name in names})

    def whole(self) -> pa.Table:
        return self.select(self.column_names)

    def taken(self, rows: Rows) -> LazyTable:
        """Return some of these rows, in this order, with the columns read so far."""
        table = LazyTable(self.spans, self.rows[rows])
        places = pa.array(rows)
        table._columns = {key: cells.take(places) for key, cells in self._columns.items()}
        return table

    def filter(self, chosen: pa.Array | NDArray[np.bool_]) -> LazyTable:
        return self.taken(np.flatnonzero(np.asarray(chosen, bool)))

    def with_column(self, name: str, cells: pa.ChunkedArray) -> LazyTable:
        table = LazyTable(self.spans, self.rows)
        table._columns = {**self._columns, (name, ""): cells}
        return table

    def slimmest(self, name: str) -> str:
        """Return the struct field of a column that is fastest to read; empty: no structs."""
        kind = self._type(name)
        structs = pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)
        return str(kind.value_type.field(0).name) if structs else ""

    def valid(self, name: str) -> NDArray[np.bool_]:
        """Return the rows where a column is not null, as a mask (n_rows,)."""
        return np.asarray(self._slim(name, lambda cells: cells.is_valid()), bool)

    def lengths(self, name: str) -> pa.ChunkedArray:
        """Return the length of each list of a column, (n_rows,); null for a null."""
        return self._slim(name, pc.list_value_length)

    def _slim(self, name: str, of: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> pa.ChunkedArray:
        if (name, "") in self._columns:
            return of(self._columns[name, ""])
        return self._read(name, self.slimmest(name), self.rows, of)

    def holds(self, name: str) -> bool:
        if (name, "") in self._columns:
            return bool(self._columns[name, ""].null_count < self.num_rows)
        read = self.batches(name, self.slimmest(name))
        return any(cells.null_count < len(cells) for cells in read)


def in_memory(table: pa.Table | LazyTable) -> pa.Table:
    return table.whole() if isinstance(table, LazyTable) else table
