"""MiCP's second stage on arrays: thresholds of rounds and answer set, and their effect (paper 3).

Two errors share a budget. The policy may stop a question at round t before its right answer was sampled,
with probability ``alpha_t``. An answer set may miss a right answer that was sampled, with probability
``alpha_f``. ``published`` calibrates round t on the questions still running there, and the answer set on
the questions at their stops. ``corrected`` calibrates both on populations that no stop selects, so each
order statistic is exact and the errors add up.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from suffice.policies.method import Preset
from suffice.policies.micp.micp_settings import Grid, Objective
from suffice.stats.conformal import (
    NEVER,
    Threshold,
    lower_order_statistic,
    lower_rank,
    tied_threshold,
)
from suffice.stats.units import Array, Mask

_MOST_SCALINGS, _DECIMALS = 60, 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    """Samples of n questions over T rounds: scores, confidences of right answers and lots, each (n, T)."""

    score: Array
    best_gold: Array
    draws: Array

    @property
    def n(self) -> int:
        return len(self.score)

    @property
    def rounds(self) -> int:
        """T, the full budget."""
        return int(self.score.shape[1])

    @property
    def answerable(self) -> Mask:
        """Whether rounds 1..t sampled the right answer (A_i,t), (n, T)."""
        return self.best_gold > -math.inf

    def take(self, chosen: Mask | NDArray[np.intp]) -> Sampled:
        return Sampled(
            score=self.score[chosen], best_gold=self.best_gold[chosen], draws=self.draws[chosen]
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage2:
    stops: tuple[Threshold, ...]
    final: float
    alpha_rounds: tuple[Fraction, ...]
    alpha_final: Fraction
    group_sizes: tuple[int, ...]
    answerable: int


def calibrate(
    data: Sampled, alpha: Fraction, alpha_rounds: Sequence[Fraction], preset: Preset
) -> Stage2:
    """Return thresholds for these error levels of rounds 1..T-1; the answer set gets the rest of ``alpha``.

    Levels that overspend ``alpha`` on these questions are all scaled down alike, until the answer set
    is left nothing. A level that can stop nobody is 0 and spends nothing: in ``published`` one whose
    threshold fires on none of these questions, in ``corrected`` one whose rank is 0, which the sizes
    alone decide: to look at whom it fires on would select.

    ``corrected``: U_t holds every question whose right answer has not been sampled by round t; the
    budget is sum alpha_t (|U_t| + 1) / (n + 1) + alpha_f (n_A + 1) / (n + 1) = alpha with n_A the
    questions whose right answer some round samples; ties are broken by lot. The answer set is calibrated
    at the later of the first round that samples the right answer and the first with a level above 0 in
    ``alpha_rounds``, since nothing stops before. ``published`` (Eq. 12, 13
    and 16 as we read them): U_t holds those of them that no earlier rule stopped; the budget is sum
    (1 - a_t) alpha_t + rho alpha_f = alpha; stopping is strict.
    """
    levels = tuple(min(max(level, Fraction(0)), Fraction(1)) for level in alpha_rounds)
    # of the levels as given: which of them these questions leave would select
    earliest = next((t for t, level in enumerate(levels) if level), len(levels))
    for scaled in range(_MOST_SCALINGS):
        # the scale depends on the questions: with it, whose rank is 0 would too
        give_back = preset == "published" or not scaled
        thresholds, spent = _thresholds(data, alpha, levels, preset, earliest, give_back=give_back)
        if spent <= alpha:
            break
        # cut to decimals: levels scaled again and again would grow without end
        scale = alpha / spent * _DECIMALS
        levels = tuple(
            Fraction(math.floor(level * scale), _DECIMALS) for level in thresholds.alpha_rounds
        )
    else:
        none = (Fraction(0),) * len(levels)
        thresholds, _ = _thresholds(data, alpha, none, preset, earliest, give_back=False)
    return thresholds


def _thresholds(
    data: Sampled,
    alpha: Fraction,
    levels: Sequence[Fraction],
    preset: Preset,
    earliest: int,
    *,
    give_back: bool,
) -> tuple[Stage2, Fraction]:
    """Return thresholds at these levels, and the share of ``alpha`` that the rounds spend."""
    corrected, answerable = preset == "corrected", data.answerable
    running, at = np.ones(data.n, bool), np.full(data.n, data.rounds - 1)
    sizes: list[int] = []
    stops, used, spent = [], [], Fraction(0)
    for t, level in enumerate(levels):
        group = ~answerable[:, t] & (corrected | running)
        sizes.append(int(group.sum()))
        threshold = tied_threshold(data.score[group, t], level, randomised=corrected)
        if corrected:
            idle, among = not lower_rank(level, sizes[-1]), Fraction(sizes[-1] + 1, data.n + 1)
        else:
            fires = running & threshold.fires(data.score[:, t], data.draws[:, t])
            idle, among = not fires.any(), _share(sizes[-1], int(running.sum()))
            at[fires] = t
            running &= ~fires
        idle = give_back and idle
        stops.append(NEVER if idle else threshold)
        used.append(Fraction(0) if idle else level)
        spent += used[-1] * among
    left = max(alpha - spent, Fraction(0))
    if corrected:
        first = np.maximum(answerable.argmax(axis=1), earliest)
        confidence = data.best_gold[np.arange(data.n), first][answerable[:, -1]]
        left *= Fraction(data.n + 1, len(confidence) + 1)
    else:
        confidence = data.best_gold[np.arange(data.n), at]
        confidence = confidence[confidence > -math.inf]
        share = _share(int(answerable[:, -1].sum()), data.n)
        left = left / share if share else Fraction(0)
    n = len(confidence)
    left = min(left, Fraction(n, n + 1))
    found = Stage2(
        stops=tuple(stops),
        final=lower_order_statistic(confidence, left) if n else -math.inf,
        alpha_rounds=tuple(used),
        alpha_final=left,
        group_sizes=tuple(sizes),
        answerable=n,
    )
    return found, spent


def _share(part: int, whole: int) -> Fraction:
    return Fraction(part, whole) if whole else Fraction(0)


def budget_spent(data: Sampled, alpha_rounds: Sequence[Fraction], preset: Preset) -> Fraction:
    """Return the error budget that these levels of rounds 1..T-1 spend on these questions."""
    return _thresholds(data, Fraction(1), alpha_rounds, preset, 0, give_back=False)[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    stop: NDArray[np.int64]
    early: Mask
    covered: Mask
    answerable: Mask

    @property
    def mean_rounds(self) -> float:
        return float(self.stop.mean())

    @property
    def answer_rate(self) -> float:
        """Share of the answer sets without "Can't Answer"."""
        return float(self.early.mean())

    def composite(self, weight: float) -> float:
        """Mean rounds - weight sum_t [C_t a_t - W_t (1 - a_t)] / n (Eq. 14 as we read it); low is good.

        C_t and W_t count covered and other questions that stop at t, a_t is the share of the questions
        still running at t that are answerable there, so the sum over n lies in [-1, 1].
        """
        gain = 0.0
        for t in range(1, self.answerable.shape[1] + 1):
            running, here = self.stop >= t, self.stop == t
            if not running.any():
                break
            share = float(self.answerable[running, t - 1].mean())
            right = int(self.covered[here].sum())
            gain += right * share - (int(here.sum()) - right) * (1.0 - share)
        return self.mean_rounds - weight * gain / len(self.stop)

    def composite_rates(self, weight: float) -> float:
        """Mean rounds - weight sum_t [C_t / A_t - W_t / U_t], another reading of Eq. 14; low is good.

        A_t and U_t count the questions still running at t that are answerable there and the others, C_t
        those of A_t that stop there covered, W_t those of U_t that stop there uncovered: |sum| <= T.
        """
        gain = 0.0
        for t, here in enumerate(self.stop == np.arange(1, self.answerable.shape[1] + 1)[:, None]):
            running, answerable = self.stop > t, self.answerable[:, t]
            right, wrong = here & self.covered & answerable, here & ~self.covered & ~answerable
            gain += right.sum() / max((running & answerable).sum(), 1)
            gain -= wrong.sum() / max((running & ~answerable).sum(), 1)
        return self.mean_rounds - weight * float(gain)

    def objective(self, name: Objective, weight: float) -> float:
        """Return the objective of this name; low is good."""
        if name == "composite":
            return self.composite(weight)
        if name == "composite-rates":
            return self.composite_rates(weight)
        return self.mean_rounds if name == "rounds" else -self.answer_rate


def evaluate(data: Sampled, thresholds: Stage2) -> Evaluation:
    fires = np.zeros((data.n, data.rounds), bool)
    for t, stop in enumerate(thresholds.stops):
        fires[:, t] = stop.fires(data.score[:, t], data.draws[:, t])
    fired = np.where(fires.any(axis=1), fires.argmax(axis=1) + 1, 0)
    return evaluate_stops(data, fired, thresholds.final)


def evaluate_stops(
    data: Sampled,
    fired: NDArray[np.integer],
    final: float,
    *,
    at_most: NDArray[np.integer] | None = None,
) -> Evaluation:
    """Test the answer sets of questions whose thresholds fired at these rounds (n,); 0: none fired."""
    stop = np.where(fired > 0, fired, data.rounds).astype(np.int64)
    early = fired > 0
    if at_most is not None:
        early &= stop <= at_most
        stop = np.minimum(stop, at_most)
    confidence = data.best_gold[np.arange(data.n), stop - 1]
    answerable = data.answerable
    covered = (confidence > -math.inf) & (confidence >= final)
    covered |= ~early & ~answerable[:, -1]
    return Evaluation(stop=stop, early=early, covered=covered, answerable=answerable)


# --- how the budget is divided --------------------------------------------------------------------
_CUT = 10**6
_MOST_POINTS = 11**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The chosen error levels of rounds 1..T-1 and their objective on the same questions."""

    levels: tuple[Fraction, ...]
    shares: tuple[Fraction, ...]
    objective: float
    tried: int = 0


def divisions(parts: int, steps: int) -> Iterator[tuple[Fraction, ...]]:
    """Yield every way to give ``parts`` receivers multiples of 1 / steps that add up to at most 1."""
    for bars in itertools.combinations(range(steps + parts), parts):
        ends = (-1, *bars)
        yield tuple(Fraction(bar - end - 1, steps) for end, bar in itertools.pairwise(ends))


def box(parts: int, steps: int) -> Iterator[tuple[Fraction, ...]]:
    """Return all combinations of multiples of 1 / steps in [0, 1]; too many: of fewer steps."""
    most = max(int(_MOST_POINTS ** (1 / max(parts, 1)) + 1e-9) - 1, 1)
    steps = min(steps, most) if (steps + 1) ** parts > _MOST_POINTS else steps
    return itertools.product([Fraction(count, steps) for count in range(steps + 1)], repeat=parts)


def levels_of_shares(
    data: Sampled, alpha: Fraction, shares: Sequence[Fraction], preset: Preset
) -> tuple[Fraction, ...]:
    """Return the levels, rounded down to six decimals, by which rounds spend these shares of ``alpha``."""
    running = np.ones(data.n, bool)  # in the corrected preset no stop selects
    answerable = data.answerable
    levels = []
    for t, share in enumerate(shares):
        group = running & ~answerable[:, t]
        size = int(group.sum())
        among = Fraction(size + 1, data.n + 1)
        if preset == "published":
            among = Fraction(size, int(running.sum())) if running.any() else Fraction(1)
        # nobody left to wrong: any level spends nothing, and no threshold comes of it
        decimals = math.floor(share * alpha / among * _CUT) if among else 0
        level = min(Fraction(decimals, _CUT), Fraction(1))
        levels.append(level)
        if preset == "published":
            threshold = tied_threshold(data.score[group, t], level, randomised=False)
            running &= ~threshold.fires(data.score[:, t], data.draws[:, t])
    return tuple(levels)


def search_allocations(
    data: Sampled,
    alpha: Fraction,
    preset: Preset,
    objectives: Sequence[Objective],
    *,
    weight: float,
    steps: int = 10,
    grid: Grid = "box",
) -> dict[Objective, Allocation]:
    """Return the levels of least objective, calibrated and scored on ``data`` alone, by objective.

    ``box``: every round's level is any multiple of ``alpha / steps`` up to ``alpha`` that does not
    overspend; fewer steps beyond 1,331 points. ``shares``: ``alpha`` is divided in ``steps`` parts among
    rounds 1..T-1 and the answer set. Ties go to the levels that leave the answer set most, then to the first.
    """
    best: dict[Objective, tuple[tuple[float, Fraction], Allocation]] = {}
    tried, parts = 0, data.rounds - 1
    for shares in box(parts, steps) if grid == "box" else divisions(parts, steps):
        levels = tuple(alpha * share for share in shares)
        if grid == "shares":
            levels = levels_of_shares(data, alpha, shares, preset)
        found = calibrate(data, alpha, levels, preset)
        if found.alpha_rounds != levels:
            continue  # they overspend, or one stops nobody: the grid holds it as 0
        tried += 1
        scored = evaluate(data, found)
        for name in objectives:
            key = scored.objective(name, weight), -found.alpha_final
            if name not in best or key < best[name][0]:
                best[name] = key, Allocation(levels=levels, shares=tuple(shares), objective=key[0])
    return {name: replace(allocation, tried=tried) for name, (_, allocation) in best.items()}
