"""Monitors of coverage: false alarms, falls found and speed, ours beside MAPIE's where installed.

Calibration, threshold and stream are drawn anew for every stream, so that the luck of calibration is in
the figures. MAPIE is no dependency of the project: `pip install mapie` to see its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import best_seconds
from suffice.monitor.alarms import CoverageMonitor, ExchangeabilityMonitor, miss_rate_limit

MAPIE = "mapie.exchangeability_testing"
ALPHA, LEVEL, FALLEN = 0.1, 0.05, 0.3
STREAMS, KEPT, WITHIN, LATE, CALIBRATION = 200, 2000, 500, 1000, 200

Stream = tuple[NDArray[np.float64], NDArray[np.float64], float]  # calibration, scores, threshold
Alarm = Callable[[Stream], int | None]  # at which answer, from 1


def stream(seed: int, good: int, bad: int, n: int = CALIBRATION) -> Stream:
    """Scores that miss above a split-conformal threshold; after the fall 30% of them do."""
    rng = np.random.default_rng(seed)
    calibration = rng.standard_normal(n)
    rank = math.ceil((1 - ALPHA) * (n + 1) - 1e-9)
    threshold = float(np.sort(calibration)[rank - 1])
    shift = threshold - NormalDist().inv_cdf(1 - FALLEN)
    return (
        calibration,
        np.append(rng.standard_normal(good), rng.standard_normal(bad) + shift),
        threshold,
    )


def coverage(stream_of: Stream) -> int | None:
    calibration, scores, threshold = stream_of
    monitor = CoverageMonitor(ALPHA, len(calibration), LEVEL)
    for covered in (scores <= threshold).tolist():
        if monitor.update(covered):
            break
    return monitor.alarmed_at


def exchangeability(stream_of: Stream) -> int | None:
    calibration, scores, _ = stream_of
    monitor = ExchangeabilityMonitor(calibration, LEVEL)
    for score in scores.tolist():
        if monitor.update(score):
            break
    return monitor.alarmed_at


def _first(above: NDArray[np.bool_]) -> int | None:
    return int(above.argmax()) + 1 if above.any() else None


def _mapie_risk(stream_of: Stream, threshold: float) -> int | None:
    """RiskMonitoring's alarm: its bound is computed once, since prefixes do not change it."""
    bounds = import_module(f"{MAPIE}.bounds")
    misses = (stream_of[1] > stream_of[2]).astype(float)
    bound = bounds.conjugate_mixture_empirical_bernstein_bound(
        misses, v_opt=1, alpha=LEVEL / 2, bound_side="lower"
    )
    return _first(bound > threshold)


def mapie_risk_alpha(stream_of: Stream) -> int | None:
    return _mapie_risk(stream_of, ALPHA)


def mapie_risk_limit(stream_of: Stream) -> int | None:
    return _mapie_risk(stream_of, miss_rate_limit(ALPHA, len(stream_of[0]), 1 - LEVEL / 2))


def mapie_jumper(stream_of: Stream) -> int | None:
    """OnlineMartingaleTest on scores: what its update() does once it has them."""
    test = import_module(MAPIE).OnlineMartingaleTest(test_level=LEVEL, warn=False, random_state=0)
    history = list(stream_of[0])
    for at, score in enumerate(stream_of[1].tolist(), start=1):
        p = test.compute_p_value(score, np.asarray(history))
        if test.update_simple_jumper_martingale(p) >= test.reject_threshold:
            return at
        history.append(score)
    return None


def monitors() -> dict[str, Alarm]:
    ours: dict[str, Alarm] = {"coverage": coverage, "exchangeability": exchangeability}
    if find_spec("mapie") is None:
        return ours
    return ours | {
        "MAPIE risk, threshold alpha": mapie_risk_alpha,
        "MAPIE risk, our limit": mapie_risk_limit,
        "MAPIE jumper": mapie_jumper,
    }


def figures(alarm: Alarm, streams: int = STREAMS, n: int = CALIBRATION) -> dict[str, float]:
    """False alarms over kept promises, and of falls at once and late: found in time, median delay."""
    false = [alarm(stream(seed, KEPT, 0, n)) is not None for seed in range(streams)]
    shown = {"false alarms": float(np.mean(false))}
    for good in (0, LATE):
        alarms = [alarm(stream(10_000 + seed, good, WITHIN, n)) for seed in range(streams)]
        delays = [at - good if at is not None and at > good else math.inf for at in alarms]
        shown[f"fall after {good}: found within {WITHIN}"] = float(np.mean(np.isfinite(delays)))
        shown[f"fall after {good}: median delay"] = float(np.median(delays))
    return shown


def one_by_one(update: Callable[[Any], object], values: list[Any]) -> float:
    """Seconds an answer, over a stream taken one at a time."""

    def run() -> None:
        for value in values:
            update(value)

    return best_seconds(run, repeats=1) / len(values)


def speed() -> dict[str, float]:
    calibration, scores, threshold = stream(0, KEPT, 0)
    covered = (scores <= threshold).tolist()
    ours = one_by_one(CoverageMonitor(ALPHA, CALIBRATION).update, covered)
    shown = {
        "coverage, microseconds an answer": ours * 1e6,
        "exchangeability, microseconds an answer": 1e6
        * one_by_one(ExchangeabilityMonitor(calibration).update, scores.tolist()),
    }
    if find_spec("mapie") is not None:
        test = import_module(MAPIE).RiskMonitoring(risk="accuracy", threshold=ALPHA, warn=False)
        some = [(np.array([1]), np.array([int(each)])) for each in covered[:400]]
        theirs = one_by_one(lambda each: test.update(*each), some)
        shown["MAPIE risk over ours, first 400 answers"] = theirs / ours
    return shown


def main() -> dict[str, float]:
    shown = speed()
    for name, alarm in monitors().items():
        shown |= {f"{name}: {figure}": value for figure, value in figures(alarm).items()}
    return shown
