"""What always stopping after k rounds costs and scores, and policies held against it, draw by draw."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from suffice.numbers.fields import known
from suffice.numbers.intervals.bootstrap import Interval, percentile_interval

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


_DIGITS = 12  # of a mean: beyond lies the rounding of sums
_TIE = 1e-12
_NEARLY = 1e-9  # a score that rounding may leave equal
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
    ``p_every`` tests "some fixed budget, or mix of two, scores no less at that cost": the greatest of their
    bootstrap p-values (intersection-union test, Berger 1982).
    """

    cost: str
    fixed: str
    gain: Interval
    held: Interval
    p_every: float = 1.0

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


def most_no_less(
    fixed: tuple[NDArray[np.float64], NDArray[np.float64]],
    own: NDArray[np.float64],
    at: NDArray[np.float64],
    paid: NDArray[np.float64],
    spent: float,
) -> int:
    """In how many draws the hardest fixed budget, or mix of two, scores no less than a policy.

    ``fixed`` are the costs and scores of fixed budgets in each draw, (n_draws, n_rounds) each, ``own`` and
    ``at`` what the policy scores and costs there. Mixed are those that cost ``spent`` by the mean costs
    ``paid`` (n_rounds,), NaN: not known.
    """
    costs, scores = fixed
    spent = max(spent, float(np.nanmin(paid)))
    low, high = np.flatnonzero(paid <= spent), np.flatnonzero(paid > spent)
    most = int((own[:, None] <= scores[:, low]).sum(axis=0).max())
    if not len(high):
        return most
    # below a line from low to high lies what rises no faster from low than from there to high; so two
    # comparisons bound what a pair can reach, and few pairs have to be counted
    nearly, left, right = (
        (own - _NEARLY)[:, None],
        at[:, None] - costs[:, low],
        costs[:, high] - at[:, None],
    )
    rise = np.where(nearly <= scores[:, low], -np.inf, np.inf)
    np.divide(nearly - scores[:, low], left, out=rise, where=left > 0)
    rise[
        costs[:, low] >= costs[:, high].min(axis=1)[:, None]
    ] = -np.inf  # may lie to the right of high
    fall = np.where(nearly <= scores[:, high], np.inf, -np.inf)
    np.divide(scores[:, high] - nearly, right, out=fall, where=right > 0)
    of_low = (rise <= fall.max(axis=1)[:, None]).sum(axis=0)
    of_high = (rise.min(axis=1)[:, None] <= fall).sum(axis=0)
    for a in np.argsort(-of_low):
        if of_low[a] <= most:
            break
        others = np.flatnonzero(of_high > most)
        bounds = (rise[:, [a]] <= fall[:, others]).sum(axis=0)
        for number in np.argsort(-bounds):
            if bounds[number] <= most:
                break
            pair = BestMix(np.zeros(1), low[[a]], high[others[[number]]])
            most = max(most, int((own <= of_mix(costs, scores, at, pair)).sum()))
    return most


def best_mix(
    costs: NDArray[np.float64], scores: NDArray[np.float64], at: NDArray[np.float64]
) -> BestMix:
    """The best that fixed budgets, or a random choice between two of them, reach for a mean cost.

    Of equal ones the first.
    """
    known = np.flatnonzero(~np.isnan(scores).all(axis=0))
    paid, gained = costs[:, known], scores[:, known]
    spent = np.maximum(at, paid.min(axis=1))[:, None]
    alone = np.where(paid <= spent, gained, -np.inf)

    def ends(*budgets: NDArray[np.int64]) -> list[NDArray[np.float64]]:
        return [np.take_along_axis(of, which, 1) for which in budgets for of in (paid, gained)]

    def mixed(low: NDArray[np.int64], high: NDArray[np.int64]) -> NDArray[np.float64]:
        """What each low scores with each high, -inf where the two cannot cost what is spent."""
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


def interpolate(
    costs: NDArray[np.float64], scores: NDArray[np.float64], at: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The frontier's score at given costs, row by row; clamped outside the frontier.

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
