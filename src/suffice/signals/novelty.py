"""Novelty: whether the round's search was a new one, and how far what it brought repeats what was read."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.contracts import Absence
from suffice.signals.answer_stability import no_new_passage
from suffice.signals.columns.answers import answer_forms
from suffice.signals.columns.characters import EUROPEAN, instead
from suffice.signals.columns.listings import codes_of_ids, listings, unrecorded_so_far
from suffice.signals.columns.rounds import RoundColumns, by_appearance
from suffice.signals.columns.texts import NONE
from suffice.signals.evidence import PASSAGES_UNKNOWN, TEXT_UNKNOWN, seen_passages
from suffice.signals.spec import share, unrecorded
from suffice.trace.rounds.records import tokenize

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
_SEPARATORS = r"[^\pL\pN_ ]+"
_AT_ONCE = 4_000  # passages, and those of the last question among them
_LOW_BITS = 28  # of a weight that are summed apart, since 64 bits do not hold the whole


def overlap(rounds: RoundColumns) -> Array:
    """Token-set Jaccard of the round's new passages and all earlier ones (paper 0; published).

    Tokens of title and text; in [0, 1], high: little news. It falls with the round by construction,
    as the earlier set only grows. Undefined in round 1, without a new passage or an earlier one,
    and when a passage seen so far was recorded without its text.
    """
    return rounds.once(_overlaps)[0]


def overlap_idf(rounds: RoundColumns) -> Array:
    """The same with each token weighing ln((N + 1) / (df + 1)) + 1 over the N passages seen so far.

    The paper's text; its code used the plain form in every rule, and took N over all candidates,
    which a trace does not hold.
    """
    return rounds.once(_overlaps)[1]


def _overlaps(rounds: RoundColumns) -> tuple[Array, Array]:
    """Both, plain and weighted."""
    listed = rounds.once(listings)
    rows, total = listed.rows, np.cumsum(listed.new)
    seen = total - (total - listed.new)[rounds.first_row]
    titles, texts = (
        listed.lists.field(name).take(pa.array(listed.places)) for name in ("title", "text")
    )
    untold = np.zeros(rounds.n_rows, bool)
    untold[rows[~texts.is_valid().to_numpy(zero_copy_only=False)]] = True
    compared = ~unrecorded_so_far(rounds) & ~rounds.so_far(untold)
    compared &= (listed.new > 0) & (seen > listed.new)
    shared, read = np.zeros((2, rounds.n_rows, 2))
    first = 0
    while first < len(rows):
        # whole questions
        end = rounds.question[rows[min(first + _AT_ONCE, len(rows)) - 1]]
        last = int(np.searchsorted(rounds.question[rows], end, "right"))
        spelt = pc.binary_join_element_wise(
            *(pc.fill_null(part[first:last], "") for part in (titles, texts)), " "
        )
        _add_up(rounds, _words(spelt), rows[first:last], seen, (shared, read))
        first = last
    values = np.full(shared.shape, np.nan)
    defined = compared & (read[:, 0] > 0)
    values[defined] = shared[defined] / read[defined]
    return values[:, 0], values[:, 1]


def _words(texts: pa.Array) -> pa.ListArray:
    """What :func:`suffice.trace.rounds.records.tokenize` finds in each text, and empty words."""
    spelt = pc.replace_substring_regex(pc.utf8_lower(texts), _SEPARATORS, " ")
    others = pc.invert(pc.match_substring_regex(texts, EUROPEAN))
    spelt = instead(spelt, others, texts, lambda text: " ".join(tokenize(text)))
    return pc.split_pattern(spelt, " ")


def _add_up(
    rounds: RoundColumns,
    spelt: pa.ListArray,
    rows: Integers,
    seen: Integers,
    into: tuple[Array, Array],
) -> None:
    """Words that new and earlier passages share, and all that were read, plain and weighted, by row.

    ``spelt`` are the words of passages, each first listed in one of ``rows``; ``seen`` how many passages
    were up to every row.
    """
    shared, read = into
    found = spelt.flatten()
    said = pc.not_equal(found, "").to_numpy(zero_copy_only=False)
    codes = found.dictionary_encode().indices.to_numpy().astype(np.int64)
    passage = np.repeat(np.arange(len(spelt)), np.diff(spelt.offsets.to_numpy()))
    # a word of a question, by the passages that hold it
    keys = rounds.question[rows[passage]] * (codes.max(initial=0) + 1) + codes
    keys = np.sort(keys[said] * len(spelt) + passage[said])
    keys = keys[np.diff(keys, prepend=-1) > 0]
    word, passage = np.divmod(keys, len(spelt))
    row = rows[passage] - rows[0]
    place, begins = np.arange(len(keys)), np.diff(word, prepend=-1) > 0
    frequency = place - np.maximum.accumulate(np.where(begins, place, 0)) + 1
    last = np.append((word[1:] > word[:-1]) | (row[1:] > row[:-1]), True)[: len(keys)]
    word, row, frequency = word[last], row[last], frequency[last]
    again = np.flatnonzero(np.diff(word, prepend=-1) == 0)
    # how many words of each row have been in so many passages
    here = slice(int(rows[0]), int(rows[-1]) + 1)
    shape = here.stop - here.start, int(frequency.max(initial=0)) + 1
    size, cells = shape[0] * shape[1], row * shape[1] + frequency
    both = np.bincount(cells[again], minlength=size).reshape(shape)
    before = row[again] * shape[1] + frequency[again - 1]
    changes = np.bincount(cells, minlength=size) - np.bincount(before, minlength=size)
    total = changes.reshape(shape).cumsum(axis=0)
    held = (
        total - (total - changes.reshape(shape))[np.maximum(rounds.first_row[here] - here.start, 0)]
    )
    for number, weights in enumerate((np.ones(1, np.int64), _weights(seen[here], shape[1]))):
        read[here, number] = _summed(held, weights)
        shared[here, number] = _summed(both, weights)


def _weights(seen: Integers, most: int) -> Integers:
    """What words weigh that so many of the passages ``seen`` (n_rows,) hold, (n_rows, most), in 2^-52."""
    counts, row = np.unique(seen, return_inverse=True)
    weights = np.zeros((len(counts), most))
    for of_count, count in zip(weights, counts.tolist(), strict=True):
        for df in range(1, min(count + 1, most)):
            of_count[df] = math.log((count + 1) / (df + 1)) + 1
    return np.ldexp(weights, 52).astype(np.int64)[row.reshape(-1)]


def _summed(counts: Integers, weights: Integers) -> Array:
    """The weight of so many words of each kind (n_rows, n_kinds), rounded once, (n_rows,)."""
    high, low = (
        (counts * part).sum(axis=1)
        for part in (weights >> _LOW_BITS, weights & (1 << _LOW_BITS) - 1)
    )
    summed: Array = np.ldexp(high.astype(np.float64), _LOW_BITS) + low
    return summed


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
OVERLAP = share(
    name="overlap",
    summary="share of their words that new and earlier passages have in common",
    needs=("passages",),
    answers=False,
    columns=overlap,
    undefined=_NOT_COMPARED,
)
OVERLAP_IDF = share(
    name="overlap_idf",
    summary="share of their words that new and earlier passages have in common, rare ones counting more",
    needs=("passages",),
    answers=False,
    columns=overlap_idf,
    undefined=_NOT_COMPARED,
)
NEW_PASSAGES = share(
    name="new_passages",
    summary="share of the round's passages that no earlier round found",
    needs=("passages",),
    reads=("refound",),
    answers=False,
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
QUERY_REPEATS = share(
    name="query_repeats",
    summary="1 when the round's query was sent before",
    needs=("query",),
    answers=False,
    columns=query_repeats,
    undefined=(
        unrecorded("query", "the round's query was"),
        Absence("there is no earlier query", lambda view: view.previous is None),
        Absence("an earlier round's query was not recorded", lambda _: True),
    ),
    binary=True,
)
