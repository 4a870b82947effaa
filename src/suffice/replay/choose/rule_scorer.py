"""Conditions and formulas of a search on one split: stop rounds, scores, costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import CostReads
from suffice.measures.costs import CostAxis, CostBook, mean_costs
from suffice.measures.measures import Measures
from suffice.measures.scores import Outcomes
from suffice.policies.rules.meaning import RuleColumns
from suffice.policies.thresholds import first_stops
from suffice.replay.choose.formulas import Formula
from suffice.replay.choose.rules_as_bits import pack, stop_rounds_of_formulas
from suffice.replay.choose.thresholded_signals import Operand, condition_fires
from suffice.replay.run.frontier import interpolate
from suffice.replay.settings import GAIN_AT_COST

_BLOCK = 512
Array = NDArray[np.float64]


class RuleScorer:
    """Evaluates conditions and formulas on one split.

    Parameters
    ----------
    measures
        The split's questions.
    columns
        The operands there.
    scored, book
        Their scores and costs.
    operands
        What conditions may look at.
    axis
        The cost meant.
    """

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
        self.measures, self.columns, self.scored, self.book = measures, columns, scored, book
        self.axis = axis
        self._operands = operands
        self.last = measures.traces.last_rounds
        self.labelled = scored.labelled
        fixed = book.fixed_stops.T
        self._frontier = (
            self.costs(fixed, [CostReads()] * len(fixed)),
            self.means(scored.compared, fixed),
        )

    # --- rules ---------------------------------------------------------------------------------
    def use(self, conditions: Sequence[str]) -> None:
        """Pack the chosen conditions."""
        self._packed = pack(condition_fires(conditions, self._operands, self.columns))

    def stops(self, formulas: Sequence[Formula]) -> NDArray[np.int16]:
        """(n_formulas, n_questions)."""
        return stop_rounds_of_formulas(self._packed, formulas, self.last)

    def threshold_stops(self, operand: Operand, thresholds: Sequence[float]) -> NDArray[np.int16]:
        """(n_thresholds, n_questions); a threshold at the end of the range never fires."""
        exists = self.measures.traces.exists
        stops = np.tile(self.last, (len(thresholds), 1))
        reachable = [n for n, threshold in enumerate(thresholds) if operand.can_hold(threshold)]
        if reachable:
            conditions = [operand.condition(thresholds[n]) for n in reachable]
            fires = condition_fires(conditions, self._operands, self.columns)
            stops[reachable] = [first_stops(fired, exists) for fired in fires]
        return stops

    # --- figures -------------------------------------------------------------------------------
    def at(self, values: Array, stops: NDArray[np.int16]) -> Array:
        """Values (n_questions, n_rounds) at stop rounds, (n_labelled, n_rules)."""
        taken = np.take_along_axis(values, stops.T.astype(np.int64) - 1, axis=1)
        return taken[self.labelled]

    def means(self, values: Array, stops: NDArray[np.int16]) -> Array:
        """Their means over labelled questions, (n_rules,)."""
        parts = [
            self.at(values, stops[start : start + _BLOCK]).mean(axis=0)
            for start in range(0, len(stops), _BLOCK)
        ]
        return np.concatenate(parts)

    def costs(self, stops: NDArray[np.int16], reads: Sequence[CostReads]) -> Array:
        """Mean cost per question of every rule, (n_rules,)."""
        return mean_costs(self.book, self.axis, stops, reads)

    def objective(self, name: str, stops: NDArray[np.int16], costs: Array) -> Array:
        """What rules are ordered by, a score or the gain at equal cost, (n_rules,)."""
        if name != GAIN_AT_COST:
            return self.means(getattr(self.scored, name), stops)
        scores = self.means(self.scored.compared, stops)
        frontier_costs, frontier = (np.tile(fixed, (len(scores), 1)) for fixed in self._frontier)
        return scores - interpolate(frontier_costs, frontier, costs)
