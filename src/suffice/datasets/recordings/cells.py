"""Cells of a file as values that a column of the schema holds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from suffice.datasets.files import Row, text_id

if TYPE_CHECKING:
    import pyarrow as pa

_TRUTH = {"true": True, "1": True, "false": False, "0": False}


def fields_of(value: Any, name: str = "") -> Iterator[str]:
    """The fields of a value, as a map names them: ``usage.in``, ``hits[].doc``."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from fields_of(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and any(isinstance(item, dict) for item in value):
        for item in value:
            yield from fields_of(item, f"{name}[]")
    else:
        yield name


def number(row: Row, value: Any, column: str) -> float:
    """A number, or text of one."""
    try:
        if isinstance(value, str | int | float):  # true and false are a signal's 1 and 0
            return float(value)
    except (ValueError, OverflowError):
        pass
    raise row.error(f"must be a number, found {value!r:.60}", column)


def numbers_by_name(row: Row, value: Any, column: str) -> dict[str, float]:
    """Of an object, of JSON text of one, or of the pairs that a map column gives."""
    if isinstance(value, str):
        value = row.json(value, column)
    try:
        pairs = dict(value)
    except (TypeError, ValueError) as error:
        raise row.error(
            f"must be numbers by name, as {{'margin': 0.5}}, found {value!r:.60}", column
        ) from error
    return {
        str(name): math.nan if held is None else number(row, held, column)
        for name, held in pairs.items()
    }


def _refuse_objects(row: Row, value: Any, column: str) -> None:
    if any(isinstance(item, dict) for item in (value if isinstance(value, list) else [value])):
        names = ", ".join(dict.fromkeys(fields_of(value, column))) or "none"
        raise row.error(f"holds an object; name one of its fields: {names}", column)


def texts(row: Row, value: Any, column: str) -> list[str]:
    """Texts of a cell; an object is refused with its fields."""
    _refuse_objects(row, value, column)
    return row.texts(value, column)


def cell(row: Row, value: Any, column: str, kind: pa.DataType) -> Any:
    """The value as the schema's column takes it; NaN, as a table writes a missing number: none."""
    if kind.num_fields:
        return _items(row, value, column, kind.value_type)
    if isinstance(value, float) and math.isnan(value):
        return None
    _refuse_objects(row, value, column)
    name = str(kind)
    if name == "string":
        found = row.texts(value, column)
        if len(found) != 1 or isinstance(value, list):
            raise row.error(f"must be one text, found {value!r:.60}", column)
        return found[0]
    if name == "bool":
        if str(value).lower() not in _TRUTH:
            raise row.error(f"must be true or false, found {value!r:.60}", column)
        return _TRUTH[str(value).lower()]
    if name.startswith("timestamp"):
        return replace(row, values={column: value}).moment(column)
    found_number = math.nan if isinstance(value, bool) else number(row, value, column)
    if not name.startswith("int"):
        return None if math.isnan(found_number) else found_number
    if not found_number.is_integer():
        raise row.error(f"must be a whole number, found {value!r:.60}", column)
    return int(found_number)


def _items(row: Row, value: Any, column: str, item: pa.DataType) -> Any:
    """Lists, and of passages and tokens the parts that the schema knows."""
    if str(item) == "string":
        return texts(row, row.listed(column) if isinstance(value, str) else value, column)
    if isinstance(value, str):
        value = row.json(value, column)
    if not isinstance(value, list):
        raise row.error(f"must be a list, found {value!r:.60}", column)
    if not item.num_fields:
        return [None if one is None else cell(row, one, column, item) for one in value]
    parts = {item.field(at).name: item.field(at).type for at in range(item.num_fields)}
    structs = []
    for one in value:
        if not isinstance(one, dict) or not set(parts) & set(one):
            raise row.error(
                f"each item must be an object with some of {', '.join(parts)}, found {one!r:.60}; lists of "
                "ids or of texts alone are --columns passage_ids=NAME,passage_texts=NAME",
                column,
            )
        struct = {
            name: None if one.get(name) is None else cell(row, one[name], column, kind)
            for name, kind in parts.items()
        }
        if "text" in parts and struct["id"] is None and struct["text"] is not None:
            struct["id"] = text_id(struct["text"])
        structs.append(struct)
    return structs
