"""Any result as strict JSON, from its fields."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import date
from enum import Enum
from pathlib import PurePath
from typing import Any

from suffice.errors import InternalError


def as_json(value: object) -> Any:
    """Convert a value to strict JSON: dataclasses by fields or ``to_json``, NaN as null, infinities as text.

    >>> as_json({"f1": float("nan"), "gap": float("-inf"), 2: (1, None)})
    {'f1': None, 'gap': '-inf', '2': [1, None]}
    """
    if isinstance(value, Enum):
        return as_json(value.value)
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | float):
        return int(value) if isinstance(value, int) else _number(float(value))
    if isinstance(value, date | PurePath):
        return value.isoformat() if isinstance(value, date) else str(value)
    return _nested(value)


def _number(value: float) -> float | str | None:
    if math.isinf(value):
        return str(value)
    return None if math.isnan(value) else value


def _nested(value: object) -> Any:
    for name in ("to_json", "tolist"):  # numpy's arrays and scalars have the second
        own = getattr(value, name, None)
        if own is not None:
            return as_json(own())
    if is_dataclass(value) and not isinstance(value, type):
        return fields_as_json(value)
    if isinstance(value, Mapping):
        keys = (key.value if isinstance(key, Enum) else key for key in value)
        return {str(key): as_json(inner) for key, inner in zip(keys, value.values(), strict=True)}
    if isinstance(value, Iterable) and not isinstance(value, bytes):
        return [as_json(inner) for inner in value]
    raise InternalError(f"{type(value).__name__} has no JSON form")


def fields_as_json(value: Any, names: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Convert a dataclass to JSON by its fields.

    A field's metadata may say otherwise: ``{"json": "name"}`` gives it another key, ``{"json": None}``
    leaves it out, ``{"json_none": False}`` leaves it out where it is ``None``. Words in braces in a key are
    looked up in ``names``: ``"delta_{metric}"``.
    """
    document: dict[str, Any] = {}
    for attribute in fields(value):
        name = attribute.metadata.get("json", attribute.name)
        inner = getattr(value, attribute.name)
        if name is not None and (inner is not None or attribute.metadata.get("json_none", True)):
            document[name.format_map(names or {})] = as_json(inner)
    return document
