"""Costs and scores of fixed budgets, and paired intervals of policies against them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.stats.fields import known
from suffice.stats.intervals import Interval, mean_interval, percentile_interval
from suffice.stats.units import Array, Mask


class PairedIntervals:
    def __init__(
        self,
        names: Sequence[str],
        costs: Sequence[str],
        *,
        baseline: str,
        axis: str,
        means: Array | None,
        draws: Callable[[], Array],
        units: tuple[Array, Array] | None = None,
        against: bool = True,
    ) -> None:
        """``units``: scores (n, n_scores), and how many units of equal weight say as much, (n_scores,)."""
        self._names, self._baseline = names, names.index(baseline)
        self._axis, self._against = axis, against
        self.frontier: Frontier | None = None
        if means is None:
            return
        n_rounds = len(means) // (1 + len(costs)) - len(names)
        sizes = [len(names), n_rounds] * (1 + len(costs))
        if np.isnan(means[len(names) : len(names) + n_rounds]).all():
            return
        # the first row is that of the means
        rows = np.vstack([means, draws()])
        parts = np.split(rows, np.cumsum(sizes)[:-1], axis=1)
        self._scores, self._fixed, *both = parts
        self._units, self._alone = units, np.eye(len(names) + n_rounds)
        # a policy that is a fixed budget differs from it in no question, whatever was drawn
        numbered = {f"fixed-{k + 1}": len(names) + k for k in range(n_rounds)}
        self._own = [self._alone[numbered.get(name, at)] for at, name in enumerate(names)]
        self._costs = dict(zip(costs, zip(both[::2], both[1::2], strict=True), strict=True))
        self.frontier = Frontier(
            cost_name=axis,
            costs=tuple(map(known, self._costs[axis][1][0].tolist())),
            scores=tuple(map(known, self._fixed[0].tolist())),
        )

    def of(self, name: str, *, adaptive: bool) -> dict[str, Any]:
        """Return intervals of the score and of its differences to baseline, full and fixed budgets."""
        if self.frontier is None:
            return {}
        number = self._names.index(name)
        own, one, gain = self._scores[:, number], self._own[number], None
        if self._against:
            paid, fixed_paid = self._costs[self._axis]
            line = interpolate(fixed_paid, self._fixed, paid[:, number])
            mix = self._mix(fixed_paid[0], paid[0, number], interpolate)
            gain = self._interval(own - line, one - mix, anew=True)
        baseline = self._scores[:, self._baseline]
        return {
            "interval": self._interval(own, one),
            "delta": self._interval(own - baseline, one - self._own[self._baseline]),
            "delta_full": self._interval(own - self._fixed[:, -1], one - self._alone[-1]),
            "frontier_gain": gain,
            "against_fixed": tuple(self._against_fixed(number)) if adaptive else (),
        }

    def _against_fixed(self, number: int) -> Iterator[AgainstFixed]:
        """Yield gains over the best fixed-k at each known cost of :data:`EQUAL_COSTS`."""
        own, fixed = self._scores[:, number], self._fixed
        if not self._against or np.isnan(own[0]):
            return
        for cost in EQUAL_COSTS:
            paid, fixed_paid = self._costs.get(cost, (None, None))
            if paid is None or fixed_paid is None or np.isnan(paid[0, number]):
                continue
            if cost != self._axis and np.isnan(fixed_paid[0]).all():
                continue
            spent = paid[:, number]
            best = best_mix(fixed_paid, fixed, spent)
            of_best = partial(of_mix, mix=best)
            less = self._own[number] - self._mix(fixed_paid[0], spent[0], of_best)
            gain, held = (
                self._interval(own - of, less, anew=True)
                for of in (best.score, of_best(fixed_paid, fixed, spent))
            )
            if gain and held:
                yield AgainstFixed(cost=cost, fixed=best.names[0], gain=gain, held=held)

    def _mix(self, costs: Array, at: float, line: Callable[[Array, Array, Array], Array]) -> Array:
        """Return the share of every score in what ``line`` makes of fixed budgets at a cost, (n_scores,)."""
        alike = np.where(np.isnan(self._fixed[0]), np.nan, np.eye(len(costs)))
        shares = line(np.tile(costs, (len(costs), 1)), alike, np.full(len(costs), at))
        return np.append(np.zeros(len(self._names)), np.nan_to_num(shares))

    def _interval(self, values: Array, shares: Array, *, anew: bool = False) -> Interval | None:
        """Return the interval of the mean in the first row, a sum of ``shares`` (n_scores,) of the scores.

        Where the draws below chose budgets ``anew`` it is no narrower than theirs. ``None``: unknown.
        """
        if np.isnan(values[0]):
            return None
        used, least = np.flatnonzero(np.abs(shares) > _TIE), -float(shares.sum() < 0.5)
        found = drawn = percentile_interval(float(values[0]), values[1:])
        if self._units is not None and len(used):
            scores, equal = (of[..., used] for of in self._units)
            found = mean_interval(scores @ shares[used], values[1:], least, size=float(equal.min()))
        if anew:
            found = replace(found, low=min(found.low, drawn.low), high=max(found.high, drawn.high))
        low, high = np.clip([found.low, found.high], least, 1.0).tolist()
        return Interval(estimate=drawn.estimate, low=low, high=high)


_DIGITS = 12  # of a mean: beyond lies the rounding of sums
_TIE = 1e-12
EQUAL_COSTS = ("evaluated_tokens", "seconds", "usd")
"""Costs at which a policy is compared with the best fixed budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frontier:
    """Costs and mean scores of fixed-1 .. fixed-R, each (n_rounds,), and the name of the cost."""

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
        """The line (cost, score) of :func:`best_mix` over all costs, level to the right."""
        at = np.unique([cost for _, cost, _ in self.known])
        costs, scores = (
            np.tile([one[of] for one in self.known], (len(at), 1)).astype(np.float64)
            for of in (1, 2)
        )
        return tuple(zip(at.tolist(), best_mix(costs, scores, at).score.tolist(), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgainstFixed:
    """A policy's score minus that of the best fixed budget, or mix of two, for the same mean ``cost``."""

    cost: str
    fixed: str
    gain: Interval
    held: Interval

    @property
    def loses(self) -> bool:
        """Whether it is below the named budget by both intervals."""
        return max(self.gain.high, self.held.high) < 0


@dataclass(frozen=True, slots=True)
class BestMix:
    """For each row the best score (n_rows,), and the two budgets mixed for it, (n_rows,) each, from 0."""

    score: Array
    low: NDArray[np.int64]
    high: NDArray[np.int64]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(
            f"fixed-{low + 1}" if low == high else f"fixed-{low + 1}/{high + 1}"
            for low, high in zip(self.low.tolist(), self.high.tolist(), strict=True)
        )


def of_mix(costs: Array, scores: Array, at: Array, mix: BestMix) -> Array:
    """Return the score of the first ``mix`` at cost ``at``, or as near as possible, (n_rows,)."""
    low, high = int(mix.low[0]), int(mix.high[0])
    width = costs[:, high] - costs[:, low]
    share = np.divide(at - costs[:, low], width, out=np.zeros_like(width), where=width != 0)
    mixed = scores[:, low] + np.clip(share, 0.0, 1.0) * (scores[:, high] - scores[:, low])
    return np.asarray(mixed)


def best_mix(costs: Array, scores: Array, at: Array) -> BestMix:
    """Return the best score of fixed budgets, or of a random mix of two, for a mean cost."""
    known = np.flatnonzero(~np.isnan(scores).all(axis=0))
    paid, gained = costs[:, known], scores[:, known]
    spent = np.maximum(at, paid.min(axis=1))[:, None]
    alone = np.where(paid <= spent, gained, -np.inf)

    def ends(*budgets: NDArray[np.int64]) -> list[Array]:
        return [np.take_along_axis(of, which, 1) for which in budgets for of in (paid, gained)]

    def mixed(low: NDArray[np.int64], high: NDArray[np.int64]) -> Array:
        """Return the score of each pair, -inf if it cannot cost what is spent."""
        low_cost, low_score, high_cost, high_score = ends(low, high)
        width = high_cost - low_cost
        share = (spent - low_cost) / np.where(width > 0, width, 1.0)
        mix = low_score + share * (high_score - low_score)
        return np.where((width > 0) & (share >= 0) & (share < 1), mix, -np.inf)

    # the line above all budgets at what is spent: from two that it may go through, to the budget furthest
    # above them
    low, high = alone.argmax(axis=1)[:, None], gained.argmax(axis=1)[:, None]
    for _ in known:
        low_cost, low_score, high_cost, high_score = ends(low, high)
        width = high_cost - low_cost
        slope = np.where(width > 0, (high_score - low_score) / np.where(width > 0, width, 1.0), 0.0)
        over = gained - low_score - slope * (paid - low_cost)
        above = over.argmax(axis=1)[:, None]
        higher = np.take_along_axis(over, above, 1) > _TIE / 100
        if not higher.any():
            break
        affordable = np.take_along_axis(paid, above, 1) <= spent
        low = np.where(higher & affordable, above, low)
        high = np.where(higher & ~affordable, above, high)
    top = np.maximum(alone.max(axis=1)[:, None], mixed(low, high))
    everyone = np.broadcast_to(np.arange(len(known)), paid.shape)
    low = (np.maximum(alone, mixed(everyone, high)) >= top - _TIE).argmax(axis=1)[:, None]
    reached = mixed(low, everyone)
    np.put_along_axis(reached, low, np.take_along_axis(alone, low, 1), 1)
    high = (reached >= top - _TIE).argmax(axis=1)[:, None]
    best = np.take_along_axis(reached, high, 1)
    return BestMix(score=best[:, 0], low=known[low[:, 0]], high=known[high[:, 0]])


def interpolate(costs: Array, scores: Array, at: Array) -> Array:
    """Return the frontier's score at these costs, row by row; clamped outside the frontier."""
    known = ~np.isnan(scores).all(axis=0)
    order = np.argsort(costs[:, known], axis=1, kind="stable")
    costs, scores = (np.take_along_axis(of[:, known], order, 1) for of in (costs, scores))
    spent = np.maximum(at, costs[:, 0])  # of budgets that cost the least alike the longest
    return np.array([np.interp(*row) for row in zip(spent, costs, scores, strict=True)])


def pareto_front(costs: Array, scores: Array) -> Mask:
    """Return which of several (n,) no other beats in cost and score; of equal ones the first."""
    costs, scores = np.round(costs, _DIGITS), np.round(scores, _DIGITS)
    order = np.lexsort((np.arange(len(costs)), -scores, costs))
    before = np.append(-np.inf, np.maximum.accumulate(scores[order])[:-1])
    front = np.zeros(len(costs), np.bool_)
    front[order[scores[order] > before]] = True
    return front
