"""The words of texts, as :func:`suffice.trace.rounds.tokens.tokenize` finds them, by distinct word."""

from __future__ import annotations

import string
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.columns.ragged import ranges
from suffice.trace.rounds.tokens import tokenize

_OF_WORDS = (string.ascii_letters + string.digits + "_").encode() + bytes(range(128, 256))
_SEPARATORS = bytes(sorted({*range(128)}.difference(_OF_WORDS)))
# separators as zeros, all else in lower case
_LOWER = bytes(0 if byte in _SEPARATORS else byte for byte in bytes(range(256)).lower())
_SIGMA = "\u03a3".encode()
_SLICE = 1 << 19  # bytes at a time: what is made of them stays in the cache


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """The words of each text, in order.

    ``offsets`` (n_texts + 1,) are where each text's begin in ``codes`` (n_words,), which are equal where
    words are and less than ``n_distinct``.
    """

    offsets: NDArray[np.int64]
    codes: NDArray[np.int32]
    n_distinct: int

    @classmethod
    def of(cls, texts: pa.Array) -> Words:
        """The words of an array of strings without nulls.

        Python looks only at distinct runs of word characters that are not ASCII, and at texts with a capital
        sigma, whose lower case hangs on its neighbours.
        """
        parts = [_runs(part) for part in _slices(texts)]
        none = pa.array([], pa.string()).dictionary_encode()
        runs = pa.chunked_array([none, *(runs for _, runs in parts)]).unify_dictionaries()
        spelling = _Spelling.of(runs.chunk(0).dictionary)
        ends, codes = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)]
        for (starts, _), chunk in zip(parts, runs.chunks[1:], strict=True):
            found, of_words = spelling.words(chunk.indices.to_numpy())
            ends.append(ends[-1][-1] + of_words[starts[1:]])
            codes.append(found)
        return cls(np.concatenate(ends), np.concatenate(codes), spelling.n_distinct)


def _slices(texts: pa.Array) -> Iterator[pa.Array]:
    """The texts in parts of some size, none empty."""
    ends = np.cumsum(pc.binary_length(texts).to_numpy(zero_copy_only=False), dtype=np.int64)
    first, before = 0, 0
    while first < len(texts):
        last = max(first + 1, int(np.searchsorted(ends, before + _SLICE, "right")))
        yield texts.slice(first, last - first)
        first, before = last, int(ends[last - 1])


def _runs(texts: pa.Array) -> tuple[NDArray[np.int64], pa.DictionaryArray]:
    """The runs between separators, ASCII in lower case, and where each text's begin, (n_texts + 1,)."""
    offsets, text = _joined(texts)
    if _SIGMA in text:
        has_sigma = pc.match_substring(texts, "\u03a3")
        lower = [" ".join(tokenize(word)) for word in texts.filter(has_sigma).to_pylist()]
        offsets, text = _joined(pc.replace_with_mask(texts, has_sigma, pa.array(lower, texts.type)))
    inside = np.frombuffer(text.translate(_LOWER), np.uint8) != 0
    edges = np.flatnonzero(np.diff(inside, prepend=False))
    starts, ends = edges[::2], edges[1::2]
    of_runs = np.zeros(len(starts) + 1, np.int32)
    np.cumsum(ends - starts, out=of_runs[1:])
    letters = pa.py_buffer(text.translate(_LOWER, _SEPARATORS))
    runs = pa.StringArray.from_buffers(len(starts), pa.py_buffer(of_runs), letters)
    return np.searchsorted(starts, offsets), runs.dictionary_encode()


def _joined(texts: pa.Array) -> tuple[NDArray[np.int32], bytes]:
    """Where each text begins, (n_texts + 1,), and all, a blank behind each, over which no run reaches."""
    joined = pc.binary_join_element_wise(pc.cast(texts, "string"), "", " ")
    _, offsets, text = joined.buffers()
    return np.frombuffer(offsets, np.int32)[: len(texts) + 1], text.to_pybytes()


@dataclass(frozen=True, slots=True, eq=False)
class _Spelling:
    """Which words each distinct run holds: one that is not ASCII may hold none or several.

    ``counts`` (n_runs,) of them from ``places`` (n_runs,) on in ``words``; ``plain``: each is the run itself.
    """

    places: NDArray[np.int64]
    counts: NDArray[np.int64]
    first: NDArray[np.int32]
    codes: NDArray[np.int32]
    n_distinct: int
    plain: bool

    @classmethod
    def of(cls, runs: pa.StringArray) -> _Spelling:
        others = np.flatnonzero(~pc.string_is_ascii(runs).to_numpy(zero_copy_only=False))
        words = [tokenize(run) for run in runs.take(pa.array(others)).to_pylist()]
        counts = np.ones(len(runs), np.int64)
        counts[others] = [len(of_run) for of_run in words]
        places = np.arange(len(runs))
        places[others] = len(runs) + np.cumsum(counts[others]) - counts[others]
        flat = pa.array([word for of_run in words for word in of_run], pa.string())
        known = pa.concat_arrays([runs, flat]).dictionary_encode()
        codes = known.indices.to_numpy()  # in order, as the runs are distinct
        first = np.append(codes, np.int32(0))[places]
        return cls(places, counts, first, codes, len(known.dictionary), not len(others))

    def words(self, runs: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The words of runs, and how many the first 0, 1, ... of them hold, (n_runs + 1,)."""
        if self.plain:
            return runs, np.arange(len(runs) + 1)
        lengths = self.counts[runs]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        words = np.repeat(self.first[runs], lengths)
        several = np.flatnonzero(lengths > 1)
        first, last = self.places[runs[several]], ends[several + 1]
        length = lengths[several]
        words[ranges(last - length, last)] = self.codes[ranges(first, first + length)]
        return words, ends
