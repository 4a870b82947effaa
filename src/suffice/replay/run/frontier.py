"""The fixed-k frontier: what always stopping after k rounds costs and scores."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product

import numpy as np
from numpy.typing import NDArray

from suffice.numbers.intervals.bootstrap import Interval

_DIGITS = 12  # of a mean: beyond lies the rounding of sums
_TIE = 1e-12
EQUAL_COSTS = ("evaluated_tokens", "seconds", "usd")
"""What a policy and the best fixed budget are compared at, each at the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """Costs and mean scores of fixed-1 .. fixed-R, each (n_rounds,), and the name of the cost.

    A score is ``None`` where some question has none in that round, a cost where one was cut before it.
    """

    cost_name: str = field(metadata={"json": "cost"})
    costs: tuple[float | None, ...]
    scores: tuple[float | None, ...] = field(metadata={"json": "{metric}"})

    @property
    def known(self) -> tuple[tuple[int, float, float], ...]:
        """(k, cost, score) of every fixed-k whose score is known."""
        numbered = enumerate(zip(self.costs, self.scores, strict=True), 1)
        return tuple(
            (number, cost, score)
            for number, (cost, score) in numbered
            if score is not None and cost is not None
        )

    @property
    def best(self) -> tuple[tuple[float, float], ...]:
        """Corners (cost, score) of the line of :func:`best_mix` over all costs, level to the right."""
        corners: list[tuple[float, float]] = []
        for _, cost, score in sorted(self.known, key=lambda at: (at[1], -at[2])):
            if corners and score <= corners[-1][1]:
                continue
            while len(corners) > 1 and _below(corners[-1], corners[-2], (cost, score)):
                corners.pop()
            corners.append((cost, score))
        return tuple(corners)


def _below(
    middle: tuple[float, float], left: tuple[float, float], right: tuple[float, float]
) -> bool:
    """Whether a mix of the outer two scores no less than the one between them."""
    width = right[0] - left[0]
    return (middle[1] - left[1]) * width <= (right[1] - left[1]) * (middle[0] - left[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstFixed:
    """A policy's score minus that of the best fixed budget, or mix of two, for the same mean ``cost``.

    ``fixed`` names that budget, chosen on the questions that are scored; ``gain`` is in shares of 1. Its
    interval takes the best anew in each resample, which favours the fixed budgets: above 0 it shows that
    looping pays, below 0 it shows little. ``held`` keeps to the budget named, which shows what lies below.
    """

    cost: str
    fixed: str
    gain: Interval
    held: Interval

    @property
    def pays(self) -> bool:
        """Whether the policy is above every fixed budget beyond the interval."""
        return self.gain.low > 0

    @property
    def loses(self) -> bool:
        """Whether it is below the budget named beyond both intervals."""
        return max(self.gain.high, self.held.high) < 0


@dataclass(frozen=True, slots=True)
class BestMix:
    """For each row the best score (n_rows,), and the two budgets mixed for it, (n_rows,) each, from 0."""

    score: NDArray[np.float64]
    low: NDArray[np.int64]
    high: NDArray[np.int64]

    @property
    def names(self) -> tuple[str, ...]:
        """What each row's best is called."""
        return tuple(
            f"fixed-{low + 1}" if low == high else f"fixed-{low + 1}/{high + 1}"
            for low, high in zip(self.low.tolist(), self.high.tolist(), strict=True)
        )


def of_mix(
    costs: NDArray[np.float64], scores: NDArray[np.float64], at: NDArray[np.float64], mix: BestMix
) -> NDArray[np.float64]:
    """The score of the first of ``mix`` where it costs ``at``, or as near as it comes, (n_rows,)."""
    low, high = int(mix.low[0]), int(mix.high[0])
    width = costs[:, high] - costs[:, low]
    share = np.where(width != 0, (at - costs[:, low]) / np.where(width != 0, width, 1.0), 0.0)
    return np.asarray(
        scores[:, low] + np.clip(share, 0.0, 1.0) * (scores[:, high] - scores[:, low])
    )


def best_mix(
    costs: NDArray[np.float64], scores: NDArray[np.float64], at: NDArray[np.float64]
) -> BestMix:
    """The best that fixed budgets, or a random choice between two of them, reach for a mean cost.

    Parameters
    ----------
    costs, scores
        Of fixed-1 .. fixed-R, (n_rows, n_rounds), in any order; budgets of unknown score (NaN in every row)
        are left out.
    at
        What may be spent, (n_rows,). Where it is less than every budget costs, the cheapest is taken.
    """
    known = np.flatnonzero(~np.isnan(scores).all(axis=0)).tolist()
    spent = np.maximum(at, costs[:, known].min(axis=1))
    n_rows = len(costs)
    best = BestMix(np.full(n_rows, -np.inf), np.zeros(n_rows, int), np.zeros(n_rows, int))
    for low, high in product(known, repeat=2):
        width = costs[:, high] - costs[:, low]
        share = np.where(
            low == high, 0.0, (spent - costs[:, low]) / np.where(width > 0, width, 1.0)
        )
        mixed = scores[:, low] + share * (scores[:, high] - scores[:, low])
        alone = (low == high) & (costs[:, low] <= spent)
        better = (alone | ((width > 0) & (share >= 0) & (share < 1))) & (mixed > best.score + _TIE)
        best.score[better], best.low[better], best.high[better] = mixed[better], low, high
    return best


def interpolate(
    costs: NDArray[np.float64], scores: NDArray[np.float64], at: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The frontier's score at given costs, row by row; clamped outside the frontier.

    Parameters
    ----------
    costs, scores
        (n_rows, n_rounds), in any order: fixed-k need not cost more than fixed-(k - 1). Budgets of unknown
        score (NaN in every row) are left out.
    at
        (n_rows,).

    Returns
    -------
    (n_rows,): the linear mix of the two neighbouring fixed-k points, which is what a random choice
    between them would give at that cost (METHODS 1; corrected). No upper hull is taken: a fixed budget
    that costs more and scores less pulls its neighbours' mix down.

    Notes
    -----
    Neighbours are neighbours in cost. Where some fixed-k cost the same (rounds that add no passage), the
    largest k stands for them.
    """
    known = ~np.isnan(scores).all(axis=0)
    costs, scores = costs[:, known], scores[:, known]
    n_rounds = costs.shape[1]
    order = np.argsort(costs, axis=1, kind="stable")
    costs, scores = np.take_along_axis(costs, order, 1), np.take_along_axis(scores, order, 1)
    if n_rounds == 1:
        return scores[:, 0].copy()
    spent = np.clip(at, costs[:, 0], costs[:, -1])
    right = np.clip((costs <= spent[:, None]).sum(axis=1), 1, n_rounds - 1)
    rows = np.arange(costs.shape[0])
    low_cost, high_cost = costs[rows, right - 1], costs[rows, right]
    low, high = scores[rows, right - 1], scores[rows, right]
    width = high_cost - low_cost
    share = np.where(width > 0, (spent - low_cost) / np.where(width > 0, width, 1.0), 1.0)
    return np.asarray(low + share * (high - low))


def pareto_front(costs: NDArray[np.float64], scores: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which of several (n,) no other beats in cost and score; of equal ones the first."""
    costs, scores = np.round(costs, _DIGITS), np.round(scores, _DIGITS)
    order = np.lexsort((np.arange(len(costs)), -scores, costs))
    before = np.append(-np.inf, np.maximum.accumulate(scores[order])[:-1])
    front = np.zeros(len(costs), np.bool_)
    front[order[scores[order] > before]] = True
    return front
