"""The rule language: what it accepts, what it makes of it, what it prints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.errors import UsageError
from suffice.policies.rules.language import (
    COMPARISONS,
    MAX_DEPTH,
    MAX_LENGTH,
    And,
    AtLeast,
    BaseRate,
    Calibrated,
    Compare,
    Expression,
    Not,
    Number,
    Operand,
    Or,
    RoundNumber,
    SignalRef,
    Truth,
    parse,
)

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
        ("round >= 3", Compare(RoundNumber(), ">=", Number(3))),
        ("calibrated(x) > base_rate()", Compare(Calibrated("x"), ">", BaseRate())),
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
    st.just(RoundNumber()),
    st.builds(Calibrated, NAMES),
    st.just(BaseRate()),
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
    "calibrated",
    "calibrated(x)",
    "base_rate()",
    "at_least",
    "at_least(1,",
    "-",
    ".",
    "²",
    "٣",
    "\0",
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
