"""The network over signals: its arithmetic against a plain twin, its training, what it refuses."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from suffice.errors import DataError, UsageError
from suffice.policies.stop_rag.settings import SignalTrainSettings
from suffice.policies.stop_rag.signal_model import SignalNetwork, weight_shapes
from suffice.policies.stop_rag.threshold import stop_rounds

NAMES = ("known", "noise")
SHORT = SignalTrainSettings(min_steps=250, epochs=1.0, width=16)


def network(seed: int = 0, width: int = 5) -> SignalNetwork:
    rng = np.random.default_rng(seed)
    tensors = {
        name: rng.normal(size=shape).astype(np.float32)
        for name, shape in weight_shapes(2, width).items()
    }
    tensors["spread"] = np.array([0.5, 2.0], np.float32)
    return SignalNetwork(names=NAMES, tensors=tensors)


def twin(net: SignalNetwork, row: list[float]) -> list[float]:
    """One state by matrix products, in float64."""
    tensors = {name: each.astype(float) for name, each in net.tensors.items()}
    inputs = [
        0.0 if np.isnan(x) else (x - c) / s
        for x, c, s in zip(row, tensors["centre"], tensors["spread"], strict=True)
    ] + [float(np.isnan(x)) for x in row]
    trunk = np.maximum(tensors["trunk.weight"] @ inputs + tensors["trunk.bias"], 0)
    found = []
    for head in ("stop", "cont"):
        hidden = tensors[f"{head}.hidden.weight"] @ trunk + tensors[f"{head}.hidden.bias"]
        out = tensors[f"{head}.out.weight"] @ np.maximum(hidden, 0) + tensors[f"{head}.out.bias"]
        found.append(float(out[0]))
    return found


def test_values_are_those_of_a_plain_twin() -> None:
    net = network()
    rows = [[0.3, 1.0], [np.nan, -4.0], [np.nan, np.nan], [5.0, np.nan]]
    columns = {name: np.array(rows)[:, [i]] for i, name in enumerate(NAMES)}
    stop, cont = net.values(columns)
    expected = np.array([twin(net, row) for row in rows])
    np.testing.assert_allclose(stop[:, 0], expected[:, 0], rtol=1e-6)
    np.testing.assert_allclose(cont[:, 0], expected[:, 1], rtol=1e-6)
    assert (stop == stop.astype(np.float32)).all()


def test_a_state_gets_the_same_bits_alone() -> None:
    rng = np.random.default_rng(1)
    net = network(width=32)
    columns = {name: rng.normal(size=(300, 7)) for name in NAMES}
    columns["noise"][rng.random((300, 7)) < 0.2] = np.nan
    whole = net.values(columns)
    for row, column in [(0, 0), (17, 3), (299, 6)]:
        alone = net.values(
            {n: each[row : row + 1, column : column + 1] for n, each in columns.items()}
        )
        assert [each[0, 0] for each in alone] == [each[row, column] for each in whole]


def test_tensors_that_do_not_fit() -> None:
    tensors = dict(network().tensors)
    with pytest.raises(DataError, match=r"over 3 signals: centre, spread, trunk\.weight"):
        SignalNetwork(names=(*NAMES, "third"), tensors=tensors)
    del tensors["stop.out.bias"]
    with pytest.raises(DataError, match=r"stop\.out\.bias"):
        SignalNetwork(names=NAMES, tensors=tensors)
    with pytest.raises(UsageError, match="at least one signal"):
        SignalNetwork(names=(), tensors={})


# --- training --------------------------------------------------------------------------------
def trajectories(count: int, seed: int) -> Any:
    """The first signal says, with noise, whether the answer is right by now."""
    from suffice.policies.stop_rag.signal_learner import SignalTrajectories

    rng = np.random.default_rng(seed)
    known_from = rng.integers(1, 6, (count, 1))
    number = np.arange(1, 6)
    rewards = np.where(number < known_from, 0.0, np.where(number < known_from + 2, 1.0, 0.5))
    known = (number >= known_from) + rng.normal(0, 0.1, rewards.shape)
    signals = np.stack([known, rng.normal(size=rewards.shape)], axis=-1)
    signals[rng.random(signals.shape) < 0.02] = np.nan
    return SignalTrajectories(signals=signals, rewards=rewards, lengths=np.full(count, 5))


@pytest.fixture(scope="module")
def trained() -> Any:
    pytest.importorskip("torch", reason="the extra 'learn' is missing")
    from suffice.policies.stop_rag.signal_learner import train_signal_network

    return train_signal_network(NAMES, trajectories(100, 1), trajectories(40, 2), SHORT)


def stops(found: Any, data: Any) -> Any:
    stop, cont = found.network.values({n: data.signals[..., i] for i, n in enumerate(NAMES)})
    return stop_rounds(stop - cont, data.lengths, found.fitted.best.choice.threshold)


def test_it_learns_when_to_stop(trained: Any) -> None:
    fresh = trajectories(200, 3)
    found = stops(trained, fresh)
    earned = fresh.rewards[np.arange(200), found - 1].mean()
    best = fresh.rewards.argmax(axis=1) + 1
    assert earned > 0.9
    assert found.mean() < 1.15 * best.mean()
    assert fresh.rewards.mean(axis=0).max() < 0.75  # no fixed number of rounds does that


def test_the_same_seed_gives_the_same_network(trained: Any) -> None:
    from suffice.policies.stop_rag.signal_learner import train_signal_network

    again = train_signal_network(NAMES, trajectories(100, 1), trajectories(40, 2), SHORT)
    for name, each in trained.network.tensors.items():
        np.testing.assert_array_equal(again.network.tensors[name], each)


def test_a_killed_training_ends_with_the_same_network(trained: Any, tmp_path: Path) -> None:
    from suffice.policies.stop_rag.signal_learner import train_signal_network

    class KilledError(Exception):
        pass

    def kill(progress: Any) -> None:
        if progress.done == 130:
            raise KilledError

    file = tmp_path / "c.safetensors"
    data = (NAMES, trajectories(100, 1), trajectories(40, 2), SHORT)
    with pytest.raises(KilledError):
        train_signal_network(*data, checkpoint=file, progress=kill)
    steps: list[int] = []
    found = train_signal_network(
        *data, checkpoint=file, progress=lambda each: steps.append(each.done)
    )
    assert steps[0] == 126  # the last evaluation was at step 125
    for name, each in trained.network.tensors.items():
        np.testing.assert_array_equal(found.network.tensors[name], each)
    assert found.fitted == trained.fitted


def test_signals_that_are_nowhere_defined() -> None:
    pytest.importorskip("torch", reason="the extra 'learn' is missing")
    from suffice.policies.stop_rag.signal_learner import train_signal_network

    data = trajectories(20, 1)
    empty = dataclasses.replace(data, signals=np.full_like(data.signals, np.nan))
    with pytest.raises(UsageError, match="none of the signals known, noise is defined"):
        train_signal_network(NAMES, empty, data, SHORT)
    with pytest.raises(UsageError, match="1 names for 2 signals"):
        train_signal_network(NAMES[:1], data, data, SHORT)


def test_arrays_of_other_questions() -> None:
    pytest.importorskip("torch", reason="the extra 'learn' is missing")
    data = trajectories(20, 1)
    with pytest.raises(UsageError, match="must be of the same questions"):
        dataclasses.replace(data, rewards=data.rewards[:5])
