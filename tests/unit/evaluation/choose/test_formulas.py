"""Formulas: how many there are, and what they say."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from suffice.errors import UsageError
from suffice.evaluation.choose.candidates import Candidate
from suffice.evaluation.choose.choice import Ranked
from suffice.evaluation.choose.procedure import in_order
from suffice.evaluation.choose.rule_stops import Formula, enumerate_formulas
from suffice.evaluation.diagnose.report_data import guarantees
from suffice.evaluation.replay.named_policies import NamedPolicy
from suffice.evaluation.replay.runner import replay
from suffice.evaluation.settings import ChoiceSettings, ComparisonSettings
from suffice.policies.rules.language import parse
from suffice.policies.rules.policy import Rule
from suffice.policies.unfitted import FixedPolicy
from suffice.testing.traces import make_record, to_trace_set


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


def order(settings: ChoiceSettings, *, proven: bool | None) -> list[int]:
    """Of four candidates, each dearer and better than the one before."""
    found = [(0.4, 1.0, False), (0.2, 2.0, False), (0.01, 2.5, True), (0.0, 3.0, True)]
    ranked = [
        Ranked(
            candidate=Candidate(
                policy=NamedPolicy.of(FixedPolicy(rounds=number), str(number)), group="fixed"
            ),
            loss=loss,
            cost=cost,
            kept=kept,
        )
        for number, (loss, cost, kept) in enumerate(found, start=1)
    ]
    ordered, _ = in_order(ranked, ranked[-1], settings, "rounds", proven=proven)
    return [int(one.candidate.policy.name) for one in ordered]


def test_candidates_are_ordered_by_what_they_kept() -> None:
    assert order(ChoiceSettings(max_loss=0.1), proven=True) == [3, 4, 2, 1]
    assert order(ChoiceSettings(max_loss=0.1), proven=False) == [4, 3, 2, 1]


def test_aims_without_a_promise() -> None:
    for asked, first in (
        (ChoiceSettings(cost_per_error=100.0), 4),
        (ChoiceSettings(cost_per_error=1e-6), 1),
        (ChoiceSettings(max_cost=2.2), 2),
    ):
        assert order(asked, proven=None)[0] == first
    with pytest.raises(UsageError):
        order(ChoiceSettings(max_cost=0.5), proven=None)


def read(terms: dict[str, Any], fitted_on: dict[str, Any]) -> tuple[dict[str, Any], ...]:
    policy = Rule(rule="round >= 2", guarantee=terms, fitted_on=fitted_on)
    traces = to_trace_set([make_record("q", ["a", "a"], gold=["a"])])
    built = [
        NamedPolicy(name="p", kind="certified", preset=None, policy=policy),
        NamedPolicy(name="plain", kind="rule", preset=None, policy=Rule(rule="round >= 1")),
    ]
    return guarantees(replay(traces, built, ComparisonSettings(baseline="p", resamples=5)))


def test_terms_are_read_and_other_policies_have_none() -> None:
    terms = {
        "max_loss": 0.02, "confidence": 0.95, "loss": "signed", "metric": "f1", "units": 88,
        "tested": 18, "certified": 9, "p_value": 1e-5, "fell_back": False, "cost": "llm_calls",
        "seed": 42, "alpha": 0.1,
    }  # fmt: skip
    (found,) = read(terms, {"source": "elsewhere.parquet", "split": "tune"})
    assert (found["policy"], found["rule"]) == ("p", "round >= 2")
    assert (found["max_loss"], found["confidence"], found["units"]) == (0.02, 0.95, 88)
    assert found["split"] == "tune"
    assert (found["cost"], found["cost_label"]) == ("llm_calls", "model calls")
    assert found["fell_back"] is False
    assert found["elsewhere"]
    assert found["more"] == {"alpha": "0.1"}
