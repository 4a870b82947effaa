"""Texts compared pair by pair, each pair two positions in an array of texts."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.signals.columns.ragged import ranges

Positions = NDArray[np.int64]


def contained(texts: pa.Array, part: Positions, whole: Positions) -> NDArray[np.bool_]:
    """Whether one text stands anywhere in the other, (n_pairs,); one without characters never does."""
    pairs = (texts.take(pa.array(of)).to_pylist() for of in (part, whole))
    within = (one != "" and one in other for one, other in zip(*pairs, strict=True))
    return np.fromiter(within, np.bool_, len(part))


def f1_of_pairs(texts: pa.Array, first: Positions, second: Positions) -> NDArray[np.float64]:
    """:func:`suffice.scoring.token_f1` of every pair, (n_pairs,), bit for bit.

    ``texts`` are in a normal form: single blanks between words, and none around them.
    """
    used, place = np.unique(np.concatenate([first, second]), return_inverse=True)
    texts = texts.take(pa.array(used))
    lists = pc.split_pattern(texts, " ")  # one empty word of an empty text
    offsets = lists.offsets.to_numpy().astype(np.int64)
    words, lengths = _numbered(lists.flatten(), offsets), np.diff(offsets)
    empty = pc.equal(texts, "").to_numpy(zero_copy_only=False)
    first, second = place[: len(first)], place[len(first) :]
    asked = np.repeat(second * len(words), lengths[first])
    asked += words[ranges(offsets[first], offsets[first + 1])]
    held = np.repeat(np.arange(len(used)) * len(words), lengths) + words
    there = pc.is_in(pa.array(asked), value_set=pa.array(held)).to_numpy(zero_copy_only=False)
    pair = np.repeat(np.arange(len(first)), lengths[first])
    shared = np.bincount(pair[there], minlength=len(first))
    some = np.flatnonzero((shared > 0) & ~empty[first])
    precision, recall = (shared[some] / lengths[of[some]] for of in (first, second))
    scores = np.zeros(len(first))
    scores[some] = 2 * precision * recall / (precision + recall)
    return scores


def _numbered(words: pa.Array, offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """A number below ``len(words)`` for each, equal for the same word the same time in a text."""
    coded = words.dictionary_encode()
    codes, many = coded.indices.to_numpy().astype(np.int64), len(coded.dictionary)
    keys = np.repeat(np.arange(len(offsets) - 1) * many, np.diff(offsets)) + codes
    order = np.argsort(keys, kind="stable")
    begins = np.diff(keys[order], prepend=-1) != 0
    place = np.arange(len(keys))
    times = np.empty(len(keys), np.int64)
    times[order] = place - np.maximum.accumulate(np.where(begins, place, 0))
    return np.unique(times * many + codes, return_inverse=True)[1].reshape(-1)
