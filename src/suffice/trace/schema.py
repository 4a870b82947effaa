"""What the columns of a trace file are: type, meaning, and how a record's values are kept in them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from suffice.errors import DataError

RUN_KEY = b"suffice.run"


def _same(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Cell:
    """How a value is kept in a file. Neither function is asked for a null."""

    type: pa.DataType
    write: Callable[[Any], Any] = _same
    read: Callable[[Any], Any] = _same
    null: Any = None


def sequence(item: pa.DataType, null: Any) -> Cell:
    """A tuple, in which a null reads as ``null``."""
    return Cell(
        pa.list_(item),
        list,
        lambda values: tuple(null if value is None else value for value in values),
    )


def sequence_of(record: Callable[..., Any], **parts: Cell) -> Cell:
    """A tuple of small records, each a struct of its fields ``parts``; an absent one reads as empty."""

    def write(records: Sequence[Any]) -> list[dict[str, Any]]:
        return [
            {
                name: None if (value := getattr(item, name)) is None else cell.write(value)
                for name, cell in parts.items()
            }
            for item in records
        ]

    def read(structs: Sequence[Mapping[str, Any] | None]) -> tuple[Any, ...]:
        if None in structs:
            raise DataError("a null among its items")
        return tuple(
            record(
                **{
                    name: cell.null if (value := struct[name]) is None else cell.read(value)
                    for name, cell in parts.items()
                }
            )
            for struct in structs
            if struct is not None
        )

    fields = [(name, cell.type) for name, cell in parts.items()]
    return Cell(pa.list_(pa.struct(fields)), write, read, null=())


def _pairs(values: Mapping[str, float]) -> list[tuple[str, float | None]] | None:
    """An undefined value keeps its key, so that reading it back does not compute it anew."""
    pairs = [
        (name, None if math.isnan(value) else float(value))
        for name, value in sorted(values.items())
    ]
    return pairs or None


def _values(pairs: Sequence[tuple[str, float | None]]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in pairs}


TEXT = Cell(pa.string())
# part of a struct that reads a null as no text
TEXT_OR_NONE = Cell(pa.string(), null="")
BOOL = Cell(pa.bool_())
TIME = Cell(pa.timestamp("us", tz="UTC"))
INT16 = Cell(pa.int16())
INT32 = Cell(pa.int32())
INT64 = Cell(pa.int64())
FLOAT32 = Cell(pa.float32())
TEXTS = sequence(pa.string(), null="")
FLOATS = sequence(pa.float32(), null=math.nan)
# values by name, NaN where undefined
SIGNALS = Cell(pa.map_(pa.string(), pa.float64()), _pairs, _values)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a schema."""

    of: type
    name: str
    cell: Cell
    meaning: str
    required: bool = False
    field: str = ""
    since: int = 1

    @property
    def type(self) -> pa.DataType:
        """What Arrow calls what it holds."""
        return self.cell.type

    @property
    def key(self) -> str:
        """The field of the record."""
        return self.field or self.name


def columns_of(record: type, columns: Sequence[Column]) -> tuple[Column, ...]:
    """Those that keep fields of this record."""
    return tuple(column for column in columns if column.of is record)


def to_cells(record: object, columns: Sequence[Column]) -> dict[str, Any]:
    """The record's part of a row, keyed by column."""
    return {
        column.name: None
        if (value := getattr(record, column.key)) is None
        else column.cell.write(value)
        for column in columns
    }


def from_cells(row: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    """Fields of a record by name, without those that are null or lacking: it has its own defaults."""
    fields = {}
    for column in columns:
        value = row.get(column.name)
        if value is None:
            continue
        try:
            fields[column.key] = column.cell.read(value)
        except DataError as error:
            raise DataError(error.message, column=error.column or column.name) from error
    return fields


@dataclass(frozen=True, eq=False)
class TableSchema:
    """One kind of trace file: its columns, and what its metadata says."""

    name: str
    rows: str
    reader: str
    key: bytes
    version: int
    columns: tuple[Column, ...]

    @property
    def required(self) -> tuple[str, ...]:
        """Columns every file has."""
        return tuple(column.name for column in self.columns if column.required)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The columns as Arrow has them, without metadata."""
        return pa.schema([(column.name, column.type) for column in self.columns])

    def later_than(self, version: int) -> set[str]:
        """Columns that came after a version."""
        return {column.name for column in self.columns if column.since > version}
