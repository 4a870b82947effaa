"""Vectors of texts, checked, and brought to length 1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from suffice.errors import BackendError
from suffice.protocols import Encoder


def encoded(encoder: Encoder, texts: Sequence[str]) -> NDArray[np.float32]:
    """The vectors of the texts, all read as passages, (len(texts), dimension).

    Raises
    ------
    BackendError
        When the encoder fails or gives other vectors than one finite one for every text.
    """
    vectors = encoder.encode(texts, role="passage")
    if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
        raise BackendError(
            f"encoder {encoder.name!r} gave vectors of shape {vectors.shape} for {len(texts)} texts; "
            "a finite one for every text is needed"
        )
    return vectors


def unit_rows(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """Rows of length 1, in float64; a row of zeros stays."""
    exact = vectors.astype(np.float64)
    lengths = np.linalg.norm(exact, axis=1, keepdims=True)
    found: NDArray[np.float64] = exact / np.where(lengths == 0.0, 1.0, lengths)
    return found
