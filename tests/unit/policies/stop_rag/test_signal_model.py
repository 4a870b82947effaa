"""The network over signals learns when to stop."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.policies.stop_rag.stop_rag_settings import SignalTrainSettings
from suffice.policies.stop_rag.targets import stop_rounds

pytest.importorskip("torch", reason="the extra 'learn' is missing")

from suffice.policies.stop_rag.signal_network import train_signal_network
from suffice.policies.stop_rag.training import Trajectories

NAMES = ("known", "noise")


def trajectories(count: int, seed: int) -> Trajectories:
    """The first signal says, with noise, whether the answer is right by now."""
    rng = np.random.default_rng(seed)
    known_from = rng.integers(1, 6, (count, 1))
    number = np.arange(1, 6)
    rewards = np.where(number < known_from, 0.0, np.where(number < known_from + 2, 1.0, 0.5))
    known = (number >= known_from) + rng.normal(0, 0.1, rewards.shape)
    signals = np.stack([known, rng.normal(size=rewards.shape)], axis=-1)
    signals[rng.random(signals.shape) < 0.02] = np.nan
    return Trajectories(states=signals, rewards=rewards, lengths=np.full(count, 5))


def test_it_learns_when_to_stop() -> None:
    short = SignalTrainSettings(min_steps=250, epochs=1.0, width=16)
    trained = train_signal_network(NAMES, trajectories(100, 1), trajectories(40, 2), short)
    fresh = trajectories(200, 3)
    columns = {name: fresh.states[..., index] for index, name in enumerate(NAMES)}
    stop, cont = trained.network.values(columns)
    found = stop_rounds(stop - cont, fresh.lengths, trained.best.choice.threshold)
    earned = fresh.rewards[np.arange(200), found - 1].mean()
    best = fresh.rewards.argmax(axis=1) + 1
    assert earned > 0.9
    assert found.mean() < 1.15 * best.mean()
    assert fresh.rewards.mean(axis=0).max() < 0.75  # no fixed number of rounds does that
