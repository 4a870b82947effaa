"""Conditions of searched rules, one signal and a threshold each, and what rules of them score and cost."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import CostReads
from suffice.errors import UsageError
from suffice.measures.costs import CostAxis, CostBook, fixed_stops
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.numbers.maps.per_round import PerRoundCalibrator
from suffice.numbers.units import Units, unit_weights
from suffice.policies.fitting import FitData, fit_calibrator, out_of_fold
from suffice.policies.rules.meaning import RuleColumns, rule_fires
from suffice.policies.rules.syntax import Number
from suffice.policies.thresholds import first_stops, shortest_threshold
from suffice.replay.choose.rule_stops import Formula, RuleStops, pack
from suffice.replay.run.frontier import interpolate
from suffice.replay.settings import GAIN_AT_COST
from suffice.scoring import ScoreName
from suffice.signals.registry import SIGNALS
from suffice.signals.spec import SignalSpec
from suffice.signals.table import SignalTable, declared
from suffice.trace.rounds.table import TraceSet

_BLOCK = 512
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFigures:
    """What rules score, by name, what they cost a question and how many rounds they take, (n_rules,) each."""

    scores: Mapping[str, Array]
    costs: Array
    rounds: Array

    def of(self, rules: NDArray[np.intp]) -> RuleFigures:
        """Those of rules, each by the number of one that has the same."""
        return RuleFigures(
            scores={name: values[rules] for name, values in self.scores.items()},
            costs=self.costs[rules],
            rounds=self.rounds[rules],
        )


class RuleScorer:
    """Evaluates conditions and formulas on one split."""

    def __init__(
        self,
        measures: Measures,
        columns: RuleColumns,
        *,
        scored: Outcomes,
        book: CostBook,
        operands: Sequence[Operand],
        axis: CostAxis,
    ) -> None:
        self.measures, self.columns, self.book = measures, columns, book
        seen = self._seen = None if measures.seen is None else measures.seen.of(scored)
        self.scored = scored if seen is None else seen.outcomes(scored)
        self.axis = axis
        self._operands = operands
        self.last = measures.ends
        self.labelled = scored.labelled
        self.units = measures.units[self.labelled]
        self._of_all, self._of_labelled = _shares(measures.units), _shares(self.units)
        fixed = fixed_stops(self.last, measures.traces.n_rounds).T
        budgets = RuleStops.of_array(fixed)
        budgets = budgets.take(np.flatnonzero(self.known(budgets)))
        metric = scored.metric.score
        of_fixed = self.figures(budgets, [CostReads()] * len(budgets), [metric])
        self._frontier = (of_fixed.costs, of_fixed.scores[metric])

    # --- rules ---------------------------------------------------------------------------------
    def use(self, conditions: Sequence[str]) -> None:
        """Pack the chosen conditions."""
        self._packed = pack(condition_fires(conditions, self._operands, self.columns))

    def stops(self, formulas: Sequence[Formula]) -> RuleStops:
        """(n_formulas, n_questions)."""
        return RuleStops.of_formulas(self._packed, formulas, self.last)

    def threshold_stops(self, operand: Operand, thresholds: Sequence[float]) -> RuleStops:
        """(n_thresholds, n_questions); a threshold at the end of the range never fires."""

        def compute(rules: NDArray[np.intp], rows: slice) -> NDArray[np.int16]:
            last = self.last[rows]
            tried = [thresholds[number] for number in rules.tolist()]
            stops = np.tile(last, (len(tried), 1))
            reachable = [n for n, threshold in enumerate(tried) if operand.can_hold(threshold)]
            if reachable:
                conditions = [operand.condition(tried[n]) for n in reachable]
                fires = condition_fires(conditions, self._operands, part(self.columns, rows))
                stops[reachable] = [first_stops(fired, last) for fired in fires]
            return stops

        return RuleStops(len(thresholds), len(self.last), compute)

    def known(self, stops: RuleStops) -> NDArray[np.bool_]:
        """Rules, (n_rules,), none of whose stops (n_rules, n_questions) lies past what is known."""
        known = np.ones(len(stops), bool)
        if self._seen is not None:
            for rows, taken in stops.by_questions():
                past = self._seen.unseen[rows] & (taken > self._seen.last[rows])
                known &= ~past.any(axis=1)
        return known

    # --- figures -------------------------------------------------------------------------------
    def at(self, values: Array, stops: NDArray[np.int16], rows: slice | None = None) -> Array:
        """Values (n_questions, n_rounds) at stop rounds of those in ``rows``, (n_labelled, n_rules)."""
        rows = rows or slice(0, len(values))
        taken = np.take_along_axis(values[rows], stops.T.astype(np.int64) - 1, axis=1)
        return taken[self.labelled[rows]]

    def figures(
        self,
        stops: RuleStops,
        reads: Sequence[CostReads],
        scores: Iterable[ScoreName] = (),
    ) -> RuleFigures:
        """What every rule scores, costs and how long it runs, in one pass over the questions."""
        n_rules, n_questions = stops.shape
        of_labelled = np.zeros((n_questions, 1))
        of_labelled[self.labelled, 0] = self._of_labelled
        values = {name: getattr(self.scored, name) * of_labelled for name in scores}
        sums = {name: np.zeros(n_rules) for name in values}
        paid = {kind: self._paid(kind) for kind in dict.fromkeys(reads)}
        costs, rounds = np.zeros(n_rules), np.zeros(n_rules)
        weighted = self._weighted
        if weighted is not None:
            shape = self.measures.traces.exists.shape
            weighted_rounds = weighted(np.broadcast_to(np.arange(1.0, shape[1] + 1), shape))
        for rows, taken in stops.by_questions():
            for start in range(0, n_rules, _BLOCK):
                some = slice(start, min(start + _BLOCK, n_rules))
                for name, of in values.items():
                    sums[name][some] += self.at(of, taken[some], rows).sum(axis=0)
            here = np.arange(rows.start, rows.stop)
            for number, kind in enumerate(reads):
                costs[number] += paid[kind][here, taken[number] - 1] @ self._of_all[here]
            if weighted is None:
                rounds += taken @ self._of_all[here]
            else:
                rounds += [weighted_rounds[here, one - 1] @ self._of_all[here] for one in taken]
        labelled = int(self.labelled.sum())
        return RuleFigures(
            scores={name: total / labelled for name, total in sums.items()},
            costs=costs / n_questions,
            rounds=rounds / n_questions,
        )

    def _paid(self, reads: CostReads) -> Array:
        """What stopping after each round costs at the axis, as it counts in a mean."""
        paid = self.book.known(self.axis, reads)
        return paid if self._weighted is None else self._weighted(paid)

    @property
    def _weighted(self) -> Callable[[Array], Array] | None:
        """How costs count in a mean, where questions were cut."""
        return None if self.measures.seen is None else self.measures.seen.matrix

    def objective(self, name: str, figures: RuleFigures) -> Array:
        """What rules are ordered by, a score or the gain at equal cost, (n_rules,)."""
        if name != GAIN_AT_COST:
            return figures.scores[name]
        scores, costs = figures.scores[self.scored.metric.score], figures.costs
        if not self._frontier[1].size:
            return np.full(len(scores), np.nan)  # of no fixed budget is known what it scores
        frontier_costs, frontier = (np.tile(fixed, (len(scores), 1)) for fixed in self._frontier)
        return scores - interpolate(frontier_costs, frontier, costs)


def _shares(units: Units) -> Array:
    """What each question counts where every unit counts alike, (n,); they sum to the number of questions."""
    weights = unit_weights(units)
    return weights * (len(units) / weights.sum()) if len(units) else weights


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

    def values(self, columns: RuleColumns) -> NDArray[np.float64]:
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


def part(columns: RuleColumns, rows: slice) -> RuleColumns:
    """Those of some questions."""
    if rows == slice(0, columns.shape[0]):
        return columns
    return RuleColumns(
        shape=(rows.stop - rows.start, columns.shape[1]),
        signals={name: values[rows] for name, values in columns.signals.items()},
        calibrations={name: values[rows] for name, values in columns.calibrations.items()},
    )


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
    return _columns(data.table, {name: out_of_fold(data, name) for name in calibrated})


def scoring_columns(
    table: SignalTable, calibrators: Mapping[str, PerRoundCalibrator]
) -> RuleColumns:
    """Operands on other questions, calibrated by maps that were fitted on all of tune."""
    return _columns(
        table,
        {
            name: calibrator.predict_rounds(table.signal(name))
            for name, calibrator in calibrators.items()
        },
    )


def _columns(table: SignalTable, calibrations: Mapping[str, NDArray[np.float64]]) -> RuleColumns:
    return RuleColumns(
        shape=(table.n_questions, table.n_rounds), signals=table.values, calibrations=calibrations
    )


def calibrators_of(data: FitData, operands: Sequence[Operand]) -> dict[str, PerRoundCalibrator]:
    """A map for every calibrated operand, fitted on all of ``data``."""
    return {
        operand.spec.name: fit_calibrator(data, operand.spec.name)
        for operand in operands
        if operand.calibrated
    }


def grid_of(values: NDArray[np.float64], grid: int | Literal["quantiles"]) -> NDArray[np.float64]:
    """Thresholds to try: so many, evenly spaced from least to greatest, or distinct quantiles."""
    finite = values[np.isfinite(values)]
    if not finite.size:
        return np.empty(0)
    if grid == "quantiles":
        return np.unique(np.quantile(finite, np.linspace(0.0, 1.0, 41)))
    return np.unique(np.linspace(finite.min(), finite.max(), grid))
