"""Monitors keep their level on exchangeable streams and find a fall of coverage in time.

Every stream draws its own calibration questions and calibrates its own threshold by the split-conformal
rule, so that the luck of calibration is in the count: given the calibration set the miss rate is not
alpha but random about it.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.certifying import most_allowed

from suffice.monitor.alarms import CoverageMonitor, ExchangeabilityMonitor, ProbabilityMonitor

ALPHA, LEVEL, LENGTH, WITHIN = 0.1, 0.05, 2000, 500
FAST, ALL = 60, 1000


def threshold(scores: NDArray[np.float64]) -> float:
    """The ceil((1 - alpha)(n + 1))-th smallest: what lies above misses."""
    rank = math.ceil((1 - ALPHA) * (len(scores) + 1) - 1e-9)
    return math.inf if rank > len(scores) else float(np.sort(scores)[rank - 1])


def coverage_alarm(
    seed: int, n: int, *, good: int = LENGTH, fallen: int = 0, tied: bool = False
) -> int | None:
    """When a stream of ``good`` answers and then ``fallen`` ones at coverage 0.7 raises the alarm."""
    rng = np.random.default_rng(seed)

    def draw(n: int) -> NDArray[np.float64]:
        """Scores that decide about coverage, heavily tied or not."""
        scores = rng.standard_normal(n)
        return np.round(scores * 2) / 2 if tied else scores

    limit = threshold(draw(n))
    covered = np.append(draw(good) <= limit, rng.random(fallen) < 0.7)
    monitor = CoverageMonitor(ALPHA, n, LEVEL)
    for each in covered.tolist():
        if monitor.update(each):
            break
    return monitor.alarmed_at


def entropies(rng: np.random.Generator, n: int, skill: float) -> NDArray[np.float64]:
    """Normalised entropies of ten samples each, which take few values; NaN for one in fifty."""
    p = rng.beta(4 * skill, 4 * (1 - skill), n)
    k = rng.binomial(10, p) / 10
    inside = np.clip(k, 1e-12, 1 - 1e-12)
    entropy = -(inside * np.log(inside) + (1 - inside) * np.log1p(-inside)) / math.log(10)
    return np.where(rng.random(n) < 0.02, np.nan, np.round(entropy, 12))


def label_free_alarm(
    seed: int, n: int, *, good: int = LENGTH, changed: int = 0, continuous: bool = False
) -> int | None:
    """The same for entropies whose model becomes less sure."""
    rng = np.random.default_rng(seed)
    if continuous:
        past, scores = rng.random(n), rng.random(good)
    else:
        past = entropies(rng, n, 0.9)
        scores = np.append(entropies(rng, good, 0.9), entropies(rng, changed, 0.7))
    monitor = ExchangeabilityMonitor(past, LEVEL, seed=seed)
    for each in scores.tolist():
        if monitor.update(each):
            break
    return monitor.alarmed_at


def share_of_alarms(alarm: Callable[[int], int | None], streams: int) -> float:
    return float(np.mean([alarm(seed) is not None for seed in range(streams)]))


def share_found(alarm: Callable[[int], int | None], after: int, streams: int) -> float:
    found = [alarm(seed) for seed in range(50_000, 50_000 + streams)]
    return float(np.mean([at is not None and after < at <= after + WITHIN for at in found]))


# --- false alarms --------------------------------------------------------------------------------
def test_false_alarms_are_rare() -> None:
    """A fast sample of the two below; more than a binomial with the level allows would fail."""
    most = most_allowed(LEVEL, FAST)
    assert share_of_alarms(lambda seed: coverage_alarm(seed, 100), FAST) <= most
    assert share_of_alarms(lambda seed: label_free_alarm(seed, 100), FAST) <= most


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "tied"), [(20, False), (50, False), (200, False), (1000, False), (200, True)]
)
def test_false_alarms_of_coverage(n: int, tied: bool) -> None:
    assert share_of_alarms(lambda seed: coverage_alarm(seed, n, tied=tied), ALL) <= LEVEL


@pytest.mark.slow
@pytest.mark.parametrize(("n", "continuous"), [(30, False), (200, False), (200, True)])
def test_false_alarms_without_labels(n: int, continuous: bool) -> None:
    assert share_of_alarms(lambda s: label_free_alarm(s, n, continuous=continuous), ALL) <= LEVEL


# --- falls ---------------------------------------------------------------------------------------
def test_a_fall_is_found() -> None:
    """A fast sample of the two below."""
    late = 1000
    assert (
        share_found(lambda s: coverage_alarm(s, 100, good=late, fallen=WITHIN), late, FAST) > 0.85
    )
    assert share_found(lambda s: coverage_alarm(s, 200, good=0, fallen=WITHIN), 0, FAST) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("good", [0, 1000, 5000])
@pytest.mark.parametrize("n", [80, 200, 1000])
def test_falls_of_coverage(good: int, n: int) -> None:
    """From 0.9 to 0.7, flagged within 500 answers in 90% of streams."""
    found = share_found(lambda s: coverage_alarm(s, n, good=good, fallen=WITHIN), good, 300)
    assert found >= 0.9


@pytest.mark.slow
@pytest.mark.parametrize("good", [0, 1000])
def test_changes_without_labels(good: int) -> None:
    found = share_found(lambda s: label_free_alarm(s, 200, good=good, changed=WITHIN), good, 300)
    assert found >= 0.9


# --- stated probabilities ------------------------------------------------------------------------
def stated_alarm(seed: int, length: int, *, off: float = 0.0, then: int = 0) -> int | None:
    """When probabilities that are kept, and then ``then`` whose log-odds are ``off``, raise the alarm."""
    rng = np.random.default_rng(seed)
    stated = np.round(rng.beta(2.0, 1.0, length + then), 2)
    odds = np.log(np.clip(stated, 1e-9, 1 - 1e-9) / (1 - np.clip(stated, 1e-9, 1 - 1e-9)))
    true = np.append(stated[:length], 1 / (1 + np.exp(-(odds[length:] + off))))
    right = rng.random(length + then) < true
    monitor = ProbabilityMonitor(LEVEL)
    for probability, came in zip(stated.tolist(), right.tolist(), strict=True):
        if monitor.update(probability, float(came)):
            break
    return monitor.alarmed_at


def test_kept_probabilities_seldom_raise_an_alarm() -> None:
    alarms = sum(stated_alarm(seed, 150) is not None for seed in range(60))
    assert alarms <= 60 * most_allowed(LEVEL, 60)


def test_probabilities_that_are_too_high_are_found() -> None:
    found = [stated_alarm(seed, 50, off=-1.5, then=400) for seed in range(12)]
    assert sum(at is not None and at > 50 for at in found) >= 11


@pytest.mark.slow
def test_kept_probabilities_seldom_raise_an_alarm_in_thousands_of_streams() -> None:
    alarms = sum(stated_alarm(seed, 400) is not None for seed in range(2_000))
    assert alarms <= 2_000 * most_allowed(LEVEL, 2_000)
