"""Novelty: whether the round's search was a new one, and how far what it brought repeats what was read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from suffice.protocols import Absence
from suffice.signals.answer_stability import no_new_passage
from suffice.signals.columns.answers import answer_forms
from suffice.signals.columns.listings import codes_of_ids, listings, unrecorded_so_far
from suffice.signals.columns.ragged import ranges
from suffice.signals.columns.rounds import RoundColumns, by_appearance
from suffice.signals.columns.texts import NONE
from suffice.signals.columns.words import Words
from suffice.signals.evidence import PASSAGES_UNKNOWN, TEXT_UNKNOWN, seen_passages
from suffice.signals.spec import SignalSpec, unrecorded

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
Keys = NDArray[np.int32] | NDArray[np.int64]
_BLOCK = 1 << 17  # words at a time: what is made of them stays in the cache
_OF_PASSAGE, _OF_ROW = 64, 16  # count as many words, since tables are by passages and rows
_NARROW = 31  # bits of keys that sort fastest
_LOW_BITS = 28


@dataclass(frozen=True, slots=True, eq=False)
class _Reading:
    """The distinct passages of every question, in the order in which they are first listed."""

    rows: Integers
    starts: Integers
    parts: Integers
    words: Words
    new: Integers
    seen: Integers
    compared: NDArray[np.bool_]
    """Rows whose new passages are compared with earlier ones, (n_rows,)."""

    def rows_of(self, words: _Occurrences) -> slice:
        """The rows in which the passages of some questions are first listed, and those between."""
        listed = self.rows[words.passages]
        return slice(int(listed[0]), int(listed[-1]) + 1)


def _reading(rounds: RoundColumns) -> _Reading:
    listed = rounds.once(listings)
    new, rows = listed.new, listed.rows
    total = np.cumsum(new)
    before = (total - new)[rounds.first_row]
    titles = listed.lists.texts("title").take(listed.places)
    texts = listed.lists.texts("text").take(listed.places)
    untold = np.zeros(rounds.n_rows, bool)
    untold[rows[texts.codes < 0]] = True
    comparable = ~unrecorded_so_far(rounds) & ~rounds.so_far(untold)
    behind_titles = np.where(texts.codes < 0, -1, len(titles.distinct) + texts.codes)
    return _Reading(
        rows=rows,
        starts=before[rows],
        parts=np.stack([titles.codes, behind_titles], axis=1),
        # an empty text for nulls, the last
        words=Words.of(pa.concat_arrays([titles.distinct, texts.distinct, pa.array([""])])),
        new=new,
        seen=total - before,
        compared=comparable & (new > 0) & (total - before > new),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Occurrences:
    """In which places the distinct words of some questions occur, sorted by question, word and place."""

    places: Integers
    first: NDArray[np.bool_]
    passages: slice


def _occurrences(reading: _Reading, place: Integers) -> Iterator[_Occurrences]:
    """Those of all questions, where ``place`` (n_passages,) is that of each passage, rising."""
    offsets, codes = reading.words.offsets, reading.words.codes
    starts, ends = offsets[:-1][reading.parts], offsets[1:][reading.parts]
    sizes = (ends - starts).sum(axis=1)
    word_bits = reading.words.n_distinct.bit_length()
    for some in _blocks(reading, sizes):
        firsts = reading.starts[some]
        question = np.cumsum(np.diff(firsts, prepend=firsts[0]) > 0)
        origin = place[np.unique(firsts)]
        ordinal = place[some] - origin[question]
        place_bits = int(ordinal.max()).bit_length()
        bits = place_bits + word_bits + int(question[-1]).bit_length()
        words = codes[ranges(starts[some].ravel(), ends[some].ravel())]
        keys: Keys = words if bits <= _NARROW else words.astype(np.int64)
        keys <<= place_bits
        key = (question << (word_bits + place_bits)) | ordinal
        keys |= np.repeat(key.astype(keys.dtype), sizes[some])
        keys.sort()
        keys = keys[_changes(keys)]
        places = (keys & ((1 << place_bits) - 1)).astype(np.int64)
        keys >>= place_bits
        places += origin[keys >> word_bits]
        yield _Occurrences(places, _changes(keys), some)


def _blocks(reading: _Reading, sizes: Integers) -> Iterator[slice]:
    """Passages of whole questions, together of about :data:`_BLOCK` words, and of some."""
    costs = sizes + _OF_PASSAGE + _OF_ROW * np.diff(reading.rows, prepend=0)
    firsts = np.flatnonzero(reading.starts == np.arange(len(sizes)))
    bounds = np.append(firsts, len(sizes))
    ends = np.concatenate([[0], np.cumsum(costs)])[bounds]
    first = 0
    while first < len(firsts):
        last = max(first + 1, int(np.searchsorted(ends, ends[first] + _BLOCK, "right")) - 1)
        some = slice(int(bounds[first]), int(bounds[last]))
        if sizes[some].any():
            yield some
        first = last


def _changes(values: Keys) -> NDArray[np.bool_]:
    """Where a value differs from the one before, (n_values,); the first does."""
    changes = np.ones(len(values), bool)
    np.not_equal(values[1:], values[:-1], out=changes[1:])
    return changes


def overlap(rounds: RoundColumns) -> Array:
    """Token-set Jaccard of the round's new passages and all earlier ones (paper 0; published).

    Tokens of title and text; in [0, 1], high: little news. It falls with the round by construction,
    as the earlier set only grows. Undefined in round 1, without a new passage or an earlier one,
    and when a passage seen so far was recorded without its text.
    """
    reading = rounds.once(_reading)
    fresh, known = np.zeros((2, rounds.n_rows), np.int64)
    for words in _occurrences(reading, reading.rows):
        rows = reading.rows_of(words)
        places = words.places - rows.start
        occurring = np.bincount(places, minlength=rows.stop - rows.start)
        fresh[rows] = np.bincount(places[words.first], minlength=len(occurring))
        known[rows] = occurring - fresh[rows]
    total = np.cumsum(fresh)
    union = total - (total - fresh)[rounds.first_row]
    values = rounds.undefined()
    defined = reading.compared & (union > 0)
    values[defined] = known[defined] / union[defined]
    return values


def overlap_idf(rounds: RoundColumns) -> Array:
    """The same with each token weighing ln((N + 1) / (df + 1)) + 1 over the N passages seen so far.

    The paper's text; its code used the plain form in every rule, and took N over all candidates,
    which a trace does not hold.
    """
    reading = rounds.once(_reading)
    weights = _Weights.of(reading.seen[reading.compared])
    values = rounds.undefined()
    for words in _occurrences(reading, np.arange(len(reading.rows))):
        rows = reading.rows_of(words)
        compared = np.flatnonzero(reading.compared[rows])
        counted = _Counted.of(words, reading.rows[words.places] - rows.start)
        first_row = np.maximum(rounds.first_row[rows] - rows.start, 0)
        level = np.searchsorted(weights.counts, reading.seen[rows])
        in_all = weights.of_all(counted.by_frequency(first_row)[compared], level[compared])
        in_both = weights.of_known(counted, level, reading.compared[rows])[compared]
        some = in_all > 0
        values[rows.start + compared[some]] = in_both[some] / in_all[some]
    return values


@dataclass(frozen=True, slots=True, eq=False)
class _Counted:
    """The words that the new passages of each row hold, a word of a row once."""

    row: Integers
    frequency: Integers
    before: Integers

    @classmethod
    def of(cls, words: _Occurrences, row: Integers) -> _Counted:
        """Those of words by passages, each listed first in a ``row``."""
        order = np.arange(len(row))
        frequency = order - np.maximum.accumulate(np.where(words.first, order, 0)) + 1
        last = np.append(words.first[1:] | (row[1:] != row[:-1]), True)
        frequency, fresh = frequency[last], _changes(np.cumsum(words.first)[last])
        before = np.where(fresh, 0, np.append(0, frequency[:-1]))
        return cls(row[last], frequency, before)

    def by_frequency(self, first_row: Integers) -> Integers:
        """How many words of rounds so far have each frequency, (n_rows, most + 1); of 0 a number below 0."""
        shape = len(first_row), int(self.frequency.max()) + 1
        cell = self.row * shape[1]
        changes = np.bincount(cell + self.frequency, minlength=shape[0] * shape[1])
        changes -= np.bincount(cell + self.before, minlength=len(changes))
        changes = changes.reshape(shape)
        total = changes.cumsum(axis=0)
        return total - (total - changes)[first_row]


@dataclass(frozen=True, slots=True, eq=False)
class _Weights:
    """What a word weighs, by how many passages were seen and how many of them hold it."""

    counts: Integers
    high: Array
    low: Array

    @classmethod
    def of(cls, seen: Integers) -> _Weights:
        """Those of some numbers of passages seen."""
        counts = np.unique(seen)
        high, low = np.zeros((2, len(counts), int(counts.max(initial=0)) + 1))
        for row, count in enumerate(counts.tolist()):
            of_count = [math.log((count + 1) / (df + 1)) + 1 for df in range(1, count + 1)]
            whole = np.ldexp(of_count, 52).astype(np.int64)
            high[row, 1 : count + 1] = whole >> _LOW_BITS
            low[row, 1 : count + 1] = whole & ((1 << _LOW_BITS) - 1)
        return cls(counts, high, low)

    def of_all(self, held: Integers, level: Integers) -> Array:
        """The weight of ``held`` (n_rows, most + 1) words of each frequency, (n_rows,)."""
        # a question that is not compared may hold a word in more passages than any that is
        held = held[:, : self.high.shape[1]]
        high, low = (part[level, : held.shape[1]] * held for part in (self.high, self.low))
        return _joined(high.sum(axis=1), low.sum(axis=1))

    def of_known(self, counted: _Counted, level: Integers, chosen: NDArray[np.bool_]) -> Array:
        """The weight of the words of each chosen row that an earlier round's passages hold, (n_rows,)."""
        known = (counted.before > 0) & chosen[counted.row]
        row, frequency = counted.row[known], counted.frequency[known]
        cells = level[row], frequency
        return _joined(
            np.bincount(row, self.high[cells], minlength=len(level)),
            np.bincount(row, self.low[cells], minlength=len(level)),
        )


def _joined(high: NDArray[Any], low: NDArray[Any]) -> Array:
    joined: Array = np.ldexp(high, _LOW_BITS) + low
    return joined


def new_passages(rounds: RoundColumns) -> Array:
    """Share of the distinct passages that the round found, by id, that no earlier round did, in [0, 1].

    Found are those it lists and those recorded as found again. 0.0 where it found none; 1.0 in round 1
    with a passage. Undefined where the round's passages were not recorded, or those of an earlier round,
    unless nothing is new in any case.
    """
    listed, refound = rounds.once(listings), rounds.lists("refound")
    ids = pa.concat_arrays([listed.lists.field("id"), refound.field("id")])
    codes = codes_of_ids(ids)
    keys = np.concatenate([listed.lists.rows, refound.rows]) * (int(codes.max(initial=0)) + 1)
    rows = np.unique(keys + codes) // (int(codes.max(initial=0)) + 1)
    found = np.bincount(rows, minlength=rounds.n_rows)
    recorded = listed.lists.valid
    unknown = unrecorded_so_far(rounds) & (listed.new > 0)
    values = np.zeros(rounds.n_rows)
    np.divide(listed.new, found, out=values, where=listed.new > 0)
    return np.where(recorded & ~unknown, values, np.nan)


def query_repeats(rounds: RoundColumns) -> Array:
    """1.0 where the round's query, normalised like an answer, was sent in an earlier round, else 0.0.

    Undefined in round 1, where the round's query was not recorded, or where it is not found among the
    earlier ones and one of those was not recorded. A loop that reads on in one ranking sends one query,
    and repeats it by construction.
    """
    queries = rounds.texts("query").mapped(answer_forms)
    keys = rounds.question * (len(queries.distinct) + 1) + queries.codes + 1
    number, places = by_appearance(keys)
    unsent = queries.codes == NONE
    unsent_before = rounds.before(rounds.so_far(unsent), False)
    repeats = np.where(unsent_before, np.nan, 0.0)
    repeats[places[number] < np.arange(rounds.n_rows)] = 1.0
    repeats[unsent | rounds.first] = np.nan
    return repeats


# --- declared ----------------------------------------------------------------------------------------
_NOT_COMPARED = (
    PASSAGES_UNKNOWN,
    Absence("there is no earlier passage", lambda view: not seen_passages(view.rounds[:-1])),
    Absence(
        "the round added no new passage",
        lambda view: no_new_passage(view.current, view.rounds[:-1]),
        "record with --corpus pooled, or read new_passages, which is 0 there",
    ),
    TEXT_UNKNOWN,
    Absence("the passages hold no word", lambda _: True),
)
OVERLAP = SignalSpec(
    name="overlap",
    summary="share of their words that new and earlier passages have in common",
    needs=("passages",),
    answers=False,
    low=0.0,
    high=1.0,
    columns=overlap,
    undefined=_NOT_COMPARED,
)
OVERLAP_IDF = SignalSpec(
    name="overlap_idf",
    summary="share of their words that new and earlier passages have in common, rare ones counting more",
    needs=("passages",),
    answers=False,
    low=0.0,
    high=1.0,
    columns=overlap_idf,
    undefined=_NOT_COMPARED,
)
NEW_PASSAGES = SignalSpec(
    name="new_passages",
    summary="share of the round's passages that no earlier round found",
    needs=("passages",),
    reads=("refound",),
    answers=False,
    low=0.0,
    high=1.0,
    direction="low",
    columns=new_passages,
    undefined=(
        unrecorded("passages", "the round's passages were"),
        Absence(
            "an earlier round's passages were not recorded",
            lambda view: seen_passages(view.rounds[:-1]) is None,
        ),
    ),
)
QUERY_REPEATS = SignalSpec(
    name="query_repeats",
    summary="1 when the round's query was sent before",
    needs=("query",),
    answers=False,
    low=0.0,
    high=1.0,
    columns=query_repeats,
    undefined=(
        unrecorded("query", "the round's query was"),
        Absence("there is no earlier query", lambda view: view.previous is None),
        Absence("an earlier round's query was not recorded", lambda _: True),
    ),
    binary=True,
)
