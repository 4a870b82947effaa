"""The network that reads question and documents, as a policy uses it: loaded when it first decides."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suffice._optional import require
from suffice.contracts import Signal
from suffice.errors import DataError, UsageError, first_line
from suffice.policies.stop_rag.encoder import PURPOSE, TextEncoder, torch_module
from suffice.policies.stop_rag.network import NetworkShape, QNetwork
from suffice.policies.stop_rag.states import StateTexts, texts_of_view
from suffice.signals.registry import Q_CONT, Q_STOP, SignalSpec
from suffice.stats.fields import Fields
from suffice.trace.rounds.records import LoopView

_KEPT = 4096  # texts of a few dozen to a thousand numbers each


class TextScorer:
    """Values of a loop's states. Safe to use from several threads, which take turns.

    Every text goes through the encoder alone, in float32 and without padding, so that its numbers do
    not depend on what else is scored. What was read is kept: a further round costs its own documents
    only, in mode ``separate``.
    """

    def __init__(self, network: QNetwork) -> None:
        self.network = network
        network.heads.eval()
        self._kept: OrderedDict[tuple[str, tuple[str, ...]], Any] = OrderedDict()
        self._lock = threading.Lock()

    def score(self, view: LoopView) -> tuple[float, float]:
        """Values of stopping and of going on after the view's last round, as float32 numbers."""
        return self.score_texts(texts_of_view(view), len(view.rounds))

    def score_texts(self, states: StateTexts, number: int) -> tuple[float, float]:
        """The same of state ``number``, 1-based."""
        torch = torch_module()
        documents = states.seen(number)
        separate = self.network.shape.mode == "separate"
        texts = [(text,) for text in documents] if separate else [documents]
        network = self.network
        with self._lock, torch.inference_mode():
            read = [self._read(states.question, text) for text in texts]
            device = network.encoder.device
            stacked = (
                torch.stack(read)
                if read
                else torch.zeros((0, network.shape.reader_width), device=device)
            )
            members = torch.arange(max(1, len(read)), device=device).unsqueeze(0)
            if not read:
                members = members - 1
            seen = torch.tensor([float(len(documents))], device=device)
            stop, cont = network.values(network.pool(stacked, members, seen))
            return float(stop[0]), float(cont[0])

    def _read(self, question: str, documents: tuple[str, ...]) -> Any:
        """What the network keeps of a text, (R,); from memory where it was read before."""
        key = (question, documents)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        vector = self.network.encode(self.network.tokenizer.read(question, documents))[0]
        self._kept[key] = vector
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return vector


@dataclass(frozen=True, slots=True, kw_only=True)
class TextModel:
    """A network over texts, in a policy."""

    encoder: str
    encoder_sha256: str
    shape: NetworkShape
    data: bytes = field(repr=False)
    specs: tuple[Signal, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        ready = cache(lambda: TextScorer(self.network()))  # built when it is first asked
        # signals of this network's own: a recorded one may be another network's
        specs = (
            SignalSpec(
                name=named.name,
                summary=named.summary,
                needs=("passages",),
                answers=False,
                compute=partial(_value, ready, which),
                own_settings=True,
            )
            for which, named in enumerate((Q_STOP, Q_CONT))
        )
        object.__setattr__(self, "specs", tuple(specs))

    @classmethod
    def of(cls, network: QNetwork) -> TextModel:
        """A trained network."""
        weights = require("safetensors.torch", extra="learn", purpose=PURPOSE)
        tensors = {name: tensor.cpu().contiguous() for name, tensor in network.tensors().items()}
        return cls(
            encoder=network.encoder.name,
            encoder_sha256=network.encoder.identity,
            shape=network.shape,
            data=weights.save(tensors),
        )

    @property
    def summary(self) -> str:
        """What it reads with."""
        return f"the encoder {self.encoder} over question and documents"

    def values(
        self, columns: Mapping[str, NDArray[np.float64]]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Its signals are the values."""
        return columns[Q_STOP.name], columns[Q_CONT.name]

    def to_json(self) -> dict[str, Any]:
        """Its part of a policy file."""
        return {
            "features": "text",
            "encoder": self.encoder,
            "encoder_sha256": self.encoder_sha256,
            "shape": asdict(self.shape),
            "weights_sha256": hashlib.sha256(self.data).hexdigest(),
        }

    @classmethod
    def read(cls, part: Fields, data: bytes) -> TextModel:
        """What :meth:`to_json` wrote, with its weights."""
        shape = part.of("shape", dict) or {}
        names = {size.name for size in fields(NetworkShape)}
        if set(shape) != names:
            raise DataError(f"must hold {', '.join(sorted(names))}", column=part.column("shape"))
        for name in ("encoder", "encoder_sha256"):
            if not part.of(name, str):
                raise DataError("is missing", column=part.column(name))
        return cls(
            encoder=part.of("encoder", str),
            encoder_sha256=part.of("encoder_sha256", str),
            shape=NetworkShape(**shape),
            data=data,
        )

    def weights(self) -> bytes:
        """The weights as a safetensors file."""
        return self.data

    def network(self) -> QNetwork:
        """The network with its weights, on the processor."""
        encoder = TextEncoder.load(self.encoder)
        if encoder.identity != self.encoder_sha256:
            raise UsageError(
                f"the encoder {self.encoder!r} is not the one the policy was trained on: its weights or "
                "vocabulary differ; install that one, or fit again"
            )
        weights = require("safetensors.torch", extra="learn", purpose=PURPOSE)
        errors = require("safetensors", extra="learn", purpose=PURPOSE)
        if self.shape.frozen is None:
            encoder.train_only(None)
        else:
            encoder.train_only(encoder.depth - self.shape.frozen)
        network = QNetwork(encoder, self.shape)
        try:
            tensors = weights.load(self.data)
        except errors.SafetensorError as error:
            raise DataError(f"the weights are damaged ({first_line(error)})") from error
        network.load_tensors(tensors)
        return network


def _value(ready: Callable[[], TextScorer], which: int, view: LoopView) -> float:
    return ready().score(view)[which]
