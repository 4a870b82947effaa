"""Populations with known truth to choose policies on, and draws of questions from them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from tests.cut_population import PROFILES, ROUNDS, Array, Log, Population, population

from suffice.contracts import StopPolicy
from suffice.evaluation.choose.bounds import Bound, mean_of
from suffice.evaluation.choose.candidates import LATEST, Candidate, Kept
from suffice.evaluation.settings import ChoiceSettings
from suffice.measures.measures import Measures
from suffice.testing.traces import make_record
from suffice.trace.rounds.records import QuestionRecord

NARROW = 0.05
"""The loss that every fixed budget of :func:`just_above` but the full one passes by a hair."""


@dataclass(frozen=True, slots=True)
class Known:
    """A population as a record of all its profiles."""

    population: Population
    everyone: Measures

    @classmethod
    def of(cls, drawn: Population) -> Known:
        """All profiles, whole; compared by their scores."""
        traces = Log(drawn, drawn.fixed(ROUNDS), None).record(np.arange(PROFILES), 0)
        everyone = Measures.of(traces).by("score")
        everyone.scores()
        return cls(drawn, everyone)

    def draw(self, count: int, seed: int) -> Measures:
        """Some questions of it, without replacement."""
        chosen = np.zeros(PROFILES, np.bool_)
        chosen[np.random.default_rng([5, seed]).permutation(PROFILES)[:count]] = True
        return self.everyone.take(chosen)

    def draw_beside(self, tune: int, count: int, seed: int) -> Measures:
        """The 200 questions that ``tune`` numbers, to fit on, and others to rank and prove on."""
        parts = np.zeros(PROFILES, np.int8)
        fits = np.random.default_rng([6, tune]).permutation(PROFILES)
        parts[fits[:200]] = 1
        rest = np.random.default_rng([7, seed]).permutation(fits[200:])
        parts[rest[:count]] = 2
        splits: list[str | None] = ["tune" if part == 1 else "eval" for part in parts[parts > 0]]
        return self.everyone.take(parts > 0).in_splits(splits)

    def mean_at_stops(self, policy: StopPolicy, values: Array) -> float:
        """The true mean of values (PROFILES, ROUNDS) where a policy stops."""
        stops = np.minimum(self.everyone.wanted_rounds(policy), ROUNDS)
        return self.population.truth(values, stops)

    def loss_of(self, candidate: Candidate) -> float:
        """The true loss of a candidate, of whichever answer it returns."""
        settings = ChoiceSettings(metric="score", cost="rounds")
        both = [replace(candidate, answer=LATEST), candidate]
        half = Kept.of(self.everyone, both, settings).half(np.arange(PROFILES))
        return float(mean_of(half, Bound(of="signed", most=0.0))[1])

    def loss(self, policy: StopPolicy) -> float:
        """The true loss against the full budget."""
        scores = self.population.scores
        return float(scores[:, -1].mean()) - self.mean_at_stops(policy, scores)


def mixed(seed: int = 1) -> Population:
    """Some candidates lose little, some much."""
    return population(seed)


def _level(lower: float, seed: int) -> Population:
    """Scores that earlier rounds have lower, and a sign that says nothing."""
    random = np.random.default_rng(seed)
    shares = np.full(ROUNDS, 0.6 - lower)
    shares[-1] = 0.6
    right = random.random((PROFILES, ROUNDS)) < shares
    # shares exact in every round, so that truth is what was asked
    for column, share in enumerate(shares.tolist()):
        exact = np.zeros(PROFILES)
        exact[: round(share * PROFILES)] = 1.0
        right[:, column] = random.permutation(exact) > 0
    return Population(
        scores=right.astype(np.float64),
        paid=np.tile(np.arange(1.0, ROUNDS + 1), (PROFILES, 1)),
        sure=random.standard_normal((PROFILES, ROUNDS)).astype(np.float32).astype(np.float64),
    )


def nothing_helps(seed: int = 2) -> Population:
    """Every stop before the full budget loses 20 points, and no signal tells when."""
    return _level(0.2, seed)


def just_above(seed: int = 3) -> Population:
    """Every budget but the full one loses a hair more than :data:`NARROW`."""
    return _level(NARROW + 1.0 / PROFILES, seed)


def reaching(
    count: int = 240,
    *,
    reached: tuple[float, ...] = (0.3, 0.9, 0.0),
    labelled: int | None = None,
    splits: tuple[str | None, ...] = ("tune", "eval"),
    seed: int = 0,
) -> list[QuestionRecord]:
    """Each question is right from a round on, drawn with probability ``reached``, else never."""
    random = np.random.default_rng(seed)
    shares = np.diff([0.0, *reached]).clip(0.0)
    made = []
    for number in range(count):
        start = int(random.choice(len(shares) + 1, p=[*shares, 1.0 - shares.sum()]))
        answers = ["Oslo" if t >= start else f"other {t}" for t in range(len(reached))]
        made.append(
            make_record(
                f"q{number:04d}",
                answers,
                gold=["Oslo"] if labelled is None or number < labelled else [],
                margins=[float(random.normal(1.0 + 2.0 * (a == "Oslo"))) ** 2 for a in answers],
                split=splits[number % len(splits)],
            )
        )
    return made


def above_at_the_ends(seed: int = 4) -> Population:
    """Every threshold on ``sure``, either way, loses a hair more than :data:`NARROW`; budgets twice that.

    Questions of the highest and of the lowest ``sure`` are right at the full budget alone, and among the
    others any four neighbours lose and win as many: one question has one ``sure``, whatever the round.
    """
    random = np.random.default_rng(seed)
    ends = round(NARROW * PROFILES) + 8
    ordered = np.zeros((PROFILES, ROUNDS))  # by sure
    ordered[:ends, -1] = ordered[-ends:, -1] = 1.0
    middle = (PROFILES - 2 * ends) // 4
    before_and_full = np.array([[1, 0], [0, 1], [1, 1], [0, 0]], np.float64)
    four = random.permuted(np.tile(np.arange(4), (middle, 1)), axis=1).ravel()
    ordered[ends:-ends] = before_and_full[four][:, [0] * (ROUNDS - 1) + [1]]
    sure = np.sort(random.standard_normal(PROFILES)).astype(np.float32).astype(np.float64)
    rows = random.permutation(PROFILES)
    return Population(
        scores=ordered[rows],
        paid=np.tile(np.arange(1.0, ROUNDS + 1), (PROFILES, 1)),
        sure=np.tile(sure[rows, None], (1, ROUNDS)),
    )
