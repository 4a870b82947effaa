"""What the head reads of two texts, by hand and under exchange."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.hashing_encoder import HashingEncoder

from suffice.retrieval.contradiction import (
    FEATURES,
    kept_vectors,
    lexical_features,
    pair_features,
    stems,
)

WORDS = [
    *("open", "close", "not", "don't", "port", "80", "443", "before", "after", "unlocked"),
    *("enable", "disable", "the", "Logs", "log"),
]
texts = st.lists(st.sampled_from([*WORDS, ""]), max_size=9).map(" ".join)
VECTOR = kept_vectors(HashingEncoder(32))
POLE = np.linspace(-1.0, 1.0, 33)


def lexical(first: str, second: str) -> dict[str, float]:
    return dict(zip(FEATURES, lexical_features(first, second), strict=False))


@pytest.mark.parametrize(
    ("first", "second", "name", "value"),
    [
        ("open it", "do not open it", "one_negated", 1.0),
        ("never open it", "do not open it", "one_negated", 0.0),
        ("never open it", "do not open it", "both_negated", 1.0),
        ("not never open", "open", "one_negated", 0.0),  # two negations make none
        ("keep 7 days", "keep 30 days", "other_numbers", 1.0),
        ("keep 7 days", "keep days", "other_numbers", 0.0),
        ("keep 7 of 9", "keep 9", "other_numbers", 0.0),
        ("leave it encrypted", "leave it unencrypted", "prefix_opposite", 1.0),
        ("enable it", "disable it", "prefix_opposite", 1.0),
        ("enable it", "enlarge it", "prefix_opposite", 0.0),
        ("migrate before deploying", "deploy before migrating", "other_order", 1.0),
        ("migrate before deploying", "deploy after migrating", "same_order", 1.0),
        ("open ports", "opened port", "shared_share", 1.0),
        ("open ports", "open ports of hosts", "contained_share", 1.0),
        ("open ports", "open hosts", "shared_share", 1 / 3),
        ("", "", "shared_share", 0.0),
    ],
)
def test_single_features(first: str, second: str, name: str, value: float) -> None:
    assert lexical(first, second)[name] == pytest.approx(value)


@given(texts, texts)
def test_order_makes_no_difference_and_everything_is_finite(first: str, second: str) -> None:
    found = pair_features(first, second, VECTOR, POLE)
    assert found.shape == (len(FEATURES),)
    assert np.isfinite(found).all()
    assert found.tolist() == pair_features(second, first, VECTOR, POLE).tolist()
    np.testing.assert_array_equal(found[:12], lexical_features(first, second))
    assert set(stems(first)).isdisjoint({"not", "before", "the"})
