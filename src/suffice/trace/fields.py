"""Values as their trace columns hold them, or an error that names the column."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np

from suffice.errors import DataError

__all__ = ["MOST_INT16", "MOST_INT32", "float32", "items", "whole"]

MOST_INT16 = int(np.iinfo(np.int16).max)
MOST_INT32 = int(np.iinfo(np.int32).max)


def float32(value: float | None, column: str) -> float | None:
    """Round to the column's float32; refuse what overflows it."""
    if value is None:
        return None
    try:
        with np.errstate(over="ignore"):
            rounded = float(np.float32(value))
    except (TypeError, ValueError) as error:
        raise DataError(f"must be a number, found {value!r:.60}", column=column) from error
    if math.isinf(rounded) and not math.isinf(value):
        raise DataError(f"{value!r} is outside the range of float32", column=column)
    return rounded


def items(values: Sequence[object] | None, kind: type, column: str) -> tuple[object, ...] | None:
    """The values as a tuple; refuse a bare text, which would be taken letter by letter."""
    if values is None:
        return None
    found: Sequence[object] = (values,) if isinstance(values, str) else values
    wrong = [each for each in found if each is values or not isinstance(each, kind)]
    if wrong:
        raise DataError(
            f"must be a sequence of {kind.__name__}, found {wrong[0]!r:.60}", column=column
        )
    return tuple(values)


def whole(value: int, most: int, column: str) -> int:
    """A count as a plain int that fits its column; refuse what does not."""
    if type(value) is int and 0 <= value <= most:
        return value
    try:
        number = operator.index(value)
    except TypeError:
        number = -1
    if isinstance(value, bool) or not 0 <= number <= most:
        raise DataError(f"must be a whole number from 0 to {most}, found {value!r}", column=column)
    return number
