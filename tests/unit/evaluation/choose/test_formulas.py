"""Formulas: how many there are, and what they say."""

from __future__ import annotations

from itertools import product

import pytest

from suffice.evaluation.choose.rule_stops import Formula, enumerate_formulas
from suffice.policies.rules.language import parse


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("or", [1, 3, 7, 15, 31, 63, 127, 255]),
        ("and", [1, 3, 7, 15, 31, 63, 127, 255]),
        ("dnf", [1, 4, 14, 51, 202, 876, 4139, 21146]),  # Bell(n + 1) - 1
        ("vote", [1, 4, 12, 32, 80, 192, 448, 1024]),  # n 2^(n - 1)
    ],
)
def test_how_many(form: str, expected: list[int]) -> None:
    for count, number in enumerate(expected, start=1):
        formulas = enumerate_formulas(form, count)
        assert len(formulas) == number
        assert len(set(formulas)) == number
        for formula in formulas:
            used = [each for clause in formula.clauses for each in clause]
            assert len(used) == len(set(used))


@pytest.mark.parametrize("form", ["or", "and", "dnf", "vote"])
def test_no_two_formulas_mean_the_same(form: str) -> None:
    tables = set()
    for formula in enumerate_formulas(form, 4):
        rows = [
            sum(all(bits[each] for each in clause) for clause in formula.clauses) >= formula.votes
            for bits in product([False, True], repeat=4)
        ]
        tables.add(tuple(rows))
    assert len(tables) == len(enumerate_formulas(form, 4))


def test_every_text_parses_to_its_meaning() -> None:
    names = ["a > 1", "b", "c < 2"]
    assert Formula(((0,), (1,))).text(names) == "a > 1 or b"
    assert Formula(((0, 1), (2,))).text(names) == "(a > 1 and b) or c < 2"
    assert Formula(((0,), (1,), (2,)), 2).text(names) == "at_least(2, a > 1, b, c < 2)"
    for form in ("or", "and", "dnf", "vote"):
        for formula in enumerate_formulas(form, 3):
            parse(formula.text(names))
