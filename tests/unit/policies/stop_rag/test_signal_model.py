"""The network over signals: its arithmetic against a plain twin, its training, what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from suffice.policies.stop_rag.settings import SignalTrainSettings
from suffice.policies.stop_rag.targets import stop_rounds

NAMES = ("known", "noise")
SHORT = SignalTrainSettings(min_steps=250, epochs=1.0, width=16)


# --- training --------------------------------------------------------------------------------
def trajectories(count: int, seed: int) -> Any:
    """The first signal says, with noise, whether the answer is right by now."""
    from suffice.policies.stop_rag.training import Trajectories

    rng = np.random.default_rng(seed)
    known_from = rng.integers(1, 6, (count, 1))
    number = np.arange(1, 6)
    rewards = np.where(number < known_from, 0.0, np.where(number < known_from + 2, 1.0, 0.5))
    known = (number >= known_from) + rng.normal(0, 0.1, rewards.shape)
    signals = np.stack([known, rng.normal(size=rewards.shape)], axis=-1)
    signals[rng.random(signals.shape) < 0.02] = np.nan
    return Trajectories(states=signals, rewards=rewards, lengths=np.full(count, 5))


@pytest.fixture(scope="module")
def trained() -> Any:
    pytest.importorskip("torch", reason="the extra 'learn' is missing")
    from suffice.policies.stop_rag.signal_network import train_signal_network

    return train_signal_network(NAMES, trajectories(100, 1), trajectories(40, 2), SHORT)


def stops(found: Any, data: Any) -> Any:
    stop, cont = found.network.values({n: data.states[..., i] for i, n in enumerate(NAMES)})
    return stop_rounds(stop - cont, data.lengths, found.fitted.best.choice.threshold)


def test_it_learns_when_to_stop(trained: Any) -> None:
    fresh = trajectories(200, 3)
    found = stops(trained, fresh)
    earned = fresh.rewards[np.arange(200), found - 1].mean()
    best = fresh.rewards.argmax(axis=1) + 1
    assert earned > 0.9
    assert found.mean() < 1.15 * best.mean()
    assert fresh.rewards.mean(axis=0).max() < 0.75  # no fixed number of rounds does that


