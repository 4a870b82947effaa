"""The rule language: what it accepts, what it prints, what it means where values are undefined."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.errors import UsageError
from suffice.policies.rules.language import (
    BASE_RATE,
    COMPARISONS,
    MAX_DEPTH,
    MAX_LENGTH,
    ROUND,
    And,
    AtLeast,
    Calibrated,
    Compare,
    Expression,
    Not,
    Number,
    Operand,
    Or,
    RuleColumns,
    SignalRef,
    Truth,
    check_reachable,
    first_round,
    parse,
    rule_fires,
)
from suffice.policies.rules.policy import rule_needs
from suffice.signals.known_signals import SIGNALS, SignalSpec

A, B, C = (Truth(SignalRef(name)) for name in "abc")
X, Y = SignalRef("x"), SignalRef("y")


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("a", A),
        ("((a))", A),
        ("a and b or c", Or((And((A, B)), C))),
        ("a or b and c", Or((A, And((B, C))))),
        ("(a or b) and c", And((Or((A, B)), C))),
        ("not a and b", And((Not(A), B))),
        ("not a or b", Or((Not(A), B))),
        ("not (a and b)", Not(And((A, B)))),
        ("not not a", Not(Not(A))),
        ("a and (b and c)", And((A, B, C))),
        ("(a or b) or c", Or((A, B, C))),
        ("x > 0.5", Compare(X, ">", Number(0.5))),
        ("x>.5", Compare(X, ">", Number(0.5))),
        ("x >= -1e-3", Compare(X, ">=", Number(-0.001))),
        ("0.5 < x", Compare(Number(0.5), "<", X)),
        ("x != y", Compare(X, "!=", Y)),
        ("not x > 1", Not(Compare(X, ">", Number(1)))),
        ("1 < x <= 2", And((Compare(Number(1), "<", X), Compare(X, "<=", Number(2))))),
        ("not 1 < x < 2", Not(And((Compare(Number(1), "<", X), Compare(X, "<", Number(2)))))),
        ("round >= 3", Compare(ROUND, ">=", Number(3))),
        ("calibrated(x) > base_rate()", Compare(Calibrated("x"), ">", BASE_RATE)),
        ("calibrated(x, end) <= 0.05", Compare(Calibrated("x", "end"), "<=", Number(0.05))),
        ("at_least(2, a, b or c, x < 1)", AtLeast(2, (A, Or((B, C)), Compare(X, "<", Number(1))))),
        ("\ta\nand\n b ", And((A, B))),
        ("android", Truth(SignalRef("android"))),
        ("notable and orbit", And((Truth(SignalRef("notable")), Truth(SignalRef("orbit"))))),
    ],
)
def test_grammar_and_precedence(text: str, tree: Expression) -> None:
    assert parse(text) == tree


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("( a )and((b)or c)", "a and (b or c)"),
        ("(a and b) or c", "a and b or c"),
        ("not (a)", "not a"),
        ("not (x>1)", "not x > 1"),
        ("not (a or b)", "not (a or b)"),
        ("1<x<2", "1 < x and x < 2"),
        ("x > 0.250", "x > 0.25"),
        ("x > 3.0", "x > 3"),
        ("x > 0.1", "x > 0.1"),
        ("x > 1e22", "x > 1e+22"),
        ("x > 12345678901234567890", "x > 1.2345678901234567e+19"),
        ("at_least(1,a,(b))", "at_least(1, a, b)"),
    ],
)
def test_printing_is_the_shortest_that_means_the_same(text: str, printed: str) -> None:
    assert str(parse(text)) == printed
    assert parse(printed) == parse(text)


NAMES = st.sampled_from(["a", "overlap", "answer_stable", "nota", "round_2"])
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
OPERANDS: st.SearchStrategy[Operand] = st.one_of(
    st.builds(Number, NUMBERS),
    st.builds(SignalRef, NAMES),
    st.just(ROUND),
    st.builds(Calibrated, NAMES, st.sampled_from(["", "end", "gain"])),
    st.just(BASE_RATE),
)
LEAVES: st.SearchStrategy[Expression] = st.one_of(
    st.builds(Truth, st.builds(SignalRef, NAMES)),
    st.builds(Compare, OPERANDS, st.sampled_from(COMPARISONS), OPERANDS),
)


def combined(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    several = st.lists(inner, min_size=2, max_size=4).map(tuple)
    return st.one_of(
        st.builds(Not, inner),
        st.builds(And, several),
        st.builds(Or, several),
        several.flatmap(
            lambda items: st.builds(AtLeast, st.integers(1, len(items)), st.just(items))
        ),
    )


def flattened(tree: Expression) -> Expression:
    """The tree without an ``and`` directly in an ``and``, nor an ``or`` in an ``or``."""
    if isinstance(tree, Not):
        return Not(flattened(tree.item))
    if isinstance(tree, AtLeast):
        return AtLeast(tree.count, tuple(flattened(item) for item in tree.items))
    if isinstance(tree, And | Or):
        kind = type(tree)
        inner = [flattened(item) for item in tree.items]
        return kind(tuple(e for i in inner for e in (i.items if isinstance(i, kind) else (i,))))
    return tree


@given(tree=st.recursive(LEAVES, combined, max_leaves=12))
def test_printing_round_trips(tree: Expression) -> None:
    """The text of any tree parses to it, parentheses that change nothing left out."""
    parsed = parse(str(tree))
    assert parsed == flattened(tree)
    assert parse(str(parsed)) == parsed


def test_length_is_capped() -> None:
    fits = "a or " * ((MAX_LENGTH - 1) // 5) + "a"
    assert len(fits) <= MAX_LENGTH
    parsed = parse(fits)
    assert isinstance(parsed, Or)
    assert parse(str(parsed)) == parsed
    with pytest.raises(UsageError, match=f"may have {MAX_LENGTH} characters"):
        parse("a" * (MAX_LENGTH + 1))


@pytest.mark.parametrize(
    ("opened", "closed"), [("(", ")"), ("not ", ""), ("not (", ")"), ("at_least(1, ", ")")]
)
def test_nesting_is_capped(opened: str, closed: str) -> None:
    depth = (MAX_DEPTH - 1) // (2 if opened == "not (" else 1)
    parse(opened * depth + "a" + closed * depth)
    with pytest.raises(UsageError, match=f"nested deeper than {MAX_DEPTH}"):
        parse(opened * (depth + 2) + "a" + closed * (depth + 2))


WORDS = ["and", "or", "not", "(", ")", "a", "x", "0.5", ">", "<=", "==", "round", ",", "1"]
WORDS += [
    *("calibrated", "calibrated(x)", "base_rate()", "at_least", "at_least(1,", "-", ".", "²"),
    *("٣", "\0"),
]


@given(
    text=st.one_of(
        st.text(max_size=40), st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)
    )
)
def test_garbage_is_only_ever_a_usage_error(text: str) -> None:
    try:
        tree = parse(text)
    except UsageError:
        return
    assert parse(str(tree)) == tree


# --- what rules mean ------------------------------------------------------------------------------
NAN = math.nan
SPECS = {**SIGNALS, "any": SignalSpec(name="any", summary="recorded by the user")}


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
        "verbalized_confidence == 6",
        "1 < overlap",
        "calibrated(overlap) > 1",
        "base_rate() > 1",
        "round < 1",
        "overlap > verbalized_confidence",
        "overlap < 0.5 or not verbalized_confidence > 5",
        "at_least(1, answer_stable, overlap > 1)",
        "0.5 < overlap < 0",
        "1 < 2",
        "rerank_variance > 0.25",
    ],
)
def test_a_comparison_that_can_never_hold_is_refused(rule: str) -> None:
    with pytest.raises(UsageError, match=r"can never hold|compares two numbers"):
        check_reachable(parse(rule), SPECS)


@pytest.mark.parametrize(
    "rule",
    [
        "verbalized_confidence == 2.5",
        "overlap >= 1",
        "calibrated(overlap) >= 1",
        "answer_stable != 0.5",
        "0.3 < answer_stable",
        "round != 1.5",
        "any > 1e300",
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


def test_a_bare_signal_is_true_when_not_zero() -> None:
    found = holds("any", any=np.array([0.0, -0.0, 1.0, -2.0]))
    assert found.tolist() == [False, False, True, True]


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


def test_needs_name_each_signal_once() -> None:
    needs = rule_needs(
        "b and a or b > 1 and calibrated(c, end) > 0.2 and calibrated(a) > base_rate()"
    )
    assert needs.signals == ("b", "a", "c")
    assert needs.calibrated == (Calibrated("c", "end"), Calibrated("a"))
    assert [*map(Calibrated.of, ("mean_of(a, 2)", "a, gain"))] == [
        Calibrated("mean_of(a, 2)"),
        Calibrated("a", "gain"),
    ]
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
def test_a_rule_holds_in_no_round_before_its_first(rule: str) -> None:
    may = [n for n in range(1, 10) if any(holds(rule, n, any=value) for value in (0.0, 2.0))]
    assert first_round(parse(rule)) <= min(may, default=math.inf)


@pytest.mark.parametrize(
    ("rule", "first"),
    [("round >= 3", 3), ("any > 1 and round > 3", 4), ("round > 2.5", 3), ("round == 2", 2)],
)
def test_the_first_round_that_a_rule_states(rule: str, first: int) -> None:
    assert first_round(parse(rule)) == first
