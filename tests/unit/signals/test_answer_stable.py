"""Stability, corrected and as published."""

from __future__ import annotations

import math

import pytest

from suffice.signals.answer_stability import ANSWER_STABLE, ANSWER_STABLE_PUBLISHED
from suffice.trace.rounds.records import LoopView, Passage, Round

ONE, TWO = Passage(id="1", text="x"), Passage(id="2", text="x")


def view(previous: str, current: str) -> LoopView:
    return LoopView("q", (Round(answer=previous), Round(answer=current)))


@pytest.mark.parametrize(
    ("previous", "current", "corrected", "published"),
    [
        ("The Tempest", "tempest.", 1.0, 1.0),
        ("Oslo", "Rome", 0.0, 0.0),
        ("", "the", 1.0, 1.0),
        # Punctuation first: "aha" and "ha"; articles first: "a-ha" loses its "a".
        ("A-ha", "ha", 0.0, 1.0),
        ("A-ha", "aha", 1.0, 0.0),
    ],
)
def test_values(previous: str, current: str, corrected: float, published: float) -> None:
    assert ANSWER_STABLE(view(previous, current)) == corrected
    assert ANSWER_STABLE_PUBLISHED(view(previous, current)) == published


def test_undefined_in_round_one() -> None:
    first = LoopView("q", (Round(answer="a"),))
    assert math.isnan(ANSWER_STABLE(first))
    assert math.isnan(ANSWER_STABLE_PUBLISHED(first))


@pytest.mark.parametrize("added", [(), (ONE,), (ONE, ONE)])
def test_a_round_without_a_new_passage_is_undefined_as_corrected(
    added: tuple[Passage, ...],
) -> None:
    rounds = LoopView("q", (Round(answer="a", passages=(ONE,)), Round(answer="a", passages=added)))
    assert math.isnan(ANSWER_STABLE(rounds))
    assert ANSWER_STABLE_PUBLISHED(rounds) == 1.0


def test_a_new_passage_among_old_ones_is_enough() -> None:
    rounds = LoopView(
        "q", (Round(answer="a", passages=(ONE,)), Round(answer="a", passages=(ONE, TWO)))
    )
    assert ANSWER_STABLE(rounds) == 1.0


def test_only_the_round_before_counts() -> None:
    rounds = LoopView("q", tuple(Round(answer=each) for each in ("a b", "c", "a b")))
    assert ANSWER_STABLE(rounds) == 0.0
