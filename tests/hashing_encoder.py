"""An encoder without a network: hashed bags of words."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from suffice.errors import BackendError
from suffice.trace.rounds.records import tokenize


class HashingEncoder:
    """Every distinct word has a fixed direction of random signs; a text is the unit sum of its words'.

    A text that contains ``fail_on`` fails.
    """

    def __init__(self, dimension: int = 64, *, fail_on: str | None = None) -> None:
        self._dimension = dimension
        self.name = f"hashing-{dimension}"
        self._fail_on = fail_on
        self._calls: list[tuple[str, ...]] = []

    @property
    def calls(self) -> tuple[tuple[str, ...], ...]:
        """The texts of every call so far."""
        return tuple(self._calls)

    def encode(
        self, texts: Sequence[str], *, role: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        """A unit vector for every text, (len(texts), dimension)."""
        self._calls.append(tuple(texts))
        for text in texts:
            if self._fail_on is not None and self._fail_on in text:
                raise BackendError(f"the encoder was told to fail on {self._fail_on!r}")
        vectors = np.zeros((len(texts), self._dimension))
        for row, text in enumerate(texts):
            for word in tokenize(text):  # 1 or -1 in every place, fixed by the word
                digest = hashlib.shake_256(word.encode()).digest(-(-self._dimension // 8))
                bits = np.unpackbits(np.frombuffer(digest, np.uint8))[: self._dimension]
                vectors[row] += bits * 2.0 - 1.0
            if not vectors[row].any():
                vectors[row, 0] = 1.0
        lengths = np.sqrt((vectors * vectors).sum(axis=1, keepdims=True))
        unit: NDArray[np.float32] = (vectors / lengths).astype(np.float32)
        return unit
