"""Estimates from a live policy's log: spread and intervals of three ways to weigh explored questions."""

from __future__ import annotations

import numpy as np
from tests.cut_estimates import Estimates, estimated
from tests.cut_population import population

from suffice.scoring import Weights

LOGS, QUESTIONS, EXPLORED = 400, 400, 0.1
WAYS: tuple[Weights, ...] = ("augmented", "ht", "self-normalised")
_PAST = (
    0.1  # the share of questions that go past the live policy's stop, of targets that say anything
)


def main() -> dict[str, float]:
    """Each target policy from each live policy's logs, 400 questions with one in ten explored."""
    drawn = population()
    found: dict[Weights, list[Estimates]] = {way: [] for way in WAYS}
    past = []
    for logger, live in drawn.loggers.items():
        past += [(stops > live).mean() > _PAST for stops in drawn.targets.values()]
        for way in WAYS:
            found[way].append(
                estimated(drawn, logger, EXPLORED, logs=LOGS, questions=QUESTIONS, weights=way)
            )
    figures: dict[str, float] = {}
    spread, paid, covered = (
        {way: np.concatenate([getattr(one, name) for one in of])[past] for way, of in found.items()}
        for name in ("spread", "paid_spread", "covered")
    )
    for way in WAYS:
        figures[f"spread of the score, {way}, mean"] = float(spread[way].mean())
        figures[f"intervals that cover, {way}, least"] = float(covered[way].min())
        figures[f"intervals that cover, {way}, mean"] = float(covered[way].mean())
    for name, of in (("score", spread), ("calls", paid)):
        for way in WAYS[1:]:
            ratio = of[way] / of["augmented"]
            for which, value in (
                ("least", ratio.min()),
                ("mean", ratio.mean()),
                ("most", ratio.max()),
            ):
                figures[f"spread of the {name}, {way} over augmented, {which}"] = float(value)
    return figures
