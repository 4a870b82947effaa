"""MiCP's promise: populations whose rounds depend on each other, thousands of random splits.

Mean coverage over splits may not lie below 1 - alpha by more than three standard errors of the split
means: the test questions of a split share its thresholds, so that a pooled binomial error would be far
too small. Coverage above it is printed (``pytest -m slow -s``), not failed. That the corrected preset
keeps its promise exactly, on every population of a few questions, is a property test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from studies.micp import populations
from studies.micp.populations import KINDS, Kind

from suffice.policies.method import Preset
from suffice.policies.micp.stage2 import Sampled, Stage2, calibrate, evaluate, search_allocations
from suffice.stats.conformal import lower_order_statistic

ALPHAS = tuple(map(Fraction, ("0.05", "0.1", "0.2", "0.3")))
SIZES = (30, 100, 300, 1000)
PEOPLE, TESTED = 20_000, 300
PRESETS: tuple[Preset, ...] = ("published", "corrected")


def population(kind: Kind, rounds: int, *, seed: int = 0, people: int = PEOPLE) -> Sampled:
    """What the samples of many questions of a kind say."""
    return populations.population(kind, rounds, seed=seed, people=people).sampled


@dataclass(frozen=True)
class Spread:
    """Coverage over splits, and how far below the promise it lies in standard errors (negative)."""

    mean: float
    error: float
    rounds: float
    answered: float

    def above(self, alpha: Fraction) -> float:
        gap = self.mean - (1.0 - float(alpha))
        return gap / self.error if self.error else math.copysign(math.inf, gap)

    def shown(self, alpha: Fraction) -> str:
        return (
            f"{self.mean:.4f} ({self.above(alpha):+.1f} SE), {self.rounds:.2f} rounds, "
            f"{self.answered:.0%} answered"
        )


def over_splits(
    people: Sampled,
    alpha: Fraction,
    levels: tuple[Fraction, ...],
    preset: Preset,
    *,
    size: int,
    splits: int,
) -> Spread:
    """Calibrate on ``size`` questions and test on others, the levels fixed, again and again.

    Lots are drawn anew: the promise is over them too, and lots drawn once for a finite population
    would shift its coverage by more than the splits' standard error.
    """
    tested = min(TESTED, people.n - size)
    found = np.empty((splits, 3))
    for split in range(splits):
        rng = np.random.default_rng([17, split])
        rows = rng.choice(people.n, size + tested, replace=False)
        thresholds = calibrate(people.take(rows[:size]), alpha, levels, preset)
        drawn = people.take(rows[size:])
        lots = rng.random(drawn.score.shape)
        scored = evaluate(replace(drawn, draws=lots), thresholds)
        found[split] = scored.covered.mean(), scored.mean_rounds, scored.answer_rate
    mean, rounds, answered = found.mean(axis=0)
    error = float(found[:, 0].std(ddof=1)) / math.sqrt(splits)
    return Spread(mean=float(mean), error=error, rounds=float(rounds), answered=float(answered))


def chosen_levels(kind: Kind, rounds: int, alpha: Fraction, preset: Preset) -> tuple[Fraction, ...]:
    """By search for fewest rounds, on an optimisation set of its own."""
    optimise = population(kind, rounds, seed=1, people=300)
    steps = 10 if rounds < 5 else 5
    found = search_allocations(optimise, alpha, preset, ("rounds",), weight=1.0, steps=steps)
    return found["rounds"].levels


@pytest.mark.parametrize("kind", KINDS)
def test_stops_raise_the_rates_as_in_the_papers_table(kind: Kind) -> None:
    """Table 1's second term, mean turns less objective, is above that of no stop in 36 of 50 cells.

    That of the composite as we read it falls with every stop. Sets take every cluster here, so that
    stops alone are compared; stops that tell nothing do not raise the rates.
    """
    people, alpha = population(kind, 3), Fraction("0.2")
    order = np.random.default_rng(1).permutation(people.n)
    shuffled = replace(people, score=people.score[order])
    levels = chosen_levels(kind, 3, alpha, "corrected")

    def gains(people: Sampled, found: Stage2) -> tuple[float, float]:
        seen = evaluate(people, replace(found, final=-math.inf))
        return seen.mean_rounds - seen.composite(1.0), seen.mean_rounds - seen.composite_rates(1.0)

    without = gains(
        people, calibrate(people, alpha, (Fraction(0),) * (people.rounds - 1), "corrected")
    )
    stopped = gains(people, calibrate(people, alpha, levels, "corrected"))
    blind = gains(shuffled, calibrate(shuffled, alpha, levels, "corrected"))
    assert stopped[0] < without[0] - 0.1
    assert stopped[1] > without[1] + 0.02
    assert blind[1] < without[1] + 0.02


# --- the corrected preset keeps its promise -----------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_a_fast_sample_of_the_guarantee(kind: Kind) -> None:
    people, alpha = population(kind, 3), Fraction("0.1")
    levels = chosen_levels(kind, 3, alpha, "corrected")
    for size in (30, 300):
        found = over_splits(people, alpha, levels, "corrected", size=size, splits=300)
        assert found.above(alpha) > -3, (size, found)
        if size == 300:
            assert found.answered > 0.05, found  # something is stopped, or nothing was tested


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [2, 3, 4, 5])
@pytest.mark.parametrize("kind", KINDS)
def test_the_promise_is_kept(kind: Kind, rounds: int) -> None:
    """Every alpha with another size a number of rounds, so that together all pairs are tried."""
    people, stopped = population(kind, rounds), 0.0
    for place, alpha in enumerate(ALPHAS):
        size = SIZES[(place + rounds) % len(SIZES)]
        levels = {each: chosen_levels(kind, rounds, alpha, each) for each in PRESETS}
        paper = over_splits(people, alpha, levels["published"], "published", size=size, splits=300)
        found = over_splits(people, alpha, levels["corrected"], "corrected", size=size, splits=2000)
        where = f"{kind}, T = {rounds}, alpha = {float(alpha):<4}, n = {size:<4}"
        shown = f"corrected {found.shown(alpha)}; published {paper.shown(alpha)}"
        print(f"{where}: {shown}")  # noqa: T201
        assert found.above(alpha) > -3, (alpha, size, found)
        stopped = max(stopped, found.answered)
    assert stopped > 0.2  # a test in which nothing is ever stopped would show nothing


def test_sets_are_no_larger_than_promised_where_nothing_stops_early() -> None:
    """Counted from the first right sample they covered 0.89 here, and held 3.3 members for 2.4."""
    people, alpha = population("continuous", 3), Fraction("0.2")
    found = over_splits(people, alpha, (Fraction(0),) * 2, "corrected", size=300, splits=300)
    assert found.above(alpha) > -3
    assert found.mean < 0.81


@pytest.mark.slow
@pytest.mark.parametrize("levels", [("0", "0"), ("0", "0.1"), ("0.1", "0"), ("0", "1")])
@pytest.mark.parametrize("kind", KINDS)
def test_the_promise_is_kept_from_whichever_round_may_stop_first(
    kind: Kind, levels: tuple[str, ...]
) -> None:
    people, asked = population(kind, 3), tuple(map(Fraction, levels))
    for alpha in ALPHAS[1:]:
        for size in (30, 300):
            found = over_splits(people, alpha, asked, "corrected", size=size, splits=2000)
            print(f"{kind}, {levels}, n = {size}: {found.shown(alpha)}")  # noqa: T201
            assert found.above(alpha) > -3, (alpha, size, found)


EDGES: dict[str, tuple[int, str, tuple[str, ...]]] = {
    "never answerable": (20, "0.2", ("0.1", "0.1")),
    "always answerable": (20, "0.2", ("0.5", "1")),
    "all agree": (19, "0.1", ("0.2", "0.2")),
    "half undefined": (30, "0.3", ("0.6", "0.9")),
    "overspent": (30, "0.1", ("1", "1")),
    "tiny groups": (9, "0.1", ("0.5", "0.5")),
    "rarely answerable": (12, "0.3", ("0.1", "0.1")),
}


def edge(name: str) -> Sampled:
    """Populations at the edges of the construction."""
    rng = np.random.default_rng(5)
    people = population("5 samples", 3, people=5000)
    score, best = people.score.copy(), people.best_gold.copy()
    if name == "never answerable":
        best[:] = -np.inf
    elif name == "always answerable":
        best[:] = np.maximum(best, rng.random((people.n, 1)))
    elif name == "all agree":
        score[:] = 0.0
    elif name == "half undefined":
        score[rng.random(score.shape) < 0.5] = np.nan
    elif name == "rarely answerable":
        best[rng.random(people.n) < 0.9] = -np.inf
    return Sampled(score=score, best_gold=best, draws=people.draws)


@pytest.mark.parametrize("name", EDGES)
def test_the_promise_is_kept_at_the_edges(name: str) -> None:
    size, level, rounds = EDGES[name]
    alpha, people = Fraction(level), edge(name)
    levels = tuple(map(Fraction, rounds))
    found = over_splits(people, alpha, levels, "corrected", size=size, splits=400)
    assert found.above(alpha) > -3, found


# --- the published one does not ------------------------------------------------------------------
def twelve_questions() -> tuple[Sampled, Fraction, tuple[Fraction, ...]]:
    """Found by search. Five rounds; which questions a threshold stops empties the next groups.

    A group that is empty costs nothing, so the levels may stay high exactly in the splits that leave
    a question out which they would stop.
    """
    ranks = [
        *([1, 3, 4, 2, 2], [3, 0, 7, 10, 9], [7, 9, 6, 4, 11], [6, 1, 5, 1, 1]),
        *([4, 6, 11, 7, 8], [5, 7, 0, 3, 7], [0, 10, 2, 0, 3], [2, 11, 8, 11, 4]),
        *([11, 8, 3, 6, 0], [9, 4, 10, 5, 6], [10, 5, 1, 9, 10], [8, 2, 9, 8, 5]),
    ]
    first = np.array([3, 0, 1, 5, 1, 0, 5, 2, 4, 0, 1, 1])
    confidence = np.array([7, 10, 0, 5, 9, 4, 2, 3, 8, 1, 11, 6]) / 12.0
    sampled = np.arange(5) >= first[:, None]
    data = Sampled(
        score=np.array(ranks) / 12.0,
        best_gold=np.where(sampled, confidence[:, None], -np.inf),
        draws=np.random.default_rng(0).random((12, 5)),
    )
    return data, Fraction("0.3"), tuple(map(Fraction, ("0", "0.6", "0", "0.8")))


@pytest.mark.slow
def test_published_falls_short_where_later_groups_are_selected_and_small() -> None:
    people, alpha, levels = twelve_questions()
    found = {
        preset: over_splits(people, alpha, levels, preset, size=11, splits=2000)
        for preset in PRESETS
    }
    assert found["published"].above(alpha) < -8, found
    assert found["published"].mean < 0.62
    assert found["corrected"].above(alpha) > -3, found


def no_stop_miss_rate(alpha: Fraction, n: int, share: float) -> float:
    """Published without early stops, in closed form, for continuous confidences.

    K of n + 1 questions are answerable; the test one, if it is among them, is missed where it ranks
    below floor(alpha_f K) of K, and alpha_f = alpha n / (K - 1).
    """
    missed = 0.0
    for k in range(2, n + 2):
        level = min(alpha * n / (k - 1), Fraction(k - 1, k))
        chance = math.comb(n + 1, k) * share**k * (1.0 - share) ** (n + 1 - k)
        missed += chance * math.floor(level * k) / (n + 1)
    return missed


@pytest.mark.parametrize("preset", PRESETS)
def test_published_falls_short_where_few_are_answerable(preset: Preset) -> None:
    """Its budget counts n_A of n, its rank n_A + 1: with few answerable questions that is too many."""
    alpha, n, share, splits = Fraction("0.1"), 96, 0.2, 10_000
    rng = np.random.default_rng(3)
    misses = np.empty(splits)
    for split in range(splits):
        confidence = np.where(rng.random(n) < share, rng.random(n), -np.inf)[:, None]
        data = Sampled(score=np.zeros((n, 1)), best_gold=confidence, draws=np.zeros((n, 1)))
        found = calibrate(data, alpha, (Fraction(0),) * (data.rounds - 1), preset)
        misses[split] = share * float(np.clip(found.final, 0.0, 1.0))  # uniform confidences
    error = misses.std(ddof=1) / math.sqrt(splits)
    if preset == "published":
        wanted = no_stop_miss_rate(alpha, n, share)
        assert wanted > 0.102
        assert abs(misses.mean() - wanted) < 4 * error
        assert misses.mean() > 0.1 + 6 * error
    else:
        assert misses.mean() <= 0.1 + 3 * error


# --- the filter -----------------------------------------------------------------------------------
def passages(rng: np.random.Generator, questions: int, most: int) -> list[NDArray[np.float64]]:
    """Relevance of the right passages of each question: alike within one, more of them where poor."""
    level = rng.normal(size=questions)
    count = np.clip(np.round(most * (0.5 - 0.3 * level)), 0, most).astype(int)
    return [
        each + 0.1 * rng.standard_normal(number) for each, number in zip(level, count, strict=True)
    ]


def kept(alpha: Fraction, size: int, most: int, splits: int) -> dict[str, tuple[float, float]]:
    """Mean share kept with its standard error, of questions (corrected) and of passages (published)."""
    shares = np.empty((splits, 2))
    for split in range(splits):
        rng = np.random.default_rng([23, split])
        held, tested = passages(rng, size, most), passages(rng, 200, most)
        least = np.array([each.min() for each in held if len(each)])
        threshold = lower_order_statistic(least, alpha)
        shares[split, 0] = np.mean([(each >= threshold).all() for each in tested if len(each)])
        pooled = lower_order_statistic(np.concatenate(held), alpha)
        shares[split, 1] = np.mean(np.concatenate(tested) >= pooled)
    error = shares.std(axis=0, ddof=1) / math.sqrt(splits)
    mean = shares.mean(axis=0)
    return {
        "questions": (float(mean[0]), float(error[0])),
        "passages": (float(mean[1]), float(error[1])),
    }


@pytest.mark.slow
@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("size", [30, 100, 300])
def test_all_right_passages_of_a_question_are_kept(alpha: Fraction, size: int) -> None:
    mean, error = kept(alpha, size, 6, 2000)["questions"]
    assert mean >= 1.0 - float(alpha) - 3 * error
    # one passage a question: pooled and least are the same, and both hold
    single = kept(alpha, size, 1, 500)
    assert single["passages"][0] >= 1.0 - float(alpha) - 3 * single["passages"][1]


def test_pooled_passages_are_not_kept_as_promised() -> None:
    """Ten alike passages a question, eleven questions: rank 11 of 110 is in the second-lowest one."""
    alpha, misses = Fraction("0.1"), {"published": 0.0, "corrected": 0.0}
    for preset in misses:
        for out in range(12):
            least = np.delete(np.arange(12.0), out)
            values = np.repeat(least, 10) if preset == "published" else least
            misses[preset] += float(out < lower_order_statistic(values, alpha)) / 12
    assert misses == {"published": pytest.approx(2 / 12), "corrected": pytest.approx(1 / 12)}
