"""The network over signals as a policy uses it: its weights are readable without PyTorch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from suffice._optional import require
from suffice.errors import DataError, first_line
from suffice.policies.document_fields import strings_of
from suffice.policies.stop_rag.signal_network import SignalNetwork
from suffice.protocols import Signal
from suffice.signals.recorded import JUDGE_SUPPORT, LLM_STOP, Q_CONT, Q_STOP
from suffice.signals.registry import SIGNALS, resolve
from suffice.signals.table import signal_table

if TYPE_CHECKING:  # deciding live loads this module, and must not load pyarrow
    from suffice.trace.table import TraceSet

__all__ = ["SignalModel", "free_inputs"]

_PURPOSE = "Stop-RAG's network over signals"
_VERDICTS = frozenset({JUDGE_SUPPORT.name, LLM_STOP.name})


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalModel:
    """A network over signals; a :class:`suffice.policies.stop_rag.policy.ValueModel`.

    Parameters
    ----------
    network
        What decides.
    data
        Its weights as a safetensors file.
    """

    network: SignalNetwork
    data: bytes = field(repr=False)

    @classmethod
    def of(cls, network: SignalNetwork) -> SignalModel:
        """A trained network."""
        tensors = {name: np.ascontiguousarray(each) for name, each in network.tensors.items()}
        return cls(network=network, data=_safetensors().save(tensors))

    @property
    def specs(self) -> tuple[Signal, ...]:
        """The signals it was trained on."""
        names = self.network.names
        return tuple(resolve(name, also=names) for name in names)

    @property
    def summary(self) -> str:
        """What it reads."""
        return f"a small network over {len(self.network.names)} signals"

    def values(
        self, columns: Mapping[str, NDArray[np.float64]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Of stopping and of going on, each of the columns' shape."""
        return self.network.values(columns)

    def to_json(self) -> dict[str, Any]:
        """Its part of a policy file."""
        return {
            "features": "signals",
            "signals": list(self.network.names),
            "weights_sha256": hashlib.sha256(self.data).hexdigest(),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any], data: bytes) -> SignalModel:
        """What :meth:`to_json` wrote, with its weights.

        Raises
        ------
        MissingExtra
            When safetensors is not installed.
        DataError
            When the names are missing, or the weights are damaged or of another network.
        """
        names = strings_of(document, "signals")
        if not names:
            raise DataError("is missing", column="network.signals")
        errors = require("safetensors", extra="learn", purpose=_PURPOSE)
        try:
            tensors = _safetensors().load(data)
        except errors.SafetensorError as error:
            raise DataError(
                f"the weights are damaged ({first_line(error)})", column="network.weights_sha256"
            ) from error
        for name, each in tensors.items():
            if each.dtype != np.float32 or not np.isfinite(each).all():
                raise DataError(
                    f"{name} must hold finite float32 numbers", column="network.weights_sha256"
                )
        return cls(network=SignalNetwork(names=names, tensors=tensors), data=data)

    def weights(self) -> bytes:
        """The weights as a safetensors file."""
        return self.data


def _safetensors() -> Any:
    return require("safetensors.numpy", extra="learn", purpose=_PURPOSE)


def free_inputs(traces: TraceSet, wanted: Sequence[str] | None = None) -> tuple[str, ...]:
    """The signals to learn from: those named, else all that take two values and cost no further call.

    Left out are the values of a network itself, and what needs sampled answers, a reranker's scores or
    a judge's verdict: a policy that reads those pays for them in every round.

    Raises
    ------
    UsageError
        For an unknown name, or one that the traces do not give.
    """
    if wanted is not None:
        return tuple(resolve(name, also=traces.signal_names).name for name in wanted)
    possible = []
    for name, spec in SIGNALS.items():
        stored = name in traces.signal_names
        given = stored or (not spec.recorded_only and all(map(traces.has, spec.needs)))
        if given and not _costs(name):
            possible.append(name)
    table = signal_table(traces, possible)
    return tuple(name for name in possible if _varies(table.signal(name)))


def _costs(name: str) -> bool:
    spec = SIGNALS[name]
    own = name in (Q_STOP.name, Q_CONT.name)
    return own or name in _VERDICTS or "samples" in spec.needs or name.startswith("rerank_")


def _varies(values: NDArray[np.float64]) -> bool:
    defined = values[np.isfinite(values)]
    return bool(defined.size) and bool(defined.min() < defined.max() or len(defined) < values.size)
