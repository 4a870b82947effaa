"""Stored files that were damaged are read or refused, by our own errors, in little time and memory."""

from __future__ import annotations

import pytest
from tests.faults.damage import KINDS, TIMES, run, run_apart

_FOUND = {
    "traces": (40, 157),
    "caches": (3, 6, 40, 76),
    "runs": (25, 42, 87, 130, 156, 400, 416),
    "states": (114, 692),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_sample_of_damaged_files(kind: str) -> None:
    """A few of each kind, and those that ended in other errors once."""
    numbers = (0, 1, 2, *_FOUND.get(kind, ()))
    outcomes = run(kind, numbers)
    assert not outcomes.wrong
    assert sum(outcomes.counts.values()) == len(numbers)


@pytest.mark.slow
def test_damaged_files() -> None:
    """15,250 of them, in processes of their own: one that dies is seen, and its memory is its own."""
    outcomes = run_apart(TIMES)
    assert sum(TIMES.values()) == sum(sum(one.counts.values()) for one in outcomes.values())
    assert not [line for one in outcomes.values() for line in one.wrong]
