"""Timing shared by the benchmarks: the best of several, both ways in one run."""

from __future__ import annotations

import time
from collections.abc import Callable


def best_seconds(
    work: Callable[[], object], *, repeats: int, clock: Callable[[], float] = time.perf_counter
) -> float:
    """The shortest of ``repeats`` runs; the machine's noise only ever adds."""
    shortest = float("inf")
    for _ in range(repeats):
        started = clock()
        work()
        shortest = min(shortest, clock() - started)
    return shortest


def best_cpu_seconds(work: Callable[[], object], *, repeats: int) -> float:
    """The same in CPU time of this process."""
    return best_seconds(work, repeats=repeats, clock=time.process_time)
