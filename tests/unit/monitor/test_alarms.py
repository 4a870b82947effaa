"""Monitors: equal to their slow twins, resumed bit for bit, exact about ties, NaN and bad input."""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties import examples

from suffice.errors import DataError, UsageError
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


# --- kept and resumed ----------------------------------------------------------------------------
@settings(deadline=None, max_examples=30)
@given(SOME, SCORES, st.integers(0, 40))
def test_resumed_equals_uninterrupted(stream: list[bool], scores: list[float], cut: int) -> None:
    pairs: list[tuple[Any, Any, list[Any]]] = [
        (CoverageMonitor(0.3, 20, 0.2), CoverageMonitor, stream),
        (ExchangeabilityMonitor(PAST, 0.2, seed=3), ExchangeabilityMonitor, scores),
    ]
    for whole, kind, values in pairs:
        part = kind.from_json(json.loads(json.dumps(whole.to_json(), allow_nan=False)))
        for number, value in enumerate(values):
            if number == cut:
                part = kind.from_json(json.loads(json.dumps(part.to_json(), allow_nan=False)))
            assert whole.update(value) == part.update(value)
        assert whole.to_json() == part.to_json()
        assert (whole.capital, whole.p_value) == (part.capital, part.p_value)


COVERAGE = CoverageMonitor(0.1, 50)
COVERAGE.update(False)
SCORED = ExchangeabilityMonitor([0.0, 0.5, math.nan])
SCORED.update(0.5)


@pytest.mark.parametrize(
    ("monitor", "change", "column"),
    [
        (COVERAGE, {"suffice_monitor": True}, "suffice_monitor"),
        (COVERAGE, {"kind": "exchangeability"}, "kind"),
        (COVERAGE, {"more": 1}, "more"),
        (COVERAGE, {"alpha": "0.1"}, "alpha"),
        (COVERAGE, {"alpha": 1.0}, None),
        (COVERAGE, {"level": 0.0}, None),
        (COVERAGE, {"misses": None}, "misses"),
        (COVERAGE, {"alarmed_at": 2}, "alarmed_at"),
        (COVERAGE, {"capital": {"seen": 10**400, "in_play": [0, 0, 0, 0], "greatest": 1}}, "seen"),
        (COVERAGE, {"capital": {"seen": 1, "in_play": [0, 0, 0], "greatest": 1}}, "in_play"),
        (COVERAGE, {"capital": {"seen": 1, "in_play": [0, 0, 0, -1], "greatest": 1}}, "in_play"),
        (COVERAGE, {"capital": {"seen": 1, "in_play": [0, 0, 0, 5], "greatest": 2}}, "greatest"),
        (SCORED, {"seed": 1.5}, "seed"),
        (SCORED, {"counts": [1, 2, 10**12]}, "counts"),
        (SCORED, {"values": [0.0, 0.5, math.inf]}, "values"),
        (SCORED, {"n_calibration": 0}, "n_calibration"),
    ],
)
def test_a_spoiled_state_is_refused(
    monitor: CoverageMonitor | ExchangeabilityMonitor, change: dict[str, Any], column: str | None
) -> None:
    with pytest.raises(DataError) as caught:
        type(monitor).from_json({**monitor.to_json(), **change})
    assert caught.value.column == column


# --- bad input -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("monitor", "value"),
    [
        *((COVERAGE, value) for value in (None, 1, 0.0, "true", math.nan)),
        *((SCORED, value) for value in (None, math.inf, -math.inf, "0.5", True)),
    ],
)
def test_what_is_no_observation_is_refused(monitor: Any, value: Any) -> None:
    with pytest.raises(UsageError):
        monitor.update(value)
    assert monitor.seen == 1


@pytest.mark.parametrize(
    ("alpha", "n", "level", "says"),
    [
        (1.0, 50, 0.05, "alpha"),
        (math.nan, 50, 0.05, "alpha"),
        (0.1, 0, 0.05, "n_calibration"),
        (0.1, True, 0.05, "n_calibration"),
        (0.1, 50, 0.0, "level"),
    ],
)
def test_settings_outside_their_ranges(alpha: float, n: Any, level: float, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        CoverageMonitor(alpha, n, level)


@pytest.mark.parametrize(("scores", "seed"), [([], 0), ([0.0, math.inf], 0), ([0.0], 1.5)])
def test_no_past_to_compare_with(scores: list[float], seed: Any) -> None:
    with pytest.raises(UsageError):
        ExchangeabilityMonitor(scores, seed=seed)
