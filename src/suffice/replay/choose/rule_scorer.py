"""Conditions and formulas of a search on one split: stop rounds, scores, costs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from suffice.costs.usage import CostReads
from suffice.measures.costs import CostAxis, CostBook, fixed_stops, mean_costs
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
        Their scores and costs. Those of a record with cut questions are weighted here, NaN where a question
        was not seen and is not stood for.
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
        self.measures, self.columns, self.book = measures, columns, book
        seen = self._seen = None if measures.seen is None else measures.seen.of(scored)
        self.scored = scored if seen is None else seen.outcomes(scored)
        self.axis = axis
        self._operands = operands
        self.last = measures.ends
        self.labelled = scored.labelled
        fixed = fixed_stops(self.last, measures.traces.n_rounds).T
        fixed = fixed[self.known(fixed)]
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
        stops = np.tile(self.last, (len(thresholds), 1))
        reachable = [n for n, threshold in enumerate(thresholds) if operand.can_hold(threshold)]
        if reachable:
            conditions = [operand.condition(thresholds[n]) for n in reachable]
            fires = condition_fires(conditions, self._operands, self.columns)
            stops[reachable] = [first_stops(fired, self.last) for fired in fires]
        return stops

    def known(self, stops: NDArray[np.int16]) -> NDArray[np.bool_]:
        """Rules, (n_rules,), none of whose stops (n_rules, n_questions) lies past what is known."""
        if self._seen is None:
            return np.ones(len(stops), bool)
        past = self._seen.unseen & (stops > self._seen.last)
        return np.logical_not(past.any(axis=1))

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
        return np.concatenate([np.empty(0), *parts])

    def costs(self, stops: NDArray[np.int16], reads: Sequence[CostReads]) -> Array:
        """Mean cost per question of every rule, (n_rules,)."""
        return mean_costs(self.book, self.axis, stops, reads, weighted=self._weighted)

    def rounds(self, stops: NDArray[np.int16]) -> Array:
        """Mean round of every rule, (n_rules,)."""
        if self._weighted is None:
            return np.asarray(stops.mean(axis=1))
        shape = self.measures.traces.exists.shape
        rounds = self._weighted(np.broadcast_to(np.arange(1.0, shape[1] + 1), shape))
        return np.array([rounds[np.arange(shape[0]), one - 1].mean() for one in stops])

    @property
    def _weighted(self) -> Callable[[Array], Array] | None:
        """How costs count in a mean, where questions were cut."""
        return None if self.measures.seen is None else self.measures.seen.matrix

    def objective(self, name: str, stops: NDArray[np.int16], costs: Array) -> Array:
        """What rules are ordered by, a score or the gain at equal cost, (n_rules,)."""
        if name != GAIN_AT_COST:
            return self.means(getattr(self.scored, name), stops)
        scores = self.means(self.scored.compared, stops)
        if not self._frontier[1].size:
            return np.full(len(scores), np.nan)  # of no fixed budget is known what it scores
        frontier_costs, frontier = (np.tile(fixed, (len(scores), 1)) for fixed in self._frontier)
        return scores - interpolate(frontier_costs, frontier, costs)
