"""Watching coverage: what a policy file must say, when a set covers, what is reported."""

from __future__ import annotations

import math
from typing import Any

import pytest

from suffice.contracts import AnswerSet, Clusters, SetMember
from suffice.errors import DataError
from suffice.monitor.coverage import Coverage
from suffice.monitor.questions import SetReturned
from suffice.policies.micp.policy import MiCPPolicy
from suffice.stats.conformal import Threshold

FITTED = {
    "calibration_questions": 100,
    "first_round_scores": {"values": [0.0, 0.3, 0.5], "counts": [60, 25, 10]},
}
MEANING = Clusters(by="embedding", cosine=0.8, encoder="e")
GOLD = ("The Tempest", "Tempest (play)")


def coverage(fitted: dict[str, Any] | None = None, **fields: Any) -> Coverage:
    policy = MiCPPolicy(
        alpha=0.1,
        rounds=2,
        samples=5,
        stops=(Threshold(0.2),),
        final=0.2,
        fitted_on=FITTED if fitted is None else fitted,
        **fields,
    )
    return Coverage(policy, 0.05, 42)


def returned(
    *answers: str, cannot_answer: bool = False, samples: tuple[str, ...] = (), score: float = 0.0
) -> SetReturned:
    members = tuple(SetMember(answer=answer, confidence=0.5, round=1) for answer in answers)
    held = AnswerSet(answers=members, cannot_answer=cannot_answer)
    return SetReturned(held=held, samples=samples, first_score=score)


@pytest.mark.parametrize(
    ("fitted", "column"),
    [
        ({}, "fitted_on.calibration_questions"),
        ({"calibration_questions": 0}, "fitted_on.calibration_questions"),
        ({"calibration_questions": 5, "first_round_scores": []}, None),
        (
            {"calibration_questions": 5, "first_round_scores": {"values": [0.0], "counts": [6]}},
            "counts",
        ),
        (
            {"calibration_questions": 5, "first_round_scores": {"values": [0.0], "counts": []}},
            "counts",
        ),
    ],
)
def test_policies_that_do_not_say_on_what(fitted: dict[str, Any], column: str | None) -> None:
    with pytest.raises(DataError) as caught:
        coverage(fitted)
    assert caught.value.column == column


@pytest.mark.parametrize(
    ("given", "by_meaning", "misses", "undecided"),
    [
        (returned("Hamlet", "a tempest"), False, 0, 0),
        (returned("Hamlet", samples=("Lear",)), False, 1, 0),
        (returned("Hamlet", cannot_answer=True, samples=("Lear",)), False, 0, 0),
        (returned("Hamlet", cannot_answer=True, samples=("Lear", "tempest")), False, 1, 0),
        (returned("Tempest", cannot_answer=True), False, 0, 0),
        (returned("the play", samples=("the play", "Tempest")), True, 0, 1),
        (returned("Hamlet", samples=("Hamlet",)), True, 1, 0),
    ],
)
def test_when_a_set_covers(
    given: SetReturned, by_meaning: bool, misses: int, undecided: int
) -> None:
    seen = coverage(clusters=MEANING) if by_meaning else coverage()
    seen.take(given)
    seen.label(given, GOLD)
    assert seen.counts == {"answers": 1, "labelled": 1, "undecided": undecided, "misses": misses}


def test_what_reaches_which_monitor() -> None:
    seen = coverage()
    for score in (0.0, 0.3, math.nan):
        seen.take(returned("Tempest", score=score))
    seen.label(returned("Tempest"), GOLD)
    assert {kind: monitor.seen for kind, monitor in seen.monitors.items()} == {
        "coverage": 1,
        "exchangeability": 3,
    }
    without = coverage({"calibration_questions": 100})
    assert [*without.monitors] == ["coverage"]


def test_the_interval_is_exact_and_holds_the_undecided() -> None:
    seen, unknown = coverage(), coverage(clusters=MEANING)
    assert seen.coverage.estimate is None
    for number in range(10):
        given = returned("Tempest" if number < 8 else "Hamlet")
        seen.label(given, GOLD)
        unknown.label(returned("a play", samples=GOLD) if number == 0 else given, GOLD)
    low, high = seen.coverage.low or 0, seen.coverage.high or 0
    assert (round(low, 4), round(high, 4)) == (0.4439, 0.9748)  # Clopper and Pearson, 8 of 10
    assert (unknown.coverage.low or 0) < low
    assert unknown.coverage.high == high
