"""Conditions of searched rules, one signal and a threshold each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.policies.fitting import FitData, fit_calibrator, out_of_fold
from suffice.policies.rules.meaning import RuleColumns, rule_fires
from suffice.policies.rules.syntax import Number
from suffice.policies.thresholds import shortest_threshold
from suffice.signals.registry import SIGNALS, SignalSpec
from suffice.signals.table import SignalTable, declared
from suffice.stats.maps.per_round import PerRoundCalibrator
from suffice.trace.rounds.table import TraceSet

Array = NDArray[np.float64]
_CALIBRATED = re.compile(r"calibrated\(\s*([A-Za-z_][A-Za-z0-9_]*)\s*\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """What a condition looks at: a signal, or its calibrated value.

    ``turned``: of a signal of one's own, whose direction nobody stated, whether low speaks for stopping.
    """

    spec: SignalSpec
    calibrated: bool = False
    turned: bool = False

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
        return f"{self.text} {'<' if self._falls else '>'} {Number(float(threshold))}"

    def can_hold(self, threshold: float) -> bool:
        """Whether a value in range passes the threshold: a rule that none can pass is refused."""
        low, high = self._range
        return threshold > low if self._falls else threshold < high

    def shortest(self, threshold: float, columns: RuleColumns) -> float:
        """The shortest threshold under which the condition holds where it does under this one."""
        low, high = self._range
        values = np.append(self.values(columns).ravel(), (low, high))
        return shortest_threshold(threshold, values, "<" if self._falls else ">")

    @property
    def _range(self) -> tuple[float, float]:
        return (0.0, 1.0) if self.calibrated else (self.spec.low, self.spec.high)

    @property
    def _falls(self) -> bool:
        return ((self.spec.direction == "low") != self.turned) and not self.calibrated

    def values(self, columns: RuleColumns) -> Array:
        """Its values, (n_questions, n_rounds)."""
        return (columns.calibrations if self.calibrated else columns.signals)[self.spec.name]


def operands_of(texts: Sequence[str], traces: TraceSet) -> tuple[Operand, ...]:
    """The named signals, each written as in a rule: ``name`` or ``calibrated(name)``."""
    operands = []
    for text in texts:
        match = _CALIBRATED.fullmatch(text)
        name = match.group(1) if match else text
        spec = declared(name, traces)
        operands.append(Operand(spec=spec, calibrated=match is not None))
    if not operands:
        raise UsageError("name at least one signal, as in --signals answer_stable,overlap")
    twice = [operand.text for index, operand in enumerate(operands) if operand in operands[:index]]
    if twice:
        raise UsageError(f"signal {twice[0]!r} is named twice; each is used at most once in a rule")
    return tuple(operands)


def both_ways(operands: Sequence[Operand]) -> tuple[Operand, ...]:
    """The same, and signals of one's own turned as well."""
    turned = (
        replace(operand, turned=True)
        for operand in operands
        if operand.spec.name not in SIGNALS and not operand.calibrated
    )
    return (*operands, *turned)


def condition_fires(
    conditions: Sequence[str], operands: Sequence[Operand], columns: RuleColumns
) -> NDArray[np.bool_]:
    """Where each condition holds, (n_conditions, n_questions, n_rounds)."""
    specs = {operand.spec.name: operand.spec for operand in operands}
    fires = np.empty((len(conditions), *columns.shape), np.bool_)
    for number, text in enumerate(conditions):
        fires[number] = rule_fires(text, specs, columns)
    return fires


def tuning_columns(data: FitData, operands: Sequence[Operand]) -> RuleColumns:
    """Operands on the split that thresholds are chosen on; calibrated values are out of fold."""
    calibrated = [operand.spec.name for operand in operands if operand.calibrated]
    return RuleColumns(
        shape=data.table.exists.shape,
        signals=data.table.values,
        calibrations={name: out_of_fold(data, name) for name in calibrated},
    )


def scoring_columns(
    table: SignalTable, calibrators: Mapping[str, PerRoundCalibrator]
) -> RuleColumns:
    """Operands on other questions, calibrated by maps that were fitted on all of tune."""
    return RuleColumns(
        shape=table.exists.shape,
        signals=table.values,
        calibrations={
            name: calibrator.predict_rounds(table.signal(name))
            for name, calibrator in calibrators.items()
        },
    )


def calibrators_of(data: FitData, operands: Sequence[Operand]) -> dict[str, PerRoundCalibrator]:
    """A map for every calibrated operand, fitted on all of ``data``."""
    return {
        operand.spec.name: fit_calibrator(data, operand.spec.name)
        for operand in operands
        if operand.calibrated
    }


def grid_of(values: Array, grid: int | Literal["quantiles"]) -> Array:
    """Thresholds to try: so many, evenly spaced from least to greatest, or distinct quantiles."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.empty(0)
    if grid == "quantiles":
        return np.unique(np.quantile(finite, np.linspace(0.0, 1.0, 41)))
    return np.unique(np.linspace(finite.min(), finite.max(), grid))
