"""Monitors: equal to their slow twins, exact about ties, NaN and bad input."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties import examples

from suffice.errors import UsageError
from suffice.monitor.alarms import CoverageMonitor, ExchangeabilityMonitor

SOME = st.lists(st.booleans(), max_size=60)
SCORES = st.lists(st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0, math.nan]), max_size=40)
PAST = [0.0] * 6 + [0.25] * 3 + [0.5, 1.0, math.nan]


# --- slow twins ----------------------------------------------------------------------------------
def reserve(n: int) -> float:
    return 1 / math.log(math.e + n / 100)


def slow_capital(factors: list[list[float]]) -> float:
    """The sum, over every time of beginning and every gambler, of what its stake became."""
    total = reserve(len(factors))
    for start in range(len(factors)):
        entering = reserve(start) - reserve(start + 1)
        gamblers = len(factors[start])
        for gambler in range(gamblers):
            won = math.prod(row[gambler] for row in factors[start:])
            total += entering / gamblers * won
    return total


def slow_coverage(stream: list[bool], limit: float) -> float:
    rates = [limit + share * (1 - limit) for share in (0.05, 0.1, 0.2, 0.4)]
    return slow_capital(
        [
            [(1 - rate) / (1 - limit) if covered else rate / limit for rate in rates]
            for covered in stream
        ]
    )


def slow_exchangeability(past: list[float], stream: list[float], seed: int) -> float:
    rows, seen = [], [math.inf if math.isnan(each) else each for each in past]
    for number, score in enumerate(math.inf if math.isnan(each) else each for each in stream):
        digest = hashlib.blake2b(f"{seed} {number}".encode(), digest_size=8).digest()
        draw = (int.from_bytes(digest, "big") >> 11) / 2**53
        above = sum(each > score for each in seen)
        equal = sum(each == score for each in seen) + 1
        p = (above + draw * equal) / (len(seen) + 1)
        stakes = (-0.9, -0.5, -0.2, 0.2, 0.5, 0.9)
        rows.append([1 + s * math.cos(k * math.pi * p) for k in (1, 2) for s in stakes])
        seen.append(score)
    return slow_capital(rows)


@settings(deadline=None, max_examples=examples(50))
@given(SOME)
def test_coverage_equals_its_twin(stream: list[bool]) -> None:
    monitor = CoverageMonitor(0.1, 50)
    for covered in stream:
        monitor.update(covered)
    assert monitor.capital == pytest.approx(slow_coverage(stream, monitor.limit), rel=1e-9)
    assert (monitor.seen, monitor.misses) == (len(stream), stream.count(False))


@settings(deadline=None, max_examples=examples(50))
@given(SCORES, st.integers(0, 3))
def test_exchangeability_equals_its_twin(stream: list[float], seed: int) -> None:
    monitor = ExchangeabilityMonitor(PAST, seed=seed)
    for score in stream:
        monitor.update(score)
    assert monitor.capital == pytest.approx(slow_exchangeability(PAST, stream, seed), rel=1e-9)
    assert monitor.undefined == sum(math.isnan(each) for each in stream)


# --- what must hold ------------------------------------------------------------------------------
@settings(deadline=None, max_examples=examples(50))
@given(SOME, st.data())
def test_a_miss_less_never_raises_the_capital(stream: list[bool], data: st.DataObject) -> None:
    better = [covered or data.draw(st.booleans()) for covered in stream]
    one, other = CoverageMonitor(0.2, 30), CoverageMonitor(0.2, 30)
    for covered, more_covered in zip(stream, better, strict=True):
        one.update(covered)
        other.update(more_covered)
        assert other.capital <= one.capital
        assert other.p_value >= one.p_value


def test_the_alarm_stays_and_says_when() -> None:
    monitor = CoverageMonitor(0.1, 200)
    answers = [monitor.update(False) for _ in range(20)]
    first = answers.index(True) + 1
    assert monitor.alarmed_at == first
    assert answers == [False] * (first - 1) + [True] * (21 - first)
    assert all(monitor.update(True) for _ in range(1000))
    assert (monitor.alarmed_at, monitor.alarmed) == (first, True)
    assert monitor.p_value <= 0.05
    assert monitor.capital < 40


@pytest.mark.parametrize("scores", [[1.0] * 300, [0.0, 1.0] * 150, [math.nan] * 300])
def test_changed_scores_are_seen_without_labels(scores: list[float]) -> None:
    """Scores that all rise, go to both ends, or become undefined."""
    past = np.random.default_rng(2).choice([0.0, 0.25, 0.5, 0.75, 1.0], 300)
    monitor = ExchangeabilityMonitor(past, seed=1)
    for score in scores:
        monitor.update(score)
    assert monitor.alarmed


# --- bad input -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("monitor", "value"),
    [
        *((CoverageMonitor(0.1, 50), value) for value in (None, 1, 0.0, "true", math.nan)),
        *(
            (ExchangeabilityMonitor([0.5]), value)
            for value in (None, math.inf, -math.inf, "0.5", True)
        ),
    ],
)
def test_what_is_no_observation_is_refused(monitor: Any, value: Any) -> None:
    with pytest.raises(UsageError):
        monitor.update(value)
    assert monitor.seen == 0


def test_scores_may_be_counted() -> None:
    one, other = (
        ExchangeabilityMonitor(PAST),
        ExchangeabilityMonitor({0.0: 6, 0.25: 3, 0.5: 1, 1.0: 1, math.nan: 1}),
    )
    for score in (0.5, math.nan, 0.75):
        one.update(score)
        other.update(score)
    assert (one.capital, one.n_calibration) == (other.capital, other.n_calibration)
