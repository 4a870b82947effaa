"""Conditions and formulas of a search on one split: stop rounds, scores, costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import CostReads
from suffice.measures.costs import CostAxis, CostBook, fixed_stops
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.numbers.units import Units, unit_weights
from suffice.policies.rules.meaning import RuleColumns
from suffice.policies.thresholds import first_stops
from suffice.replay.choose.formulas import Formula
from suffice.replay.choose.rule_stops import RuleStops
from suffice.replay.choose.rules_as_bits import pack
from suffice.replay.choose.thresholded_signals import Operand, condition_fires, part
from suffice.replay.run.frontier import interpolate
from suffice.replay.settings import GAIN_AT_COST
from suffice.scoring import ScoreName

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
