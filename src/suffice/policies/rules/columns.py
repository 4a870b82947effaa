"""A rule over whole columns: where it holds, and the first round at which it does.

The same compiled rule as in a live decision, over values that may be out of fold.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.policies.rules.meaning import check_reachable, compile_rule
from suffice.policies.rules.syntax import parse
from suffice.signals.spec import SignalSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleColumns:
    """Operands of every question and round, each of ``shape``, NaN where undefined.

    ``shape`` is (n_questions, n_rounds): a rule over ``round`` alone has no operand to tell it.
    """

    shape: tuple[int, int]
    signals: Mapping[str, NDArray[np.float64]]
    calibrations: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    base_rates: NDArray[np.float64] | None = None


def rule_fires(
    rule: str, specs: Mapping[str, SignalSpec], columns: RuleColumns
) -> NDArray[np.bool_]:
    """Where the rule holds, (n_questions, n_rounds).

    Raises
    ------
    UsageError
        For a rule that does not parse or can never hold.
    """
    expression = parse(rule)
    check_reachable(expression, specs)
    holds = compile_rule(expression, specs)
    n_questions, n_rounds = columns.shape
    fires = np.empty((n_rounds, n_questions), np.bool_)
    for index in range(n_rounds):
        fires[index] = holds(_Round(columns, index + 1))
    return fires.T


class _Round:
    """Operands of one round."""

    __slots__ = ("_columns", "round")

    def __init__(self, columns: RuleColumns, number: int) -> None:
        self._columns = columns
        self.round = number

    def signal(self, name: str) -> NDArray[np.float64]:
        return self._columns.signals[name][:, self.round - 1]

    def calibrated(self, name: str) -> NDArray[np.float64]:
        return self._columns.calibrations[name][:, self.round - 1]

    def base_rate(self) -> Any:
        rates = self._columns.base_rates
        return np.nan if rates is None else rates[:, self.round - 1]
