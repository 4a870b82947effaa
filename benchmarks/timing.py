"""Timing shared by the benchmarks: the best of several, both ways in one run."""

from __future__ import annotations

import time
from collections.abc import Callable


def best_seconds(work: Callable[[], object], *, repeats: int) -> float:
    """The shortest of ``repeats`` runs; the machine's noise only ever adds."""
    shortest = float("inf")
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        shortest = min(shortest, time.perf_counter() - started)
    return shortest
