"""What ``choose`` leaves on the table against the best candidate in hindsight, beside picking on tune.

``python -m benchmarks.run choose_regret``: on populations with known truth a record of questions is drawn,
candidates are made on its part tune, and one is picked by each aim: as ``choose`` does, by the questions
that rank with those of tune; naively, by those of tune alone; and by those that rank alone. Regret is the
objective's true mean minus the least of all candidates of the same record.
"""

from __future__ import annotations

from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from tests.choice_population import Known, mixed
from tests.cut_population import ROUNDS

from suffice.measures.measures import Measures
from suffice.protocols import StopPolicy
from suffice.replay.choose import candidates
from suffice.replay.choose.procedure import choose
from suffice.replay.settings import ChoiceSettings

POPULATIONS, QUESTIONS, ERROR_COST, CAP = 200, 300, 8.0, 3.0
WAYS = ("choose", "naive on tune", "rank alone")
AIMS = ("cost-per-error", "max-cost")
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


def regrets(seed: int) -> dict[tuple[str, str], tuple[float, float]]:
    """By way and aim the regret on one population, and how far the pick truly is above the cap."""
    known = Known.of(mixed(seed))
    drawn = known.draw(QUESTIONS, seed)
    labels = np.random.default_rng(seed).permutation(QUESTIONS)
    record = drawn.in_splits(["tune" if label < 0.4 * QUESTIONS else "eval" for label in labels])
    regretted = {}
    for aim in AIMS:
        weighed = aim == "cost-per-error"
        settings = ChoiceSettings(
            metric="score",
            cost="rounds",
            resamples=2,
            signals=("sure",),
            seed=seed,
            cost_per_error=ERROR_COST if weighed else None,
            max_cost=None if weighed else CAP,
        )
        choice = choose(record, settings)
        ranked = [one for one in choice.ranked if one.candidate.policy.policy is not None]
        policies = [policy for one in ranked if (policy := one.candidate.policy.policy) is not None]
        truth = _means(known.everyone, policies)
        fitted = _means(record.only_split("tune"), policies)
        pooled = _Means(
            score=np.array([-one.loss for one in ranked]),
            rounds=np.array([one.cost for one in ranked]),
        )
        n_fit, n_rank = 0.4 * QUESTIONS, 0.2 * QUESTIONS
        level = fitted.score[[one.candidate.policy.name for one in ranked].index(f"fixed-{ROUNDS}")]
        alone = _Means(  # what pooling put together, taken apart
            score=((n_fit + n_rank) * pooled.score - n_fit * (fitted.score - level)) / n_rank,
            rounds=((n_fit + n_rank) * pooled.rounds - n_fit * fitted.rounds) / n_rank,
        )
        picks = {
            "choose": 0,
            "naive on tune": fitted.pick(aim),
            "rank alone": alone.pick(aim),
        }
        real = truth.objective(aim, np.inf)
        best = truth.objective(aim, CAP).min()
        for way, pick in picks.items():
            regretted[way, aim] = (
                float(real[pick] - best),
                max(0.0, float(truth.rounds[pick]) - CAP),
            )
    return regretted


def main() -> dict[str, float]:
    """Mean regrets with two standard errors, and by how much picks are above the cap on average."""
    # budgets and rules: fits of methods would be nearly all of the time
    with patch.object(candidates, "nameable_methods", tuple):
        made = [regrets(seed) for seed in range(POPULATIONS)]
    figures = {}
    for aim in AIMS:
        for way in WAYS:
            values = np.array([one[way, aim] for one in made])
            figures[f"{aim}, {way}: regret"] = float(values[:, 0].mean())
            error = 2 * values[:, 0].std(ddof=1) / np.sqrt(len(values))
            figures[f"{aim}, {way}: 2 SE"] = float(error)
            if aim == "max-cost":
                figures[f"{aim}, {way}: above the cap"] = float(values[:, 1].mean())
    return figures
