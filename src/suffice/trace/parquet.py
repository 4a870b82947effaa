"""Columns of a trace file, records as rows of a table, and tables as files with checksums."""

from __future__ import annotations

import io
import json
import math
import reprlib
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar, get_args, get_origin

import pyarrow as pa
import pyarrow.parquet as pq

from suffice.contracts import strict_json
from suffice.errors import DataError, UsageError, first_line, plain_file
from suffice.trace.durable import replace_file
from suffice.trace.values import types_of

# --- the run document ------------------------------------------------------------------------------
RUN_KEY = b"suffice.run"
MOST_RUN_BYTES = 16 << 20
LOOP = ("pipeline", "model", "prompt", "retriever", "rounds", "step", "temperature", "samples")
"""Entries of a run document that make a loop what it is; others say what it was asked."""
_LISTS = ("abstention", "derived", "runs")
# what entries hold that are read, and each member of a list
_KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("abstention", "certainty", "detector", "pipeline"), (str,)),
    **dict.fromkeys(("derived", "passage_filter", "runs", "watch"), (dict,)),
}


def run_document(stated: Mapping[bytes, bytes] | str, file: Path) -> dict[str, Any]:
    """Return the run document of a file's metadata, or of a text; another shape of it is a DataError."""
    text = stated if isinstance(stated, str) else stated.get(RUN_KEY, b"{}")
    try:
        if len(text) > MOST_RUN_BYTES:
            raise DataError(f"has {len(text):,} bytes; {MOST_RUN_BYTES:,} are allowed")
        return _checked_run(strict_json(text))
    except (ValueError, RecursionError) as error:
        said = error.message if isinstance(error, DataError) else f"is not JSON: {error}"
        raise DataError(said, file=str(file), column=RUN_KEY.decode()) from error


def _checked_run(document: Any) -> dict[str, Any]:
    if not isinstance(document, Mapping):
        raise DataError(f"must be a JSON object, found {reprlib.repr(document)}")
    for name, value in document.items():
        kinds, listed = _KINDS.get(name, (object,)), name in _LISTS
        members: Any = [] if value is None else value if listed else [value]
        if not isinstance(members, list) or not all(isinstance(one, kinds) for one in members):
            wanted = " or ".join("object" if kind is dict else kind.__name__ for kind in kinds)
            of = "a list of " if listed else ""
            raise DataError(f"{name} must be {of}{wanted}, found {reprlib.repr(value)}")
        for one in members if name == "runs" else ():
            _checked_run(one)
    return dict(document)


# --- columns ---------------------------------------------------------------------------------------

TEXT = pa.string()
BOOL = pa.bool_()
TIME = pa.timestamp("us", tz="UTC")
INT16 = pa.int16()
INT32 = pa.int32()
INT64 = pa.int64()
FLOAT32 = pa.float32()
FLOAT64 = pa.float64()
# values by name, null where undefined
SIGNALS = pa.map_(TEXT, FLOAT64)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a schema: it holds a field of the records ``of``."""

    of: type
    name: str
    type: pa.DataType
    meaning: str
    required: bool = False
    field: str = ""

    @property
    def key(self) -> str:
        return self.field or self.name


def columns_of(record: type, columns: Sequence[Column]) -> tuple[Column, ...]:
    return tuple(column for column in columns if column.of is record)


def to_cells(record: object, columns: Sequence[Column]) -> dict[str, Any]:
    """Return the record's part of a row, keyed by column."""
    return {column.name: _cell(getattr(record, column.key)) for column in columns}


def _cell(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_cell(item) for item in value]
    if is_dataclass(value):
        return {name: _cell(getattr(value, name)) for name in types_of(type(value))}  # type: ignore[arg-type]
    if isinstance(value, Mapping):
        named = sorted(value.items())
        return [(name, None if math.isnan(held) else float(held)) for name, held in named] or None
    return value


def from_cells(row: Mapping[str, Any], columns: Sequence[Column]) -> dict[str, Any]:
    """Return a record's fields by name; nulls and missing cells take the record's defaults."""
    fields = {}
    for column in columns:
        if (cell := row.get(column.name)) is not None:
            try:
                fields[column.key] = _value(types_of(column.of)[column.key][0], cell)
            except DataError as error:
                raise DataError(error.message, column=error.column or column.name) from error
    return fields


def _value(kind: Any, cell: Any) -> Any:
    if cell is None:
        return {str: "", tuple: ()}.get(get_origin(kind) or kind)
    if is_dataclass(kind):
        record: Any = kind
        return record(
            **{
                name: None
                if may_be_none and cell.get(name) is None
                else _value(part, cell.get(name))
                for name, (part, may_be_none) in types_of(record).items()
            }
        )
    if not isinstance(cell, list):
        return cell
    if get_origin(kind) is not tuple:
        return dict(cell)
    (item, *_) = get_args(kind)
    if is_dataclass(item) and None in cell:
        raise DataError("a null among its items")
    return tuple(_value(item, held) for held in cell)


@dataclass(frozen=True, eq=False)
class TableSchema:
    """One kind of trace file: its columns and its metadata."""

    name: str
    rows: str
    reader: str
    key: bytes
    version: int
    columns: tuple[Column, ...]
    oldest: int = 1

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns if column.required)

    @cached_property
    def arrow(self) -> pa.Schema:
        """The columns as an Arrow schema, without metadata."""
        return pa.schema([(column.name, column.type) for column in self.columns])


_FEW_ROWS = 1024  # threads take longer to start than these to read


def parquet_writer(sink: BinaryIO | Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Return a writer of tables, with a checksum for each page."""
    return pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True)


def opened(file: Path, **options: Any) -> pq.ParquetFile:
    """Open a Parquet file; pages with a checksum are checked when read."""
    footer, stream = footer_of(file), pa.OSFile(str(file))
    return pq.ParquetFile(stream, metadata=footer, page_checksum_verification=True, **options)


def complete(parquet: pq.ParquetFile, names: Sequence[str]) -> pa.Table:
    stated = parquet.metadata.num_rows
    table = parquet.read(columns=names, use_threads=stated > _FEW_ROWS)
    if names and table.num_rows != stated:
        raise pa.ArrowInvalid(f"{table.num_rows} rows where the footer says {stated}")
    return table


def footer_of(file: Path) -> pq.FileMetaData:
    """Return the footer of a Parquet file, read once."""
    known = plain_file(file).stat()
    return _footer(file, known.st_mtime_ns, known.st_size, known.st_ino)


@lru_cache(maxsize=1024)
def _footer(file: Path, _changed: int, _size: int, _number: int) -> pq.FileMetaData:
    """Read the footer; with many row groups that takes longer than reading some columns."""
    return pq.ParquetFile(pa.OSFile(str(file))).metadata


_NO_THREAD = "Failed to launch worker thread"  # Arrow's own words


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """Name the file in errors of reading it."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if _NO_THREAD in str(error):  # with too little memory; the file may be whole
            raise MemoryError(first_line(error)) from error
        if isinstance(error, PermissionError):
            raise DataError("Permission denied; change who may read it", file=str(file)) from error
        hint = "; a policy file is named with --policy" if file.suffix == ".json" else ""
        raise DataError(
            f"not a readable Parquet file, truncated or damaged: {first_line(error)}{hint}",
            file=str(file),
        ) from error


# --- writing ---------------------------------------------------------------------------------------
_Record = TypeVar("_Record")
RecordKey = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class RowSet(Generic[_Record]):
    """Records of one kind as rows."""

    schema: TableSchema
    rows: Callable[[_Record], Sequence[Mapping[str, Any]]]
    key: tuple[str, ...]
    key_of: Callable[[_Record], RecordKey]

    def stamped(self, run: Mapping[str, Any]) -> pa.Schema:
        """Return the Arrow schema with the metadata of a file."""
        _checked_run(run)
        return self.schema.arrow.with_metadata(
            {
                self.schema.key: str(self.schema.version).encode(),
                RUN_KEY: json.dumps(run, sort_keys=True).encode(),
            }
        )

    def table(self, records: Iterable[_Record], run: Mapping[str, Any]) -> pa.Table:
        """Return the records as rows in the schema, with its metadata."""
        rows = [row for record in records for row in self.rows(record)]
        try:
            return pa.Table.from_pylist(rows, schema=self.stamped(run))
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise DataError(f"cannot be stored: {error}") from error


GROUP_ROWS = 16_384
"""Rows in a row group of what is written, so that a part of a file can be read by itself."""


def write_table(table: pa.Table, path: Path) -> None:
    """Write one Parquet file, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sink = io.BytesIO()
    with parquet_writer(sink, table.schema) as writer:
        writer.write_table(table, row_group_size=GROUP_ROWS)
    replace_file(path, sink.getvalue())


def only_file(path: str | Path) -> Path:
    """Return the file of a whole set: a ``.parquet`` path itself, or the first file of an empty directory."""
    root = Path(path)
    if root.suffix != ".parquet" and any(root.glob("*.parquet")):
        raise UsageError(f"{root} holds trace files already; choose another --out")
    return root if root.suffix == ".parquet" else root / part_name(0)


def part_name(number: int) -> str:
    return f"part-{number:05d}.parquet"
