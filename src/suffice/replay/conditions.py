"""Conditions of searched rules: one signal, its direction, and a threshold from a grid on tune."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.calibration.per_round import PerRoundCalibrator
from suffice.errors import UsageError
from suffice.policies.fitting import FitData, fit_calibrator, out_of_fold
from suffice.policies.outcomes import Outcomes, outcomes
from suffice.policies.rule_columns import RuleColumns, rule_fires
from suffice.replay.costing import CostBook
from suffice.scoring import F1Kind
from suffice.signals.base import SignalSpec
from suffice.signals.registry import resolve
from suffice.signals.table import signal_table
from suffice.trace.table import TraceSet

__all__ = ["Operand", "Side", "grid_of", "operands_of", "scoring_side", "tuning_side"]

_CALIBRATED = re.compile(r"calibrated\(\s*([A-Za-z_][A-Za-z0-9_]*)\s*\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """What a condition looks at: a signal, or its calibrated value."""

    spec: SignalSpec
    calibrated: bool = False

    @property
    def text(self) -> str:
        """As it stands in a rule."""
        return f"calibrated({self.spec.name})" if self.calibrated else self.spec.name

    @property
    def binary(self) -> bool:
        """Whether it takes no threshold."""
        return self.spec.binary and not self.calibrated

    def condition(self, threshold: float | None = None) -> str:
        """The condition as a rule: ``>`` where high speaks for stopping, ``<`` where low does."""
        if threshold is None:
            return f"not {self.text}" if self._falls else self.text
        return (
            f"{self.text} {'<' if self._falls else '>'} {repr(float(threshold)).removesuffix('.0')}"
        )

    def can_hold(self, threshold: float) -> bool:
        """Whether a value in range passes the threshold: a rule that none can pass is refused."""
        low, high = (0.0, 1.0) if self.calibrated else (self.spec.low, self.spec.high)
        return threshold > low if self._falls else threshold < high

    @property
    def _falls(self) -> bool:
        return self.spec.direction == "low" and not self.calibrated

    def values(self, columns: RuleColumns) -> NDArray[np.float64]:
        """Its values, (n_questions, n_rounds)."""
        return (columns.calibrations if self.calibrated else columns.signals)[self.spec.name]


def operands_of(texts: Sequence[str], traces: TraceSet) -> tuple[Operand, ...]:
    """The named signals, each written as in a rule: ``name`` or ``calibrated(name)``.

    Raises
    ------
    UsageError
        For none, an unknown one, or one named twice.
    """
    found = []
    for text in texts:
        match = _CALIBRATED.fullmatch(text)
        name = match.group(1) if match else text
        spec = resolve(name, also=traces.signal_names)
        found.append(Operand(spec=spec, calibrated=match is not None))
    if not found:
        raise UsageError("name at least one signal, as in --signals answer_stable,overlap")
    twice = [each.text for index, each in enumerate(found) if each in found[:index]]
    if twice:
        raise UsageError(f"signal {twice[0]!r} is named twice; each is used at most once in a rule")
    return tuple(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One split, ready to evaluate rules on: operands, scores, recorded rounds and costs."""

    traces: TraceSet
    columns: RuleColumns
    scored: Outcomes
    book: CostBook

    def fires(self, conditions: Sequence[str], operands: Sequence[Operand]) -> NDArray[np.bool_]:
        """Where each condition holds, (n_conditions, n_questions, n_rounds)."""
        specs = {each.spec.name: each.spec for each in operands}
        fires = np.empty((len(conditions), *self.columns.shape), np.bool_)
        for number, text in enumerate(conditions):
            fires[number] = rule_fires(text, specs, self.columns)
        return fires


def tuning_side(
    data: FitData, traces: TraceSet, operands: Sequence[Operand], book: CostBook
) -> Side:
    """The split that thresholds are chosen on; calibrated values are out of fold."""
    names = dict.fromkeys(each.spec.name for each in operands)
    columns = RuleColumns(
        shape=(data.table.n_questions, data.table.n_rounds),
        signals={name: data.table.signal(name) for name in names},
        calibrations={
            each.spec.name: out_of_fold(data, each.spec.name)
            for each in operands
            if each.calibrated
        },
    )
    return Side(traces=traces, columns=columns, scored=data.outcomes, book=book)


def scoring_side(
    data: FitData,
    traces: TraceSet,
    operands: Sequence[Operand],
    book: CostBook,
    f1_kind: F1Kind = "hotpotqa",
) -> Side:
    """The split that figures are of; maps of calibrated values are fitted on all of ``data``."""
    table = signal_table(traces, dict.fromkeys(each.spec.name for each in operands))
    columns = RuleColumns(
        shape=(table.n_questions, table.n_rounds),
        signals=table.values,
        calibrations={
            each.spec.name: _mapped(
                fit_calibrator(data, each.spec.name), table.signal(each.spec.name)
            )
            for each in operands
            if each.calibrated
        },
    )
    return Side(traces=traces, columns=columns, scored=outcomes(traces, f1_kind), book=book)


def _mapped(calibrator: PerRoundCalibrator, values: NDArray[np.float64]) -> NDArray[np.float64]:
    rounds = [calibrator.predict(t + 1, column) for t, column in enumerate(values.T)]
    return np.stack(rounds).T


def grid_of(values: NDArray[np.float64], grid: int | None) -> NDArray[np.float64]:
    """Thresholds to try: evenly spaced from least to greatest, or (``None``) distinct quantiles.

    Quantiles are the 41 from 0 to 1 in steps of 2.5%. Undefined and infinite values are left out.
    """
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.empty(0)
    if grid is None:
        return np.unique(np.quantile(finite, np.linspace(0.0, 1.0, 41)))
    return np.unique(np.linspace(finite.min(), finite.max(), grid))
