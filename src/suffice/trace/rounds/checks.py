"""Validation of the rows of a trace, column by column."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.errors import DataError
from suffice.trace.rounds.records import (
    LEAST_PROPENSITY,
    STOPPED_BY,
    fitting_clusters,
    not_a_logprob,
    not_a_propensity,
    not_a_score,
    wrong_logprob,
)
from suffice.trace.rounds.schema import REQUIRED, USAGE_COLUMNS
from suffice.trace.stored_file import StoredFile, first_error


@dataclass(frozen=True, slots=True)
class Problem:
    """One invalid row of a combined table; ``position`` is its index there."""

    position: int
    column: str
    message: str

    def error(self, file: str, row: int) -> DataError:
        """Return the problem as an error at its place in the file."""
        return DataError(self.message, file=file, row=row, column=self.column)


def find_problems(table: pa.Table) -> Iterator[Problem]:
    """Return every problem of ``table``, whose columns already have the schema's types."""
    yield from row_problems(table)
    yield from key_problems(table)


def row_problems(table: pa.Table) -> Iterator[Problem]:
    """Return the problems that a single row shows."""
    for check in _ROW_CHECKS:
        yield from check(table)


def refuse_problems(file: StoredFile, table: pa.Table, first_row: int) -> None:
    """Refuse invalid values in some columns of a file, given these rows."""
    if problems := list(row_problems(table)):
        name = str(file.file)
        raise first_error([one.error(name, first_row + one.position) for one in problems])


def key_problems(table: pa.Table, keys: Keys | None = None) -> Iterator[Problem]:
    """Return problems across the rows of a question: its rounds, its split, its end."""
    if not table.num_rows:
        return
    keys = keys or Keys.of(table)
    if not keys.in_order:
        yield from _round_sequence(table, keys)
    yield from _one_value(table, keys)
    yield from _stops(table, keys)


def positions(mask: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    """Return the positions where a mask is true; a null is not true."""
    flags = pc.fill_null(mask, False)
    if isinstance(flags, pa.ChunkedArray):
        flags = flags.combine_chunks()
    return np.flatnonzero(flags.to_numpy(zero_copy_only=False))


def _cells(table: pa.Table) -> Iterator[Problem]:
    for name in REQUIRED:
        if name == "answer" or name not in table.column_names:
            continue  # null: not asked for
        if table.column(name).null_count:
            for position in positions(pc.is_null(table.column(name))):
                yield Problem(int(position), name, "null where a value is required")
    for name, (wrong, said) in _WRONG_CELLS.items():
        cells = table.column(name) if name in table.column_names else None
        if cells is not None and cells.null_count < len(cells):
            for position in positions(wrong(cells)):
                yield Problem(int(position), name, said(cells[int(position)].as_py()))


def _negative(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.less(cells, 0)


_WRONG_CELLS: Mapping[
    str, tuple[Callable[[pa.ChunkedArray], pa.ChunkedArray], Callable[[Any], str]]
] = {
    "question_id": (lambda ids: pc.equal(ids, ""), lambda _: "empty question_id"),
    "round": (_negative, lambda number: f"round {number}: rounds count from 1 (0: closed book)"),
    "propensity": (
        lambda cells: pc.invert(
            pc.and_(pc.greater_equal(cells, LEAST_PROPENSITY), pc.less_equal(cells, 1))
        ),
        not_a_propensity,
    ),
    "score": (lambda cells: pc.or_(_negative(cells), pc.greater(cells, 1)), not_a_score),
    "stopped_by": (
        lambda cells: pc.invert(pc.is_in(cells, pa.array([*STOPPED_BY, None], pa.string()))),
        lambda value: (
            f"must be one of {', '.join(STOPPED_BY)}, found {value!r}; null where the question ran to its "
            "full budget"
        ),
    ),
    "answer_starts": (_negative, lambda number: f"token {number}: tokens count from 0"),
    **{column.name: (_negative, lambda _: "a negative amount") for column in USAGE_COLUMNS},
}
"""Of columns that may be there: which cells are wrong, and what is said of such a value."""


@dataclass(frozen=True, eq=False)
class Keys:
    """The question and the round of each row.

    ``codes`` (n_rows,) number the questions by their first rows, -1 for a null; ``rank`` (n_questions,) is
    the place of each among the ids in order, and ``rounds`` (n_rows,) are -1 for a null.
    """

    codes: NDArray[np.int64]
    rank: NDArray[np.int64]
    rounds: NDArray[np.int16]

    @classmethod
    def of(cls, table: pa.Table) -> Keys:
        """Return the keys of a table."""
        encoded = table.column("question_id").dictionary_encode()
        ids = encoded.unify_dictionaries().combine_chunks()
        codes = pc.fill_null(ids.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        rank = np.argsort(pc.sort_indices(ids.dictionary).to_numpy())
        rounds = pc.fill_null(table.column("round"), -1).to_numpy()
        return cls(codes, rank.astype(np.int64), rounds)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """Return the first row of each question, and the number of rows."""
        ends = np.flatnonzero(np.diff(self.codes)) + 1
        rows = len(self.codes)
        return np.concatenate([np.zeros(min(1, rows), np.int64), ends, [rows]]).astype(np.int64)

    @cached_property
    def in_order(self) -> bool:
        """Whether every question's rounds lie together, in order from 0 or 1 without gaps, and past 0."""
        if (np.diff(self.codes) < 0).any() or (self.codes < 0).any():
            return False
        firsts, lasts = self.rounds[self.starts[:-1]], self.rounds[self.starts[1:] - 1]
        steps = np.diff(self.rounds.astype(np.int32))
        steps[self.starts[1:-1] - 1] = 1
        return bool((steps == 1).all() and np.isin(firsts, (0, 1)).all() and (lasts > 0).all())

    @cached_property
    def by_question(self) -> NDArray[np.int64]:
        """Return the rows in order of question id and round; rows without an id come first."""
        places = np.append(self.rank, -1)[self.codes]
        return np.lexsort((self.rounds, places))

    @cached_property
    def sorted_rows(self) -> NDArray[np.int64]:
        """Rows by question and round."""
        return np.lexsort((self.rounds, self.codes))


def _round_sequence(table: pa.Table, keys: Keys) -> Iterator[Problem]:
    order = keys.sorted_rows
    codes, rounds = keys.codes[order], keys.rounds[order]
    first = np.r_[True, codes[1:] != codes[:-1]]
    step = np.r_[0, np.diff(rounds)]
    starts_late = first & (rounds > 1)
    duplicate = ~first & (step == 0)
    # a closed-book row before round 2 is a gap as well: step 2 there
    gap = ~first & (step > 1)
    for index in np.flatnonzero(starts_late | duplicate | gap):
        position, number = int(order[index]), int(rounds[index])
        question = f"question {table.column('question_id')[position].as_py()!r}"
        if duplicate[index]:
            said = f"{question} has round {number} twice; each may appear once"
        else:
            before = "starts at" if starts_late[index] else f"jumps from {rounds[index - 1]} to"
            said = f"{question} {before} round {number}; rounds run from 1 without gaps"
        yield Problem(position, "round", said)
    closed_book_only = first & (rounds == 0) & np.r_[first[1:], True]
    for index in np.flatnonzero(closed_book_only):
        yield Problem(int(order[index]), "round", "a question with round 0 but no round 1")


# of columns of questions: what a null means, and what is wrong where rows differ
_OF_QUESTIONS = {
    "split": ("", "a question's rounds must all lie in one split"),
    "group": ("", "a question's rounds must all state one group"),
    "propensity": (1.0, "a question's rounds must all state one propensity"),
    "policy_hash": ("", "a question's rounds must all state one policy"),
}


def _one_value(table: pa.Table, keys: Keys) -> Iterator[Problem]:
    there = [name for name in _OF_QUESTIONS if name in table.column_names]
    if not there:
        return
    order = slice(None) if keys.in_order else keys.sorted_rows
    same = keys.codes[order][1:] == keys.codes[order][:-1]
    for name in there:
        null, wrong = _OF_QUESTIONS[name]
        cells = table.column(name)
        filled = pc.fill_null(cells, pa.scalar(null, cells.type)).combine_chunks()
        values = filled.dictionary_encode().indices.to_numpy(zero_copy_only=False)[order]
        for index in np.flatnonzero(same & (values[1:] != values[:-1])):
            row = index + 1 if keys.in_order else keys.sorted_rows[index + 1]
            yield Problem(int(row), name, wrong)


def _stops(table: pa.Table, keys: Keys) -> Iterator[Problem]:
    if "stopped_by" not in table.column_names:
        return
    cells = table.column("stopped_by")
    codes, rounds = keys.codes, keys.rounds
    last = np.zeros(codes.max() + 2, np.int64)
    np.maximum.at(last, codes, rounds)
    early = pc.is_valid(cells).to_numpy() & (rounds < last[codes])
    for position in np.flatnonzero(early):
        said = (
            f"stands in round {rounds[position]} of a question with {last[codes[position]]} rounds; it is "
            "said in the last one only"
        )
        yield Problem(int(position), "stopped_by", said)


def _flat_logprobs(tokens: pa.ListArray) -> Iterator[tuple[str, pa.Array, pa.Array]]:
    """Yield (column, values, row of each value) for tokens and their alternatives, as far as read."""
    rows = pc.list_parent_indices(tokens)
    flat = pc.list_flatten(tokens)
    read = {field.name for field in flat.type}
    if "logprob" in read:
        yield "tokens.logprob", pc.struct_field(flat, "logprob"), rows
    if "top" in read:
        tops = pc.struct_field(flat, "top")
        top_rows = rows.take(pc.list_parent_indices(tops))
        yield "tokens.top.logprob", pc.struct_field(pc.list_flatten(tops), "logprob"), top_rows


def _logprobs(table: pa.Table) -> Iterator[Problem]:
    if "tokens" not in table.column_names:
        return
    start = 0
    for chunk in table.column("tokens").chunks:
        for column, values, rows in _flat_logprobs(chunk):
            numbers = values.to_numpy(zero_copy_only=False)
            for index in np.flatnonzero(not_a_logprob(numbers)).tolist():
                row = start + int(rows[index].as_py())
                yield Problem(row, column, wrong_logprob(values[index].as_py()))
        start += len(chunk)


def _null_items(table: pa.Table) -> Iterator[Problem]:
    """Find null passages, and null tokens if their log-probabilities are not read."""
    for name in ("passages", "refound", "tokens"):
        if name not in table.column_names:
            continue
        start = 0
        for chunk in table.column(name).chunks:
            items = pc.list_flatten(chunk)
            said_already = name == "tokens" and "logprob" in {field.name for field in items.type}
            if items.null_count and not said_already:
                rows = pc.list_parent_indices(chunk).filter(items.is_null())
                for row in pc.unique(rows).to_pylist():
                    yield Problem(start + row, name, "a null among its items")
            start += len(chunk)


def _sample_clusters(table: pa.Table) -> Iterator[Problem]:
    """Check one number per sample, each the position of the first sample of a cluster."""
    if "sample_clusters" not in table.column_names:
        return
    clusters = table.column("sample_clusters")
    drawn = table.column("samples") if "samples" in table.column_names else None
    for position in np.flatnonzero(clusters.is_valid().to_numpy()).tolist():
        samples = None if drawn is None else drawn[position].as_py()
        numbers = [-1 if one is None else one for one in clusters[position].as_py()]
        try:
            fitting_clusters(numbers, samples)
        except DataError as error:
            yield Problem(position, "sample_clusters", error.message)


_CALL_PARTS = ("answer_calls", "sample_calls")
_PARTS: Mapping[str, tuple[str, ...]] = {
    "llm_calls": _CALL_PARTS,
    **{
        name: (f"answer_{name}",)
        for name in ("prompt_tokens", "cached_tokens", "completion_tokens")
    },
}


def _counts(table: pa.Table) -> Iterator[Problem]:
    """Check that a part of the calls or tokens is at most the whole."""
    for whole, parts in _PARTS.items():
        there = [name for name in parts if {name, whole} <= {*table.column_names}]
        for name in there:
            more = pc.greater(table.column(name), table.column(whole))
            for position in positions(more) if pc.any(more).as_py() else ():
                words = name.replace("_", " ")
                yield Problem(int(position), name, f"more {words} than {whole}")
    if {*_CALL_PARTS, "llm_calls"} <= {*table.column_names}:
        together = pc.add_checked(
            *(pc.cast(table.column(name), pa.int32()) for name in _CALL_PARTS)
        )
        for position in positions(pc.greater(together, table.column("llm_calls"))):
            said = "more answer and sample calls together than llm_calls"
            yield Problem(int(position), "answer_calls", said)


_ROW_CHECKS: tuple[Callable[[pa.Table], Iterator[Problem]], ...] = (
    _cells,
    _logprobs,
    _null_items,
    _sample_clusters,
    _counts,
)

CHECKED_WITH: Mapping[str, tuple[str, ...]] = {
    "gold_answers": ("round",),
    "sample_clusters": ("samples",),
    **{part: (whole,) for whole, parts in _PARTS.items() for part in parts if whole != "llm_calls"},
    **dict.fromkeys(_CALL_PARTS, ("llm_calls", *_CALL_PARTS)),
}
"""The columns without which one cannot be checked, by its name."""
