"""Stability: relaxed, corrected and as published."""

from __future__ import annotations

import math

import pytest

from suffice.signals.answer_stability import (
    ANSWER_SIMILARITY_F1,
    ANSWER_SIMILARITY_SEQ,
    ANSWER_STABLE,
    ANSWER_STABLE_PUBLISHED,
)
from suffice.trace.rounds.records import LoopView, Passage, Round


def view(previous: str, current: str) -> LoopView:
    return LoopView("q", (Round(answer=previous), Round(answer=current)))


def test_token_f1_with_the_previous_answer() -> None:
    # One shared token of 2 and of 1: precision 1, recall 1/2.
    assert ANSWER_SIMILARITY_F1(view("John Smith", "Smith.")) == pytest.approx(2 / 3, abs=1e-15)
    # Plain F1: the yes/no rule of scoring does not apply.
    assert ANSWER_SIMILARITY_F1(view("yes indeed", "yes")) == pytest.approx(2 / 3, abs=1e-15)


def test_matching_characters_with_the_previous_answer() -> None:
    # "abcd" and "bcde" share "bcd": 2 * 3 / 8.
    assert ANSWER_SIMILARITY_SEQ(view("abcd", "bcde")) == 0.75
    assert ANSWER_SIMILARITY_SEQ(view("The Tempest!", "tempest")) == 1.0


def test_the_choice_a_is_an_answer() -> None:
    assert ANSWER_STABLE(view("A", "a.")) == 1.0
    assert ANSWER_STABLE(view("A", "")) == ANSWER_STABLE(view("A", "B")) == 0.0
    assert ANSWER_SIMILARITY_F1(view("A", "(A)")) == ANSWER_SIMILARITY_SEQ(view("A", "A")) == 1.0
    assert ANSWER_SIMILARITY_F1(view("A", "B")) == 0.0


def test_long_answers_are_compared_in_full() -> None:
    # difflib's shortcut for strings of 200 and more characters would find no match here.
    assert ANSWER_SIMILARITY_SEQ(view("ab" * 150, "ab" * 150 + "c")) == pytest.approx(600 / 601)


@pytest.mark.parametrize("spec", [ANSWER_SIMILARITY_F1, ANSWER_SIMILARITY_SEQ])
def test_empty_answers_resemble_nothing(spec: object) -> None:
    assert callable(spec)
    assert [spec(view(*pair)) for pair in (("", ""), ("a b", "the"), ("", "b"))] == [0.0] * 3


@pytest.mark.parametrize("spec", [ANSWER_SIMILARITY_F1, ANSWER_SIMILARITY_SEQ])
def test_undefined_where_stability_is(spec: object) -> None:
    assert callable(spec)
    passage = Passage(id="1", text="x")
    first = LoopView("q", (Round(answer="a"),))
    nothing_new = LoopView(
        "q", (Round(answer="a", passages=(passage,)), Round(answer="a", passages=(passage,)))
    )
    for rounds in (first, nothing_new):
        assert math.isnan(spec(rounds))
        assert math.isnan(ANSWER_STABLE(rounds))


ONE, TWO = Passage(id="1", text="x"), Passage(id="2", text="x")


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
