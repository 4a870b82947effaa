"""Numbers as people read them. Nothing is computed here but the scaling to percent."""

from __future__ import annotations

from suffice.replay.bootstrap import Interval

__all__ = ["UNKNOWN", "bracket", "count", "counted", "decimal", "percent", "points", "signed"]

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


def count(value: float | None) -> str:
    """A mean of a large count, or a count, without decimals."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def counted(number: int, noun: str) -> str:
    """A number with its noun, which takes an s unless it is one.

    >>> counted(1, "question"), counted(3000, "question")
    ('1 question', '3,000 questions')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
