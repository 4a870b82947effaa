"""Dividing the error budget: which divisions, which levels they buy, which one wins."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from suffice.policies.method import Preset
from suffice.policies.micp.search import (
    GRIDS,
    box,
    divisions,
    levels_of_shares,
    search_allocation,
    search_allocations,
)
from suffice.policies.micp.stage2 import (
    OBJECTIVES,
    Sampled,
    budget_spent,
    calibrate,
    calibrate_without_stopping,
    evaluate,
)

PRESETS: tuple[Preset, ...] = ("published", "corrected")
ALPHA = Fraction("0.2")
WEIGHT = 14.0


def sampled(n: int = 200, rounds: int = 3, seed: int = 0) -> Sampled:
    """Those whose answer is there agree more."""
    rng = np.random.default_rng(seed)
    first = rng.choice([0, 1, 2, 9], n, p=[0.4, 0.2, 0.1, 0.3])
    known = np.arange(rounds) >= first[:, None]
    score = np.clip(rng.normal(np.where(known, 0.3, 0.7), 0.2), 0, 1).round(1)
    best = np.where(known, rng.random((n, 1)), -math.inf)
    return Sampled(score=score, best_gold=best, draws=rng.random((n, rounds)))


@pytest.mark.parametrize(("parts", "steps"), [(0, 3), (1, 4), (2, 10), (4, 10)])
def test_every_division_once(parts: int, steps: int) -> None:
    found = list(divisions(parts, steps))
    assert len(found) == len(set(found)) == math.comb(steps + parts, parts)
    assert found == sorted(found)
    assert all(len(each) == parts and 0 <= sum(each, Fraction(0)) <= 1 for each in found)


@pytest.mark.parametrize("preset", PRESETS)
def test_levels_spend_the_shares_they_were_bought_with(preset: Preset) -> None:
    data = sampled()
    for shares in divisions(2, 4):
        levels = levels_of_shares(data, ALPHA, shares, preset)
        spent = budget_spent(data, levels, preset)
        assert spent <= ALPHA * sum(shares)
        if max(levels) < 1:  # six decimals are kept
            assert float(spent) == pytest.approx(float(ALPHA * sum(shares)), abs=1e-5)


def test_a_level_never_exceeds_one_and_no_group_costs_nothing() -> None:
    data = sampled()
    everyone = Sampled(score=data.score, best_gold=np.ones_like(data.score), draws=data.draws)
    shares = (Fraction(1, 2), Fraction(1, 2))
    assert levels_of_shares(everyone, ALPHA, shares, "corrected") == (Fraction(1), Fraction(1))
    assert levels_of_shares(everyone, ALPHA, shares, "published") == (Fraction(0), Fraction(0))


@pytest.mark.parametrize("preset", PRESETS)
def test_the_winner_is_the_best_and_reproducible(preset: Preset) -> None:
    data = sampled()
    for name in OBJECTIVES:
        found = search_allocation(
            data, ALPHA, preset, weight=WEIGHT, steps=5, objective=name, grid="shares"
        )
        again = evaluate(data, calibrate(data, ALPHA, found.levels, preset))
        assert again.objective(name, WEIGHT) == found.objective
        assert found.levels == levels_of_shares(data, ALPHA, found.shares, preset)
        baseline = evaluate(data, calibrate_without_stopping(data, ALPHA, preset))
        assert found.objective <= baseline.objective(name, WEIGHT)
        assert found.tried == 21
        for shares in divisions(2, 5):
            levels = levels_of_shares(data, ALPHA, shares, preset)
            scored = evaluate(data, calibrate(data, ALPHA, levels, preset))
            assert scored.objective(name, WEIGHT) >= found.objective


@pytest.mark.parametrize("preset", PRESETS)
def test_a_box_holds_every_combination_that_does_not_overspend(preset: Preset) -> None:
    data = sampled()
    found = search_allocation(data, ALPHA, preset, weight=WEIGHT, steps=5)
    inside = []
    for shares in itertools.product([Fraction(each, 5) for each in range(6)], repeat=2):
        levels = tuple(ALPHA * share for share in shares)
        if budget_spent(data, levels, preset) <= ALPHA:
            thresholds = calibrate(data, ALPHA, levels, preset)
            inside.append((evaluate(data, thresholds).mean_rounds, -thresholds.alpha_final))
    assert found.tried == len(inside) < 36
    assert found.levels == tuple(ALPHA * share for share in found.shares)
    assert max(found.levels) <= ALPHA
    again = calibrate(data, ALPHA, found.levels, preset)
    assert (found.objective, -again.alpha_final) == min(inside)


def test_a_box_of_many_rounds_is_made_coarser() -> None:
    assert len(list(box(3, 10))) == 11**3
    assert all(len(list(box(parts, 10))) <= 11**3 for parts in (4, 5, 8, 10))
    assert list(box(1, 2)) == [(Fraction(0),), (Fraction(1, 2),), (Fraction(1),)]


def test_of_equals_the_answer_set_gets_most() -> None:
    """One question in round 2 is all that can be stopped: a level of round 1 would be wasted."""
    score = np.full((40, 3), 0.9)
    score[:, 0] = math.nan
    score[20:, 1] = 0.1
    best = np.where(np.arange(40)[:, None] >= 20, 0.5, -math.inf) * np.ones(3)
    data = Sampled(score=score, best_gold=best, draws=np.full((40, 3), 0.5))
    for preset in PRESETS:
        for grid in GRIDS:
            found = search_allocation(data, ALPHA, preset, weight=1.0, grid=grid)
            assert found.objective == 2.5
            assert found.levels[0] == 0
            # the least level of the grid whose rank among 20 is 1
            assert found.levels[1] * 21 >= 1
            assert (found.levels[1] - Fraction(1, 25)) * 21 < 1


def test_several_objectives_in_one_pass() -> None:
    data = sampled()
    together = search_allocations(data, ALPHA, "corrected", OBJECTIVES, weight=WEIGHT, steps=5)
    for name in OBJECTIVES:
        alone = search_allocation(data, ALPHA, "corrected", weight=WEIGHT, steps=5, objective=name)
        assert together[name] == alone
    assert together["rounds"].objective < 3.0  # something is stopped


def test_of_equals_the_first_wins() -> None:
    """Nothing can be stopped: every division scores alike, and the rounds get nothing."""
    data = sampled()
    undefined = Sampled(
        score=np.full_like(data.score, math.nan), best_gold=data.best_gold, draws=data.draws
    )
    found = search_allocation(undefined, ALPHA, "corrected", weight=WEIGHT, objective="rounds")
    assert found.shares == (Fraction(0), Fraction(0))
    assert found.objective == 3.0


def test_the_weight_of_the_composite_matters() -> None:
    data = sampled()
    by_rounds = search_allocation(data, ALPHA, "corrected", weight=WEIGHT, objective="rounds")
    without = search_allocation(data, ALPHA, "corrected", weight=0.0, objective="composite")
    assert without.shares == by_rounds.shares
    heavy = search_allocation(data, ALPHA, "corrected", weight=50.0, objective="composite")
    assert heavy.objective < without.objective
