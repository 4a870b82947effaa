"""How many examples a property is tried on: all in ``make test-slow``, a share of them every day."""

from __future__ import annotations

from hypothesis import settings

FULL = 100  # what the profile `thorough` asks of a property that names no number


def examples(count: int) -> int:
    """A property's own number of examples, cut as the profile in force cuts the default one."""
    return max(1, count * settings().max_examples // FULL)
