"""Estimates from a live policy's log: their intervals, and their spread beside plain inverse weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tests.cut_estimates import estimated
from tests.cut_population import population

LOGS, QUESTIONS, EXPLORED = 400, 400, 0.1
_PAST = (
    0.1  # the share of questions that go past the live policy's stop, of targets that say anything
)


def main() -> dict[str, float]:
    """Each target policy from each live policy's logs, 400 questions with one in ten explored."""
    drawn = population()
    found, past = [], []
    for logger, live in drawn.loggers.items():
        past += [(stops > live).mean() > _PAST for stops in drawn.targets.values()]
        found.append(estimated(drawn, logger, EXPLORED, logs=LOGS, questions=QUESTIONS))

    def of(name: str) -> NDArray[np.float64]:
        return np.asarray(np.concatenate([getattr(one, name) for one in found])[past])

    covered = of("covered")
    figures = {
        "spread of the score, mean": float(of("spread").mean()),
        "intervals that cover, least": float(covered.min()),
        "intervals that cover, mean": float(covered.mean()),
    }
    for name, which in (("score", "spread"), ("calls", "paid_spread")):
        ratio = of(f"plain_{which}") / of(which)
        for told, value in (("least", ratio.min()), ("mean", ratio.mean()), ("most", ratio.max())):
            figures[f"spread of the {name}, Horvitz-Thompson over ours, {told}"] = float(value)
    return figures
