"""Checked fields of JSON documents; each fault names its field."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from suffice.errors import DataError


def map_fields(document: object, what: str, allowed: tuple[str, ...]) -> Mapping[str, Any]:
    """Return the value if it is an object with only the fields in ``allowed``."""
    if not isinstance(document, Mapping):
        raise DataError(f"{what} is an object with {', '.join(allowed)}; found {document!r}")
    unknown = sorted(set(document) - set(allowed))
    if unknown:
        raise DataError(
            f"unknown field of {what}; allowed: {', '.join(allowed)}", column=str(unknown[0])
        )
    return document


def number(value: object, column: str) -> float:
    """Read a number as a float; accept ``"inf"`` and ``"-inf"`` but not true and false."""
    if value in ("inf", "-inf"):
        return float(str(value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise DataError(f"must be a number, found {value!r}", column=column)
    try:
        return float(value)
    except OverflowError:
        raise DataError(f"{value!r} is too large", column=column) from None


def whole(value: object, column: str, least: int = 0) -> int:
    """Read a whole number from ``least`` to 2^53; refuse true and false."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 2**53:
        raise DataError(f"must be a whole number from {least}, found {value!r}", column=column)
    return value


def number_or_none(value: object, column: str) -> float | None:
    return None if value is None else number(value, column)


def known(value: float) -> float | None:
    """Return a number for JSON: ``None`` for NaN."""
    return None if math.isnan(value) else float(value)


def numbers(values: object, column: str) -> tuple[float, ...]:
    if not isinstance(values, list | tuple):
        raise DataError(f"must be a list of numbers, found {values!r}", column=column)
    return tuple(number(value, column) for value in values)


def probability_or_none(value: object, column: str) -> float | None:
    """Read a number in [0, 1] or null."""
    read = number_or_none(value, column)
    if read is not None and not 0.0 <= read <= 1.0:
        raise DataError(f"must be null or in [0, 1], found {value!r}", column=column)
    return read


def check_points(x: Sequence[float]) -> None:
    for value in x:
        if not math.isfinite(value):
            raise DataError(f"must be finite, found {value!r}", column="x")
    for before, after in pairwise(x):
        if before >= after:
            raise DataError(f"must increase strictly, found {after!r} after {before!r}", column="x")


def finite(value: object, column: str) -> float:
    read = number(value, column)
    if not math.isfinite(read):
        raise DataError(f"must be finite, found {read!r}", column=column)
    return read


@dataclass(frozen=True, slots=True)
class Fields:
    document: Mapping[str, Any]
    within: str = ""

    def column(self, name: str) -> str:
        """Return the place of a field, for errors."""
        return f"{self.within}.{name}" if self.within else name

    def need(self, *names: str) -> None:
        """Refuse an object without these fields; null counts as none."""
        for name in names:
            if self.document.get(name) is None:
                raise DataError("is missing", column=self.column(name))

    def of(self, name: str, kind: type, default: Any = None) -> Any:
        """Read a field by a function."""
        value = self.document.get(name, default)
        if value is None and default is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise DataError(f"must be a {kind.__name__}, found {value!r}", column=self.column(name))
        return value

    def part(self, name: str) -> Fields:
        """Read an object inside it; empty if absent."""
        return Fields(self.of(name, dict) or {}, self.column(name))

    def one_of(self, name: str, allowed: Collection[str], default: Any = None) -> Any:
        value = self.document.get(name, default)
        if not isinstance(value, str | None) or value not in allowed:
            raise DataError(
                f"must be one of {', '.join(allowed)}, found {value!r}", column=self.column(name)
            )
        return value

    def strings(self, name: str) -> tuple[str, ...] | None:
        """Read a list of strings; ``None`` if absent."""
        values = self.of(name, list)
        if values is None:
            return None
        if not all(isinstance(value, str) for value in values):
            raise DataError("must be a list of strings", column=self.column(name))
        return tuple(values)

    def number(self, name: str, default: float | None = None) -> float:
        """Read a finite number."""
        return finite(self.document.get(name, default), self.column(name))

    def number_or_none(self, name: str) -> float | None:
        return number_or_none(self.document.get(name), self.column(name))

    def numbers(self, name: str) -> dict[str, float]:
        """Read an object of finite numbers; empty if absent."""
        part = self.part(name)
        return {key: part.number(key) for key in part.document}
