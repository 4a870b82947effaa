"""Train the network over signals by the same loop as the one over texts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import UsageError
from suffice.policies.stop_rag.encoder import torch_module
from suffice.policies.stop_rag.settings import SignalTrainSettings
from suffice.policies.stop_rag.signal_model import SignalNetwork, inputs_of, weight_shapes
from suffice.policies.stop_rag.training import (
    BatchValues,
    RewardTable,
    Trained,
    TrainingProgress,
    train,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalTrajectories:
    """Recorded questions to learn from: signals (n, T, k), NaN undefined; rewards (n, T); lengths (n,)."""

    signals: NDArray[np.float64]
    rewards: NDArray[np.float64]
    lengths: NDArray[np.int64]

    def __post_init__(self) -> None:
        same = self.signals.ndim == 3 and self.signals.shape[:2] == self.rewards.shape
        if not same or len(self.lengths) != len(self.rewards):
            raise UsageError(
                "signals (n, T, k), rewards (n, T) and lengths (n,) must be of the same questions, found "
                f"{self.signals.shape}, {self.rewards.shape} and {self.lengths.shape}"
            )

    @property
    def table(self) -> RewardTable:
        """The rewards alone."""
        return RewardTable(rewards=self.rewards, lengths=self.lengths)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedSignals:
    """A trained network and what validation found."""

    network: SignalNetwork
    fitted: Trained


def train_signal_network(
    names: tuple[str, ...],
    training: SignalTrajectories,
    validation: SignalTrajectories,
    settings: SignalTrainSettings,
    *,
    progress: Callable[[TrainingProgress], None] | None = None,
    checkpoint: Path | None = None,
) -> TrainedSignals:
    """Train a network over the signals ``names``, in the order of the trajectories' last axis."""
    learner = _SignalLearner(names, (training, validation), settings)
    with _on_one_thread():
        fitted = train(
            learner,
            (training.table, validation.table),
            settings,
            asdict(settings) | {"signals": list(names)},
            progress=progress,
            checkpoint=checkpoint,
        )
    return TrainedSignals(network=learner.network(), fitted=fitted)


@contextmanager
def _on_one_thread() -> Iterator[None]:
    """Layers this small take as long on one thread; several wait for one another where cores are busy."""
    torch = torch_module()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class _SignalLearner:
    """A :class:`suffice.policies.stop_rag.training.Learner` over arrays."""

    def __init__(
        self,
        names: tuple[str, ...],
        parts: tuple[SignalTrajectories, SignalTrajectories],
        settings: SignalTrainSettings,
    ) -> None:
        torch = torch_module()
        self._names = names
        self._dropout = settings.dropout
        self.device = torch.device("cpu")
        self.tokens = 0.0
        self._centre, self._spread = _scale(parts[0], names)
        self._validation = parts[1].signals
        self._inputs = torch.from_numpy(self._scaled(parts[0].signals))
        generator = torch.Generator().manual_seed(settings.seed)
        self._weights = {
            name: _initial(torch, shape, name, generator)
            for name, shape in weight_shapes(len(names), settings.width).items()
            if name not in ("centre", "spread")
        }

    @property
    def digest(self) -> str:
        """SHA-256 of the signals learned from."""
        digest = hashlib.sha256(self._inputs.numpy().tobytes())
        digest.update(self._scaled(self._validation).tobytes())
        return digest.hexdigest()

    def parameters(self) -> tuple[list[Any], list[Any]]:
        """Everything starts untrained."""
        return [], list(self._weights.values())

    def tensors(self) -> dict[str, Any]:
        """The weights that training changes."""
        return {name: tensor.detach() for name, tensor in self._weights.items()}

    def load_tensors(self, tensors: dict[str, Any]) -> None:
        """Take weights over."""
        torch = torch_module()
        with torch.no_grad():
            for name, own in self._weights.items():
                own.copy_(tensors[name])

    def batch_values(self, rows: NDArray[np.int64], shape: tuple[int, int]) -> BatchValues:
        """Those of the training trajectories ``rows``."""
        torch = torch_module()
        inputs = self._inputs[torch.from_numpy(rows)][:, : shape[1]]
        with torch.no_grad():
            estimates = self._values(inputs, dropout=0.0)
        return BatchValues(learned=self._values(inputs, dropout=self._dropout), estimates=estimates)

    def validation_values(
        self, shape: tuple[int, int]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Those of validation as deciding computes them, each (n, T)."""
        signals = self._validation[:, : shape[1]]
        return self.network().values(
            {name: signals[..., number] for number, name in enumerate(self._names)}
        )

    def network(self) -> SignalNetwork:
        """The network as it is now, without PyTorch."""
        tensors = {name: tensor.numpy().copy() for name, tensor in self.tensors().items()}
        return SignalNetwork(
            names=self._names,
            tensors=tensors | {"centre": self._centre, "spread": self._spread},
        )

    def _scaled(self, signals: NDArray[np.float64]) -> NDArray[np.float32]:
        """The network's inputs, (n, T, 2 k)."""
        flat = signals.reshape(-1, signals.shape[2])
        inputs = inputs_of(flat, self._centre, self._spread).astype(np.float32)
        return inputs.reshape(*signals.shape[:2], -1)

    def _values(self, inputs: Any, *, dropout: float) -> tuple[Any, Any]:
        torch = torch_module()
        functional = torch.nn.functional

        def layer(name: str, layer_inputs: Any) -> Any:
            return functional.linear(
                layer_inputs, self._weights[f"{name}.weight"], self._weights[f"{name}.bias"]
            )

        trunk = functional.relu(layer("trunk", inputs))
        values = []
        for name in ("stop", "cont"):
            hidden = functional.relu(layer(f"{name}.hidden", trunk))
            hidden = functional.dropout(hidden, dropout)
            values.append(layer(f"{name}.out", hidden)[..., 0])
        return values[0], values[1]


def _scale(
    training: SignalTrajectories, names: tuple[str, ...]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and standard deviation of each signal over the training states, (k,); 1 where constant."""
    signals = training.signals.reshape(-1, training.signals.shape[2])
    if signals.shape[1] != len(names):
        raise UsageError(f"{len(names)} names for {signals.shape[1]} signals")
    defined = np.isfinite(signals)
    if not defined.any():
        raise UsageError(f"none of the signals {', '.join(names)} is defined in any training state")
    known = np.where(defined, signals, 0.0)
    count = np.maximum(defined.sum(axis=0), 1)
    centre = known.sum(axis=0) / count
    variance = (np.where(defined, signals - centre, 0.0) ** 2).sum(axis=0) / count
    spread = np.where(variance > 0.0, np.sqrt(variance), 1.0)
    return centre.astype(np.float32), spread.astype(np.float32)


def _initial(torch: Any, shape: tuple[int, ...], name: str, generator: Any) -> Any:
    """Weights as He et al. draw them; biases start at 0."""
    weights = torch.zeros(shape)
    if name.endswith("weight"):
        weights.normal_(0.0, (2.0 / shape[1]) ** 0.5, generator=generator)
    return weights.requires_grad_()
