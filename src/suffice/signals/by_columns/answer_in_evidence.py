"""Answer in evidence of all rounds: where in the passages of its question an answer's words first stand.

The passages of some questions stand in one string of bytes, those of a question one after another; in it each
different answer of a question is looked for once, so that the place tells from which round on it is found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.columns.answers import normal_forms
from suffice.columns.texts import NONE, Texts
from suffice.signals.by_columns.answers import as_published, published_forms
from suffice.signals.by_columns.passages import unrecorded_so_far
from suffice.signals.by_columns.rounds import RoundColumns, by_appearance
from suffice.signals.evidence import NOT_EXTRACTIVE

Array = NDArray[np.float64]
Integers = NDArray[np.int64]
_BLOCK = 1 << 23  # bytes of passages at a time


@dataclass(frozen=True, slots=True, eq=False)
class _Read:
    """The texts of all listed passages in order, each of some row, (n_listings,)."""

    rows: Integers
    texts: Texts
    unknown: NDArray[np.bool_]
    """Rows up to which a passage was recorded without its text or a round without its passages, (n_rows,)."""


def _read(rounds: RoundColumns) -> _Read:
    lists = rounds.lists("passages")
    texts = lists.texts("text")
    untold = np.zeros(rounds.n_rows, bool)
    untold[lists.rows[texts.codes == NONE]] = True
    told = texts.codes != NONE
    unknown = unrecorded_so_far(rounds) | rounds.so_far(untold)
    return _Read(lists.rows[told], texts.take(told), unknown)


def in_evidence(rounds: RoundColumns) -> Array:
    """``answer_in_evidence``."""
    answers = rounds.texts("answer").mapped(normal_forms)
    extractive = pc.invert(pc.is_in(answers.distinct, pa.array(sorted(NOT_EXTRACTIVE))))
    wanted = answers.through(extractive.to_numpy(zero_copy_only=False), False)
    between_blanks = answers.mapped(lambda forms: _around(forms, " ", " "))
    # no form holds the end of a line, so no match runs from one passage into the next
    passages = rounds.once(_read).texts.mapped(
        lambda texts: _around(normal_forms(texts), " ", " \n")
    )
    return np.where(wanted, _found(rounds, between_blanks, wanted, passages), np.nan)


def in_evidence_published(rounds: RoundColumns) -> Array:
    """``answer_in_evidence_published``."""
    answers = rounds.once(published_forms)
    wanted = (answers.codes != NONE) & (answers.codes != answers.code_of(""))
    passages = rounds.once(_read).texts.mapped(_joined_as_published)
    return _found(rounds, answers, wanted, passages)


def _joined_as_published(texts: pa.Array) -> pa.Array:
    """A blank behind each form that is not empty."""
    forms = as_published(texts)
    return pc.if_else(pc.equal(forms, ""), "", _around(forms, "", " "))


def _around(texts: pa.Array, before: str, behind: str) -> pa.Array:
    return pc.binary_join_element_wise(before, texts, behind, "")


def _found(
    rounds: RoundColumns, answers: Texts, wanted: NDArray[np.bool_], passages: Texts
) -> Array:
    """1 where a wanted answer stands in the passages up to its round; else 0, NaN where some are unknown.

    Answers and passages (n_listings,) stand as they are compared.
    """
    read = rounds.once(_read)
    values = np.where(read.unknown, np.nan, 0.0)
    rows = np.flatnonzero(wanted)
    keys = rounds.question[rows] * (len(answers.distinct) + 1) + answers.codes[rows]
    pair, places = by_appearance(keys)
    first_rows = _first_rows(rounds, rows[places], answers, passages)
    values[rows[first_rows[pair] <= rows]] = 1.0
    return values


def _first_rows(rounds: RoundColumns, asked: Integers, answers: Texts, passages: Texts) -> Integers:
    """Where its question's passages first hold each answer that is ``asked`` for in some row, (n_asked,).

    The row up to which they do; one behind all rows where they never do.
    """
    read = rounds.once(_read)
    ends = np.cumsum(_lengths(passages.distinct)[passages.codes])
    before = np.append(0, ends)
    question = rounds.question[asked]
    of_question = np.searchsorted(
        rounds.question[read.rows], np.arange(rounds.traces.n_questions + 1)
    )
    first, last = of_question[question], of_question[question + 1]
    needles = answers.distinct.take(pa.array(answers.codes[asked]))
    sizes = _lengths(needles)
    first_rows = np.full(len(asked), rounds.n_rows)
    for some in _blocks(before[first], before[last]):
        listed = slice(first[some.start], last[some.stop - 1])
        text = _bytes(passages.distinct.take(pa.array(passages.codes[listed])))
        origin = before[listed.start]
        bounds = before[first[some]] - origin, before[last[some]] - origin
        sought = needles[some].cast(pa.binary()).to_pylist()
        at = np.array(list(map(text.find, sought, *(bound.tolist() for bound in bounds))), np.int64)
        found = np.flatnonzero(at >= 0)
        # the passage in which the match ends
        passage = np.searchsorted(ends, origin + at[found] + sizes[some][found] - 1, "right")
        first_rows[some.start + found] = read.rows[passage]
    return first_rows


def _blocks(starts: Integers, ends: Integers) -> Iterator[slice]:
    """Answers to whole questions, whose passages reach from byte to byte, of some bytes together."""
    first = 0
    while first < len(starts):
        reach = max(int(starts[first]) + _BLOCK, int(ends[first]))
        last = int(np.searchsorted(ends, reach, "right"))
        yield slice(first, last)
        first = last


def _bytes(texts: pa.Array) -> bytes:
    data = texts.buffers()[2]
    return b"" if data is None else data.to_pybytes()


def _lengths(texts: pa.Array) -> Integers:
    return np.asarray(pc.binary_length(texts).to_numpy(zero_copy_only=False), np.int64)
