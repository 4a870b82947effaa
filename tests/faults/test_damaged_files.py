"""Stored files that were damaged are read or refused, by our own errors, in little time and memory."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.faults.damage import KINDS, run

ROOT = Path(__file__).parents[2]
_TIMES = {"traces": 10_000, "policies": 1500, "caches": 500, "indexes": 1000}

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
@pytest.mark.parametrize("kind", KINDS)
def test_damaged_files(kind: str) -> None:
    """15,000 of them, in a process of their own: one that dies is seen, and its memory is its own."""
    command = [sys.executable, "-m", "tests.faults.damage", kind, str(_TIMES.get(kind, 750))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"[:5000]
