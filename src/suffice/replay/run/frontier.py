"""The fixed-k frontier: what always stopping after k rounds costs and scores."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

_DIGITS = 12  # of a mean: beyond lies the rounding of sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """Costs and mean F1 of fixed-1 .. fixed-R, each (n_rounds,), and the name of the cost."""

    cost_name: str = field(metadata={"json": "cost"})
    costs: tuple[float, ...]
    f1: tuple[float, ...]


def interpolate(
    costs: NDArray[np.float64], scores: NDArray[np.float64], at: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The frontier's score at given costs, row by row; clamped outside the frontier.

    Parameters
    ----------
    costs, scores
        (n_rows, n_rounds), costs never falling along a row.
    at
        (n_rows,).

    Returns
    -------
    (n_rows,): the linear mix of the two neighbouring fixed-k points, which is what a random choice
    between them would give at that cost (METHODS 1; corrected). No upper hull is taken: a fixed budget
    that costs more and scores less pulls its neighbours' mix down.

    Notes
    -----
    Costs summed over rounds never fall from k to k + 1, whatever the cost. Where some fixed-k cost the
    same (rounds that add no passage, a judge that none of them asks), the largest k stands for them.
    """
    n_rounds = costs.shape[1]
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
