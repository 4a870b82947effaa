"""Reading the fields of a policy file; a fault is named by its field."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from suffice.calibration.fields import number
from suffice.errors import DataError

__all__ = ["field_of", "finite", "finite_numbers", "strings_of"]


def field_of(document: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    """A field of that kind; absent or null it is the default."""
    value = document.get(name, default)
    if value is None and default is None:
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise DataError(f"must be a {kind.__name__}, found {value!r}", column=name)
    return value


def strings_of(document: Mapping[str, Any], name: str) -> tuple[str, ...] | None:
    """A list of strings; ``None`` where there is none."""
    values = field_of(document, name, list)
    if values is None:
        return None
    if not all(isinstance(value, str) for value in values):
        raise DataError("must be a list of strings", column=name)
    return tuple(values)


def finite(value: object, column: str) -> float:
    """A finite number."""
    found = number(value, column)
    if not math.isfinite(found):
        raise DataError(f"must be finite, found {found!r}", column=column)
    return found


def finite_numbers(document: Mapping[str, Any], name: str) -> dict[str, float]:
    """An object of finite numbers; empty where there is none."""
    parts = field_of(document, name, dict, {})
    return {key: finite(value, f"{name}.{key}") for key, value in parts.items()}
