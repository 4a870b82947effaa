"""A small learned detector of contradictions over a sentence encoder, without torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError
from suffice.protocols import Encoder
from suffice.retrieval.dense.onnx_encoder import OnnxEncoder
from suffice.retrieval.pairs.contradiction_features import FEATURES, VectorOf, pair_features
from suffice.trace.durable import replace_file

_FILE = "contradiction_head.safetensors"
_SCHEMA = 1
_KEY = "suffice"
_TENSORS = ("pole", "weights")
_MOST_HEADER = 65_536  # bytes
_KEPT_TEXTS = 4096  # vectors of words and steps come again and again; 6 MB with MiniLM
_RETRAIN = "python -m studies.training contradiction --out FILE"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadWeights:
    """What training the head leaves."""

    encoder: str
    pole: NDArray[np.float64]
    weights: NDArray[np.float64]

    def __post_init__(self) -> None:
        if self.weights.shape != (len(FEATURES) + 1,) or self.pole.ndim != 1 or self.pole.size < 2:
            raise UsageError(
                f"a head has a pole (dimension + 1,) and {len(FEATURES) + 1} weights, found the shapes "
                f"{self.pole.shape} and {self.weights.shape}"
            )
        if not (np.isfinite(self.pole).all() and np.isfinite(self.weights).all()):
            raise UsageError("the numbers of a head must be finite")

    def to_bytes(self) -> bytes:
        """A safetensors file with float64 tensors; its metadata hold encoder, features and SHA-256."""
        tensors = [np.ascontiguousarray(getattr(self, name), "<f8").tobytes() for name in _TENSORS]
        about = {
            "schema": _SCHEMA,
            "encoder": self.encoder,
            "features": list(FEATURES),
            "sha256": hashlib.sha256(b"".join(tensors)).hexdigest(),
        }
        header: dict[str, Any] = {"__metadata__": {_KEY: json.dumps(about, sort_keys=True)}}
        start = 0
        for name, data in zip(_TENSORS, tensors, strict=True):
            span = [start, start + len(data)]
            header[name] = {"dtype": "F64", "shape": [len(data) // 8], "data_offsets": span}
            start += len(data)
        text = json.dumps(header).encode("ascii")
        text += b" " * (-len(text) % 8)
        return len(text).to_bytes(8, "little") + text + b"".join(tensors)

    def write(self, path: Path) -> None:
        """The same as a file, whole or not at all."""
        replace_file(path, self.to_bytes())

    @classmethod
    def read(cls, path: Path) -> HeadWeights:
        """What :meth:`write` wrote."""
        try:
            data = path.read_bytes()
        except OSError as error:
            raise UsageError(
                f"no contradiction head at {str(path)!r} ({error.strerror}); name a file that "
                f"{_RETRAIN} wrote, or None for the packaged one"
            ) from error
        try:
            header, tensors = _split(data)
            about = json.loads(header["__metadata__"][_KEY])
            schema = int(about["schema"])
            arrays = {name: _tensor(header[name], tensors) for name in _TENSORS}
            encoder, features = str(about["encoder"]), about["features"]
            sound = hashlib.sha256(tensors).hexdigest() == about["sha256"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DataError(f"not a contradiction head ({error!r})", file=str(path)) from error
        if schema > _SCHEMA:
            raise DataError(
                f"schema {schema} is newer than {_SCHEMA}, the newest this version reads; update suffice",
                file=str(path),
            )
        if not sound:
            raise DataError("damaged: its SHA-256 is another than recorded", file=str(path))
        if features != list(FEATURES):
            raise DataError(
                f"reads other features than this version makes; train it again: {_RETRAIN}",
                file=str(path),
            )
        try:
            return cls(encoder=encoder, pole=arrays["pole"], weights=arrays["weights"])
        except UsageError as error:
            raise DataError(str(error), file=str(path)) from error


def _split(data: bytes) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and its tensors' bytes."""
    size = int.from_bytes(data[:8], "little")
    if not 0 < size <= min(_MOST_HEADER, len(data) - 8):
        raise ValueError(f"a header of {size} bytes")
    header: dict[str, Any] = json.loads(data[8 : 8 + size])
    return header, data[8 + size :]


def _tensor(entry: dict[str, Any], data: bytes) -> NDArray[np.float64]:
    start, end = entry["data_offsets"]
    if entry["dtype"] != "F64" or not 0 <= start <= end <= len(data):
        raise ValueError(f"a tensor {entry}")
    return np.frombuffer(data[start:end], "<f8").astype(np.float64)


class ContradictionHead:
    """How likely two plan steps contradict each other; a :class:`suffice.protocols.ContradictionDetector`.

    A logistic regression on :data:`suffice.retrieval.pairs.contradiction_features.FEATURES`. The order of the
    two makes no difference, and a pair's value does not depend on the pairs beside it. Vectors of the
    last 4,096 texts are kept. Safe to call from several threads.

    It was trained on templates of cloud-configuration steps in English; ``docs/results/contradiction.md``
    says what it is worth on templates it has not seen, and where it fails.

    Use :meth:`load`.
    """

    def __init__(self, weights: HeadWeights, encoder: Encoder) -> None:
        if encoder.name != weights.encoder:
            raise UsageError(
                f"this head was trained on the encoder {weights.encoder!r} and was given "
                f"{encoder.name!r}; give it that one, or train it again: {_RETRAIN}"
            )
        self._weights = weights
        self._vector = kept_vectors(encoder)

    @classmethod
    def load(cls, path: str | Path | None = None, encoder: Encoder | None = None) -> Self:
        """Read a head."""
        place = (
            Path(str(resources.files("suffice.retrieval.pairs") / _FILE)) if path is None else path
        )
        return cls(HeadWeights.read(Path(place)), encoder or OnnxEncoder.load())

    def contradictions(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        """For every (plan step, candidate) the probability of a contradiction, (len(pairs),), in [0, 1]."""
        features = [pair_features(*pair, self._vector, self._weights.pole) for pair in pairs]
        weights = self._weights.weights
        # each pair by itself: a product of all rows at once would round by their number
        odds = np.array([row @ weights[:-1] + weights[-1] for row in features], np.float64)
        return np.asarray(0.5 * (1.0 + np.tanh(odds / 2.0)), np.float64)


def kept_vectors(encoder: Encoder) -> VectorOf:
    """The encoder's vector of a text, (dimension,) float64; the last 4,096 are kept."""

    @lru_cache(maxsize=_KEPT_TEXTS)
    def vector_of(text: str) -> NDArray[np.float64]:
        return np.asarray(encoder.encode([text])[0], np.float64)

    return vector_of
