"""The rule language: one readable line over signals, parsed by Python's grammar and never run as code.

::

    rule     = all {"or" all}
    all      = negation {"and" negation}
    negation = "not" negation | test
    test     = "(" rule ")" | "at_least" "(" whole ("," rule)+ ")" | window | chain
    window   = "stable_for" "(" rule "," whole ")"
    chain    = operand {comparison operand}
    operand  = number | signal | "round" | calibrated | "base_rate" "(" ")" | "coin" "(" ")"
    calibrated = "calibrated" "(" signal ["," ("end" | "gain")] ")"
    signal   = name | derived "(" [number "-"] name ["," whole] ")"

``derived`` is a key of :data:`suffice.signals.derived.DERIVATIONS`, as in ``since_lowest(error) >= 3``.
``stable_for(rule, n)`` holds where the rule held in this round and the n - 1 before it.
``coin()`` draws a number in [0, 1) once per question, the same live and in replay.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any, Literal

import numpy as np

from suffice.errors import UsageError, did_you_mean
from suffice.signals.known_signals import SignalSpec
from suffice.stats import series
from suffice.stats.units import Array, Mask, lots

MAX_LENGTH = 10_000
MAX_DEPTH = 50
TARGETS = ("end", "gain")
COMPARISONS = ("<=", ">=", "==", "!=", "<", ">")
_SYMBOLS: Mapping[type[ast.cmpop], str] = {
    ast.LtE: "<=",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.Gt: ">",
}
_KEYWORDS = frozenset({"round", "calibrated", "base_rate", "at_least", "stable_for", "coin"})
_NESTING = re.compile(r"[()]|\bnot\b")
_STABLE = "as in stable_for(answer_repeats, 3)"
_ANY = "a signal, a number, round, calibrated(signal[, end or gain]), base_rate() or coin()"


@dataclass(frozen=True, slots=True)
class Number:
    """A literal."""

    value: float

    def __str__(self) -> str:
        return repr(self.value).removesuffix(".0")


@dataclass(frozen=True, slots=True)
class SignalRef:
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The fitted map of a signal to a probability, which ``key`` names.

    It is that of a right answer (EM) in this round, of one at the ``end``, or (``gain``) of one only there.
    """

    name: str
    target: str = ""

    @classmethod
    def of(cls, key: str) -> Calibrated:
        name, _, target = key.rpartition(", ")
        return cls(name, target) if target in TARGETS else cls(key)

    @property
    def key(self) -> str:
        return f"{self.name}, {self.target}" if self.target else self.name

    def __str__(self) -> str:
        return f"calibrated({self.key})"


@dataclass(frozen=True, slots=True)
class Variable:
    """The 1-based round, its mean EM on the fitting split, or a draw in [0, 1) of each question."""

    text: Literal["round", "base_rate()", "coin()"]

    def __str__(self) -> str:
        return self.text


ROUND, BASE_RATE, COIN = Variable("round"), Variable("base_rate()"), Variable("coin()")
Operand = Number | SignalRef | Calibrated | Variable


@dataclass(frozen=True, slots=True)
class Truth:
    """A bare signal: true when defined and not 0."""

    signal: SignalRef

    def __str__(self) -> str:
        return str(self.signal)


@dataclass(frozen=True, slots=True)
class Compare:
    """A comparison; false when either side is undefined."""

    left: Operand
    operator: str
    right: Operand

    def __str__(self) -> str:
        return f"{self.left} {self.operator} {self.right}"


@dataclass(frozen=True, slots=True)
class Not:
    item: Expression

    def __str__(self) -> str:
        return f"not {_wrapped(self.item, And, Or)}"


@dataclass(frozen=True, slots=True)
class And:
    items: tuple[Expression, ...]

    def __str__(self) -> str:
        return " and ".join(_wrapped(item, Or) for item in self.items)


@dataclass(frozen=True, slots=True)
class Or:
    items: tuple[Expression, ...]

    def __str__(self) -> str:
        return " or ".join(str(item) for item in self.items)


@dataclass(frozen=True, slots=True)
class AtLeast:
    """At least ``count`` of the items hold."""

    count: int
    items: tuple[Expression, ...]

    def __str__(self) -> str:
        return f"at_least({', '.join([str(self.count), *map(str, self.items)])})"


@dataclass(frozen=True, slots=True)
class StableFor:
    """The item holds in the last ``rounds`` rounds, this one included."""

    item: Expression
    rounds: int

    def __str__(self) -> str:
        return f"stable_for({self.item}, {self.rounds})"


Expression = Truth | Compare | Not | And | Or | AtLeast | StableFor


def _wrapped(item: Expression, *looser: type) -> str:
    return f"({item})" if isinstance(item, looser) else str(item)


_MEANT = {
    "=>": ">=",
    "=<": "<=",
    "=": "==",
    "&": "and",
    "|": "or",
    "!": "not",
    "\N{GREATER-THAN OR EQUAL TO}": ">=",
    "\N{LESS-THAN OR EQUAL TO}": "<=",
    "\N{NOT EQUAL TO}": "!=",
}
"""Signs of other languages."""
_FOREIGN = re.compile(
    r"=>|=<|(?<![<>=!])=(?!=)|!(?!=)"
    "|[&|\N{GREATER-THAN OR EQUAL TO}\N{LESS-THAN OR EQUAL TO}\N{NOT EQUAL TO}]"
)


@lru_cache(maxsize=4096)
def parse(text: str) -> Expression:
    if len(text) > MAX_LENGTH:
        raise UsageError(f"a rule may have {MAX_LENGTH} characters, this one has {len(text)}")
    if (sign := _FOREIGN.search(text)) is not None:
        raise UsageError(
            f"rule {text!r}: unexpected {sign[0]!r} at character {sign.start() + 1}; did you mean "
            f"{_MEANT[sign[0]]!r}?"
        )
    if "#" in text:
        raise UsageError(f"rule {text!r}: a rule holds no comment, and a '#' begins one")
    depth = 0
    for sign in _NESTING.findall(text):
        depth += -1 if sign == ")" else 1
        if depth > MAX_DEPTH:
            raise UsageError(f"rule {text[:60]!r}...: nested deeper than {MAX_DEPTH}")
    try:
        tree = ast.parse(re.sub(r"\s", " ", text).strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        place = getattr(error, "offset", None)
        at = f" at character {place + len(text) - len(text.lstrip())}" if place else ""
        loud = re.search(r"\b(AND|OR|NOT|And|Or|Not)\b", text)
        meant = f"; did you mean {loud[0].lower()!r}?" if loud else ""
        raise UsageError(
            f"rule {text!r}: {getattr(error, 'msg', 'cannot be read')}{at}{meant}"
        ) from error
    return _Reader(text).condition(tree.body)


def _joined(kind: type[And] | type[Or], items: list[Expression]) -> Expression:
    """One item as it is; several flattened, so that parentheses that change nothing leave no trace."""
    if len(items) == 1:
        return items[0]
    flat = [
        inner for item in items for inner in (item.items if isinstance(item, kind) else (item,))
    ]
    return kind(tuple(flat))


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def _refused(self, node: ast.AST, expected: str) -> UsageError:
        near = ""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            from suffice.signals.derived import DERIVATIONS

            near = did_you_mean(node.func.id, (*sorted(_KEYWORDS - {"round"}), *DERIVATIONS))
        found = ast.unparse(node)
        return UsageError(f"rule {self._text!r}: expected {expected}, found {found:.60}{near}")

    def condition(self, node: ast.expr) -> Expression:
        match node:
            case ast.BoolOp(op, values):
                kind = And if isinstance(op, ast.And) else Or
                return _joined(kind, [self.condition(value) for value in values])
            case ast.UnaryOp(ast.Not(), inside):
                return Not(self.condition(inside))
            case ast.Compare(left, operators, others):
                return self._chain(node, [left, *others], operators)
            case ast.Call(ast.Name("at_least"), [count, *conditions], []):
                return self._at_least(count, conditions)
            case ast.Call(ast.Name("stable_for"), [item, rounds], []):
                return StableFor(self.condition(item), self._whole(rounds, _STABLE))
            case ast.Call(ast.Name("stable_for")):
                raise self._refused(node, f"a rule and a number of rounds, {_STABLE}")
        operand = self._operand(node)
        if not isinstance(operand, SignalRef):
            raise self._refused(node, f"a comparison after {operand}, as in {operand} > 0.25")
        return Truth(operand)

    def _chain(
        self, node: ast.expr, sides: list[ast.expr], operators: list[ast.cmpop]
    ) -> Expression:
        symbols = [_SYMBOLS.get(type(operator)) for operator in operators]
        read = [self._operand(side) for side in sides]
        comparisons: list[Expression] = []
        for left, symbol, right in zip(read, symbols, read[1:], strict=False):
            if symbol is None:
                raise self._refused(node, f"one of {' '.join(COMPARISONS)}")
            comparisons.append(Compare(left, symbol, right))
        return _joined(And, comparisons)

    def _at_least(self, count: ast.expr, conditions: list[ast.expr]) -> Expression:
        whole = self._whole(count, "as in at_least(2, a, b, c)")
        items = [self.condition(condition) for condition in conditions]
        if whole > len(items):
            raise UsageError(
                f"rule {self._text!r}: at_least({whole}, ...) over {len(items)} conditions; "
                f"the number must be from 1 to the number of conditions"
            )
        return AtLeast(whole, tuple(items))

    def _whole(self, node: ast.expr, form: str) -> int:
        whole = node.value if isinstance(node, ast.Constant) else None
        if not isinstance(whole, int) or isinstance(whole, bool) or not 1 <= whole < 100_000:
            raise self._refused(node, f"a whole number from 1 to 99999, {form}")
        return whole

    def _operand(self, node: ast.expr) -> Operand:
        match node:
            case ast.Name("round"):
                return ROUND
            case ast.Call(ast.Name("base_rate"), [], []):
                return BASE_RATE
            case ast.Call(ast.Name("coin"), [], []):
                return COIN
            case ast.Call(ast.Name("calibrated"), [of], []):
                return Calibrated(self._signal(of))
            case ast.Call(ast.Name("calibrated"), [of, ast.Name(target)], []) if target in TARGETS:
                return Calibrated(self._signal(of), target)
            case ast.UnaryOp(ast.USub(), ast.Constant() as value):
                return Number(-self._number(value))
            case ast.Constant():
                return Number(self._number(node))
        return SignalRef(self._signal(node))

    def _signal(self, node: ast.expr) -> str:
        if isinstance(node, ast.Name) and node.id not in _KEYWORDS:
            return node.id
        from suffice.signals.derived import DERIVATIONS, DerivedName  # hardly any rule has one

        match node:
            case ast.Call(ast.Name(how), [of, *window], []) if how in DERIVATIONS:
                rounds = [self._whole(node, f"as in {how}(NAME, 3)") for node in window]
                match of:
                    case ast.Name(name):
                        return str(DerivedName.of_rule(how, name, None, rounds))
                    case ast.BinOp(ast.Constant() as top, ast.Sub(), ast.Name(name)):
                        return str(DerivedName.of_rule(how, name, self._number(top), rounds))
        raise self._refused(node, _ANY)

    def _number(self, node: ast.Constant) -> float:
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            raise self._refused(node, _ANY)
        try:
            value = float(node.value)
        except OverflowError:
            value = math.inf
        if math.isinf(value):
            raise UsageError(f"rule {self._text[:60]!r}: a number in it is too large")
        return value


# --- what a rule means ----------------------------------------------------------------------------
Value = Any  # float64 and bool arrays (n_questions, n_rounds), or what is broadcast to that


def _different(left: Value, right: Value) -> Value:
    """``!=`` that is false when either side is undefined."""
    return (left < right) | (left > right)


_OPERATORS: Mapping[str, Callable[[Value, Value], Value]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": _different,
}


def _holds(expression: Expression, columns: RuleColumns) -> Value:
    match expression:
        case Truth(SignalRef(name)):
            return _different(columns.signals[name], 0.0)
        case Compare(left, symbol, right):
            return _OPERATORS[symbol](columns.value(left), columns.value(right))
        case Not(item):
            # bool ^ True negates Python and numpy truth values alike; ~ does not
            return _holds(item, columns) ^ True
        case And(items) | Or(items):
            combine = operator.and_ if isinstance(expression, And) else operator.or_
            return reduce(combine, (_holds(item, columns) for item in items))
        case AtLeast(count, items):
            return sum(_holds(item, columns) * 1 for item in items) >= count
        case StableFor(item, rounds):
            return series.rounds_with(columns.whole(_holds(item, columns) * 1.0)) >= rounds


def can_hold(expression: Expression, columns: RuleColumns) -> Value:
    """Whether the rule may be true where it compares what is defined, and false elsewhere."""
    match expression:
        case Truth(signal):
            return ~np.isnan(columns.value(signal))
        case Compare(left, _, right):
            return ~np.isnan(columns.value(left)) & ~np.isnan(columns.value(right))
        case Not():
            return np.True_
        case And(items):
            return reduce(operator.and_, (can_hold(item, columns) for item in items))
        case Or(items):
            return reduce(operator.or_, (can_hold(item, columns) for item in items))
        case AtLeast(count, items):
            return sum(can_hold(item, columns) * 1 for item in items) >= count
        case StableFor(item, rounds):
            return series.rounds_with(columns.whole(can_hold(item, columns) * 1.0)) >= rounds


def first_round(expression: Expression) -> int:
    """The round before which the rule says that it cannot hold, as in ``round >= 3 and ...``; else 1."""
    first = 1
    for part in expression.items if isinstance(expression, And) else (expression,):
        match part:
            case Compare(Variable("round"), ">=" | "==", Number(value)):
                first = max(first, math.ceil(value))
            case Compare(Variable("round"), ">", Number(value)):
                first = max(first, math.floor(value) + 1)
            case StableFor(item, rounds):
                first = max(first, first_round(item) + rounds - 1)
    return first


def _parts(expression: Expression) -> Iterator[Expression]:
    """A rule's conditions, in reading order, those that hold others before them."""
    yield expression
    match expression:
        case Not(item) | StableFor(item):
            yield from _parts(item)
        case And(items) | Or(items) | AtLeast(_, items):
            for item in items:
                yield from _parts(item)


def operands(expression: Expression) -> Iterator[Operand]:
    """Every operand, in reading order, literals included."""
    for part in _parts(expression):
        match part:
            case Truth(signal):
                yield signal
            case Compare(left, _, right):
                yield from (left, right)


def comparisons(expression: Expression) -> Iterator[Compare]:
    """Every comparison, in reading order."""
    return (part for part in _parts(expression) if isinstance(part, Compare))


def check_reachable(expression: Expression, specs: Mapping[str, SignalSpec]) -> None:
    for compare in comparisons(expression):
        left, right = _range(compare.left, specs), _range(compare.right, specs)
        if isinstance(compare.left, Number) and isinstance(compare.right, Number):
            raise UsageError(f"'{compare}' compares two numbers; name a signal on one side")
        reachable = {
            "<": left[0] < right[1],
            "<=": left[0] <= right[1],
            ">": left[1] > right[0],
            ">=": left[1] >= right[0],
            "==": left[0] <= right[1] and right[0] <= left[1],
            "!=": not left[0] == left[1] == right[0] == right[1],
        }[compare.operator]
        if not reachable:
            ranges = "; ".join(
                f"{side} lies in [{low:g}, {high:g}]"
                for side, (low, high) in ((compare.left, left), (compare.right, right))
                if not isinstance(side, Number)
            )
            raise UsageError(f"'{compare}' can never hold: {ranges}")


def _range(operand: Operand, specs: Mapping[str, SignalSpec]) -> tuple[float, float]:
    match operand:
        case Number(value):
            return value, value
        case SignalRef(name):
            return specs[name].low, specs[name].high
        case Variable("round"):
            return 1.0, math.inf
        case Calibrated() | Variable():
            return 0.0, 1.0


# --- over whole columns --------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class RuleColumns:
    """Operands of every question and round, each of ``shape``, NaN where undefined.

    ``shape`` is (n_questions, n_rounds): a rule over ``round`` alone has no operand to tell it.
    """

    shape: tuple[int, int]
    signals: Mapping[str, Array]
    calibrations: Mapping[str, Array] = field(default_factory=dict)
    base_rates: Array | None = None
    question_ids: Sequence[str] = ()

    def value(self, operand: Operand) -> Value:
        match operand:
            case Number(value):
                return value
            case SignalRef(name):
                return self.signals[name]
            case Calibrated():
                return self.calibrations[operand.key]
            case Variable("round"):
                return np.arange(1, self.shape[1] + 1)
            case Variable("base_rate()"):
                return np.nan if self.base_rates is None else self.base_rates
            case Variable():
                return lots("coin", self.question_ids)[:, None]

    def whole(self, value: Value) -> Value:
        return np.broadcast_to(value, self.shape)


def rule_fires(rule: str, specs: Mapping[str, SignalSpec], columns: RuleColumns) -> Mask:
    """Where the rule holds, (n_questions, n_rounds), stored round-major."""
    expression = parse(rule)
    check_reachable(expression, specs)
    return np.array(columns.whole(_holds(expression, columns)), np.bool_, order="F")
