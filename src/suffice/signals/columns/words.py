"""The words of texts, as :func:`suffice.trace.rounds.tokens.tokenize` finds them, by distinct word."""

from __future__ import annotations

import string
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.signals.columns.ragged import ranges
from suffice.signals.columns.texts import slices
from suffice.trace.rounds.tokens import tokenize

_OF_WORDS = (string.ascii_lowercase + string.digits + "_").encode() + bytes(range(128, 256))
# in lower case, and separators as zeros
_LOWER = bytes(byte if byte in _OF_WORDS else 0 for byte in bytes(range(256)).lower())
_SIGMA = "\u03a3".encode()


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
        parts = [_runs(part) for part in slices(texts)]
        none = pa.array([], pa.string()).dictionary_encode()
        runs = pa.chunked_array([none, *(runs for _, runs in parts)]).unify_dictionaries()
        spelling = _Spelling.of(runs.chunk(0).dictionary)
        ends, codes = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)]
        for (starts, _), chunk in zip(parts, runs.chunks[1:], strict=True):
            found, of_words = spelling.words(chunk.indices.to_numpy())
            ends.append(ends[-1][-1] + of_words[starts[1:]])
            codes.append(found)
        return cls(np.concatenate(ends), np.concatenate(codes), spelling.n_distinct)


def _runs(texts: pa.Array) -> tuple[NDArray[np.int64], pa.DictionaryArray]:
    """Where each text's runs of what is no separator begin, (n_texts + 1,), and these runs."""
    offsets, text = _joined(texts)
    if _SIGMA in text:
        has_sigma = pc.match_substring(texts, "\u03a3")
        words = [" ".join(tokenize(word)) for word in texts.filter(has_sigma).to_pylist()]
        offsets, text = _joined(pc.replace_with_mask(texts, has_sigma, pa.array(words, texts.type)))
    lower_case = text.translate(_LOWER)
    inside = np.frombuffer(lower_case, np.uint8) != 0
    starts = np.flatnonzero(np.concatenate([inside[:1], inside[1:] > inside[:-1]]))
    ends = pa.py_buffer(np.append(starts, len(text)).astype(np.int32))
    runs = pa.StringArray.from_buffers(len(starts), ends, pa.py_buffer(lower_case))
    return np.searchsorted(starts, offsets), runs.dictionary_encode()


def _joined(texts: pa.Array) -> tuple[NDArray[np.int32], bytes]:
    """Where each text begins, (n_texts + 1,), and all, a blank behind each, over which no run reaches."""
    joined = pc.binary_join_element_wise(pc.cast(texts, "string"), "", " ")
    _, offsets, text = joined.buffers()
    return np.frombuffer(offsets, np.int32)[: len(texts) + 1], text.to_pybytes()


@dataclass(frozen=True, slots=True, eq=False)
class _Spelling:
    """Which words each distinct run holds: one that is not ASCII may hold none or several."""

    places: NDArray[np.int64]
    counts: NDArray[np.int64]
    first: NDArray[np.int32]
    codes: NDArray[np.int32]
    n_distinct: int
    single: bool

    @classmethod
    def of(cls, runs: pa.StringArray) -> _Spelling:
        bare = pc.ascii_rtrim(runs, "\0").dictionary_encode()
        of_run, plain = bare.indices.to_numpy(), bare.dictionary
        others = np.flatnonzero(~pc.string_is_ascii(plain).to_numpy(zero_copy_only=False))
        words = [tokenize(run) for run in plain.take(pa.array(others)).to_pylist()]
        counts = np.ones(len(plain), np.int64)
        counts[others] = [len(of_one) for of_one in words]
        places = np.arange(len(plain))
        places[others] = len(plain) + np.cumsum(counts[others]) - counts[others]
        further = pa.array([word for of_one in words for word in of_one], pa.string())
        known = pa.concat_arrays([plain, further]).dictionary_encode()
        codes = known.indices.to_numpy()
        first = np.append(codes, np.int32(0))[places]  # of one that holds none, any
        n_distinct, single = len(known.dictionary), not len(others)
        return cls(places[of_run], counts[of_run], first[of_run], codes, n_distinct, single)

    def words(self, runs: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The words of runs, and how many the first 0, 1, ... of them hold, (n_runs + 1,)."""
        if self.single:
            return self.first[runs], np.arange(len(runs) + 1)
        lengths = self.counts[runs]
        ends = np.concatenate([[0], np.cumsum(lengths)])
        words = np.repeat(self.first[runs], lengths)
        several = np.flatnonzero(lengths > 1)
        first, last = self.places[runs[several]], ends[several + 1]
        length = lengths[several]
        words[ranges(last - length, last)] = self.codes[ranges(first, first + length)]
        return words, ends
