"""Scores by hand, from the definitions of the official scripts."""

from __future__ import annotations

import pytest

from suffice.errors import UsageError
from suffice.scoring import accuracy, answer_form, exact_match, f1, f1_score, normalize_answer


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Cat", "cat"),
        ("an  apple\ta day\n", "apple day"),
        ("A.J. Burnett", "aj burnett"),  # punctuation goes first, so no lone "A" is left
        ("a.m.", "am"),
        ("A-ha", "aha"),
        ("theatre anthem", "theatre anthem"),  # articles are whole words
        ("U.S.", "us"),
        ("it's", "its"),
        ("the the a", ""),
        ("", ""),
        ("!?", ""),
        ("Élan", "élan"),
        ("a – b", "– b"),  # only ASCII punctuation goes; an en dash stays
        ("“the” end", "“ ” end"),  # and so do curly quotes, between which an article is a word
        ("1,000", "1000"),
        ("snake_case", "snakecase"),
    ],
)
def test_normalisation(text: str, expected: str) -> None:
    assert normalize_answer(text) == expected


@pytest.mark.parametrize(
    ("prediction", "gold", "squad"),
    [
        # 1 of 2 and 1 of 1: 2/3 under SQuAD, 0 under HotpotQA, either way round.
        ("yes indeed", "yes", 2 / 3),
        ("Yes.", "yes indeed", 2 / 3),
        ("no", "no one", 2 / 3),
        ("noanswer", "noanswer here", 2 / 3),
        ("the no", "no, never", 2 / 3),
    ],
)
def test_yes_and_no_are_all_or_nothing_under_hotpotqa(
    prediction: str, gold: str, squad: float
) -> None:
    assert f1_score(prediction, [gold], "squad") == pytest.approx(squad, abs=1e-15)
    assert f1_score(prediction, [gold], "hotpotqa") == 0.0
    assert f1(prediction, [gold]) == 0.0  # the default
    assert f1_score(gold, [gold], "hotpotqa") == 1.0


def test_gold_answers_may_come_from_an_iterator() -> None:
    assert exact_match("b", iter(["a", "b"])) == 1.0
    assert f1("b", iter(["c", "b"])) == 1.0
    assert accuracy("b", iter(["c", "b"])) == 1.0


def test_an_unknown_f1_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown F1 'hotpot'; known: hotpotqa, squad"):
        f1_score("x", ["x"], "hotpot")  # type: ignore[arg-type]


@pytest.mark.parametrize(("one", "other"), [("İstanbul", "istanbul"), ("C♯", "C#")])
def test_letters_with_a_mark_of_their_own_are_the_same_answer(one: str, other: str) -> None:
    assert answer_form(one) == answer_form(other) != answer_form("C")
