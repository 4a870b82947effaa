"""Numbers as readable text."""

from __future__ import annotations

import math
from typing import Protocol

UNKNOWN = "-"


class Measured(Protocol):
    """A figure and the ends of its interval, each ``None`` where undefined."""

    @property
    def estimate(self) -> float | None:
        """The figure."""

    @property
    def low(self) -> float | None:
        """The lower end."""

    @property
    def high(self) -> float | None:
        """The upper end."""


def percent(share: float | None) -> str:
    """Format a share of 1 in percent, one decimal; sums in another order give the same.

    >>> percent(0.41498), percent(None)
    ('41.5', '-')
    """
    return UNKNOWN if share is None else f"{round(100 * share, 9):z.1f}"


def signed(share: float | None) -> str:
    """Format a difference of shares in percentage points, with its sign.

    >>> signed(0.0304), signed(-0.00001)
    ('+3.0', '+0.0')
    """
    return UNKNOWN if share is None else f"{round(100 * share, 9):+z.1f}"


def bracket(interval: Measured | None) -> str:
    return "" if interval is None else f"[{percent(interval.low)}, {percent(interval.high)}]"


def points(interval: Measured | None) -> str:
    """Format a difference with its interval, in percentage points."""
    return UNKNOWN if interval is None else f"{signed(interval.estimate)} {bracket(interval)}"


def decimal(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:z,.2f}"


def amount(value: float | None) -> str:
    """Format a mean cost: two decimals, three digits of small ones, no decimals of large ones.

    >>> amount(0.00041239), amount(3.13), amount(1840.6), amount(0.0)
    ('0.000412', '3.13', '1,841', '0.00')
    """
    if value is None or not value:
        return decimal(value)
    if math.isnan(value):
        return UNKNOWN
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{value:z,.{0 if digits < 0 else max(2, digits)}f}"


def count(value: float | None) -> str:
    """Format a count, or the mean of a large count, without decimals."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def about(value: int) -> str:
    """Format a count that is estimated, rounded up to two digits.

    >>> about(1234), about(7)
    ('about 1,300', 'about 7')
    """
    scale = int(10 ** max(len(str(value)) - 2, 0))
    return f"about {-(-value // scale) * scale:,}"


def tick(value: float) -> str:
    """Format a round number on an axis, never with an exponent.

    >>> tick(0.00005), tick(2.5), tick(20000.0)
    ('0.00005', '2.5', '20,000')
    """
    whole, _, rest = f"{value:z,.12f}".rstrip("0").partition(".")
    return f"{whole}.{rest}" if rest else whole


def estimated(figure: Measured | None, *, sign: bool = False) -> str:
    """Format an estimate with its interval, two decimals; ``sign``: as a difference.

    >>> from suffice.stats.intervals import Estimate
    >>> estimated(Estimate(estimate=0.71, low=0.65, high=0.78)), estimated(Estimate(estimate=0.5))
    ('0.71 [0.65, 0.78]', '0.50 [-]')
    """
    if figure is None or figure.estimate is None:
        return UNKNOWN
    value = f"{figure.estimate:+z.2f}" if sign else f"{figure.estimate:z.2f}"
    if figure.low is None or figure.high is None:
        return f"{value} [{UNKNOWN}]"
    return f"{value} [{figure.low:z.2f}, {figure.high:z.2f}]"


def fraction(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:z.4f}"


def p_value(value: float | None) -> str:
    """Format a p-value; tiny ones as a bound.

    >>> p_value(0.0312), p_value(1e-9), p_value(1.0), p_value(None)
    ('0.031', '< 0.0001', '1', '-')
    """
    if value is None:
        return UNKNOWN
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}"
