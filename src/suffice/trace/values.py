"""Field values of records: each is checked and rounded by its type."""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from types import UnionType
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

import numpy as np

from suffice.contracts import whole_text
from suffice.errors import DataError

Check = Callable[[Any, str], Any]
"""Gives a value as its column holds it; a DataError names the column."""

MOST_INT16 = int(np.iinfo(np.int16).max)
MOST_INT32 = int(np.iinfo(np.int32).max)
_FLOAT32 = struct.Struct("<f")


class Checked:
    """A record whose fields are checked by their types when it is made, or by checks of its own."""

    __slots__ = ()
    _checks: ClassVar[Mapping[str, Check]] = {}
    _prefix: ClassVar[str] = ""

    def __post_init__(self) -> None:
        for name, column, may_be_none, check in self._checks_by_field():
            value = getattr(self, name)
            if value is not None or not may_be_none:
                object.__setattr__(self, name, check(value, column))

    @classmethod
    @cache
    def _checks_by_field(cls) -> tuple[tuple[str, str, bool, Check], ...]:
        found = []
        for name, (kind, may_be_none) in types_of(cls).items():  # type: ignore[arg-type]
            check = cls._checks.get(name) or _by_type(name, kind)
            if check is not None:
                found.append((name, cls._prefix + name, may_be_none, check))
        return tuple(found)


@cache
def types_of(record: type) -> Mapping[str, tuple[Any, bool]]:
    """Return the type of each field, and whether it may be ``None``."""
    hints, types = get_type_hints(record), {}
    for part in fields(record):
        hint = hints[part.name]
        among = get_args(hint) if get_origin(hint) in (UnionType, Union) else (hint,)
        types[part.name] = (among[0], type(None) in among)
    return types


def _by_type(name: str, kind: Any) -> Check | None:
    if get_origin(kind) is tuple:
        return partial(items, get_args(kind)[0])
    if kind is int:
        return partial(whole, MOST_INT32 if name.endswith("tokens") else MOST_INT16)
    if kind is float and name.endswith("usd"):  # fractions of cents, which are added up
        return lambda value, column: float32(value, column) and float(value)
    wanted: type = kind
    if is_dataclass(kind) or kind is bool:
        return partial(instance, wanted)
    return {str: text, float: float32, datetime: utc}.get(kind)


def text(value: Any, column: str) -> str:
    """Return a text that any file can hold; refuse other types."""
    if not isinstance(value, str):
        raise DataError(f"must be text, found {value!r:.60}", column=column)
    return whole_text(value)


def not_empty(value: Any, column: str) -> str:
    if not (held := text(value, column)):
        raise DataError("must not be empty", column=column)
    return held


def one_of(allowed: Iterable[Any], value: Any, column: str) -> Any:
    if value not in allowed:
        raise DataError(
            f"must be one of {', '.join(map(str, allowed))}; found {value!r:.60}", column=column
        )
    return value


def instance(kind: type, value: Any, column: str) -> Any:
    if not isinstance(value, kind):
        raise DataError(f"must be a {kind.__name__}, found {value!r:.60}", column=column)
    return value


def float32(value: Any, column: str) -> float:
    """Round a number to float32; refuse overflow."""
    try:
        rounded: float = _FLOAT32.unpack(_FLOAT32.pack(value))[0]
    except OverflowError as error:
        raise DataError(f"{value!r} is outside the range of float32", column=column) from error
    except (TypeError, ValueError, struct.error) as error:
        raise DataError(f"must be a number, found {value!r:.60}", column=column) from error
    return rounded


@dataclass(frozen=True, slots=True)
class Range:
    """A check of numbers from ``least`` to ``most``, which ``said`` describes."""

    least: float
    most: float
    said: str

    def __call__(self, value: Any, column: str) -> float:
        unfit = value is None or isinstance(value, str | bool)
        number = math.nan if unfit else float32(value, column)
        if not self.least <= number <= self.most:
            raise DataError(self.refusal(value), column=column)
        return number

    def refusal(self, value: object) -> str:
        return f"must be {self.said}, found {value!r}"


def whole(most: int, value: Any, column: str, *, least: int = 0) -> int:
    """Return a count as an int that fits its column; refuse others."""
    if type(value) is int and least <= value <= most:
        return value
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or not least <= number <= most:
        said = f"must be a whole number from {least} to {most}, found {value!r}"
        raise DataError(said, column=column)
    return number


def items(kind: type, values: Any, column: str) -> tuple[Any, ...]:
    """Return the values as a tuple; refuse a bare text, which would split into letters."""
    if not isinstance(values, Iterable):
        wrong = [values]
    else:
        held = (values,) if isinstance(values, str) else tuple(values)
        wrong = [item for item in held if item is values or not isinstance(item, kind)]
    if wrong:
        raise DataError(
            f"must be a sequence of {kind.__name__}, found {wrong[0]!r:.60}", column=column
        )
    return tuple(map(whole_text, held)) if kind is str else held


def numbers(values: Any, column: str) -> tuple[Any, ...]:
    if not isinstance(values, Iterable) or isinstance(values, str | Mapping):
        raise DataError(f"must be a sequence of numbers, found {values!r:.60}", column=column)
    return tuple(values)


def utc(moment: Any, column: str) -> datetime:
    """Return a time in UTC; refuse one without a zone or in another."""
    if not isinstance(moment, datetime) or moment.utcoffset() != timedelta():
        raise DataError(
            "must be a datetime in UTC, as datetime.now(UTC) or moment.astimezone(UTC) gives, found "
            f"{moment!r}",
            column=column,
        )
    return moment.astimezone(UTC)


def by_name(values: Any, column: str) -> dict[str, float]:
    """Return values as the map column holds them: float64, a null undefined."""
    try:
        return {
            whole_text(key): math.nan if value is None else float(value)
            for key, value in values.items()
        }
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        raise DataError(
            f"values must be numbers by name, found {values!r:.80}", column=column
        ) from error
