"""How MiCP's error budget is divided between rounds and answer set: a grid, on the optimisation set."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from suffice.numbers.conformal.order_statistics import tied_threshold
from suffice.policies.method import Preset
from suffice.policies.micp.stage2 import (
    Objective,
    Sampled,
    calibrate,
    evaluate,
)

_DECIMALS = 10**6


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """The chosen error levels of rounds 1..T-1 and what they scored where they were chosen.

    ``shares`` are those of the budget that the rounds spend, ``tried`` how many divisions were scored.
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
    for counts in _counts(parts, steps):
        yield tuple(Fraction(count, steps) for count in counts)


def _counts(parts: int, most: int) -> Iterator[tuple[int, ...]]:
    if parts == 0:
        yield ()
        return
    for first in range(most + 1):
        for rest in _counts(parts - 1, most - first):
            yield (first, *rest)


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


def search_allocation(
    data: Sampled,
    alpha: Fraction,
    preset: Preset,
    *,
    weight: float,
    steps: int = 10,
    objective: Objective = "composite",
) -> Allocation:
    """The division of the budget with the least objective, calibrated and scored on ``data`` alone.

    Every division of ``alpha`` in ``steps`` parts among rounds 1..T-1 and the answer set is tried. Of
    equal ones the first wins, which gives early rounds least.
    """
    allocations = search_allocations(data, alpha, preset, (objective,), steps=steps, weight=weight)
    return allocations[objective]


def search_allocations(
    data: Sampled,
    alpha: Fraction,
    preset: Preset,
    objectives: Sequence[Objective],
    *,
    weight: float,
    steps: int = 10,
) -> dict[Objective, Allocation]:
    """The same for several objectives in one pass over the divisions."""
    best: dict[Objective, Allocation] = {}
    tried = 0
    for shares in divisions(data.rounds - 1, steps):
        tried += 1
        levels = levels_of_shares(data, alpha, shares, preset)
        scored = evaluate(data, calibrate(data, alpha, levels, preset))
        for name in objectives:
            value = scored.objective(name, weight)
            if name not in best or value < best[name].objective:
                best[name] = Allocation(levels=levels, shares=shares, objective=value)
    return {name: replace(allocation, tried=tried) for name, allocation in best.items()}
