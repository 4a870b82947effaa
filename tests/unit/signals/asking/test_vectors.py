"""Vectors as they come, checked; rows of length 1."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.errors import BackendError
from suffice.signals.asking.evidence_models import encoded, unit_rows
from suffice.testing.encoders import HashingEncoder


class Fixed:
    name = "fixed"

    def __init__(self, vectors: object) -> None:
        self.vectors = np.array(vectors, np.float32)

    def encode(self, texts: object, *, role: str = "passage") -> np.ndarray:
        assert role == "passage"
        return self.vectors


def test_good_vectors_pass_as_they_are() -> None:
    texts = ["Oslo", "Rome"]
    assert np.array_equal(encoded(HashingEncoder(), texts), HashingEncoder().encode(texts))


@pytest.mark.parametrize("vectors", [[1.0, 0.0], [[1.0, 0.0]], [[1.0, 0.0], [np.inf, 0.0]]])
def test_other_vectors_are_refused(vectors: object) -> None:
    with pytest.raises(BackendError, match=r"encoder 'fixed' gave vectors of shape .* for 2 texts"):
        encoded(Fixed(vectors), ["Oslo", "Rome"])


def test_rows_get_length_one_and_zeros_stay() -> None:
    found = unit_rows(np.array([[3.0, 4.0], [0.0, 0.0], [0.0, -2.0]], np.float32))
    assert found.dtype == np.float64
    assert found.tolist() == [[0.6, 0.8], [0.0, 0.0], [0.0, -1.0]]
