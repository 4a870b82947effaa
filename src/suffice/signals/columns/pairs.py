"""Texts compared pair by pair, each pair two positions in an array of texts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.signals.columns.ragged import ranges
from suffice.signals.columns.texts import slices

Array = NDArray[np.float64]
Positions = NDArray[np.int64]
_BLOCK = 1 << 22  # bytes of texts compared at a time
_BLANK, _NO_TEXT = 32, 0xFF


def equal(texts: pa.Array, first: Positions, second: Positions) -> NDArray[np.bool_]:
    """Whether the two are equal, (n_pairs,)."""
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False)
    same = np.zeros(len(first), bool)
    perhaps = np.flatnonzero(lengths[first] == lengths[second])
    for rows in _blocks(perhaps, lengths[first[perhaps]]):
        pair = texts.take(pa.array(first[rows])), texts.take(pa.array(second[rows]))
        same[rows] = pc.equal(*pair).to_numpy(zero_copy_only=False)
    return same


def contained(texts: pa.Array, part: Positions, whole: Positions) -> NDArray[np.bool_]:
    """Whether one text stands anywhere in the other, (n_pairs,); one without characters never does."""
    data, offsets = _bytes(texts)
    lengths = np.diff(offsets)
    found = np.zeros(len(part), bool)
    perhaps = np.flatnonzero((lengths[part] > 0) & (lengths[part] <= lengths[whole]))
    # by length, so that padding no more than doubles what is compared
    size = np.frexp(lengths[whole[perhaps]])[1]
    for power in np.unique(size).tolist():
        alike = perhaps[size == power]
        for rows in _blocks(alike, lengths[whole[alike]]):
            if len(rows) == 1:  # perhaps very long
                one, other = (
                    data[offsets[of] : offsets[of + 1]].tobytes()
                    for of in (int(part[rows[0]]), int(whole[rows[0]]))
                )
                found[rows] = one in other
                continue
            ones, others = (
                _of_one_width(data, offsets[of], lengths[of]) for of in (part[rows], whole[rows])
            )
            found[rows] = np.char.find(others, ones) >= 0
    return found


def f1_of_pairs(texts: pa.Array, first: Positions, second: Positions) -> Array:
    """:func:`suffice.scoring.token_f1` of every pair, (n_pairs,), bit for bit.

    ``texts`` are in a normal form: single blanks between words, and none around them.
    """
    scores = np.zeros(len(first))
    bits = np.concatenate([np.zeros(0, np.uint64), *map(_bits_of_words, slices(texts))])
    perhaps = np.flatnonzero(bits[first] & bits[second])
    first, second = first[perhaps], second[perhaps]
    used = np.zeros(len(texts), bool)
    used[first] = used[second] = True
    place = np.cumsum(used) - 1
    first, second = place[first], place[second]
    offsets, words = _words(texts.filter(pa.array(used)))
    lengths = np.diff(offsets)
    shared = _shared(offsets, words, first, second)
    some = np.flatnonzero(shared)
    precision = shared[some] / lengths[first[some]]
    recall = shared[some] / lengths[second[some]]
    scores[perhaps[some]] = 2 * precision * recall / (precision + recall)
    return scores


# --- words ------------------------------------------------------------------------------------------
def _bits_of_words(texts: pa.Array) -> NDArray[np.uint64]:
    """A bit for every word, (n_texts,): texts without a common bit have no common word."""
    lengths = pc.binary_length(texts).to_numpy(zero_copy_only=False).astype(np.int64)
    ends = pa.array([0, len(texts)], pa.int32())
    whole = pc.binary_join(pa.ListArray.from_arrays(ends, texts.cast(pa.binary())), b" ")[0]
    data = np.frombuffer(b" %b  " % whole.as_buffer(), np.uint8)
    blank = data == _BLANK
    starts = np.flatnonzero(blank[:-1] > blank[1:]) + 1
    first = np.zeros(len(data), bool)
    filled = np.flatnonzero(lengths)
    first[(np.cumsum(lengths + 1) - lengths)[filled]] = True
    # by its first letters
    mixed = data[starts] * np.uint8(5) + data[starts + 1] * np.uint8(23)
    mixed += np.where(blank[starts + 1], np.uint8(0), data[starts + 2] * np.uint8(11))
    of_words = np.left_shift(np.uint64(1), mixed & np.uint8(63), dtype=np.uint64)
    bits = np.zeros(len(texts), np.uint64)
    if len(filled):
        bits[filled] = np.bitwise_or.reduceat(of_words, np.flatnonzero(first[starts]))
    return bits


def _words(texts: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Where the words of each text begin, (n_texts + 1,), and the codes of all words."""
    lists = pc.split_pattern(texts, " ")
    offsets = lists.offsets.to_numpy().astype(np.int64)
    words = lists.flatten().dictionary_encode()
    codes, n_words = words.indices.to_numpy().astype(np.int64), len(words.dictionary)
    keys = np.repeat(np.arange(len(texts)), np.diff(offsets)) * n_words + codes
    known = pa.array(keys).dictionary_encode()
    if len(known.dictionary) == len(keys):
        return offsets, codes
    key = known.indices.to_numpy()
    repeated = np.flatnonzero((np.bincount(key) > 1)[key])
    repeated = repeated[np.argsort(key[repeated], kind="stable")]
    first = np.append(True, np.diff(key[repeated]) != 0)
    times = np.arange(len(repeated)) - np.flatnonzero(first)[np.cumsum(first) - 1]
    again = repeated[times > 0]
    beyond = pa.array(times[times > 0] * n_words + codes[again]).dictionary_encode()
    codes[again] = n_words + beyond.indices.to_numpy()
    return offsets, codes


def _shared(
    offsets: NDArray[np.int64], words: NDArray[np.int64], first: Positions, second: Positions
) -> NDArray[np.int64]:
    """How many words both have, (n_pairs,)."""
    lengths = np.diff(offsets)
    shorter = np.where(lengths[first] <= lengths[second], first, second)
    longer = first + second - shorter
    counts = lengths[shorter]
    n_words = int(words.max(initial=0)) + 1
    asked = (
        np.repeat(longer * n_words, counts) + words[ranges(offsets[shorter], offsets[shorter + 1])]
    )
    held = np.repeat(np.arange(len(lengths)) * n_words, lengths) + words
    there = pc.is_in(pa.array(asked), value_set=pa.array(held)).to_numpy(zero_copy_only=False)
    pair = np.repeat(np.arange(len(first)), counts)
    return np.bincount(pair[there], minlength=len(first))


# --- bytes ------------------------------------------------------------------------------------------
def _blocks(rows: Positions, sizes: NDArray[np.integer]) -> Iterator[Positions]:
    """The rows in parts whose sizes are ``_BLOCK`` together, or one row that is larger."""
    ends = np.cumsum(sizes, dtype=np.int64)
    first, before = 0, 0
    while first < len(rows):
        last = max(first + 1, int(np.searchsorted(ends, before + _BLOCK, "right")))
        yield rows[first:last]
        first, before = last, int(ends[last - 1])


def _bytes(texts: pa.Array) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """All texts end to end, none of whose bytes is 0, and where each begins, (n_texts + 1,)."""
    plain = pa.concat_arrays([texts]).cast(pa.large_binary())
    offsets = np.frombuffer(plain.buffers()[1], np.int64)[plain.offset :][: len(plain) + 1]
    size = int(offsets[-1] - offsets[0])
    data = np.zeros(size + int(np.diff(offsets).max(initial=0)), np.uint8)
    if size:
        data[:size] = np.frombuffer(plain.buffers()[2], np.uint8)[offsets[0] : offsets[-1]]
    data[:size][data[:size] == 0] = _NO_TEXT
    return data, offsets - offsets[0]


def _of_one_width(
    data: NDArray[np.uint8], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.bytes_]:
    """Texts as bytes, those behind the end of each 0."""
    width = int(lengths.max())
    windows = np.lib.stride_tricks.sliding_window_view(data, width)[starts]
    windows[np.arange(width) >= lengths[:, None]] = 0
    return windows.view(f"S{width}").ravel()
