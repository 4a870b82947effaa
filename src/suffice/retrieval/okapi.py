"""Okapi BM25 as the rank_bm25 package computes it, for small sets of passages."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["OkapiScorer"]

_EPSILON = 0.25
"""A word in more than half of the passages gets this share of the mean IDF."""


def _idf(document_frequency: dict[str, int], n_passages: int) -> dict[str, float]:
    """IDF ln((N - df + 0.5) / (df + 0.5)) with the floor for negative values.

    The mean that sets the floor includes the negative ones, and is summed in order of first
    occurrence: the last bit of a score depends on it. The floor itself can be negative.
    """
    idf = {
        word: math.log(n_passages - count + 0.5) - math.log(count + 0.5)
        for word, count in document_frequency.items()
    }
    total = 0.0
    for value in idf.values():  # sum() compensates rounding from Python 3.12 on
        total += value
    floor = _EPSILON * (total / len(idf)) if idf else 0.0
    return {word: floor if value < 0 else value for word, value in idf.items()}


@dataclass(frozen=True, slots=True)
class OkapiScorer:
    """Postings weighted by term frequency and length, and the IDF of every word.

    ``weights[word]`` holds passage indices and the values
    ``tf (k1 + 1) / (tf + k1 (1 - b + b length / mean length))`` there.
    """

    n_passages: int
    idf: dict[str, float]
    weights: dict[str, tuple[NDArray[np.intp], NDArray[np.float64]]]

    @classmethod
    def fit(
        cls, tokens: Sequence[Sequence[str]], *, k1: float = 1.5, b: float = 0.75
    ) -> OkapiScorer:
        """Count words; passages without words, and no passages at all, are allowed."""
        postings: dict[str, list[tuple[int, int]]] = {}
        for i, words in enumerate(tokens):
            for word, count in Counter(words).items():
                postings.setdefault(word, []).append((i, count))
        lengths = np.array([len(words) for words in tokens])  # (n_passages,)
        mean = sum(len(words) for words in tokens) / len(tokens) if len(tokens) else 0.0
        weights = {}
        for word, places in postings.items():
            where = np.array([i for i, _ in places], dtype=np.intp)
            tf = np.array([count for _, count in places])
            weights[word] = (
                where,
                tf * (k1 + 1) / (tf + k1 * (1 - b + b * lengths[where] / mean)),
            )
        idf = _idf({word: len(places) for word, places in postings.items()}, len(tokens))
        return cls(n_passages=len(tokens), idf=idf, weights=weights)

    def scores(self, query_tokens: Sequence[str]) -> NDArray[np.float64]:
        """Scores of all passages, (n_passages,); a word counts as often as the query has it."""
        total = np.zeros(self.n_passages)
        for word in query_tokens:
            if word in self.weights:
                where, values = self.weights[word]
                total[where] += self.idf[word] * values
        return total
