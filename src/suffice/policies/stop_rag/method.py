"""Stop-RAG as a method; its policy file is JSON with the network's weights beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from suffice.errors import DataError, plain_file
from suffice.policies.method import FitRun, Method, Preset, read_told, weights_beside
from suffice.policies.stop_rag.policy import StopRAGPolicy
from suffice.policies.stop_rag.settings import StopRAGSettings
from suffice.policies.stop_rag.signal_network import SignalNetwork
from suffice.policies.stop_rag.text_model import TextModel
from suffice.stats.fields import Fields

if TYPE_CHECKING:
    from suffice.measures.measures import Measures

_MODELS: Mapping[str, Callable[[Fields, bytes], TextModel | SignalNetwork]] = MappingProxyType(
    {"text": TextModel.read, "signals": SignalNetwork.read}
)


class StopRAG(Method):
    """See :class:`suffice.policies.method.Method`."""

    name = "stop-rag"
    summary = "stop when a network that reads question and documents values it above going on"
    source = "paper 1"
    about = (
        "learned on --split from sampled answers, or each round's own where none were sampled; checkpoint "
        "and threshold are chosen on the split validation where the traces have it, else on 20% of --split"
    )
    main_field = "network"
    options = StopRAGSettings
    quick = False
    variants = MappingProxyType({"signals": MappingProxyType({"features": "signals"})})

    def fit(
        self,
        measures: Measures,
        preset: Preset,
        settings: Any,
        split: str,
        run: FitRun | None = None,
    ) -> StopRAGPolicy:
        """See :func:`suffice.policies.stop_rag.fit.fit_stop_rag`."""
        from suffice.policies.stop_rag.fit import fit_stop_rag

        return fit_stop_rag(measures, preset, split, settings, run)

    def read(self, document: Mapping[str, Any], file: Path) -> StopRAGPolicy:
        """The policy of a document; its network is built when it first decides."""
        fields = Fields(document)
        fields.need("threshold", "rounds", "network")
        network = fields.part("network")
        features = network.one_of("features", _MODELS)
        data = _weights(weights_beside(file), network.document.get("weights_sha256"))
        return StopRAGPolicy(
            model=_MODELS[features](network, data),
            threshold=fields.number("threshold"),
            rounds=fields.of("rounds", int),
            first=fields.of("first", int, default=1),
            target=document.get("target", "q-lambda"),
            **read_told(fields),
        )


METHOD = StopRAG()


def _weights(path: Path, expected: object) -> bytes:
    try:
        data = plain_file(path).read_bytes()
    except FileNotFoundError:
        raise DataError(
            f"the network's weights are missing; they belong beside it in {path.name}",
            column="network.weights_sha256",
        ) from None
    except OSError as error:
        raise DataError(
            f"the network's weights in {path.name} cannot be read: {error.strerror or error}",
            column="network.weights_sha256",
        ) from error
    if hashlib.sha256(data).hexdigest() != expected:
        raise DataError(
            f"{path.name} holds other weights than this file was written with; copy both together, or fit "
            "again",
            column="network.weights_sha256",
        )
    return data
