"""Fitting MiCP: the search for a division of the error budget, against one question at a time."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from benchmarks.timing import best_seconds
from suffice.numbers.conformal.order_statistics import NEVER
from suffice.policies.micp.policy import MiCPPolicy
from suffice.policies.micp.samples import read_samples
from suffice.policies.micp.search import divisions, search_allocation
from suffice.policies.micp.settings import MiCPSettings
from suffice.policies.micp.stage2 import Sampled
from suffice.testing.traces import sampled_records, to_trace_set

ALPHA, SAMPLES, STEPS = Fraction("0.1"), 10, 10
WEIGHT = MiCPSettings().weight
NEVER_STOPS = (-math.inf, 0.0)


def questions(count: int, rounds: int) -> Sampled:
    """Answered at once, later or never; scores as ten samples give them."""
    rng = np.random.default_rng(42)
    first = rng.choice([*range(rounds), rounds], count)
    known = np.arange(rounds) >= first[:, None]
    score = np.clip(rng.normal(np.where(known, 0.4, 0.6), 0.25), 0, 1).round(2)
    best = np.maximum.accumulate(
        np.where(known, rng.integers(1, SAMPLES + 1, (count, rounds)) / SAMPLES, -np.inf), axis=1
    )
    return Sampled(score=score, best_gold=best, draws=rng.random((count, rounds)))


# --- one question at a time --------------------------------------------------------------------------
Row = tuple[list[float], list[float], list[float]]


def _threshold(values: list[float], level: Fraction) -> tuple[float, float]:
    rank = min(math.floor(level * (len(values) + 1)), len(values))
    if rank == 0:
        return NEVER_STOPS
    value = sorted(values)[rank - 1]
    below, equal = sum(v < value for v in values), sum(v == value for v in values)
    return value, (rank - below) / (equal + 1)


def _calibrate(
    rows: list[Row], levels: Sequence[Fraction]
) -> tuple[list[tuple[float, float]], float]:
    """The corrected preset's thresholds; the levels never overspend."""
    n, spent, stops = len(rows), Fraction(0), []
    for t, level in enumerate(levels):
        group = [score[t] for score, best, _ in rows if best[t] == -math.inf]
        stops.append(_threshold(group, level))
        spent += level * Fraction(len(group) + 1, n + 1)
    first = [
        next(value for value in best if value > -math.inf)
        for _, best, _ in rows
        if best[-1] > -math.inf
    ]
    level = max(ALPHA - spent, Fraction(0)) * Fraction(n + 1, len(first) + 1)
    rank = math.floor(min(level, Fraction(len(first), len(first) + 1)) * (len(first) + 1))
    return stops, sorted(first)[rank - 1] if rank else -math.inf


def _composite(rows: list[Row], stops: list[tuple[float, float]], final: float) -> float:
    rounds = len(stops) + 1
    stopped, covered = [], []
    for score, best, draws in rows:
        stop = rounds
        for t, (value, share) in enumerate(stops):
            if score[t] < value or (score[t] == value and draws[t] < share):
                stop = t + 1
                break
        early = stop < rounds
        held = best[stop - 1] > -math.inf and best[stop - 1] >= final
        stopped.append(stop)
        covered.append(held or (not early and best[-1] == -math.inf))
    gain = 0.0
    for t in range(1, rounds + 1):
        running = [row for row, stop in zip(rows, stopped, strict=True) if stop >= t]
        if not running:
            break
        share = sum(best[t - 1] > -math.inf for _, best, _ in running) / len(running)
        here = [held for held, stop in zip(covered, stopped, strict=True) if stop == t]
        gain += sum(here) * share - (len(here) - sum(here)) * (1.0 - share)
    return sum(stopped) / len(rows) - WEIGHT * gain / len(rows)


def direct_loop(data: Sampled, steps: int) -> float:
    """The least composite of every division, in plain Python."""
    draws = np.stack([data.draws[:, t] for t in range(data.rounds)], axis=1)
    rows = list(zip(data.score.tolist(), data.best_gold.tolist(), draws.tolist(), strict=True))
    n, best = len(rows), math.inf
    for shares in divisions(data.rounds - 1, steps):
        levels = []
        for t, share in enumerate(shares):
            size = sum(row[1][t] == -math.inf for row in rows)
            bought = share * ALPHA / Fraction(size + 1, n + 1)
            levels.append(min(Fraction(math.floor(bought * 10**6), 10**6), Fraction(1)))
        best = min(best, _composite(rows, *_calibrate(rows, levels)))
    return best


# --- figures -----------------------------------------------------------------------------------------
def search_seconds(data: Sampled, steps: int, repeats: int) -> float:
    """Seconds to choose among all divisions."""
    return best_seconds(
        lambda: search_allocation(
            data,
            ALPHA,
            "corrected",
            weight=WEIGHT,
            steps=steps,
            objective="composite",
            grid="shares",
        ),
        repeats=repeats,
    )


def search_figures() -> dict[str, float]:
    small = questions(1_000, 3)
    wanted = search_allocation(
        small,
        ALPHA,
        "corrected",
        weight=WEIGHT,
        steps=STEPS,
        objective="composite",
        grid="shares",
    ).objective
    started = time.perf_counter()
    loop = direct_loop(small, STEPS)
    direct = time.perf_counter() - started
    np.testing.assert_allclose(loop, wanted, atol=1e-12)
    ours = search_seconds(small, STEPS, 3)
    few = questions(10_000, 3)
    started = time.perf_counter()
    direct_loop(few, 2)
    direct_few = time.perf_counter() - started
    return {
        "10,000 questions, T = 3, 66 divisions: seconds (under 10)": search_seconds(few, STEPS, 3),
        "10,000 questions, T = 5, 1,001 divisions: seconds (under 120)": search_seconds(
            questions(10_000, 5), STEPS, 1
        ),
        "direct loop over ours, 1,000 questions, T = 3, 66 divisions": direct / ours,
        "direct loop over ours, 10,000 questions, T = 3, 6 divisions": direct_few
        / search_seconds(few, 2, 3),
    }


def clustering_figures() -> dict[str, float]:
    traces = to_trace_set(sampled_records(10_000, rounds=3, samples=SAMPLES))
    draft = MiCPPolicy(alpha=0.1, rounds=3, samples=SAMPLES, stops=(NEVER,) * 2, final=-math.inf)
    return {
        "clustering by string, 10,000 x 3 x 10 samples, with entropies and right clusters: seconds "
        "(under 5)": best_seconds(lambda: read_samples(traces, draft), repeats=2)
    }


def main() -> dict[str, float]:
    return {**search_figures(), **clustering_figures()}
