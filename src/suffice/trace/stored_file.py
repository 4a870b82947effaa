"""Reader of the files of a trace set: their kind, rows and run document."""

from __future__ import annotations

import os
import re
import shlex
import warnings
from bisect import bisect_left
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from suffice.errors import DataError, SufficeWarning, did_you_mean, near_misses
from suffice.trace.engines import as_place
from suffice.trace.parquet import TableSchema, complete, footer_of, opened, readable, run_document
from suffice.trace.rounds.schema import QUESTIONS

Rows = NDArray[np.signedinteger[Any]]
BATCH = 65_536
"""Rows of a large file read at a time, at most."""
_BATCH_BYTES = 64_000_000
_BUFFER = 1 << 20  # bytes of a column chunk held at a time
_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


EXAMPLE = Path(__file__).with_name("example.parquet")
"""The record that comes with suffice, redacted; ``example`` names it where nothing else is called so."""


def parquet_files(root: Path) -> list[Path]:
    """Return the Parquet files of a trace set, sorted by name; a store may have none."""
    from suffice.trace.recording import stores_at

    stores = stores_at(as_place(root))
    if as_place(root) in stores:
        return []
    if root.is_dir():
        files = sorted(root.glob("[!.]*.parquet"))
        if files or stores:
            return files
        said = "the directory holds no *.parquet file and no record.db; name a trace file or a directory"
        if logs := [log for file in sorted(root.glob("*.*")) if (log := _log(file))]:
            said = f"holds no *.parquet file and no record.db, but {logs[0]}"
        if not os.access(root, os.R_OK | os.X_OK):  # glob finds nothing there
            said = "Permission denied; change who may read the directory and go through it"
    elif root.exists():
        if not (said := _log(root)):
            return [root]
    elif str(root) == EXAMPLE.stem:
        return [EXAMPLE]
    elif root.suffix == ".parquet" and stores_at(root.with_suffix(".db")):
        said = f"is not written yet; its records so far are in {root.with_suffix('.db')}"
    else:
        said = "no such file or directory; name a trace file, a directory of them, or example, the record "
        said += "that comes with suffice"
    raise DataError(said, file=str(root))


_LOG_NAME = re.compile(r".*\.(csv|tsv|jsonl|ndjson|json|eval)(\.gz)?", re.IGNORECASE)
_MARKS = {
    b"resourceSpans": "otlp",
    b'"ATIF-': "atif",
    b"pred_iter_0": "flashrag",
    b"PK\3\4": "inspect",
}


def _log(file: Path) -> str:
    """Say how a log becomes a record; empty: by its name, or its first bytes, it is none."""
    if not (_LOG_NAME.fullmatch(file.name) and file.is_file() and os.access(file, os.R_OK)):
        return ""
    with file.open("rb") as stream:
        begins = stream.read(65_536)
    of = next((name for mark, name in _MARKS.items() if mark in begins), "columns")
    typed = f"suffice traces import --format {of} {shlex.quote(str(file))} --out NEW"
    said = f"a log, which is no record yet; type: {typed}, then name NEW"
    said += "; a policy file is named with --policy" if file.suffix == ".json" else ""
    return "" if begins.startswith(b"PAR1") else said


def schema_of(path: str | Path) -> TableSchema:
    """Return the kind of trace set at ``path``; one of questions unless a file says otherwise."""
    from suffice.trace.recording import stores_at
    from suffice.trace.store import Store

    root, plans = as_place(path), _plans()
    for file in parquet_files(root):
        try:
            with opened(file) as parquet:
                schema = parquet.schema_arrow
        except (pa.ArrowException, UnicodeDecodeError, OSError, DataError):
            continue  # said by whoever reads it
        if plans.key in (schema.metadata or {}):
            return plans
    runs = (run for file in stores_at(root) for run in Store(file).runs(most=1))
    return plans if any(plans.key in run.metadata for run in runs) else QUESTIONS


def _plans() -> TableSchema:
    from suffice.trace.plan_traces import PLANS  # which imports this module

    return PLANS


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One file of a trace set, with only its metadata read."""

    file: Path
    kind: TableSchema
    names: tuple[str, ...]
    row_groups: tuple[int, ...]
    run: dict[str, Any]
    stored: pa.Schema
    n_bytes: int = 0
    remarks: tuple[str, ...] = ()

    @classmethod
    def open(cls, file: Path, wanted: Container[str], kind: TableSchema) -> StoredFile:
        """Open the file, in the newest version of the schema."""
        with readable(file), opened(file) as parquet:
            return cls._of(parquet, file, wanted, kind)

    @classmethod
    def read_whole(
        cls, file: Path, wanted: Container[str], kind: TableSchema
    ) -> tuple[StoredFile, pa.Table]:
        """Read the file and its wanted columns in the schema's types."""
        with readable(file), opened(file) as parquet:
            stored = cls._of(parquet, file, wanted, kind)
            table = complete(parquet, stored.names)
        return stored, coerce_table(table, str(file), kind)

    @classmethod
    def _of(
        cls, parquet: pq.ParquetFile, file: Path, wanted: Container[str], kind: TableSchema
    ) -> StoredFile:
        stored = parquet.schema_arrow
        metadata = dict(stored.metadata or {})
        check_version(metadata, file, kind)
        plain, remarks = _described(stored.remove_metadata(), kind)
        _check_required(stored.names, str(file), kind)
        exactly = isinstance(wanted, set | tuple)  # else a number of one's own may be a score
        own = () if exactly else [one.name for one in plain if _is(one.type, *_NUMBERS)]
        read = [name for name in stored.names if name in wanted or name in own]
        if twice := [name for name in read if read.count(name) > 1]:
            raise DataError("the column appears twice", file=str(file), column=min(twice))
        groups = [parquet.metadata.row_group(i) for i in range(parquet.num_row_groups)]
        return cls(
            file=file,
            kind=kind,
            names=tuple(read),
            row_groups=tuple(group.num_rows for group in groups),
            n_bytes=sum(group.total_byte_size for group in groups),
            run=run_document(metadata, file),
            remarks=remarks,
            stored=plain.with_metadata(metadata),
        )

    @property
    def rows(self) -> int:
        return sum(self.row_groups)

    def batches(
        self, names: Sequence[str], rows: Rows, field: str = ""
    ) -> Iterator[tuple[int, pa.Table]]:
        """Yield columns at ascending ``rows`` in batches; of the first column perhaps only a field."""
        known = self.kind.arrow if names[0] in self.kind.arrow.names else self.stored
        kind = narrowed(known.field(names[0]).type, field)
        with readable(self.file):
            footer = footer_of(self.file)
            if (footer.num_rows, footer.num_row_groups) != (self.rows, len(self.row_groups)):
                raise pa.ArrowInvalid(
                    "it was written anew since it was opened; read the record again"
                )
            paths = [*_leaf_paths(footer, names[0], field), *names[1:]]
            size = max(1, min(BATCH, _BATCH_BYTES * self.rows // max(self.n_bytes, 1)))
            ends = np.cumsum(self.row_groups)
            with opened(self.file, buffer_size=_BUFFER, pre_buffer=False) as parquet:
                for number in np.unique(np.searchsorted(ends, rows, side="right")).tolist():
                    at, first = int(ends[number]) - self.row_groups[number], int(ends[number])
                    wanted = rows[within(rows, at, first)]
                    for batch in parquet.iter_batches(
                        batch_size=size, row_groups=[number], columns=paths, use_threads=False
                    ):
                        begin, at = at, at + batch.num_rows
                        if wanted[0] < at and begin <= wanted[-1]:
                            table = pa.Table.from_batches([batch]).select(names)
                            shares = _shares_a_field(table.column(names[0]).type, kind)
                            types = {names[0]: kind} if shares else {}
                            yield (
                                begin,
                                coerce_table(table, str(self.file), self.kind, begin, types),
                            )
                        if wanted[-1] < at:
                            break
                    else:
                        if at < first:
                            raise pa.ArrowInvalid(f"{first - at} rows fewer than the footer says")


def within(rows: Rows, first: int, stop: int) -> slice:
    """Return the slice of ascending rows between one row and another."""
    return slice(*np.searchsorted(rows, np.array((first, stop), rows.dtype)))


def narrowed(kind: pa.DataType, field: str) -> pa.DataType:
    """Return a list of structs with this field only, ``LIST.FIELD`` if nested; none: the type itself."""
    if not field:
        return kind
    name, _, of_list = field.partition(".")
    return pa.list_(pa.struct([(name, narrowed(kind.value_type.field(name).type, of_list))]))


def _leaf_paths(footer: pq.FileMetaData, name: str, field: str) -> list[str]:
    if not field:
        return [name]
    leaves = [footer.schema.column(number).path for number in range(len(footer.schema))]
    # NAME.list.element.FIELD.list.element..., whatever the writer calls the two between
    parts = {
        path: ".".join(path.split(".")[3::3]) for path in leaves if path.startswith(f"{name}.")
    }
    return [path for path, part in parts.items() if f"{part}.".startswith(f"{field}.")] or [name]


def _shares_a_field(stored: pa.DataType, kind: pa.DataType) -> bool:
    names = [
        {field.name for field in one.field(0).type}
        for one in (stored, kind)
        if pa.types.is_nested(one) and pa.types.is_struct(one.field(0).type)
    ]
    return len(names) < 2 or not names[0].isdisjoint(names[1])


@lru_cache(maxsize=64)
def _described(stored: pa.Schema, kind: TableSchema) -> tuple[pa.Schema, tuple[str, ...]]:
    known = kind.arrow.names
    absent = [name for name in known if name not in stored.names]
    remarks = (
        f"column {name!r} is not of the schema and is not read{did_you_mean(name, absent)}"
        for name in stored.names
        if name not in known and near_misses(name, absent, likeness=_SURELY_MEANT)
    )
    fields = [field.with_type(plain_type(field.type)) for field in stored]
    return pa.schema(fields), tuple(remarks)


_SURELY_MEANT = 0.85  # likeness from which a column of the user's own is taken for a slip


def check_version(metadata: Mapping[bytes, bytes], file: Path, schema: TableSchema) -> None:
    """Refuse a file of another schema or of an unsupported version."""
    stated = metadata.get(schema.key)
    key = schema.key.decode()
    if stated is None:
        for other in (QUESTIONS, _plans()):
            if other.key in metadata:
                raise DataError(
                    f"this is a {other.name} ({other.rows}), not a {schema.name} ({schema.rows}); "
                    f"'suffice traces validate' checks it and {other.reader} reads it",
                    file=str(file),
                )
        warnings.warn(
            f"{file} does not state {key}; read as version 1", SufficeWarning, stacklevel=7
        )
        return
    version = int(stated) if re.fullmatch(rb"\d{1,9}", stated) else 0
    if version > schema.version:
        raise DataError(
            f"{schema.name} schema {version} is newer than {schema.version}, the newest this version reads; "
            "upgrade with: pip install -U suffice",
            file=str(file),
        )
    if version < schema.oldest:
        raise DataError(
            f"{key} is {stated!r}; it must be a version number from {schema.oldest} to {schema.version}",
            file=str(file),
        )


def agreed(documents: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the entries on which all documents agree."""
    if not documents:
        return {}
    first, *others = documents
    return {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in others)
    }


def one_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """Return every column of the files, in a type that holds each of them."""
    try:
        return pa.unify_schemas([*schemas], promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(
            f"the files disagree on a column the schema does not know: {error}"
        ) from error


def first_error(errors: Sequence[DataError]) -> DataError:
    """Return the first of several problems, with a remedy for all of them."""
    more = len(errors) - 1
    first = errors[0]
    hint = f" ({more} more)" if more else ""
    return DataError(
        f"{first.message}{hint}; 'suffice traces validate' lists all, --skip-invalid reads the rest",
        file=first.file,
        row=first.row,
        column=first.column,
    )


def nothing_read(path: str | Path, skipped: Sequence[DataError], otherwise: str) -> DataError:
    """Return the error for an empty result: all was skipped, or ``otherwise``."""
    if skipped:
        many = f"{len(skipped)} parts were skipped, the first: {skipped[0]}"
        otherwise = f"nothing valid is left to read; {many}"
    return DataError(otherwise, file=str(path))


# --- types -----------------------------------------------------------------------------------------
def coerce_table(
    table: pa.Table,
    file: str,
    schema: TableSchema = QUESTIONS,
    first_row: int = 0,
    types: Mapping[str, pa.DataType] = MappingProxyType({}),
) -> pa.Table:
    """Convert the schema's columns to its types, or to ``types``; other columns to plain types."""
    arrays: dict[str, pa.ChunkedArray] = {}
    for column in schema.columns:
        if column.name not in table.column_names:
            continue
        cells, wanted = table.column(column.name), types.get(column.name, column.type)
        try:
            arrays[column.name] = coerce_column(cells, wanted)
        except _REFUSALS as error:
            row = _first_bad_row(cells, wanted)
            row = None if row is None else row + first_row
            said = f"found type {cells.type}, the schema wants {column.type} ({error})"
            said = said.replace("\n", " ")
            raise DataError(said, file=file, row=row, column=column.name) from error
    for name in table.column_names:
        if name not in arrays:
            cells = table.column(name)
            kind = plain_type(cells.type)
            arrays[name] = cells if kind == cells.type else coerce_column(cells, kind)
    return pa.table(arrays)


def _check_required(names: Sequence[str], file: str, schema: TableSchema) -> None:
    if missing := next((name for name in schema.required if name not in names), ""):
        unknown = near_misses(missing, {*names} - {*schema.arrow.names})
        said = f"required column {missing!r} is missing; found {', '.join(names) or 'no columns'}"
        said += f"; was {unknown[0]!r} meant? rename it" if unknown else ""
        said += f", or type: suffice traces import --format columns {file} --columns {missing}="
        said += f"{unknown[0] if unknown else 'NAME'} --out NEW"
        raise DataError(said, file=file, column=missing)


def _first_bad_row(cells: pa.ChunkedArray, target: pa.DataType) -> int | None:
    def fails(rows: int) -> bool:
        try:
            coerce_column(cells.slice(0, rows), target)
        except _REFUSALS:
            return True
        return False

    if fails(0):
        return None
    return bisect_left(range(1, len(cells) + 1), True, key=fails)


def coerce_column(cells: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """Convert a column to the schema's type and check it: damaged files hold broken text."""
    cells.validate(full=True)
    if cells.type == target:
        return cells
    return pa.chunked_array([_array(chunk, target) for chunk in cells.chunks], type=target)


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the plain type of an Arrow view type, which cannot be filtered."""
    if pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(plain_type(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if _is(kind, *_LISTS):
        item = plain_type(kind.value_type)
        return pa.list_(item) if _is(kind, *_LIST_VIEWS) or item != kind.value_type else kind
    return kind


def _array(array: pa.Array, target: pa.DataType) -> pa.Array:
    if array.type == target:
        return array
    if isinstance(array, pa.DictionaryArray):
        return _array(array.dictionary_decode(), target)
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), target)
    if pa.types.is_map(target):
        return _map(array, target)
    if pa.types.is_list(target):
        if not _is(array.type, *_LISTS):
            raise pa.ArrowTypeError(f"{array.type} is not a list")
        offsets, values = _offsets(array)
        return pa.ListArray.from_arrays(offsets, _array(values, target.value_type), type=target)
    return _struct(array, target) if pa.types.is_struct(target) else _scalar(array, target)


def _scalar(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_string(target):
        if not _is(array.type, "is_string", "is_large_string", "is_string_view"):
            raise pa.ArrowTypeError(f"{array.type} is not text")
    elif pa.types.is_timestamp(target):
        return _moment(array, target)
    elif pa.types.is_binary(target):
        if not pa.types.is_binary_view(array.type):
            raise pa.ArrowTypeError(f"{array.type} is not bytes")
    elif pa.types.is_boolean(target):
        raise pa.ArrowTypeError(f"{array.type} is not true or false")
    elif not _is(array.type, "is_integer", "is_floating", "is_decimal"):
        raise pa.ArrowTypeError(f"{array.type} is not a number")
    if pa.types.is_floating(target) and pa.types.is_floating(array.type):
        return _rounded(array, target)
    return pc.cast(array, target)


_UTC_NAMES = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00"})


def _moment(array: pa.Array, target: pa.DataType) -> pa.Array:
    if not pa.types.is_timestamp(array.type):
        raise pa.ArrowTypeError(f"{array.type} is not a time")
    if array.type.tz not in _UTC_NAMES:
        zone = f"in {array.type.tz}" if array.type.tz else "without a zone"
        raise pa.ArrowTypeError(f"the times are {zone}; they must be in UTC")
    return pc.cast(array, target, safe=array.type.unit != "ns")


def _rounded(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Round to a narrower type; refuse overflow, as a live round does."""
    rounded = pc.cast(array, target, safe=False)
    overflowed = pc.and_(pc.is_inf(rounded), pc.invert(pc.is_inf(array)))
    if pc.any(overflowed).as_py():
        raise pa.ArrowInvalid(f"a value is outside the range of {target}")
    return rounded


_LIST_VIEWS = ("is_list_view", "is_large_list_view")
_NUMBERS = ("is_boolean", "is_integer", "is_floating")
_LISTS = ("is_list", "is_large_list", "is_fixed_size_list", *_LIST_VIEWS)


def _is(kind: pa.DataType, *tests: str) -> bool:
    return any(getattr(pa.types, test)(kind) for test in tests)


def _offsets(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Return (offsets int32 with nulls where the list is null, flat values)."""
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    ends = np.append(0, lengths.astype(np.int64).cumsum())
    if ends[-1] > np.iinfo(np.int32).max:
        raise pa.ArrowInvalid("more than 2^31 list items in one chunk")
    null = np.append(array.is_null().to_numpy(zero_copy_only=False), False)
    return pa.array(ends.astype(np.int32), mask=null), array.flatten()


def _struct(array: pa.Array, target: pa.DataType) -> pa.Array:
    if not pa.types.is_struct(array.type):
        raise pa.ArrowTypeError(f"{array.type} is not a struct")
    present = {field.name for field in array.type}
    if not present & {field.name for field in target}:
        raise pa.ArrowTypeError(f"{array.type} shares no field with the schema")
    parts = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    nulls = pa.nulls(len(array))
    columns = [_array(parts.get(field.name, nulls), field.type) for field in target]
    return pa.StructArray.from_arrays(columns, fields=list(target), mask=array.is_null())


def _map(array: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_struct(array.type):  # of numbers, as data frames write a column of dictionaries
        rows = array.to_pylist()
        pairs = [row and [(n, held) for n, held in row.items() if held is not None] for row in rows]
        return pa.array(pairs, type=target)
    if pa.types.is_map(array.type):
        pair = pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])
        array = pc.cast(array, pa.list_(pair))
    if not _is(array.type, *_LISTS) or not pa.types.is_struct(array.type.value_type):
        raise pa.ArrowTypeError(f"{array.type} is not a map, nor a list of key/value structs")
    offsets, pairs = _offsets(array)
    names = [field.name for field in pairs.type]
    if len(names) != 2:
        raise pa.ArrowTypeError(f"{array.type} is not a list of key/value structs")
    keys, items = pairs.flatten()
    if names == ["value", "key"]:
        keys, items = items, keys
    return pa.MapArray.from_arrays(
        offsets, _array(keys, target.key_type), _array(items, target.item_type), type=target
    )
