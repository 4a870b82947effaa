"""Models that keep what they found: same values, fewer calls, bounded."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from numpy.typing import NDArray

from suffice.contracts import Encoder, Entailment
from suffice.errors import BackendError
from suffice.signals.asking.whole_record import KeptEncoder, KeptEntailment
from suffice.testing.encoders import HashingEncoder


def test_vectors_are_the_encoders_and_each_text_is_encoded_once() -> None:
    plain, counted = HashingEncoder(), HashingEncoder()
    kept = KeptEncoder(counted)
    assert isinstance(kept, Encoder)
    assert kept.name == plain.name
    for texts in (["a", "b", "a"], ["b", "c"], ["c", "a"], []):
        found = kept.encode(texts)
        np.testing.assert_array_equal(found, plain.encode(texts))
        assert found.dtype == np.float32
    assert counted.calls == (("a", "b"), ("c",), ())


def test_roles_are_kept_apart() -> None:
    class ByRole(HashingEncoder):
        def encode(self, texts: Sequence[str], *, role: str = "passage") -> NDArray[np.float32]:
            return super().encode([f"{role} {text}" for text in texts])

    kept = KeptEncoder(ByRole())
    as_query, as_passage = kept.encode(["a"], role="query"), kept.encode(["a"])
    assert not np.array_equal(as_query, as_passage)
    np.testing.assert_array_equal(kept.encode(["a"], role="query"), as_query)


def test_the_least_recently_used_one_goes() -> None:
    counted = HashingEncoder()
    kept = KeptEncoder(counted, most=2)
    for text in ("a", "b", "a", "c", "a", "b"):
        kept.encode([text])
    assert counted.calls == (("a",), ("b",), ("c",), ("b",))
    np.testing.assert_array_equal(kept.encode(["x", "y", "z"]), counted.encode(["x", "y", "z"]))


def test_what_it_gives_cannot_spoil_what_it_keeps() -> None:
    kept = KeptEncoder(HashingEncoder())
    first = kept.encode(["a"])
    before = first.copy()
    first[:] = 0.0
    np.testing.assert_array_equal(kept.encode(["a"]), before)


def test_a_failure_keeps_nothing() -> None:
    class Once(HashingEncoder):
        failed = False

        def encode(self, texts: Sequence[str], *, role: str = "passage") -> NDArray[np.float32]:
            if not self.failed:
                self.failed = True
                raise BackendError("down")
            return super().encode(texts)

    kept = KeptEncoder(Once())
    with pytest.raises(BackendError, match="down"):
        kept.encode(["a"])
    np.testing.assert_array_equal(kept.encode(["a"]), HashingEncoder().encode(["a"]))


def test_many_threads_at_once() -> None:
    kept, plain = KeptEncoder(HashingEncoder(), most=7), HashingEncoder()
    batches = [[f"{(n * k) % 13}" for k in range(5)] for n in range(200)]
    with ThreadPoolExecutor(8) as pool:
        for texts, found in zip(batches, pool.map(kept.encode, batches), strict=True):
            np.testing.assert_array_equal(found, plain.encode(texts))


class Lengths:
    """Probability by the lengths of premise and conclusion."""

    concurrency = 3

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def entailed(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float64]:
        self.asked += pairs
        return np.array([len(a) / (len(a) + len(b)) for a, b in pairs])


def test_each_pair_is_judged_once() -> None:
    model = Lengths()
    kept = KeptEntailment(model)
    assert isinstance(kept, Entailment)
    assert kept.concurrency == 3
    assert kept.entailed([("aa", "b"), ("a", "bbb")]).tolist() == [2 / 3, 1 / 4]
    assert kept.entailed([("a", "bbb"), ("a", "b")]).tolist() == [1 / 4, 1 / 2]
    assert model.asked == [("aa", "b"), ("a", "bbb"), ("a", "b")]
    assert kept.entailed([]).shape == (0,)
