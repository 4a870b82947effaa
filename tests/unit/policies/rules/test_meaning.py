"""What rules mean: undefined values, comparisons that cannot hold."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from suffice.errors import UsageError
from suffice.policies.rules.meaning import (
    RuleColumns,
    check_reachable,
    first_round,
    operands,
    rule_fires,
)
from suffice.policies.rules.policy import rule_needs
from suffice.policies.rules.syntax import SignalRef, parse
from suffice.signals.registry import SIGNALS, SignalSpec

NAN = math.nan
SPECS = {
    **SIGNALS,
    "any": SignalSpec(name="any", summary="recorded by the user"),
}


def holds(rule: str, round_number: int = 1, base: float = NAN, **signals: Any) -> Any:
    """The rule at one round of questions of which these values are known, the same in every round."""
    given = {name: np.atleast_1d(np.asarray(values, float)) for name, values in signals.items()}
    n_questions = max((values.size for values in given.values()), default=1)
    shape = n_questions, round_number
    columns = {name: np.tile(values[:, None], shape[1]) for name, values in given.items()}
    mark = "calibrated_"
    held = rule_fires(
        rule,
        SPECS,
        RuleColumns(
            shape=shape,
            signals=columns,
            calibrations={name.removeprefix(mark): column for name, column in columns.items()},
            base_rates=np.full(shape, base),
            question_ids=[f"q{number}" for number in range(n_questions)],
        ),
    )[:, -1]
    return held if any(np.ndim(values) for values in signals.values()) else bool(held[0])


@pytest.mark.parametrize(
    "rule",
    [
        "verbalized_confidence > 5",
        "verbalized_confidence < 1",
        "verbalized_confidence == 6",
        "6 <= verbalized_confidence",
        "overlap > 1",
        "1 < overlap",
        "overlap < 0",
        "overlap == 1.5",
        "calibrated(overlap) > 1",
        "calibrated(any) < 0",
        "base_rate() > 1",
        "base_rate() < 0",
        "answer_stable == 0.5",
        "0.5 == answer_stable",
        "answer_stable > 1",
        "abstained < 0",
        "round < 1",
        "round <= 0",
        "round == 0",
        "round == 1.5",
        "2.5 == round",
        "overlap > verbalized_confidence",
        "overlap < 0.5 and verbalized_confidence > 5",
        "overlap < 0.5 or not verbalized_confidence > 5",
        "at_least(1, answer_stable, overlap > 1)",
        "0.5 < overlap < 0",
        "1 < 2",
        "any > 0 and 2 > 1",
        "rerank_variance > 0.25",
    ],
)
def test_a_comparison_that_can_never_hold_is_refused(rule: str) -> None:
    with pytest.raises(UsageError, match=r"can never hold|compares two numbers"):
        check_reachable(parse(rule), SPECS)


@pytest.mark.parametrize(
    "rule",
    [
        "verbalized_confidence >= 5",
        "verbalized_confidence > 4.99",
        "verbalized_confidence == 2.5",
        "overlap >= 1",
        "overlap == 0",
        "overlap <= 0",
        "overlap != 0",
        "calibrated(overlap) >= 1",
        "calibrated(any) == 0.5",
        "answer_stable == 1",
        "answer_stable != 0.5",
        "0.3 < answer_stable",
        "round <= 1",
        "round == 2",
        "round != 1.5",
        "round > 1.5",
        "any > 1e300",
        "any == 0.5",
        "answer_token_margin > 100",
        "verbalized_confidence > overlap",
        "calibrated(overlap) > base_rate()",
        "rerank_variance >= 0.25",
    ],
)
def test_a_comparison_that_may_hold_is_accepted(rule: str) -> None:
    check_reachable(parse(rule), SPECS)


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">=", "==", "!="])
def test_undefined_makes_every_comparison_false(operator: str) -> None:
    both = np.array([NAN, 0.5])
    for rule in (f"any {operator} 0.25", f"0.25 {operator} any"):
        assert not holds(rule, any=NAN)
        found = holds(rule, any=both)
        assert isinstance(found, np.ndarray)
        assert not found[0]
    assert not holds(f"any {operator} any", any=NAN)
    assert not holds(f"calibrated(any) {operator} 0.25", calibrated_any=NAN)
    assert not holds(f"base_rate() {operator} 0.25", base=NAN)


def test_negation_turns_an_undefined_comparison_true() -> None:
    """The comparison is false there, so its negation is true."""
    assert holds("not any > 0.5", any=NAN)
    assert not holds("not not any > 0.5", any=NAN)
    assert holds("not overlap", overlap=NAN)
    assert not holds("overlap", overlap=NAN)
    assert not holds("any", any=NAN)
    np.testing.assert_array_equal(
        holds("not any > 0.5", any=np.array([NAN, 0.0, 1.0])), [True, True, False]
    )


@pytest.mark.parametrize(
    ("value", "true"), [(0.0, False), (-0.0, False), (1.0, True), (-2.0, True)]
)
def test_a_bare_signal_is_true_when_not_zero(value: float, true: bool) -> None:
    assert bool(holds("any", any=value)) is true
    np.testing.assert_array_equal(holds("any", any=np.array([value])), [true])


def test_connectives_by_truth_table() -> None:
    rule = "overlap and not answer_stable or at_least(2, overlap, answer_stable, abstained) and any > 0"
    table = np.array(list(itertools.product([0.0, 1.0, NAN], repeat=4)))
    names = ("overlap", "answer_stable", "abstained", "any")
    found = holds(rule, **dict(zip(names, table.T, strict=True)))
    assert isinstance(found, np.ndarray)
    for row, whole in zip(table, found, strict=True):
        a, b, c, d = (value == 1.0 for value in row.tolist())
        expected = (a and not b) or (a + b + c >= 2 and d)
        assert bool(whole) == expected
        one = holds(rule, **dict(zip(names, row.tolist(), strict=True)))
        assert bool(one) == expected


def test_operands_come_in_reading_order() -> None:
    found = [
        str(each) for each in operands(parse("not a or at_least(1, b > 2, calibrated(c) < round)"))
    ]
    assert found == ["a", "b", "2", "calibrated(c)", "round"]
    assert SignalRef("a") in operands(parse("a"))


def test_needs_name_each_signal_once() -> None:
    needs = rule_needs("b and a or b > 1 and calibrated(c) > 0.2 and calibrated(a) > base_rate()")
    assert needs.signals == ("b", "a", "c")
    assert needs.calibrated == ("c", "a")
    assert needs.base_rate
    assert needs.fitting
    assert not rule_needs("a and round > 1").fitting


@pytest.mark.parametrize(
    "rule",
    [
        "any > 1",
        "round >= 3",
        "3 < round and any > 1",
        "round == 2 or round >= 5 and any > 1",
        "not round < 4",
        "not (any > 1 and round < 3)",
        "at_least(2, round >= 2, round > 5, any > 1)",
        "at_least(3, round >= 2, round > 5, any > 1)",
        "not at_least(2, round < 3, round < 6, any > 1)",
        "round > 2.5",
        "round > 3 and round < 3",
    ],
)
def test_the_first_round_a_rule_may_hold_in(rule: str) -> None:
    may = [n for n in range(1, 10) if any(holds(rule, n, any=value) for value in (0.0, 2.0))]
    assert first_round(parse(rule)) == min(may, default=math.inf)
