"""Matching against a plain twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from suffice.policies.stop_rag.encoder import Batch
from suffice.policies.stop_rag.network import matches

torch = pytest.importorskip("torch", reason="the extra 'learn' is missing")


def rows(*masks: str) -> Any:
    return torch.tensor([[each == "x" for each in mask] for mask in masks])


def batch_of(question: Any, document: Any, words: list[list[int]]) -> Batch:
    return Batch(
        ids=None,
        types=None,
        mask=None,
        question=question,
        document=document,
        words=torch.tensor(words),
    )


def spread(values: Any) -> list[float]:
    return [values.mean(), np.sort(values)[:3].mean(), ((1 - values) ** 2).mean()]


def test_matching_against_a_plain_twin() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(2, 10, 3)).astype(np.float32)
    vectors[0, 7] = 2 * vectors[0, 1]  # found
    question, document = rows(".xxxxx....", ".xx......."), rows("......xxx.", "....xxxxx.")
    words = [[-1, 0, 1, 1, 2, 3, 0, 1, 1, -1], [-1, 0, 0, -1, 0, 1, 1, 2, 3, -1]]
    batch = batch_of(question, document, words)
    found, by_token = (each.numpy() for each in matches(torch.from_numpy(vectors), batch))
    for row in range(2):
        parts = [each[row].numpy() for each in (question, document)]

        def unit(x: Any) -> Any:
            return x / np.linalg.norm(x, axis=-1, keepdims=True)

        cosines = unit(vectors[row][parts[0]]) @ unit(vectors[row][parts[1]]).T
        by_word = []
        for part, best in zip(parts, (cosines.max(axis=1), cosines.max(axis=0)), strict=True):
            numbers = np.array(words[row])[part]
            by_word.append(np.array([best[numbers == n].min() for n in np.unique(numbers)]))
        middle = [unit(vectors[row][part].mean(axis=0)) for part in parts]
        expected = [
            *spread(cosines.max(axis=1)),
            *spread(by_word[0]),
            (by_word[0] > 0.95).mean(),
            middle[0] @ middle[1],
            by_word[1].mean(),
            (by_word[1] > 0.95).mean(),
        ]
        np.testing.assert_allclose(found[row], expected, rtol=1e-4, atol=1e-6)
        own = by_word[0][np.unique(np.array(words[row])[parts[0]], return_inverse=True)[1]]
        np.testing.assert_allclose(by_token[row][parts[0]], own, rtol=1e-5)
        assert not by_token[row][~parts[0]].any()
    assert found[0, 6] == 0.25  # one of four words
    assert found[1, 6] == 0.0


def test_matching_nothing_is_zero() -> None:
    words = [[0, 1, -1, -1], [-1, -1, -1, -1]]
    batch = batch_of(rows("xx..", "...."), rows("....", "xx.."), words)
    found, by_token = matches(torch.randn(2, 4, 3), batch)
    assert found.tolist() == [[0.0] * 10] * 2
    assert not by_token.any()
