"""Bring foreign Arrow types to the schema's, refusing what would lose information."""

from __future__ import annotations

from bisect import bisect_left

import pyarrow as pa
import pyarrow.compute as pc

from suffice.errors import DataError
from suffice.trace.rounds.schema import QUESTIONS
from suffice.trace.schema import TableSchema

_REFUSALS = (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError)


def coerce_table(table: pa.Table, file: str, schema: TableSchema = QUESTIONS) -> pa.Table:
    """The schema's columns of ``table`` in the schema's types; unknown columns stay as they are.

    Raises
    ------
    DataError
        Naming file and column: a required column is missing, or a type cannot be converted.
    """
    missing = [name for name in schema.required if name not in table.column_names]
    if missing:
        raise DataError(
            f"required column {missing[0]!r} is missing; "
            f"found {', '.join(table.column_names) or 'no columns'}",
            file=file,
            column=missing[0],
        )
    duplicated = {name for name in table.column_names if table.column_names.count(name) > 1}
    if duplicated:
        raise DataError("the column appears twice", file=file, column=min(duplicated))
    arrays: dict[str, pa.ChunkedArray] = {}
    for column in schema.columns:
        if column.name not in table.column_names:
            continue
        found = table.column(column.name)
        try:
            arrays[column.name] = _coerce(found, column.type)
        except _REFUSALS as error:
            row = _first_bad_row(found, column.type)
            message = f"found type {found.type}, the schema wants {column.type} ({error})"
            raise DataError(
                message.replace("\n", " "), file=file, row=row, column=column.name
            ) from error
    for name in table.column_names:
        arrays.setdefault(name, table.column(name))
    return pa.table(arrays)


def _first_bad_row(found: pa.ChunkedArray, target: pa.DataType) -> int | None:
    """Where conversion first fails, when it depends on the value and not on the type."""

    def fails(rows: int) -> bool:
        try:
            _coerce(found.slice(0, rows), target)
        except _REFUSALS:
            return True
        return False

    if fails(0):
        return None
    return bisect_left(range(1, len(found) + 1), True, key=fails)


def _coerce(found: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    """The column in the schema's type, its content checked: damaged files hold broken text."""
    found.validate(full=True)
    if found.type == target:
        return found
    return pa.chunked_array([_array(chunk, target) for chunk in found.chunks], type=target)


def _array(found: pa.Array, target: pa.DataType) -> pa.Array:
    """Recursive conversion: what Arrow's cast does, plus structs by field name and maps."""
    if found.type == target:
        return found
    if isinstance(found, pa.DictionaryArray):
        return _array(found.dictionary_decode(), target)
    if pa.types.is_null(found.type):
        return pa.nulls(len(found), target)
    for is_nested, convert in _NESTED:
        if is_nested(target):
            return convert(found, target)
    return _scalar(found, target)


def _scalar(found: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_string(target):
        if not _is_text(found.type):
            raise pa.ArrowTypeError(f"{found.type} is not text")
    elif pa.types.is_boolean(target):
        raise pa.ArrowTypeError(f"{found.type} is not true or false")
    elif not _is_number(found.type):
        raise pa.ArrowTypeError(f"{found.type} is not a number")
    if pa.types.is_floating(target) and pa.types.is_floating(found.type):
        return _rounded(found, target)
    return pc.cast(found, target)


def _rounded(found: pa.Array, target: pa.DataType) -> pa.Array:
    """Nearest values of a narrower type; what overflows it is refused, as in a live round."""
    rounded = pc.cast(found, target, safe=False)
    overflowed = pc.and_(pc.is_inf(rounded), pc.invert(pc.is_inf(found)))
    if pc.any(overflowed).as_py():
        raise pa.ArrowInvalid(f"a value is outside the range of {target}")
    return rounded


def _is_number(found: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(found) or pa.types.is_floating(found) or pa.types.is_decimal(found)
    )


def _is_text(found: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(found)
        or pa.types.is_large_string(found)
        or pa.types.is_string_view(found)
    )


def _is_list(found: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(found)
        or pa.types.is_large_list(found)
        or pa.types.is_fixed_size_list(found)
        or pa.types.is_list_view(found)
        or pa.types.is_large_list_view(found)
    )


def _offsets(found: pa.Array) -> tuple[pa.Array, pa.Array]:
    """(offsets int32 with nulls where the list is null, flat values)."""
    lengths = pc.fill_null(pc.list_value_length(found), 0).to_numpy(zero_copy_only=False)
    ends = lengths.astype("int64").cumsum()
    total = int(ends[-1]) if len(ends) else 0
    if total > 2**31 - 1:
        raise pa.ArrowInvalid("more than 2^31 list items in one chunk")
    starts = ends - lengths
    null = found.is_null().to_numpy(zero_copy_only=False)
    offsets = pa.array([*starts.tolist(), total], mask=[*null.tolist(), False], type=pa.int32())
    return offsets, found.flatten()


def _list(found: pa.Array, target: pa.DataType) -> pa.Array:
    if not _is_list(found.type):
        raise pa.ArrowTypeError(f"{found.type} is not a list")
    offsets, values = _offsets(found)
    return pa.ListArray.from_arrays(offsets, _array(values, target.value_type), type=target)


def _struct(found: pa.Array, target: pa.DataType) -> pa.Array:
    if not pa.types.is_struct(found.type):
        raise pa.ArrowTypeError(f"{found.type} is not a struct")
    present = {field.name for field in found.type}
    if not present & {field.name for field in target}:
        raise pa.ArrowTypeError(f"{found.type} shares no field with the schema")
    parts = dict(zip((field.name for field in found.type), found.flatten(), strict=True))
    columns = [
        _array(parts[field.name], field.type)
        if field.name in present
        else pa.nulls(len(found), field.type)
        for field in target
    ]
    return pa.StructArray.from_arrays(columns, fields=list(target), mask=found.is_null())


def _map(found: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_struct(found.type):
        return _map_of_struct(found, target)
    if pa.types.is_map(found.type):
        pair = pa.struct([("key", found.type.key_type), ("value", found.type.item_type)])
        found = pc.cast(found, pa.list_(pair))
    if not _is_list(found.type) or not pa.types.is_struct(found.type.value_type):
        raise pa.ArrowTypeError(f"{found.type} is not a map, nor a list of key/value structs")
    offsets, pairs = _offsets(found)
    names = [field.name for field in pairs.type]
    if len(names) != 2:
        raise pa.ArrowTypeError(f"{found.type} is not a list of key/value structs")
    keys, items = pairs.flatten()
    if names == ["value", "key"]:
        keys, items = items, keys
    return pa.MapArray.from_arrays(
        offsets, _array(keys, target.key_type), _array(items, target.item_type), type=target
    )


def _map_of_struct(found: pa.Array, target: pa.DataType) -> pa.Array:
    """A struct of numbers, as data frames write a column of dictionaries."""
    names = [field.name for field in found.type]
    columns = [_array(part, target.item_type).to_pylist() for part in found.flatten()]
    null = found.is_null().to_pylist()
    rows = [
        None
        if null[index]
        else [
            (name, column[index])
            for name, column in zip(names, columns, strict=True)
            if column[index] is not None
        ]
        for index in range(len(found))
    ]
    return pa.array(rows, type=target)


_NESTED = (
    (pa.types.is_map, _map),
    (pa.types.is_list, _list),
    (pa.types.is_struct, _struct),
)
