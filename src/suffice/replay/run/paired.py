"""Means of all candidates and fixed budgets with paired intervals, from one set of draws."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from suffice.numbers.fields import known
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval
from suffice.replay.run.frontier import (
    EQUAL_COSTS,
    AgainstFixed,
    BestMix,
    Frontier,
    best_mix,
    interpolate,
    most_no_less,
    of_mix,
)

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which columns stand side by side: scores of candidates and of fixed-k, then each cost of both."""

    candidates: tuple[str, ...]
    n_rounds: int
    costs: tuple[str, ...]

    @property
    def n_columns(self) -> int:
        """How many they are."""
        return (len(self.candidates) + self.n_rounds) * (1 + len(self.costs))

    @property
    def scores(self) -> slice:
        """Those of scores."""
        return slice(0, len(self.candidates) + self.n_rounds)

    def columns(
        self,
        scores: tuple[Sequence[Array], Array],
        costs: Mapping[str, tuple[Sequence[Array | None], Array | None]],
    ) -> Array:
        """They themselves, (n_questions, n_columns).

        Each part is what candidates score or pay, (n_questions,) each, and fixed-k, (n_questions, n_rounds).
        An unknown value leaves its column unknown, also in draws without its question.
        """
        of_runs, of_fixed = scores
        parts = [np.stack(of_runs, axis=1), of_fixed]
        unknown = np.full(len(of_fixed), np.nan)
        for name in self.costs:
            paid, fixed = costs[name]
            parts.append(np.stack([unknown if own is None else own for own in paid], axis=1))
            parts.append(np.full_like(of_fixed, np.nan) if fixed is None else fixed)
        return np.hstack(parts)

    def split(self, rows: Array) -> Drawn:
        """Means of the columns, (n_draws, n_columns), by what they are of."""
        sizes = [len(self.candidates), self.n_rounds] * (1 + len(self.costs))
        scores, fixed_scores, *costs = np.split(rows, np.cumsum(sizes)[:-1], axis=1)
        return Drawn(
            scores,
            fixed_scores,
            dict(zip(self.costs, costs[::2], strict=True)),
            dict(zip(self.costs, costs[1::2], strict=True)),
        )


@dataclass(frozen=True, slots=True)
class Drawn:
    """Means over some drawn questions, a row a draw: scores and, by name, costs of runs and of fixed-k."""

    scores: Array
    fixed_scores: Array
    costs: Mapping[str, Array]
    fixed_costs: Mapping[str, Array]


class PairedIntervals:
    """Paired intervals of all candidates over the labelled questions.

    ``means`` are of the layout's columns, (n_columns,), ``None``: no question is labelled; ``draws`` gives
    theirs, (n_draws, n_columns). ``against``: fixed budgets are known throughout, so that candidates can be
    held against them.
    """

    def __init__(
        self,
        layout: Layout,
        *,
        baseline: str,
        axis: str,
        means: Array | None,
        draws: Callable[[], Array],
        against: bool = True,
    ) -> None:
        self._index = {name: number for number, name in enumerate(layout.candidates)}
        self._baseline = self._index[baseline]
        self._axis = axis
        self._against = against
        self.frontier: Frontier | None = None
        if means is None:
            return
        self._means = layout.split(means[None, :])
        self._costs = [
            name
            for name, of_fixed in self._means.fixed_costs.items()
            if name == axis or not np.isnan(of_fixed).all()
        ]
        if np.isnan(self._means.fixed_scores).all():
            return
        drawn = draws()
        self._resamples = len(drawn)
        if not drawn.strides[0]:  # of one unit all draws are alike
            drawn = drawn[:1]
        self._draws = layout.split(drawn)
        self.frontier = Frontier(
            cost_name=self._axis,
            costs=tuple(map(known, self._means.fixed_costs[self._axis][0].tolist())),
            scores=tuple(map(known, self._means.fixed_scores[0].tolist())),
        )

    def score(self, name: str) -> Interval | None:
        """The score."""
        score = self._interval(lambda drawn: drawn.scores[:, self._index[name]])
        return score and _within(score, 0.0)

    def delta(self, name: str) -> Interval | None:
        """The score minus the baseline's."""
        return self._interval(
            lambda drawn: drawn.scores[:, self._index[name]] - drawn.scores[:, self._baseline]
        )

    def delta_full(self, name: str) -> Interval | None:
        """The score minus that of the full budget."""
        return self._interval(
            lambda drawn: drawn.scores[:, self._index[name]] - drawn.fixed_scores[:, -1]
        )

    def gain(self, name: str) -> Interval | None:
        """The score over the fixed-k frontier at the policy's own cost."""
        if not self._against:
            return None

        def gain(drawn: Drawn) -> Array:
            paid = drawn.costs[self._axis][:, self._index[name]]
            frontier = interpolate(drawn.fixed_costs[self._axis], drawn.fixed_scores, paid)
            return np.asarray(drawn.scores[:, self._index[name]] - frontier)

        return self._interval(gain)

    def against_fixed(self, name: str) -> tuple[AgainstFixed, ...]:
        """The score over the best that fixed-k reach for its cost, at each of :data:`EQUAL_COSTS` known."""
        if self.frontier is None or not self._against:
            return ()
        number = self._index[name]
        compared = []
        for cost in EQUAL_COSTS:
            if cost not in self._costs or np.isnan(self._means.costs[cost][0, number]):
                continue
            if np.isnan(self._means.scores[0, number]):
                continue

            def best(drawn: Drawn, cost: str = cost) -> BestMix:
                return best_mix(
                    drawn.fixed_costs[cost], drawn.fixed_scores, drawn.costs[cost][:, number]
                )

            means = best(self._means)
            own, drawn = self._draws.scores[:, number], self._draws
            gain = float(self._means.scores[0, number] - means.score[0])
            named = of_mix(
                drawn.fixed_costs[cost], drawn.fixed_scores, drawn.costs[cost][:, number], means
            )
            budgets = np.where(
                np.isnan(self._means.fixed_scores[0]), np.nan, self._means.fixed_costs[cost][0]
            )
            paid = drawn.costs[cost][:, number]
            no_less = most_no_less(
                (drawn.fixed_costs[cost], drawn.fixed_scores),
                own,
                paid,
                budgets,
                float(self._means.costs[cost][0, number]),
            )
            share = no_less / len(own)
            compared.append(
                AgainstFixed(
                    p_every=(1 + share * self._resamples) / (1 + self._resamples),
                    cost=cost,
                    fixed=means.names[0],
                    gain=percentile_interval(gain, own - best(drawn).score),
                    held=percentile_interval(gain, own - named),
                )
            )
        return tuple(compared)

    def full_budget(self) -> float | None:
        """What the full budget scores; ``None``: that is not known."""
        return None if self.frontier is None else self.frontier.scores[-1]

    def _interval(self, of: Callable[[Drawn], Array]) -> Interval | None:
        if self.frontier is None:
            return None
        estimate = float(of(self._means)[0])
        if np.isnan(estimate):
            return None
        return _within(percentile_interval(estimate, of(self._draws)), -1.0)


def _within(found: Interval, least: float) -> Interval:
    """An interval of scores, or of their differences, cut at what these can be."""
    low, high = np.clip([found.low, found.high], least, 1.0).tolist()
    return replace(found, low=low, high=high)
