"""What ``choose`` leaves on the table against the best candidate in hindsight, beside picking on tune.

``python -m benchmarks.run choose_regret``: on populations with known truth a record of questions is drawn,
candidates are made on its part tune, and one is picked by each aim: as ``choose`` does, by the questions
that rank with those of tune; naively, by those of tune alone; and by those that rank alone. Regret is the
objective's true mean minus the least of all candidates of the same record. Of the guess, where no loss is
proven, it is told how often it truly loses more than was asked, by how much, and what it saves.

That the questions of tune rank too was decided on the populations of seeds 0 to 199; these are others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from tests.choice_population import Known, mixed
from tests.cut_population import PROFILES, ROUNDS

from suffice.contracts import StopPolicy
from suffice.evaluation.choose import candidates
from suffice.evaluation.choose.choice import Choice
from suffice.evaluation.choose.procedure import choose
from suffice.evaluation.settings import ChoiceSettings
from suffice.measures.measures import Measures

POPULATIONS, QUESTIONS, ERROR_COST, CAP, MOST_LOST = range(1000, 1200), 300, 8.0, 3.0, 0.01
WAYS = ("choose", "naive on tune", "rank alone")
AIMS = {
    "cost-per-error": ChoiceSettings(cost_per_error=ERROR_COST),
    "max-cost": ChoiceSettings(max_cost=CAP),
}
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _Means:
    """Means of all candidates, (n_members,)."""

    score: Array
    rounds: Array

    def pick(self, aim: str) -> int:
        """The best by an aim."""
        return int(np.argmin(self.objective(aim, CAP)))

    def objective(self, aim: str, cap: float) -> Array:
        """What is made small: rounds and errors, or errors of those within the cap."""
        if aim == "cost-per-error":
            return self.rounds + ERROR_COST * (1.0 - self.score)
        return np.where(self.rounds <= cap, 1.0 - self.score, np.inf)


def _means(questions: Measures, policies: list[StopPolicy]) -> _Means:
    scores = questions.scores().compared
    rows = np.arange(len(scores))
    stops = [np.minimum(questions.wanted_rounds(policy), ROUNDS) for policy in policies]
    return _Means(
        score=np.array([scores[rows, at - 1].mean() for at in stops]),
        rounds=np.array([at.mean() for at in stops]),
    )


@dataclass(frozen=True, slots=True)
class _Seen:
    """All candidates of one record: in truth, and by what each way of picking sees of them."""

    choice: Choice
    truth: _Means
    ways: dict[str, _Means]

    @classmethod
    def of(cls, known: Known, record: Measures, settings: ChoiceSettings) -> _Seen:
        """Of one choice."""
        choice = choose(record, settings)
        ranked = [one for one in choice.ranked if one.candidate.policy.policy is not None]
        policies = [policy for one in ranked if (policy := one.candidate.policy.policy) is not None]
        names = [one.candidate.policy.name for one in ranked]
        fitted = _means(record.only_split("tune"), policies)
        level = fitted.score[names.index(f"fixed-{ROUNDS}")]
        fitted = _Means(score=fitted.score - level, rounds=fitted.rounds)
        pooled = _Means(
            score=np.array([-one.loss for one in ranked]),
            rounds=np.array([one.cost for one in ranked]),
        )
        n_fit, n_rank = 0.4 * QUESTIONS, 0.2 * QUESTIONS
        alone = _Means(  # what pooling put together, taken apart
            score=((n_fit + n_rank) * pooled.score - n_fit * fitted.score) / n_rank,
            rounds=((n_fit + n_rank) * pooled.rounds - n_fit * fitted.rounds) / n_rank,
        )
        truth = _means(known.everyone, policies)
        return cls(choice, truth, dict(zip(WAYS, (pooled, fitted, alone), strict=True)))


def drawn(seed: int) -> tuple[Known, Measures]:
    """A population, and a record of some of its questions."""
    known = Known.of(mixed(seed))
    labels = np.random.default_rng(seed).permutation(QUESTIONS)
    splits = ["tune" if label < 0.4 * QUESTIONS else "eval" for label in labels]
    return known, known.draw(QUESTIONS, seed).in_splits(splits)


def asked(seed: int, aim: ChoiceSettings) -> ChoiceSettings:
    """An aim, over budgets and rules of one signal."""
    return replace(aim, metric="score", cost="rounds", resamples=2, signals=("sure",), seed=seed)


def regrets(known: Known, record: Measures, seed: int) -> dict[tuple[str, str], Array]:
    """By way and aim the regret on one population, and how far the pick truly is above the cap."""
    regretted = {}
    for aim, settings in AIMS.items():
        seen = _Seen.of(known, record, asked(seed, settings))
        real = seen.truth.objective(aim, np.inf)
        best = seen.truth.objective(aim, CAP).min()
        for way, means in seen.ways.items():
            pick = 0 if way == "choose" else means.pick(aim)
            above = max(0.0, float(seen.truth.rounds[pick]) - CAP)
            regretted[way, aim] = np.array([real[pick] - best, above])
    return regretted


def guesses(known: Known, record: Measures, seed: int) -> Array | None:
    """Where nothing is proven: whether one is guessed, loses more than asked, by how much, rounds saved."""
    choice = choose(record, asked(seed, ChoiceSettings(max_loss=MOST_LOST)))
    if choice.promised is None or choice.promised.row.proven is not None:
        return None
    policy = None if choice.guess is None else choice.guess.policy.policy
    if policy is None:
        return np.zeros(4)
    above = known.loss(policy) - MOST_LOST
    rounds = known.mean_at_stops(policy, np.tile(np.arange(1.0, ROUNDS + 1), (PROFILES, 1)))
    return np.array([1.0, above > 0.0, max(above, 0.0), ROUNDS - rounds])


def main() -> dict[str, float]:
    """Mean regrets with two standard errors, by how much picks are above the cap, and what guesses lose."""
    made, guessed = [], []
    # budgets and rules: fits of methods would be nearly all of the time
    with patch.object(candidates, "nameable_methods", tuple):
        for seed in POPULATIONS:
            known, record = drawn(seed)
            made.append(regrets(known, record, seed))
            guessed.append(guesses(known, record, seed))
    figures = {}
    for aim in AIMS:
        of_choose = np.array([one["choose", aim][0] for one in made])
        for way in WAYS:
            values = np.array([one[way, aim] for one in made])
            figures[f"{aim}, {way}: regret"] = float(values[:, 0].mean())
            figures[f"{aim}, {way}: 2 SE"] = _two_errors(values[:, 0])
            if way != "choose":
                more = values[:, 0] - of_choose
                figures[f"{aim}, {way}: regret above that of choose"] = float(more.mean())
                figures[f"{aim}, {way}: 2 SE of that"] = _two_errors(more)
            if aim == "max-cost":
                figures[f"{aim}, {way}: above the cap"] = float(values[:, 1].mean())
    values = np.array([one for one in guessed if one is not None])
    figures["guess: records"] = float(len(values))
    told = ("guessed", "loses more than asked", "loss above what was asked", "rounds saved")
    for what, column in zip(told, values.T, strict=True):
        figures[f"guess: {what}"] = float(column.mean())
        figures[f"guess: {what}, 2 SE"] = _two_errors(column)
    return figures


def _two_errors(values: Array) -> float:
    return float(2 * values.std(ddof=1) / np.sqrt(len(values)))
