"""What a rule means: where it holds in columns of signals."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.numbers.units import lots
from suffice.policies.rules.syntax import (
    And,
    AtLeast,
    BaseRate,
    Calibrated,
    Coin,
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
from suffice.signals.spec import SignalSpec

Value = Any  # float64 and bool arrays of one round, or a number that is the same for all questions


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

Compiled = Callable[["AtRound"], Value]


def _compile_operand(operand: Operand) -> Compiled:
    match operand:
        case Number(value):
            return lambda _: value
        case SignalRef(name):
            return lambda environment: environment.signal(name)
        case Calibrated(name):
            return lambda environment: environment.calibrated(name)
        case RoundNumber():
            return lambda environment: environment.round
        case BaseRate():
            return lambda environment: environment.base_rate()
        case Coin():
            return lambda environment: environment.coin()


def compile_rule(expression: Expression, specs: Mapping[str, SignalSpec]) -> Compiled:
    """The rule as a function of an environment, giving a bool or a bool array."""
    match expression:
        case Truth(SignalRef(name)):
            # "not 0" of a signal that is never negative is one comparison instead of three
            nonzero = operator.gt if specs[name].low >= 0 else _different
            return lambda environment: nonzero(environment.signal(name), 0.0)
        case Compare(left, symbol, right):
            compare = _OPERATORS[symbol]
            left_value, right_value = _compile_operand(left), _compile_operand(right)
            return lambda environment: compare(left_value(environment), right_value(environment))
        case Not(item):
            inside = compile_rule(item, specs)
            # bool ^ True negates Python and numpy truth values alike; ~ does not
            return lambda environment: inside(environment) ^ True
        case And(items):
            return _folded(operator.and_, [compile_rule(item, specs) for item in items])
        case Or(items):
            return _folded(operator.or_, [compile_rule(item, specs) for item in items])
        case AtLeast(count, items):
            parts = [compile_rule(item, specs) for item in items]
            return lambda environment: sum(part(environment) * 1 for part in parts) >= count


def _folded(combine: Callable[[Value, Value], Value], parts: Sequence[Compiled]) -> Compiled:
    first, *others = parts

    def value(environment: AtRound) -> Value:
        result = first(environment)
        for other in others:
            result = combine(result, other(environment))
        return result

    return value


def can_hold(expression: Expression, environment: AtRound) -> Value:
    """Whether the rule may be true where it compares what is defined, and false elsewhere.

    A negation may always be: it holds where what it negates is undefined.
    """
    match expression:
        case Truth(signal):
            return ~np.isnan(_compile_operand(signal)(environment))
        case Compare(left, _, right):
            sides = (_compile_operand(side)(environment) for side in (left, right))
            return ~np.isnan(next(sides)) & ~np.isnan(next(sides))
        case Not():
            return np.True_
        case And(items):
            return np.logical_and.reduce(_each(items, environment))
        case Or(items):
            return np.logical_or.reduce(_each(items, environment))
        case AtLeast(count, items):
            return sum(part * 1 for part in _each(items, environment)) >= count


def _each(items: Sequence[Expression], environment: AtRound) -> list[Value]:
    return list(np.broadcast_arrays(*(can_hold(item, environment) for item in items)))


def first_round(expression: Expression) -> float:
    """The first round in which the rule may hold, whatever its signals are; infinite: in none."""
    stated = (
        side.value
        for one in comparisons(expression)
        for side in (one.left, one.right)
        if isinstance(side, Number)
    )
    turns = {1, *(int(value) + more for value in stated if math.isfinite(value) for more in (0, 1))}
    return next(
        (number for number in sorted(turns) if number >= 1 and _may(expression, number)[True]),
        math.inf,
    )


def _may(expression: Expression, number: int) -> dict[bool, bool]:
    """Whether a rule may be true, and whether false, in a round of which the number alone is known."""
    match expression:
        case Compare(RoundNumber(), symbol, Number(value)):
            holds = bool(_OPERATORS[symbol](number, value))
            return {holds: True, not holds: False}
        case Compare(Number(value), symbol, RoundNumber()):
            holds = bool(_OPERATORS[symbol](value, number))
            return {holds: True, not holds: False}
        case Truth() | Compare():
            return {True: True, False: True}
        case Not(item):
            inside = _may(item, number)
            return {True: inside[False], False: inside[True]}
        case And(items) | Or(items) | AtLeast(_, items):
            count = 1 if isinstance(expression, Or) else len(items)
            count = expression.count if isinstance(expression, AtLeast) else count
            parts = [_may(item, number) for item in items]
            return {
                True: sum(part[True] for part in parts) >= count,
                False: sum(part[False] for part in parts) > len(parts) - count,
            }


def operands(expression: Expression) -> Iterator[Operand]:
    """Every operand, in reading order, literals included."""
    match expression:
        case Truth(signal):
            yield signal
        case Compare(left, _, right):
            yield left
            yield right
        case Not(item):
            yield from operands(item)
        case And(items) | Or(items) | AtLeast(_, items):
            for item in items:
                yield from operands(item)


def comparisons(expression: Expression) -> Iterator[Compare]:
    """Every comparison, in reading order."""
    match expression:
        case Compare():
            yield expression
        case Not(item):
            yield from comparisons(item)
        case And(items) | Or(items) | AtLeast(_, items):
            for item in items:
                yield from comparisons(item)
        case Truth():
            pass


def check_reachable(expression: Expression, specs: Mapping[str, SignalSpec]) -> None:
    """Refuse a comparison that no value of its signals can make true."""
    match expression:
        case Compare():
            _check_compare(expression, specs)
        case Not(item):
            check_reachable(item, specs)
        case And(items) | Or(items) | AtLeast(_, items):
            for item in items:
                check_reachable(item, specs)
        case Truth():
            pass


def _check_compare(compare: Compare, specs: Mapping[str, SignalSpec]) -> None:
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
    if compare.operator == "==" and reachable:
        reachable = _equal_to_attained(compare, specs)
    if not reachable:
        ranges = "; ".join(
            f"{side} lies in [{low:g}, {high:g}]"
            for side, (low, high) in ((compare.left, left), (compare.right, right))
            if not isinstance(side, Number)
        )
        raise UsageError(f"'{compare}' can never hold: {ranges}")


def _equal_to_attained(compare: Compare, specs: Mapping[str, SignalSpec]) -> bool:
    """Whether an equality with a literal names a value that a 0/1 signal takes."""
    for side, other in ((compare.left, compare.right), (compare.right, compare.left)):
        if isinstance(side, SignalRef) and isinstance(other, Number) and specs[side.name].binary:
            return other.value in (0.0, 1.0)
        if isinstance(side, RoundNumber) and isinstance(other, Number):
            return other.value.is_integer()
    return True


def _range(operand: Operand, specs: Mapping[str, SignalSpec]) -> tuple[float, float]:
    match operand:
        case Number(value):
            return value, value
        case SignalRef(name):
            return specs[name].low, specs[name].high
        case RoundNumber():
            return 1.0, math.inf
        case Calibrated() | BaseRate() | Coin():
            return 0.0, 1.0


# --- over whole columns --------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class RuleColumns:
    """Operands of every question and round, each of ``shape``, NaN where undefined.

    ``shape`` is (n_questions, n_rounds): a rule over ``round`` alone has no operand to tell it.
    """

    shape: tuple[int, int]
    signals: Mapping[str, NDArray[np.float64]]
    calibrations: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    base_rates: NDArray[np.float64] | None = None
    question_ids: Sequence[str] = ()

    @cached_property
    def coins(self) -> NDArray[np.float64]:
        """Every question's own draw, (n_questions,)."""
        return lots("coin", self.question_ids)


def rule_fires(
    rule: str, specs: Mapping[str, SignalSpec], columns: RuleColumns
) -> NDArray[np.bool_]:
    """Where the rule holds, (n_questions, n_rounds)."""
    expression = parse(rule)
    check_reachable(expression, specs)
    return by_round(columns, compile_rule(expression, specs))


def by_round(columns: RuleColumns, holds: Compiled) -> NDArray[np.bool_]:
    """What a compiled rule gives of every question and round, (n_questions, n_rounds)."""
    n_questions, n_rounds = columns.shape
    held = np.empty((n_rounds, n_questions), np.bool_)
    for index in range(n_rounds):
        held[index] = holds(AtRound(columns, index + 1))
    return held.T


class AtRound:
    """Operands of one round."""

    __slots__ = ("_columns", "round")

    def __init__(self, columns: RuleColumns, number: int) -> None:
        self._columns = columns
        self.round = number

    def signal(self, name: str) -> NDArray[np.float64]:
        """A signal, NaN where undefined."""
        return self._columns.signals[name][:, self.round - 1]

    def calibrated(self, name: str) -> NDArray[np.float64]:
        """Its fitted map, NaN where undefined."""
        return self._columns.calibrations[name][:, self.round - 1]

    def base_rate(self) -> Any:
        """Mean tune EM of the round, NaN where undefined."""
        rates = self._columns.base_rates
        return np.nan if rates is None else rates[:, self.round - 1]

    def coin(self) -> NDArray[np.float64]:
        """Every question's own draw in [0, 1)."""
        return self._columns.coins

    def value(self, operand: Operand) -> Value:
        """Of any operand."""
        return _compile_operand(operand)(self)
