"""How MiCP's error budget is divided between rounds and answer set: a grid, on the optimisation set."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal, get_args

import numpy as np

from suffice.policies.method import Preset
from suffice.policies.micp.stage2 import (
    Objective,
    Sampled,
    calibrate,
    evaluate,
)
from suffice.stats.conformal.order_statistics import tied_threshold

Grid = Literal["box", "shares"]
GRIDS: tuple[Grid, ...] = get_args(Grid)
_DECIMALS = 10**6
_MOST_POINTS = 11**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The chosen error levels of rounds 1..T-1 and what they scored where they were chosen.

    ``shares`` are the point of the grid, ``tried`` how many points were scored.
    """

    levels: tuple[Fraction, ...]
    shares: tuple[Fraction, ...]
    objective: float
    tried: int = 0


def divisions(parts: int, steps: int) -> Iterator[tuple[Fraction, ...]]:
    """Every way to give ``parts`` receivers multiples of 1 / steps that add up to at most 1.

    >>> [[str(each) for each in shares] for shares in divisions(2, 2)]
    [['0', '0'], ['0', '1/2'], ['0', '1'], ['1/2', '0'], ['1/2', '1/2'], ['1', '0']]
    """
    for bars in itertools.combinations(range(steps + parts), parts):
        ends = (-1, *bars)
        yield tuple(Fraction(bar - end - 1, steps) for end, bar in itertools.pairwise(ends))


def box(parts: int, steps: int) -> Iterator[tuple[Fraction, ...]]:
    """Every combination of multiples of 1 / steps in [0, 1], of fewer steps where they are too many.

    >>> len(list(box(2, 10))), len(list(box(9, 10)))
    (121, 512)
    """
    most = max(int(_MOST_POINTS ** (1 / max(parts, 1)) + 1e-9) - 1, 1)
    steps = min(steps, most) if (steps + 1) ** parts > _MOST_POINTS else steps
    return itertools.product([Fraction(count, steps) for count in range(steps + 1)], repeat=parts)


def levels_of_shares(
    data: Sampled, alpha: Fraction, shares: Sequence[Fraction], preset: Preset
) -> tuple[Fraction, ...]:
    """The error levels by which rounds spend these shares of ``alpha`` on these questions.

    A level counts only the questions whose right answer has not been sampled: the fewer they are, the
    higher a level the same share buys. Levels are cut to six decimals, downwards, and to 1.
    """
    running = np.ones(data.n, bool)
    answerable = data.answerable
    levels = []
    for t, share in enumerate(shares):
        group = running & ~answerable[:, t] if preset == "published" else ~answerable[:, t]
        size = int(group.sum())
        if preset == "published":
            among = Fraction(size, int(running.sum())) if running.any() else Fraction(1)
        else:
            among = Fraction(size + 1, data.n + 1)
        # nobody left to wrong: any level spends nothing, and no threshold comes of it
        decimals = math.floor(share * alpha / among * _DECIMALS) if among else 0
        level = min(Fraction(decimals, _DECIMALS), Fraction(1))
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
    """The levels with the least objective, calibrated and scored on ``data`` alone, for each objective.

    ``box``: every round's level is a multiple of ``alpha / steps`` up to ``alpha``, however the others
    are, unless they overspend; fewer steps where more than 1,331 points would be tried. ``shares``:
    ``alpha`` is divided in ``steps`` parts among rounds 1..T-1 and the answer set. Of equal ones that
    wins which leaves the answer set most, then the first.
    """
    best: dict[Objective, tuple[tuple[float, Fraction], Allocation]] = {}
    tried, parts = 0, data.rounds - 1
    for shares in box(parts, steps) if grid == "box" else divisions(parts, steps):
        levels = tuple(alpha * share for share in shares)
        if grid == "shares":
            levels = levels_of_shares(data, alpha, shares, preset)
        found = calibrate(data, alpha, levels, preset)
        if any(
            used not in (0, level) for used, level in zip(found.alpha_rounds, levels, strict=True)
        ):
            continue  # they overspend
        tried += 1
        scored = evaluate(data, found)
        kept = tuple(
            share if used else Fraction(0)
            for share, used in zip(shares, found.alpha_rounds, strict=True)
        )
        for name in objectives:
            key = scored.objective(name, weight), -found.alpha_final
            if name not in best or key < best[name][0]:
                best[name] = (
                    key,
                    Allocation(levels=found.alpha_rounds, shares=kept, objective=key[0]),
                )
    return {name: replace(allocation, tried=tried) for name, (_, allocation) in best.items()}
