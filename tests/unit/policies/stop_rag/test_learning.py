"""Training on texts and on signals: it learns, repeats itself, and refuses what it cannot."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.stop_rag_traces import trajectories

from suffice.errors import UsageError
from suffice.policies.stop_rag.signal_network import train_signal_network
from suffice.policies.stop_rag.stop_rag_settings import SignalTrainSettings, TrainSettings
from suffice.policies.stop_rag.targets import q_lambda, stop_rounds
from suffice.policies.stop_rag.training import Learned, Trajectories, train_network

torch = pytest.importorskip("torch", reason="the extra 'learn' is missing")


TRAINING, VALIDATION = trajectories("marker", 24, 1), trajectories("marker", 12, 2)


@pytest.fixture
def short(tiny: Path) -> TrainSettings:
    return TrainSettings(
        encoder=str(tiny),
        trained_layers=1,
        head_width=16,
        reader_width=8,
        min_steps=6,
        epochs=0.2,
        learning_rate=1e-3,
        device="cpu",
    )


def weights(found: Learned) -> dict[str, Any]:
    return {name: each.clone() for name, each in found.network.tensors().items()}


def same(one: Learned, other: Learned) -> bool:
    first, second = weights(one), weights(other)
    return set(first) == set(second) and all(torch.equal(first[n], second[n]) for n in first)


def test_the_same_seed_gives_the_same_weights(short: TrainSettings) -> None:
    one, again = (train_network(TRAINING, VALIDATION, short) for _ in range(2))
    assert same(one, again)
    assert (one.best, one.steps) == (again.best, again.steps)
    other = train_network(TRAINING, VALIDATION, dataclasses.replace(short, seed=1))
    assert not same(one, other)


def test_the_callers_draws_are_left_alone(short: TrainSettings) -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    train_network(TRAINING, VALIDATION, dataclasses.replace(short, min_steps=2))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("target", "mode"),
    [("q-lambda", "joined"), ("mc", "separate"), ("q0", "joined"), ("binary", "separate")],
)
def test_every_target_and_mode_trains(short: TrainSettings, target: Any, mode: Any) -> None:
    settings = dataclasses.replace(short, target=target, mode=mode, min_steps=6, epochs=0.2)
    found = train_network(TRAINING, VALIDATION, settings)
    assert np.isfinite(found.best.choice.threshold)
    assert 1.0 <= found.best.choice.mean_rounds <= 6.0


def test_targets_bootstrap_from_values_without_dropout(
    short: TrainSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first step's weights do not depend on dropout, and so neither do its estimates."""
    seen: list[np.ndarray[Any, Any]] = []

    def listening(*given: Any) -> Any:
        seen.append(np.stack(given[2:4]))
        return q_lambda(*given)

    monkeypatch.setattr("suffice.policies.stop_rag.training.q_lambda", listening)
    for dropout in (0.0, 0.5):
        once = dataclasses.replace(short, dropout=dropout, min_steps=1, epochs=0.1)
        train_network(TRAINING, VALIDATION, once)
    without, with_dropout = seen
    assert np.ptp(without) > 0.0
    np.testing.assert_array_equal(with_dropout, without)


def test_questions_of_one_round_are_left_out_and_noted(short: TrainSettings) -> None:
    lengths = TRAINING.lengths.copy()
    lengths[:5] = 1
    states = [
        dataclasses.replace(each, documents=each.documents[:length])
        for each, length in zip(TRAINING.states, lengths, strict=True)
    ]
    some = Trajectories(states=states, rewards=TRAINING.rewards, lengths=lengths)
    found = train_network(some, VALIDATION, short)
    assert "5 questions of one round" in found.notes[0]
    ones = Trajectories(
        states=[dataclasses.replace(e, documents=e.documents[:1]) for e in states],
        rewards=TRAINING.rewards,
        lengths=np.ones_like(lengths),
    )
    with pytest.raises(UsageError, match="every training question has one round"):
        train_network(ones, VALIDATION, short)
    with pytest.raises(UsageError, match="none of the 24 validation questions has two rounds"):
        train_network(TRAINING, ones, short)


def test_nothing_to_learn_from(short: TrainSettings) -> None:
    zero = dataclasses.replace(TRAINING, rewards=np.zeros_like(TRAINING.rewards))
    with pytest.raises(UsageError, match="the reward is 0 in every round"):
        train_network(zero, VALIDATION, short)
    level = dataclasses.replace(TRAINING, rewards=np.full_like(TRAINING.rewards, 0.5))
    with pytest.raises(UsageError, match="never better in all 120 training states"):
        train_network(level, VALIDATION, dataclasses.replace(short, target="binary"))
    found = train_network(level, VALIDATION, dataclasses.replace(short, min_steps=2))
    assert found.steps


# --- the network over signals ---------------------------------------------------------------------
NAMES = ("known", "noise")


def of_signals(count: int, seed: int) -> Trajectories:
    """The first signal says, with noise, whether the answer is right by now."""
    rng = np.random.default_rng(seed)
    known_from = rng.integers(1, 6, (count, 1))
    number = np.arange(1, 6)
    rewards = np.where(number < known_from, 0.0, np.where(number < known_from + 2, 1.0, 0.5))
    known = (number >= known_from) + rng.normal(0, 0.1, rewards.shape)
    signals = np.stack([known, rng.normal(size=rewards.shape)], axis=-1)
    signals[rng.random(signals.shape) < 0.02] = np.nan
    return Trajectories(states=signals, rewards=rewards, lengths=np.full(count, 5))


def test_the_network_over_signals_learns_when_to_stop() -> None:
    short = SignalTrainSettings(min_steps=250, epochs=1.0, width=16)
    trained = train_signal_network(NAMES, of_signals(100, 1), of_signals(40, 2), short)
    fresh = of_signals(200, 3)
    columns = {name: fresh.states[..., index] for index, name in enumerate(NAMES)}
    stop, cont = trained.network.values(columns)
    found = stop_rounds(stop - cont, fresh.lengths, trained.best.choice.threshold)
    earned = fresh.rewards[np.arange(200), found - 1].mean()
    best = fresh.rewards.argmax(axis=1) + 1
    assert earned > 0.9
    assert found.mean() < 1.15 * best.mean()
    assert fresh.rewards.mean(axis=0).max() < 0.75  # no fixed number of rounds does that
