"""The network over signals: its training and its policy, which decides without PyTorch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError, counted
from suffice.measures.measures import Measures
from suffice.policies.method import FitRun
from suffice.policies.stop_rag.encoder import read_tensors, safetensors, torch
from suffice.policies.stop_rag.stop_rag_settings import SignalTrainSettings
from suffice.policies.stop_rag.targets import check_learnable
from suffice.policies.stop_rag.training import Learned, Trajectories, Values, train
from suffice.signals.known_signals import Q_CONT, Q_STOP, SIGNALS, SignalSpec, resolve
from suffice.signals.signal_table import given_signals
from suffice.stats.fields import Fields
from suffice.stats.units import Array
from suffice.trace.rounds.trace_set import TraceSet


@dataclass(frozen=True, kw_only=True, eq=False)
class SignalNetwork:
    """A network that values a state by the signals of its round, without PyTorch."""

    names: tuple[str, ...]
    tensors: Mapping[str, NDArray[np.float32]]
    file: bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.names:
            raise UsageError("a network over signals needs at least one signal")
        width = len(self.tensors.get("trunk.bias", ()))
        expected = weight_shapes(len(self.names), width)
        shapes = {name: tensor.shape for name, tensor in self.tensors.items()}
        if not width or shapes != expected:
            wrong = sorted(
                name for name in {*shapes, *expected} if shapes.get(name) != expected.get(name)
            )
            raise DataError(
                f"not the weights of a network over {len(self.names)} signals: {', '.join(wrong[:3])}"
            )

    def values(self, columns: Mapping[str, Array]) -> tuple[Array, Array]:
        """Return values of stopping and of going on, float32 numbers in the columns' shape."""
        signals = [np.asarray(columns[name], np.float64) for name in self.names]
        shape = np.broadcast_shapes(*(column.shape for column in signals))
        flat = np.stack([np.broadcast_to(column, shape).reshape(-1) for column in signals], axis=1)
        layer = self._layer
        inputs = inputs_of(flat, self.tensors["centre"], self.tensors["spread"])
        trunk = np.maximum(layer("trunk", inputs), 0.0)
        values = []
        for name in ("stop", "cont"):
            value = layer(f"{name}.out", np.maximum(layer(f"{name}.hidden", trunk), 0.0))[:, 0]
            values.append(value.astype(np.float32).astype(np.float64).reshape(shape))
        return values[0], values[1]

    def _layer(self, name: str, inputs: Array) -> Array:
        weight = self.tensors[f"{name}.weight"].astype(np.float64)
        total = np.broadcast_to(
            self.tensors[f"{name}.bias"].astype(np.float64), (len(inputs), len(weight))
        )
        for column in range(weight.shape[1]):  # a matrix product would add in an order of its own
            total = total + inputs[:, column : column + 1] * weight[:, column]
        return total

    @property
    def specs(self) -> tuple[SignalSpec, ...]:
        return tuple(resolve(name, also=self.names) for name in self.names)

    @property
    def summary(self) -> str:
        return f"a small network over {counted(len(self.names), 'signal')}"

    def to_json(self) -> dict[str, Any]:
        return {
            "features": "signals",
            "signals": list(self.names),
            "weights_sha256": hashlib.sha256(self.weights()).hexdigest(),
        }

    def weights(self) -> bytes:
        """Return the weights as a safetensors file, the same bytes as read."""
        if self.file is not None:
            return self.file
        tensors = {name: np.ascontiguousarray(tensor) for name, tensor in self.tensors.items()}
        made: bytes = safetensors("numpy").save(tensors)
        return made

    @classmethod
    def read(cls, part: Fields, data: bytes) -> SignalNetwork:
        if not (names := part.strings("signals")):
            raise DataError("is missing", column=part.column("signals"))
        tensors = read_tensors("numpy", data)
        for name, tensor in tensors.items():
            if tensor.dtype != np.float32 or not np.isfinite(tensor).all():
                raise DataError(
                    f"{name} must hold finite float32 numbers", column="network.weights_sha256"
                )
        return cls(names=names, tensors=tensors, file=data)


def inputs_of(values: Array, centre: NDArray[np.float32], spread: NDArray[np.float32]) -> Array:
    """Return standardized signals, 0 where undefined, then which are undefined: (N, 2 k) from (N, k)."""
    undefined = ~np.isfinite(values)
    scaled = (np.where(undefined, 0.0, values) - centre) / spread
    return np.concatenate([np.where(undefined, 0.0, scaled), undefined], axis=1)


def weight_shapes(signals: int, width: int) -> dict[str, tuple[int, ...]]:
    """Return names and shapes of the tensors of a network over so many signals."""
    sizes = {"trunk": (width, 2 * signals)}
    for name in ("stop", "cont"):
        sizes |= {f"{name}.hidden": (width, width), f"{name}.out": (1, width)}
    shapes: dict[str, tuple[int, ...]] = {"centre": (signals,), "spread": (signals,)}
    for name, size in sizes.items():
        shapes |= {f"{name}.weight": size, f"{name}.bias": size[:1]}
    return shapes


def free_inputs(
    questions: TraceSet | Measures, wanted: Sequence[str] | None = None
) -> tuple[str, ...]:
    """Return the named signals, or all that vary and cost no further call."""
    measures = Measures.of(questions)
    traces = measures.traces
    everything = tuple(wanted or ()) == ("all",)
    if wanted is not None and not everything:
        return tuple(resolve(name, also=traces.signal_names).name for name in wanted)
    own = (Q_STOP.name, Q_CONT.name)
    possible = [
        name
        for name in given_signals(traces)
        if name not in own and (everything or (name in SIGNALS and not SIGNALS[name].charges))
    ]
    table = measures.signals(possible)
    varying = []
    for name in possible:
        values = table.signal(name)
        defined = values[np.isfinite(values)]
        if defined.size and (defined.min() < defined.max() or len(defined) < values.size):
            varying.append(name)
    return tuple(varying)


def train_signal_network(
    names: tuple[str, ...],
    training: Trajectories,
    validation: Trajectories,
    settings: SignalTrainSettings,
    run: FitRun | None = None,
) -> Learned:
    """Train a network over the signals ``names``, the last axis of the trajectories' states."""
    check_learnable(training.rewards, training.lengths, validation.lengths, settings.target)
    learner = SignalLearner(names, (training, validation), settings)
    threads = torch.get_num_threads()
    # layers this small take as long on one thread; several wait for one another where cores are busy
    torch.set_num_threads(1)
    try:
        best, steps = train(learner, (training, validation), settings, run)
    finally:
        torch.set_num_threads(threads)
    return Learned(network=learner.network(), best=best, steps=steps)


class SignalLearner:
    """The training side of a :class:`SignalNetwork`; its methods are those of :class:`TextLearner`."""

    def __init__(
        self,
        names: tuple[str, ...],
        parts: tuple[Trajectories, Trajectories],
        settings: SignalTrainSettings,
    ) -> None:
        self._names = names
        self._dropout = settings.dropout
        self.device: Any = torch.device("cpu")
        self.tokens: float = 0.0
        self._centre, self._spread = _scale(parts[0], names)
        self._validation = parts[1].states
        signals = parts[0].states
        flat = signals.reshape(-1, signals.shape[2])
        inputs = inputs_of(flat, self._centre, self._spread).astype(np.float32)
        self._inputs = torch.from_numpy(inputs.reshape(*signals.shape[:2], -1))
        self._layers = _untrained(2 * len(names), settings)

    def parameters(self) -> tuple[list[Any], list[Any]]:
        """Return the trained parameters: none of an encoder, then all layers."""
        return [], list(self._layers.parameters())

    def tensors(self) -> dict[str, Any]:
        return dict(self._layers.state_dict())

    def load_tensors(self, tensors: dict[str, Any]) -> None:
        self._layers.load_state_dict(tensors)

    def batch_values(
        self, rows: NDArray[np.int64], shape: tuple[int, int]
    ) -> tuple[Values, Values]:
        """Return learned values and estimates of the training trajectories ``rows``."""
        inputs = self._inputs[torch.from_numpy(rows)][:, : shape[1]]
        with torch.no_grad():
            estimates = self._values(inputs, dropout=0.0)
        return self._values(inputs, dropout=self._dropout), estimates

    def validation_values(self, shape: tuple[int, int]) -> tuple[Array, Array]:
        """Return the values of all validation trajectories as a policy computes them, each (n, T)."""
        signals = self._validation[:, : shape[1]]
        return self.network().values(
            {name: signals[..., number] for number, name in enumerate(self._names)}
        )

    def network(self) -> SignalNetwork:
        tensors = {name: tensor.numpy().copy() for name, tensor in self.tensors().items()}
        return SignalNetwork(
            names=self._names, tensors=tensors | {"centre": self._centre, "spread": self._spread}
        )

    def _values(self, inputs: Any, *, dropout: float) -> Values:
        functional = torch.nn.functional
        trunk = functional.relu(self._layers["trunk"](inputs))

        def value(name: str) -> Any:
            hidden = functional.relu(self._layers[name]["hidden"](trunk))
            return self._layers[name]["out"](functional.dropout(hidden, dropout))[..., 0]

        return value("stop"), value("cont")


def _scale(
    training: Trajectories, names: tuple[str, ...]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return mean and standard deviation of each signal over training states, (k,); 1 if constant."""
    signals = training.states.reshape(-1, training.states.shape[2])
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


def _untrained(n_inputs: int, settings: SignalTrainSettings) -> Any:
    """Return layers with He weights and biases of 0, named as in :func:`weight_shapes`."""
    width, generator = settings.width, torch.Generator().manual_seed(settings.seed)

    def linear(inputs: int, outputs: int) -> Any:
        layer = torch.nn.utils.skip_init(torch.nn.Linear, inputs, outputs)
        torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu", generator=generator)
        torch.nn.init.zeros_(layer.bias)
        return layer

    parts = {"trunk": linear(n_inputs, width)}
    for name in ("stop", "cont"):
        head = {"hidden": linear(width, width), "out": linear(width, 1)}
        parts[name] = torch.nn.ModuleDict(head)
    return torch.nn.ModuleDict(parts)
