"""Scores by hand, from the definitions of the official scripts."""

from __future__ import annotations

import pytest

from suffice.errors import UsageError
from suffice.scoring import F1_KINDS, accuracy, exact_match, f1, f1_score, normalize_answer


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


def test_exact_match_takes_any_gold_answer() -> None:
    assert exact_match("The Tempest!", ["storm", "tempest"]) == 1.0
    assert exact_match("tempests", ["storm", "tempest"]) == 0.0
    assert exact_match("x", []) == 0.0


@pytest.mark.parametrize(
    ("prediction", "gold", "expected"),
    [
        # 2 of 3 predicted, 2 of 2 gold: 2 * (2/3) * 1 / (2/3 + 1) = 4/5.
        ("John Q Smith", "John Smith", 4 / 5),
        # Multisets: "b" is shared twice, not three times: 2/3 and 2/2.
        ("b b b", "b b", 4 / 5),
        # Order does not count.
        ("Smith John", "John Smith", 1.0),
        # 1 of 4 and 1 of 1: 2 * 1/4 / (5/4) = 2/5.
        ("it was Oslo then", "Oslo.", 2 / 5),
        ("Rome", "Oslo", 0.0),
        # Articles vanish on both sides: 1 of 1 and 1 of 1.
        ("the Oslo", "An Oslo", 1.0),
    ],
)
def test_token_f1(prediction: str, gold: str, expected: float) -> None:
    for kind in F1_KINDS:
        assert f1_score(prediction, [gold], kind) == pytest.approx(expected, abs=1e-15)


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


def test_f1_is_the_best_over_gold_answers() -> None:
    # 2/3 with the second; the rule for yes applies to each pair alone.
    assert f1("Oslo Norway", ["yes", "Oslo", "Rome"]) == pytest.approx(2 / 3, abs=1e-15)
    assert f1("x", []) == 0.0


def test_two_empty_answers_match_exactly_and_score_no_f1() -> None:
    for prediction, gold in (("", ""), ("the", "a"), ("...", "An")):
        assert exact_match(prediction, [gold]) == 1.0
        for kind in F1_KINDS:
            assert f1_score(prediction, [gold], kind) == 0.0
        assert accuracy(prediction, [gold]) == 0.0


def test_an_empty_side_scores_nothing() -> None:
    for prediction, gold in (("", "Oslo"), ("Oslo", "the")):
        assert exact_match(prediction, [gold]) == 0.0
        assert f1(prediction, [gold]) == 0.0
        assert accuracy(prediction, [gold]) == 0.0


def test_accuracy_is_containment_of_characters() -> None:
    assert accuracy("I do not know", ["no"]) == 1.0
    assert accuracy("It was the A-Team.", ["ateam"]) == 1.0
    assert accuracy("Oslo", ["Oslo, Norway"]) == 0.0  # gold in prediction, not the reverse
    assert accuracy("in Oslo", ["Rome", "The Oslo"]) == 1.0
    # A gold answer that normalises to nothing is in every string and must not count.
    assert accuracy("Oslo", ["the", "?", ""]) == 0.0
    assert accuracy("Oslo", ["the", "Oslo"]) == 1.0
    assert accuracy("x", []) == 0.0


def test_gold_answers_may_come_from_an_iterator() -> None:
    assert exact_match("b", iter(["a", "b"])) == 1.0
    assert f1("b", iter(["c", "b"])) == 1.0
    assert accuracy("b", iter(["c", "b"])) == 1.0


def test_an_unknown_f1_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown F1 'hotpot'; known: hotpotqa, squad"):
        f1_score("x", ["x"], "hotpot")  # type: ignore[arg-type]
