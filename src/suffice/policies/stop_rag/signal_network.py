"""The two values from a round's signals alone: a small network, decided with numpy, trained with PyTorch.

A baseline beside the network that reads texts, and a policy for loops whose documents are not at hand.
Ours; the paper has no such variant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError

__all__ = ["SignalNetwork", "inputs_of", "weight_shapes"]


@dataclass(frozen=True, kw_only=True, eq=False)
class SignalNetwork:
    """Values of a state from the signals of its round.

    A signal enters standardised, and as 1 where it is undefined. Arithmetic is float64, one addition
    after the other, so that a state's values do not depend on what stands beside it.

    Parameters
    ----------
    names
        The k signals, in order.
    tensors
        ``centre`` and ``spread`` (k,), and weights (out, in) and biases (out,) of the layers
        ``trunk`` (in: 2 k), ``stop.hidden``, ``cont.hidden``, ``stop.out`` and ``cont.out``.

    Raises
    ------
    DataError
        When the tensors do not fit together.
    """

    names: tuple[str, ...]
    tensors: Mapping[str, NDArray[np.float32]]

    def __post_init__(self) -> None:
        if not self.names:
            raise UsageError("a network over signals needs at least one signal")
        width = len(self.tensors.get("trunk.bias", ()))
        expected = weight_shapes(len(self.names), width)
        found = {name: each.shape for name, each in self.tensors.items()}
        if not width or found != expected:
            wrong = sorted(
                name for name in {*found, *expected} if found.get(name) != expected.get(name)
            )
            raise DataError(
                f"not the weights of a network over {len(self.names)} signals: {', '.join(wrong[:3])}"
            )

    def values(
        self, columns: Mapping[str, NDArray[np.float64]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of stopping and of going on, each of the columns' shape, float32 numbers."""
        given = [np.asarray(columns[name], np.float64) for name in self.names]
        shape = np.broadcast_shapes(*(each.shape for each in given))
        flat = np.stack([np.broadcast_to(each, shape).reshape(-1) for each in given], axis=1)
        layer = self._layer
        trunk = np.maximum(layer("trunk", self._inputs(flat)), 0.0)
        found = []
        for name in ("stop", "cont"):
            value = layer(f"{name}.out", np.maximum(layer(f"{name}.hidden", trunk), 0.0))[:, 0]
            found.append(value.astype(np.float32).astype(np.float64).reshape(shape))
        return found[0], found[1]

    def _inputs(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Standardised values and which are undefined, (N, 2 k)."""
        return inputs_of(values, self.tensors["centre"], self.tensors["spread"])

    def _layer(self, name: str, inputs: NDArray[np.float64]) -> NDArray[np.float64]:
        weight = self.tensors[f"{name}.weight"].astype(np.float64)
        found = np.broadcast_to(
            self.tensors[f"{name}.bias"].astype(np.float64), (len(inputs), len(weight))
        )
        for column in range(weight.shape[1]):  # a matrix product would add in an order of its own
            found = found + inputs[:, column : column + 1] * weight[:, column]
        return found


def inputs_of(
    values: NDArray[np.float64], centre: NDArray[np.float32], spread: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Standardised signals, 0 where undefined, then which are undefined: (N, 2 k) from (N, k)."""
    undefined = ~np.isfinite(values)
    scaled = (np.where(undefined, 0.0, values) - centre) / spread
    return np.concatenate([np.where(undefined, 0.0, scaled), undefined], axis=1)


def weight_shapes(signals: int, width: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the tensors of a network over so many signals."""
    sizes = {"trunk": (width, 2 * signals)}
    for name in ("stop", "cont"):
        sizes |= {f"{name}.hidden": (width, width), f"{name}.out": (1, width)}
    found: dict[str, tuple[int, ...]] = {"centre": (signals,), "spread": (signals,)}
    for name, size in sizes.items():
        found |= {f"{name}.weight": size, f"{name}.bias": size[:1]}
    return found
