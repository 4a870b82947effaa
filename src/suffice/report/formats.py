"""Numbers as people read them. Nothing is computed here but the scaling to percent."""

from __future__ import annotations

import math

from suffice.replay.bootstrap import Interval

__all__ = [
    "UNKNOWN",
    "amount",
    "bracket",
    "count",
    "counted",
    "decimal",
    "percent",
    "points",
    "signed",
    "tick",
]

UNKNOWN = "-"


def percent(share: float | None) -> str:
    """A share of 1 in percent, one decimal.

    >>> percent(0.41498), percent(None)
    ('41.5', '-')
    """
    return UNKNOWN if share is None else f"{100 * share:z.1f}"


def signed(share: float | None) -> str:
    """A difference of shares in percentage points, with its sign.

    >>> signed(0.0304), signed(-0.00001)
    ('+3.0', '+0.0')
    """
    return UNKNOWN if share is None else f"{100 * share:+z.1f}"


def bracket(interval: Interval | None) -> str:
    """An interval's ends in percentage points."""
    return "" if interval is None else f"[{percent(interval.low)}, {percent(interval.high)}]"


def points(interval: Interval | None) -> str:
    """A difference with its interval, in percentage points."""
    return UNKNOWN if interval is None else f"{signed(interval.estimate)} {bracket(interval)}"


def decimal(value: float | None) -> str:
    """A mean with two decimals."""
    return UNKNOWN if value is None else f"{value:z,.2f}"


def amount(value: float | None) -> str:
    """A mean cost of any size: two decimals, of small ones three digits, of large ones none.

    >>> amount(0.00041239), amount(3.13), amount(1840.6), amount(0.0)
    ('0.000412', '3.13', '1,841', '0.00')
    """
    if value is None or not value:
        return decimal(value)
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:z,.{0 if digits < 0 else max(2, digits)}f}"


def count(value: float | None) -> str:
    """A mean of a large count, or a count, without decimals."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def tick(value: float) -> str:
    """A round number on an axis, never with an exponent.

    >>> tick(0.00005), tick(2.5), tick(20000.0)
    ('0.00005', '2.5', '20,000')
    """
    whole, _, rest = f"{value:z,.12f}".rstrip("0").partition(".")
    return f"{whole}.{rest}" if rest else whole


def counted(number: int, noun: str) -> str:
    """A number with its noun, which takes an s unless it is one.

    >>> counted(1, "question"), counted(3000, "question")
    ('1 question', '3,000 questions')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
