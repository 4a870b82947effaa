"""The encoder for tests."""

from __future__ import annotations

import numpy as np

from suffice.contracts import Encoder
from suffice.testing.encoders import HashingEncoder


def test_it_is_an_encoder_of_unit_vectors() -> None:
    encoder = HashingEncoder(48)
    assert isinstance(encoder, Encoder)
    assert encoder.name == "hashing-48"
    vectors = encoder.encode(["The Mill at Arden", "", "a river", "!"])
    assert vectors.shape == (4, 48)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-6)
    np.testing.assert_array_equal(vectors[1], vectors[3])
    assert encoder.encode([]).shape == (0, 48)
    assert encoder.calls == (("The Mill at Arden", "", "a river", "!"), ())


def test_words_make_the_vector_not_their_order_case_or_company() -> None:
    encoder = HashingEncoder()
    one, two = encoder.encode(["The mill", "MILL the"])
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(encoder.encode(["the mill"], role="query")[0], one)
