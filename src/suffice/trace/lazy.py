"""Columns that are read from their files when they are first asked for, whole or some rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from suffice.errors import DataError, InternalError
from suffice.trace.parquet import complete, footer_of, readable
from suffice.trace.reader import StoredFile, coerce_column
from suffice.trace.schema import MEASURED

_BATCH = 4096  # rows decoded at a time
_PIECE = 16_384  # rows of which some are kept
_FEW = 0.25  # the share of rows up to which the others are not kept
_BUFFER = 1 << 20  # bytes of a column chunk held at a time

Rows = NDArray[np.signedinteger[Any]]
Check = Callable[[StoredFile, pa.Table, int], None]
"""Raises for what is wrong with some columns of a file, whose rows begin at a row of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checks:
    """What is checked of a column when it is read.

    ``check`` raises; ``beside`` names by column the others that its check needs.
    """

    check: Check
    beside: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Span:
    """Rows ``start`` to ``stop`` of a file."""

    file: StoredFile
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """How many."""
        return self.stop - self.start

    def pieces(self) -> Iterator[Span]:
        """The same rows, a few at a time, none over the end of a row group."""
        ends = [*accumulate(self.file.row_groups)]
        for first, last in zip([0, *ends], ends, strict=False):
            for start in range(max(first, self.start), min(last, self.stop), _PIECE):
                yield Span(self.file, start, min(start + _PIECE, last, self.stop))


class _Reading:
    """A column of a file, or some of its fields, read forwards some rows at a time."""

    def __init__(self, file: StoredFile, paths: Sequence[str]) -> None:
        self._file = file
        self._paths = list(paths)
        self._at = 0  # the row that comes next
        self._group = 0  # the row group it is read from
        self._left = 0  # its rows that were not read
        self._held: pa.Table | None = None
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._parquet: pq.ParquetFile | None = None

    def rows(self, start: int, stop: int) -> pa.Table:
        """These rows."""
        with readable(self._file.file):
            if self._parquet is None or start < self._at or self._group_of(start) > self._group:
                self._open_at(start)
            tables = [] if self._held is None else [self._held]
            held = sum(table.num_rows for table in tables)
            while self._at + held < stop:
                batch = next(self._batches, None)
                if batch is None:
                    self._check_read()
                    self._open_group(self._group + 1)
                    continue
                self._left -= batch.num_rows
                tables.append(pa.Table.from_batches([batch]))
                held += batch.num_rows
                while tables and self._at + tables[0].num_rows <= start:
                    self._at += tables[0].num_rows
                    held -= tables.pop(0).num_rows
            table = pa.concat_tables(tables)
            wanted = table.slice(start - self._at, stop - start)
            self._held = table.slice(stop - self._at)
            self._at = stop
        return wanted

    def _group_of(self, row: int) -> int:
        ends = list(accumulate(self._file.row_groups))
        return int(np.searchsorted(ends, row, side="right"))

    def _open_at(self, start: int) -> None:
        if self._parquet is not None:
            self._parquet.close()
        self._parquet = self._opened()
        self._held = None
        group = self._group_of(start)
        self._at = sum(self._file.row_groups[:group])
        self._open_group(group)

    def _check_read(self) -> None:
        if self._left:
            raise pa.ArrowInvalid(f"{self._left} rows fewer than the footer says")

    def _opened(self) -> pq.ParquetFile:
        return _opened(self._file, buffer_size=_BUFFER, pre_buffer=False)

    def _open_group(self, group: int) -> None:
        """Go on with a row group; one at a time, so that a damaged one spoils no other."""
        self._group = group
        if group >= len(self._file.row_groups):
            raise pa.ArrowInvalid("fewer rows than the footer says")
        self._left = self._file.row_groups[group]
        parquet = self._parquet or self._opened()
        self._batches = parquet.iter_batches(
            batch_size=_BATCH, row_groups=[group], columns=self._paths, use_threads=False
        )


class Source(Protocol):
    """Where a table's columns come from."""

    @property
    def names(self) -> Sequence[str]:
        """The columns that are there."""

    @property
    def n_rows(self) -> int:
        """How many rows there are."""

    def kind(self, name: str) -> pa.DataType:
        """The type of a column."""

    def read(self, name: str, fields: tuple[str, ...]) -> pa.ChunkedArray:
        """A column, or of its structs some fields, in the order of the rows."""

    def at(self, name: str, rows: Rows, fields: tuple[str, ...]) -> pa.ChunkedArray:
        """A column in some rows, ascending."""

    def holds(self, name: str) -> bool | None:
        """Whether a column is not null throughout; ``None``: not known without reading it."""


Readings = dict[object, _Reading]
"""What reads columns of files forwards, shared by spans that are read one after the other."""


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """Where the rows of questions lie together: run i from row ``starts[i]`` on.

    ``starts`` (n_questions + 1,); ``place`` (n_questions,) is that of the run's question among all, by id.
    """

    starts: Rows
    place: Rows


class Files:
    """The columns of spans of files, end to end.

    With ``readings``, which several share, their rows are read forwards, some at a time. ``runs`` say where
    questions lie; ``None``: the rows of some lie apart.
    """

    def __init__(
        self, spans: Sequence[Span], checks: Checks, readings: Readings | None = None
    ) -> None:
        self.runs: Runs | None = None
        self.on_read: Callable[[int], object] | None = None  # told how many columns of spans were
        self._n_read = 0
        self.spans = tuple(spans)
        self._checks = checks
        self._readings = readings

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Every column that any of the files has."""
        return tuple(dict.fromkeys(name for span in self.spans for name in span.file.names))

    @cached_property
    def n_rows(self) -> int:
        """How many rows there are."""
        return sum(span.rows for span in self.spans)

    def place(self, row: int) -> tuple[Span, int]:
        """Where one of the rows stands: its span, and its row in the file."""
        ends = np.cumsum([span.rows for span in self.spans])
        index = int(np.searchsorted(ends, row, side="right"))
        span = self.spans[index]
        return span, span.start + row - int(ends[index] - span.rows)

    def row(self, file: Path, row: int) -> int:
        """Where a row of a file stands among all, -1: it is none of them."""
        first_row = 0
        for span in self.spans:
            if span.file.file == file and span.start <= row < span.stop:
                return first_row + row - span.start
            first_row += span.rows
        return -1

    def without(self, left_out: NDArray[np.bool_]) -> list[Span]:
        """The spans of the rows that are not left out (n_rows,)."""
        kept: list[Span] = []
        first_row = 0
        for span in self.spans:
            there = np.flatnonzero(~left_out[first_row : first_row + span.rows]) + span.start
            first_row += span.rows
            for run in np.split(there, np.flatnonzero(np.diff(there) > 1) + 1):
                if not len(run):
                    continue
                start, stop = int(run[0]), int(run[-1]) + 1
                if kept and kept[-1].file is span.file and kept[-1].stop == start:
                    start = kept.pop().start
                kept.append(Span(span.file, start, stop))
        return kept

    def read_all(self) -> None:
        """Read every column, to see that it can be."""
        for name in self.names:
            self.read(name, ())

    def kind(self, name: str) -> pa.DataType:
        """The type of a column in the schema; one that was measured has its own."""
        if not name.startswith(MEASURED):
            return self.spans[0].file.kind.arrow.field(name).type
        return next(s.file.stored.field(name).type for s in self.spans if name in s.file.names)

    def read(self, name: str, fields: tuple[str, ...]) -> pa.ChunkedArray:
        """A column, checked."""
        if name not in self.names:
            raise _not_there(self.spans[0].file, name)
        kind = narrowed(self.kind(name), fields)
        readings = {} if self._readings is None else self._readings
        parts = [self._of_span(span, name, fields, kind, readings) for span in self.spans]
        return pa.chunked_array([chunk for part in parts for chunk in part.chunks], kind)

    def at(self, name: str, rows: Rows, fields: tuple[str, ...]) -> pa.ChunkedArray:
        """A column in some rows: the others are let go of as they are read."""
        parts = self.in_turn(name, rows, fields)
        kind = narrowed(self.kind(name), fields)
        return pa.chunked_array([chunk for part in parts for chunk in part.chunks], kind)

    def in_turn(self, name: str, rows: Rows, fields: tuple[str, ...]) -> Iterator[pa.ChunkedArray]:
        """A column in some rows, ascending, a few at a time."""
        first_row = 0
        for span in self.spans:
            reading: Readings = {}
            for start in range(span.start, span.stop, _PIECE):
                piece = Span(span.file, start, min(start + _PIECE, span.stop))
                among = slice(*np.searchsorted(rows, (first_row, first_row + piece.rows)))
                if among.start < among.stop:
                    cells = Files([piece], self._checks, reading).read(name, fields)
                    yield cells.take(pa.array(rows[among] - first_row))
                first_row += piece.rows

    def holds(self, name: str) -> bool | None:
        """Whether the files say so: that one holds something tells nothing of a part of its rows."""
        said = [(span.rows == span.file.rows, span.file.holds(name)) for span in self.spans]
        if any(whole and held for whole, held in said):
            return True
        return False if all(held is False for _, held in said) else None

    def _of_span(
        self,
        span: Span,
        name: str,
        fields: tuple[str, ...],
        kind: pa.DataType,
        readings: Readings,
    ) -> pa.ChunkedArray:
        file = span.file
        if name not in file.names:
            return pa.chunked_array([pa.nulls(span.rows, kind)])
        beside = [other for other in self._checks.beside.get(name, ()) if other in file.names]
        read = {
            one: self._cells(span, one, fields if one == name else (), readings)
            for one in (name, *beside)
        }
        alone = {name: kind} if _share_a_field(read[name].type, kind) else {}
        table = file.coerced(pa.table(read), span.start, alone)
        self._checks.check(file, table, span.start)
        self._n_read += 1
        if self.on_read is not None:
            self.on_read(self._n_read)
        return table.column(name) if alone else coerce_column(table.column(name), kind)

    def _cells(
        self, span: Span, name: str, fields: tuple[str, ...], readings: Readings
    ) -> pa.ChunkedArray:
        file = span.file
        paths = leaf_paths(file, name, fields)
        if self._readings is None and span.rows == file.rows:
            with readable(file.file), _opened(file) as parquet:
                return complete(parquet, paths).column(name)
        key = (file.file, name, fields)
        if key not in readings:
            readings[key] = _Reading(file, paths)
        return readings[key].rows(span.start, span.stop).column(name)


def _opened(file: StoredFile, **options: Any) -> pq.ParquetFile:
    footer = footer_of(file.file)
    if (footer.num_rows, footer.num_row_groups) != (file.rows, len(file.row_groups)):
        raise pa.ArrowInvalid("it was written anew since it was opened; read the record again")
    return pq.ParquetFile(file.file, metadata=footer, page_checksum_verification=True, **options)


def _not_there(file: StoredFile, name: str) -> DataError:
    measured = any(column.startswith(MEASURED) for column in file.names)
    why = (
        "measures do not hold it; name the traces that they are of"
        if measured
        else "no such column"
    )
    return DataError(why, file=str(file.file), column=name)


def _share_a_field(stored: pa.DataType, kind: pa.DataType) -> bool:
    """Whether lists of structs have a field of these; true of all else."""
    names = [_fields(one) for one in (stored, kind)]
    return not all(names) or not names[0].isdisjoint(names[1])


def _fields(kind: pa.DataType) -> set[str]:
    nested = pa.types.is_nested(kind) and pa.types.is_struct(kind.field(0).type)
    return {field.name for field in kind.field(0).type} if nested else set()


def narrowed(kind: pa.DataType, fields: tuple[str, ...]) -> pa.DataType:
    """A list of structs with some of their fields only; none named: the type itself.

    One of a list in a struct is ``LIST.FIELD``.
    """
    if not fields:
        return kind
    inner: dict[str, list[str]] = {}
    for field in fields:
        name, _, of_list = field.partition(".")
        inner.setdefault(name, []).extend([of_list] if of_list else [])
    kept = [
        (name, narrowed(kind.value_type.field(name).type, tuple(of_list)))
        for name, of_list in inner.items()
    ]
    return pa.list_(pa.struct(kept))


def leaf_paths(file: StoredFile, name: str, fields: tuple[str, ...]) -> list[str]:
    """What Parquet calls a column, or some fields of its structs."""
    if not fields:
        return [name]
    with readable(file.file):
        schema = footer_of(file.file).schema
    leaves = [schema.column(number).path for number in range(len(schema))]
    # NAME.list.element.FIELD.list.element..., whatever the writer calls the two between
    named = {
        path: ".".join(path.split(".")[3::3]) for path in leaves if path.startswith(f"{name}.")
    }
    wanted = [
        path
        for path, field in named.items()
        if any(f"{field}.".startswith(f"{one}.") for one in fields)
    ]
    return wanted or [name]


class LazyTable:
    """A table whose columns are read when they are first asked for, and kept.

    It is used as an Arrow table is; :meth:`whole` gives one.
    """

    def __init__(self, source: Source, order: Rows | None = None) -> None:
        self.source = source
        self._order = order  # the rows of the source, ``None``: all of them as they stand
        if order is not None and source.n_rows <= np.iinfo(np.int32).max:
            self._order = order.astype(np.int32)
        self._columns: dict[tuple[str, tuple[str, ...]], pa.ChunkedArray] = {}

    @property
    def column_names(self) -> list[str]:
        """The columns that are there."""
        return list(self.source.names)

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return self.source.n_rows if self._order is None else len(self._order)

    @property
    def schema(self) -> pa.Schema:
        """Of all columns."""
        return pa.schema([(name, self.source.kind(name)) for name in self.source.names])

    def __getitem__(self, name: str) -> pa.ChunkedArray:
        """A column."""
        return self.column(name)

    def column(self, name: str, fields: tuple[str, ...] = ()) -> pa.ChunkedArray:
        """A column, or of its structs only some fields."""
        known = self._columns.get((name, ())) if fields else None
        if known is not None:
            return known
        if (name, fields) not in self._columns:
            if not self.num_rows:
                cells = pa.chunked_array([], narrowed(self.source.kind(name), fields))
            else:
                cells = self._read(name, fields)
            self._columns[name, fields] = cells
        return self._columns[name, fields]

    def _read(self, name: str, fields: tuple[str, ...]) -> pa.ChunkedArray:
        if self._order is None:
            return self.source.read(name, fields)
        if len(self._order) < _FEW * self.source.n_rows and self._is_long:
            return self._taken_from_source(name, self._order, fields)
        return self.source.read(name, fields).take(pa.array(self._order))

    def _taken_from_source(self, name: str, rows: Rows, fields: tuple[str, ...]) -> pa.ChunkedArray:
        order = np.argsort(rows, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return self.source.at(name, rows[order], fields).take(pa.array(back))

    @property
    def _is_long(self) -> bool:
        """Whether its columns are too long to be read for a few rows."""
        return self.source.n_rows > 8 * _PIECE

    def select(self, names: Sequence[str]) -> pa.Table:
        """A table of some columns."""
        return pa.table({name: self.column(name) for name in names})

    def whole(self) -> pa.Table:
        """A table of all columns."""
        return self.select(self.column_names)

    def taken(self, rows: Rows) -> LazyTable:
        """Some rows of a table of the source's, in another order; what was read is kept."""
        if len(rows) == self.num_rows and bool((rows == np.arange(len(rows))).all()):
            return self
        taken = LazyTable(self.source, rows)
        if len(rows):
            taken._columns = {
                key: cells.take(pa.array(rows)) for key, cells in self._columns.items()
            }
        return taken

    def filter(self, chosen: pa.Array | NDArray[np.bool_]) -> LazyTable:
        """The rows where ``chosen`` is true; their columns are taken from those of this table."""
        flags = np.asarray(chosen, bool)
        return LazyTable(_Rows(self), np.flatnonzero(flags))

    def at(self, name: str, rows: Rows, fields: tuple[str, ...] = ()) -> pa.ChunkedArray:
        """A column in some rows, in this order, without keeping it."""
        known = self._columns.get((name, ()), self._columns.get((name, fields)))
        if known is not None or not self.num_rows:
            known = self.column(name, fields) if known is None else known
            return known.take(pa.array(rows))
        if not self._is_long:
            return self.column(name, fields).take(pa.array(rows))
        there = rows if self._order is None else self._order[rows]
        return self._taken_from_source(name, there, fields)

    def in_turn(self, name: str) -> Iterator[pa.ChunkedArray]:
        """A column some rows at a time, in the order of the files, without keeping it."""
        if (name, ()) in self._columns or not self._is_long:
            yield self.column(name)
            return
        source, rows = self.in_files(np.arange(self.num_rows))
        yield from source.in_turn(name, np.sort(rows), ())

    def in_files(self, rows: Rows) -> tuple[Files, Rows]:
        """The files that the rows of this table come from, and where these rows stand there."""
        there = rows if self._order is None else self._order[rows]
        if isinstance(self.source, _Rows):
            return self.source.table.in_files(there)
        if not isinstance(self.source, Files):
            raise InternalError(f"a table of {type(self.source).__name__} is of no files")
        return self.source, there

    def beginnings(self) -> Rows:
        """Its rows that stand at the beginning of a file; all, where it is short."""
        if not self._is_long:
            return np.arange(self.num_rows)
        source, rows = self.in_files(np.arange(self.num_rows))
        firsts = np.cumsum([0, *(span.rows for span in source.spans)])[:-1]
        spans = np.searchsorted(firsts, rows, side="right") - 1
        return np.flatnonzero(rows - firsts[spans] < _PIECE)

    def with_column(self, name: str, cells: pa.ChunkedArray) -> LazyTable:
        """The same rows with a column of the schema replaced, or added."""
        table = LazyTable(_Rows(self, (name,)))
        table._columns[name, ()] = cells
        return table

    def slim(self, name: str) -> pa.ChunkedArray:
        """A column, of whose structs only what is short to read: for its nulls and its lengths."""
        field = self.slimmest(name)
        return self.column(name, (field,) if field else ())

    def slimmest(self, name: str) -> str:
        """A field of a column's structs that is short to read; empty: they are no structs."""
        kind = self.source.kind(name)
        structs = pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)
        return str(kind.value_type.field(0).name) if structs else ""

    def valid(self, name: str) -> NDArray[np.bool_]:
        """Rows where a column is not null, (n_rows,)."""
        return np.asarray(self.slim(name).is_valid(), bool)

    def lengths(self, name: str) -> pa.ChunkedArray:
        """How long each list of a column is, (n_rows,); null for a null."""
        return pc.list_value_length(self.slim(name))

    def holds(self, name: str) -> bool:
        """Whether a column is not null throughout."""
        if self._order is None or len(self._order) == self.source.n_rows:
            said = self.source.holds(name)
            if said is not None:
                return said
        first = np.arange(min(_PIECE, self.num_rows))
        field = self.slimmest(name)
        if self.at(name, first, (field,) if field else ()).null_count < len(first):
            return True
        return bool(self.valid(name).any())


@dataclass(frozen=True, slots=True)
class _Rows:
    """A lazy table as the source of another, which has columns ``besides``."""

    table: LazyTable
    besides: tuple[str, ...] = ()

    @property
    def names(self) -> Sequence[str]:
        return tuple(dict.fromkeys((*self.table.source.names, *self.besides)))

    @property
    def n_rows(self) -> int:
        return self.table.num_rows

    def kind(self, name: str) -> pa.DataType:
        return self.table.source.kind(name)

    def read(self, name: str, fields: tuple[str, ...]) -> pa.ChunkedArray:
        return self.table.column(name, fields)

    def at(self, name: str, rows: Rows, fields: tuple[str, ...]) -> pa.ChunkedArray:
        return self.table.at(name, rows, fields)

    def holds(self, name: str) -> bool | None:
        return None if name in self.besides else self.table.holds(name)


def in_memory(table: pa.Table | LazyTable) -> pa.Table:
    """The table with all its columns read."""
    return table.whole() if isinstance(table, LazyTable) else table
