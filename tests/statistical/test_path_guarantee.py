"""What is proven along paths holds: just above the line, heavy tails, many paths, unequal types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import pytest
from tests.certifying import most_allowed
from tests.choice_population import NARROW, Known, just_above, mixed, nothing_helps
from tests.cut_population import PROFILES, ROUNDS, Population

from suffice.evaluation.choose.bounds import Promise
from suffice.evaluation.choose.proof import (
    COINS,
    FIRST_COINS,
    OwnPath,
    Path,
    PathTests,
    Step,
    paths_of,
    prove,
)
from suffice.evaluation.settings import LOSSES, ChoiceSettings
from suffice.policies.rules.language import parse
from suffice.policies.rules.policy import Rule

DRAWS = 2000
_SETTINGS = ChoiceSettings(metric="score", cost="rounds")
_LEVELS = (2.5, 2.0, 1.5, 1.0, 0.5, 0.0, -0.5, -1.0)


def heavy(seed: int = 5) -> Population:
    """Stopping sooner wins a little on nearly all questions and loses everything on a few.

    After each round but the last the mean loss is a hair above :data:`NARROW`.
    """
    random = np.random.default_rng(seed)
    scores = np.full((PROFILES, ROUNDS), 0.0625)
    scores[:, -1] = 0.0
    lose = round((NARROW + 0.0625 + 0.001) / (1.0 + 0.0625) * PROFILES)
    rows = random.permutation(PROFILES)[:lose]
    scores[rows, :-1], scores[rows, -1] = 0.0, 1.0
    return _population(scores, random)


def unequal(seed: int = 6) -> Population:
    """All that is lost is lost by a type of one question in ten, the first in the order of the ids."""
    random = np.random.default_rng(seed)
    scores = np.full((PROFILES, ROUNDS), 0.0)
    first = PROFILES // 10
    scores[:first, -1] = 1.0
    scores[:first:2, :-1] = 1.0  # half of them lose all
    lost = round(NARROW * PROFILES + 1) - first // 2
    scores[first : first + lost, -1] = 1.0
    return _population(scores, random)


def _population(scores: np.ndarray, random: np.random.Generator) -> Population:
    return Population(
        scores=scores,
        paid=np.tile(np.arange(1.0, ROUNDS + 1), (PROFILES, 1)),
        sure=random.standard_normal((PROFILES, ROUNDS)).astype(np.float32).astype(np.float64),
    )


def by_signal(record: Known) -> list[Path]:
    """Budgets, and thresholds of the signal that says nothing."""
    own = [OwnPath("sure > x", _LEVELS)]
    return [*paths_of(record.everyone, "rounds", own=own)]


def many(record: Known) -> list[Path]:
    """Ten paths over one signal, each from a round of its own on or with levels of its own."""
    own = [OwnPath("sure > x", tuple(level + step / 20 for level in _LEVELS)) for step in range(10)]
    return [*paths_of(record.everyone, "rounds", own=own)]


@dataclass(frozen=True, slots=True)
class Case:
    """A population, its paths, and every policy's true loss by its rule, over the coins."""

    known: Known
    paths: list[Path]
    truth: Mapping[str, float]

    @classmethod
    @cache
    def of(cls, made: Callable[[], Population], paths: Callable[[Known], list[Path]]) -> Case:
        known = Known.of(made())
        drawn = paths(known)
        scores = known.everyone.scores().compared
        rows, truth = np.arange(len(scores)), {}

        def lost(step: Step) -> float:
            stops = known.everyone.stop_rounds(Rule(rule=step.rule, own_signals=("sure",)))
            return float((scores[:, -1] - scores[rows, stops - 1]).mean())

        for path in drawn:
            before: list[tuple[Step | None, float]] = [(None, 0.0)]
            for step, loss in [(step, lost(step)) for step in path.steps]:
                # in a draw, steps between that stop nobody there are left out
                for (earlier, less), share in product(before, {*COINS, *FIRST_COINS}):
                    rule = str(parse(step.mixed(earlier, share).rule))
                    truth[rule] = (1.0 - share) * less + share * loss
                before.append((step, loss))
        return cls(known, drawn, truth)

    def broken(self, draw: int, size: int, promises: list[Promise]) -> tuple[bool, bool]:
        """Whether any promise proven on a draw is broken, and whether any was proven."""
        part = self.known.draw(size, draw)
        rows = prove(PathTests(part, part, _SETTINGS, self.paths), None, promises)
        proven = [(row.proven, row.promise.max_loss or 0.0) for row in rows if row.proven]
        lost = [self.truth[one.candidate.policy.name] > most for one, most in proven]
        return any(lost), bool(proven)


CASES: dict[str, tuple[Callable[[], Population], Callable[[Known], list[Path]]]] = {
    "mixed": (mixed, by_signal),
    "nothing": (nothing_helps, by_signal),
    "narrow": (just_above, by_signal),
    "narrow, many paths": (just_above, many),
    "heavy tail": (heavy, by_signal),
    "unequal types": (unequal, by_signal),
}


def shares(name: str, draws: int, size: int, losses: tuple[float, ...]) -> tuple[float, float]:
    """The share of draws with a broken promise, and of those that prove anything."""
    case = Case.of(*CASES[name])
    promises = [Promise(max_loss=loss) for loss in losses]
    found = [case.broken(draw, size, promises) for draw in range(draws)]
    broken, proven = np.mean(found, axis=0).tolist()
    return broken, proven


@pytest.mark.parametrize("made", [just_above, heavy, unequal])
def test_the_first_whole_step_is_a_hair_above_the_line(made: Callable[[], Population]) -> None:
    scores = made().scores
    loss = (scores[:, -1] - scores[:, -2]).mean()
    assert NARROW < loss < NARROW + 0.002


@pytest.mark.parametrize("name", ["mixed", "heavy tail"])
def test_a_fast_sample(name: str) -> None:
    broken, _ = shares(name, 12, 200, (NARROW,))
    assert broken <= most_allowed(0.05, 12)


@pytest.mark.slow
@pytest.mark.parametrize("size", [150, 600])
@pytest.mark.parametrize("name", list(CASES))
def test_one_promise_is_kept(name: str, size: int) -> None:
    broken, proven = shares(name, DRAWS, size, (0.03 if name == "mixed" else NARROW,))
    assert broken <= most_allowed(0.05, DRAWS), (broken, proven)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mixed", "narrow", "heavy tail", "unequal types"])
def test_all_promises_are_kept_together(name: str) -> None:
    broken, proven = shares(name, DRAWS, 400, LOSSES)
    assert broken <= most_allowed(0.05, DRAWS), (broken, proven)
    assert proven > 0.2
