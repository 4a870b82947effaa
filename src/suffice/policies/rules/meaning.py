"""What a rule means: where it holds in columns of signals."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
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
from suffice.signals.registry import SignalSpec
from suffice.stats.units import lots

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


def _holds(expression: Expression, specs: Mapping[str, SignalSpec], columns: RuleColumns) -> Value:
    match expression:
        case Truth(SignalRef(name)):
            # "not 0" of a signal that is never negative is one comparison instead of three
            nonzero = operator.gt if specs[name].low >= 0 else _different
            return nonzero(columns.signals[name], 0.0)
        case Compare(left, symbol, right):
            return _OPERATORS[symbol](columns.value(left), columns.value(right))
        case Not(item):
            # bool ^ True negates Python and numpy truth values alike; ~ does not
            return _holds(item, specs, columns) ^ True
        case And(items) | Or(items):
            combine = operator.and_ if isinstance(expression, And) else operator.or_
            return reduce(combine, (_holds(item, specs, columns) for item in items))
        case AtLeast(count, items):
            return sum(_holds(item, specs, columns) * 1 for item in items) >= count


def can_hold(expression: Expression, columns: RuleColumns) -> Value:
    """Whether the rule may be true where it compares what is defined, and false elsewhere.

    A negation may always be: it holds where what it negates is undefined.
    """
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


def _parts(expression: Expression) -> Iterator[Expression]:
    """A rule's conditions, in reading order, those that hold others before them."""
    yield expression
    match expression:
        case Not(item):
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
    """Refuse a comparison that no value of its signals can make true."""
    for comparison in comparisons(expression):
        _check_compare(comparison, specs)


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

    def value(self, operand: Operand) -> Value:
        """Of any operand, NaN where undefined."""
        match operand:
            case Number(value):
                return value
            case SignalRef(name):
                return self.signals[name]
            case Calibrated(name):
                return self.calibrations[name]
            case RoundNumber():
                return np.arange(1, self.shape[1] + 1)
            case BaseRate():
                return np.nan if self.base_rates is None else self.base_rates
            case Coin():
                return self.coins[:, None]

    def whole(self, value: Value) -> Value:
        """A value of every question and round."""
        return np.broadcast_to(value, self.shape)


def rule_fires(
    rule: str, specs: Mapping[str, SignalSpec], columns: RuleColumns
) -> NDArray[np.bool_]:
    """Where the rule holds, (n_questions, n_rounds), stored round-major."""
    expression = parse(rule)
    check_reachable(expression, specs)
    return np.array(columns.whole(_holds(expression, specs, columns)), np.bool_, order="F")
