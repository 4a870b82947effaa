"""MiCP's second stage: groups, budget, what is scored; small cases by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from suffice.numbers.conformal.order_statistics import NEVER, Threshold
from suffice.policies.method import Preset
from suffice.policies.micp.stage2 import (
    Evaluation,
    Sampled,
    budget_spent,
    calibrate,
    calibrate_without_stopping,
    evaluate,
    evaluate_stops,
)

NONE = -math.inf
PRESETS: tuple[Preset, ...] = ("published", "corrected")


def data(scores: list[list[float]], best: list[list[float]], draw: float = 0.5) -> Sampled:
    score = np.array(scores, float)
    return Sampled(score=score, best_gold=np.array(best, float), draws=np.full(score.shape, draw))


def ten() -> Sampled:
    """Two rounds. Five answerable at once, two later, three never; entropies 0.0 to 0.9."""
    scores = [[each / 10, each / 10] for each in range(10)]
    best = [[0.1 * (10 - each)] * 2 for each in range(5)]
    best += [[NONE, 0.5], [NONE, 0.4], [NONE, NONE], [NONE, NONE], [NONE, NONE]]
    return data(scores, best)


def test_views_of_the_data() -> None:
    sampled = data([[0.0] * 3] * 3, [[NONE, 0.2, 0.9], [0.3, 0.3, 0.3], [NONE] * 3])
    assert (sampled.n, sampled.rounds) == (3, 3)
    assert sampled.answerable.tolist() == [[False, True, True], [True] * 3, [False] * 3]
    assert sampled.first_gold.tolist() == [0.2, 0.3, NONE]
    assert sampled.take(np.array([2, 0])).first_gold.tolist() == [NONE, 0.2]


def test_the_corrected_budget() -> None:
    """U_1 = 5 of 10, n_A = 7: 0.3 = alpha_1 6/11 + alpha_f 8/11."""
    found = calibrate(ten(), Fraction("0.3"), [Fraction("0.4")], "corrected")
    assert (found.group_sizes, found.answerable) == ((5,), 7)
    assert found.alpha_rounds == (Fraction(2, 5),)
    assert found.alpha_final == (Fraction(3, 10) - Fraction(2, 5) * Fraction(6, 11)) * Fraction(
        11, 8
    )
    assert found.stops == (Threshold(0.6, 0.5),)  # rank floor(0.4 * 6) = 2 of 0.5 to 0.9
    assert found.final == NONE  # rank floor(alpha_f * 8) = 0


def test_the_published_budget() -> None:
    """1 - a_1 = 5/10, rho = 7/10; nobody of U_1 is stopped, seven have the answer at their stop."""
    found = calibrate(ten(), Fraction("0.3"), [Fraction("0.4")], "published")
    assert found.group_sizes == (5,)
    assert found.alpha_final == (Fraction(3, 10) - Fraction(1, 5)) / Fraction(7, 10)
    assert found.stops == (Threshold(0.6),)  # strict
    # stopped are 0.0 to 0.5; the one at 0.5 before its answer came, so six confidences are left
    assert found.answerable == 6
    assert found.final == 0.4  # rank floor(1/7 * 7) = 1


def test_published_groups_are_what_earlier_rounds_leave() -> None:
    scores = [[each / 10, 0.5, 0.5] for each in range(8)]
    sampled = data(scores, [[NONE] * 3] * 4 + [[0.5] * 3] * 4)
    levels = [Fraction(3, 5), Fraction(0)]
    left = {preset: calibrate(sampled, Fraction(9, 10), levels, preset) for preset in PRESETS}
    assert left["corrected"].group_sizes == (4, 4)
    assert left["published"].stops[0] == Threshold(0.2)
    assert left["published"].group_sizes == (4, 2)


def test_overspending_levels_are_scaled_alike() -> None:
    alpha = Fraction("0.3")
    scores = [[each / 60] * 3 for each in range(60)]
    sampled = data(scores, [[NONE, NONE, 0.5]] * 60)
    for preset in PRESETS:
        found = calibrate(sampled, alpha, [Fraction("0.4"), Fraction("0.2")], preset)
        first, second = found.alpha_rounds
        assert float(first) == pytest.approx(2 * float(second), rel=1e-6)
        assert alpha * (1 - Fraction(1, 10**6)) < budget_spent(sampled, found.alpha_rounds, preset)
        assert budget_spent(sampled, found.alpha_rounds, preset) <= alpha
        assert found.final == NONE
    kept = calibrate(sampled, alpha, [Fraction("0.05"), Fraction("0.02")], "corrected")
    assert kept.alpha_rounds == (Fraction("0.05"), Fraction("0.02"))


def test_levels_beyond_zero_and_one_are_cut() -> None:
    found = calibrate(ten(), Fraction("0.9"), [Fraction(-1)], "corrected")
    assert found.alpha_rounds == (Fraction(0),)
    assert calibrate(ten(), Fraction("0.9"), [Fraction(7)], "corrected").alpha_rounds == (
        Fraction(1),
    )


def test_a_level_that_stops_nobody_leaves_its_share_to_the_answer_set() -> None:
    """Ties at the lowest score, for the strict preset; a rank of 0, for both."""
    tied = data([[0.0, 0.5]] * 40, [[NONE, NONE]] * 20 + [[0.1, 0.1], [0.5, 0.5]] * 10)
    alpha, levels = Fraction("0.3"), [Fraction("0.2")]
    found = calibrate(tied, alpha, levels, "published")
    assert found == calibrate_without_stopping(tied, alpha, "published")
    kept = calibrate(tied, alpha, levels, "corrected")  # lots stop a share of those that tie
    assert kept.alpha_rounds == tuple(levels)
    assert kept.alpha_final < calibrate_without_stopping(tied, alpha, "corrected").alpha_final
    for preset in PRESETS:
        few = calibrate(tied, alpha, [Fraction("0.04")], preset)
        assert few == calibrate_without_stopping(tied, alpha, preset)


def test_what_is_given_back_is_no_overspending() -> None:
    """Levels are scaled only by what those spend that can stop anybody."""
    scores = [[math.nan, each / 20, 0.0] for each in range(20)]
    sampled = data(scores, [[NONE, NONE, 0.5]] * 20)
    for preset in PRESETS:
        found = calibrate(sampled, Fraction("0.1"), [Fraction("0.4"), Fraction("0.1")], preset)
        assert found.alpha_rounds == (Fraction(0), Fraction("0.1"))


@pytest.mark.parametrize("preset", PRESETS)
def test_never_answerable_keeps_every_cluster(preset: Preset) -> None:
    sampled = data([[0.1, 0.2]] * 30, [[NONE, NONE]] * 30)
    found = calibrate_without_stopping(sampled, Fraction("0.2"), preset)
    assert (found.final, found.answerable, found.alpha_final) == (NONE, 0, Fraction(0))
    assert evaluate(sampled, found).covered.all()  # "Can't Answer" is in every set


@pytest.mark.parametrize("preset", PRESETS)
def test_an_empty_group_never_stops(preset: Preset) -> None:
    sampled = data([[0.0, 0.0]] * 30, [[0.5, 0.5]] * 30)
    found = calibrate(sampled, Fraction("0.2"), [Fraction(1)], preset)
    assert (found.stops, found.group_sizes) == ((NEVER,), (0,))


def test_the_answer_sets_level_is_capped_below_one() -> None:
    """One answerable question, nearly the whole budget: 1/2, so the threshold is its confidence."""
    sampled = data([[0.1, 0.1]] * 30, [[0.5, 0.5]] + [[NONE, NONE]] * 29)
    for preset in PRESETS:
        found = calibrate_without_stopping(sampled, Fraction("0.9"), preset)
        assert (found.alpha_final, found.final) == (Fraction(1, 2), 0.5)


def test_without_stopping_everyone_takes_the_full_budget() -> None:
    found = evaluate(ten(), calibrate_without_stopping(ten(), Fraction("0.3"), "corrected"))
    assert found.mean_rounds == 2.0
    assert found.answer_rate == 0.0


def test_one_round_has_no_stops() -> None:
    found = calibrate(data([[0.0]] * 9, [[0.4]] * 9), Fraction("0.3"), [], "corrected")
    assert found.stops == ()
    assert found.final == 0.4


def test_what_counts_as_covered() -> None:
    best = [[0.5, 0.5], [0.2, 0.6], [NONE, 0.9], [NONE, NONE], [NONE, NONE]]
    sampled = data([[0.0, 0.0]] * 5, best)
    never = evaluate_stops(sampled, np.zeros(5, int), 0.5)
    assert never.covered.tolist() == [True, True, True, True, True]
    early = evaluate_stops(sampled, np.ones(5, int), 0.5)
    assert early.covered.tolist() == [True, False, False, False, False]
    assert early.stop.tolist() == [1] * 5
    loose = evaluate_stops(sampled, np.array([1, 1, 0, 0, 1]), NONE)
    assert loose.covered.tolist() == [True, True, True, True, False]
    assert evaluate_stops(sampled, np.zeros(5, int), 0.7).coverage == pytest.approx(3 / 5)


def test_undefined_scores_and_ties_in_evaluation() -> None:
    sampled = data([[math.nan, 0.0], [0.3, 0.0], [0.2, 0.0]], [[0.5, 0.5]] * 3, draw=0.49)
    levels = calibrate_without_stopping(sampled, Fraction("0.3"), "corrected")
    for share, stops in ((0.5, [2, 1, 1]), (0.0, [2, 2, 1])):
        found = evaluate(
            sampled,
            type(levels)(
                stops=(Threshold(0.3, share),),
                final=NONE,
                alpha_rounds=(),
                alpha_final=Fraction(0),
                group_sizes=(),
                answerable=0,
            ),
        )
        assert found.stop.tolist() == stops


def test_the_composite_by_hand() -> None:
    """Two stop at round 1, right and wrong; two at round 2, both covered; a_1 = 2/4, a_2 = 1/2."""
    found = Evaluation(
        stop=np.array([1, 1, 2, 2]),
        early=np.array([True, True, False, False]),
        covered=np.array([True, False, True, True]),
        answerable=np.array([[True, True], [False, False], [True, True], [False, False]]),
    )
    # round 1: 1 * 1/2 - 1 * 1/2 = 0; round 2: 2 * 1/2 = 1; 1.5 - 1/4
    assert found.composite(1.0) == 1.25
    assert found.composite(2.0) == 1.0
    assert found.objective("rounds", 1.0) == 1.5
    assert found.objective("answer-rate", 1.0) == -0.5
    assert found.objective("composite", 0.0) == 1.5


def test_the_composite_of_rates_by_hand() -> None:
    """Round 1: one of two answerable stops covered, one of two others uncovered; round 2: 1 of 1."""
    found = Evaluation(
        stop=np.array([1, 1, 2, 2]),
        early=np.array([True, True, False, False]),
        covered=np.array([True, False, True, True]),
        answerable=np.array([[True, True], [False, False], [True, True], [False, False]]),
    )
    # "Can't Answer" of the last one covers it and counts neither as right nor as wrong
    assert found.objective("composite-rates", 1.0) == 1.5 - (1 / 2 - 1 / 2 + 1)
    assert found.objective("composite-rates", 2.0) == 1.5 - 2.0
    none = Evaluation(
        stop=np.array([1]),
        early=np.array([True]),
        covered=np.array([False]),
        answerable=np.array([[False, False]]),
    )
    assert none.objective("composite-rates", 1.0) == 2.0


def test_the_rates_of_stops_are_bounded_by_the_rounds() -> None:
    rng = np.random.default_rng(3)
    for _ in range(300):
        n, rounds = rng.integers(1, 8), rng.integers(1, 5)
        stop = rng.integers(1, rounds + 1, n)
        found = Evaluation(
            stop=stop,
            early=stop < rounds,
            covered=rng.random(n) < 0.5,
            answerable=np.maximum.accumulate(rng.random((n, rounds)) < 0.4, axis=1),
        )
        assert abs(found.mean_rounds - found.objective("composite-rates", 1.0)) <= rounds


def test_the_same_data_twice_give_the_same_thresholds() -> None:
    for preset in PRESETS:
        one, two = (calibrate(ten(), Fraction("0.3"), [Fraction("0.4")], preset) for _ in range(2))
        assert one == two
