"""A small learned detector of contradictions over a sentence encoder, without torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from suffice.contracts import Encoder
from suffice.errors import DataError, UsageError
from suffice.retrieval.dense.onnx_encoder import OnnxEncoder
from suffice.retrieval.index_file import UNREADABLE, packed, unpacked
from suffice.retrieval.pairs.contradiction_features import FEATURES, VectorOf, pair_features
from suffice.trace.durable import replace_file

_FILE = "contradiction_head.npz"
_SCHEMA = 1
_KEPT_TEXTS = 4096  # vectors of words and steps come again and again; 6 MB with MiniLM
_RETRAIN = "python -m studies.training contradiction --out FILE"


_NO_HEAD: tuple[type[Exception], ...] = (*UNREADABLE, UsageError)


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

    def write(self, path: Path) -> None:
        """The numbers with their encoder and features as an ``.npz`` file, whole or not at all."""
        about = {"schema": _SCHEMA, "encoder": self.encoder, "features": list(FEATURES)}
        replace_file(path, packed({"pole": self.pole, "weights": self.weights}, about=about))

    @classmethod
    def read(cls, path: Path) -> HeadWeights:
        """What :meth:`write` wrote."""
        if not path.is_file():
            raise UsageError(
                f"no contradiction head at {str(path)!r}; name a file that {_RETRAIN} wrote, or None for the "
                "packaged one"
            )
        try:
            arrays, (about,) = unpacked(path, "about")
            schema, features = about["schema"], about["features"]
            pole, weights = (np.asarray(arrays[name], np.float64) for name in ("pole", "weights"))
            if schema == _SCHEMA and features == list(FEATURES):
                return cls(encoder=about["encoder"], pole=pole, weights=weights)
        except _NO_HEAD as error:
            raise DataError(f"not a contradiction head ({error!r})", file=str(path)) from error
        raise DataError(
            f"of schema {schema}, or of other features than this version makes: update suffice, or train it "
            f"again: {_RETRAIN}",
            file=str(path),
        )


class ContradictionHead:
    """How likely two plan steps contradict each other; a :class:`suffice.contracts.ContradictionDetector`.

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
