"""What a trace table must satisfy, checked column-wise; each problem names file, row and column."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.errors import DataError
from suffice.trace.rounds.schema import REQUIRED, USAGE_COLUMNS


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken row of a combined table; ``position`` is its index there."""

    position: int
    column: str
    message: str

    def error(self, file: str, row: int) -> DataError:
        """The problem as an error at its place in the file."""
        return DataError(self.message, file=file, row=row, column=self.column)


def find_problems(table: pa.Table) -> Iterator[Problem]:
    """Every problem of ``table``, whose columns already have the schema's types."""
    for check in _CHECKS:
        yield from check(table)


def _positions(mask: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    flags = pc.fill_null(mask, False)
    if isinstance(flags, pa.ChunkedArray):
        flags = flags.combine_chunks()
    return np.flatnonzero(flags.to_numpy(zero_copy_only=False))


def _required_values(table: pa.Table) -> Iterator[Problem]:
    for name in REQUIRED:
        hint = "; write an empty string where the model gave none" if name == "answer" else ""
        for position in _positions(pc.is_null(table.column(name))):
            yield Problem(int(position), name, f"null where a value is required{hint}")
    for position in _positions(pc.equal(table.column("question_id"), "")):
        yield Problem(int(position), "question_id", "empty question_id")
    for position in _positions(pc.less(table.column("round"), 0)):
        value = table.column("round")[int(position)].as_py()
        yield Problem(
            int(position), "round", f"round {value}: rounds count from 1 (0: closed book)"
        )


def _keys(table: pa.Table) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    ids = table.column("question_id").combine_chunks()
    codes = pc.fill_null(pc.index_in(ids, value_set=pc.unique(ids)), -1)
    rounds = pc.fill_null(table.column("round"), -1).combine_chunks()
    return (
        codes.to_numpy(zero_copy_only=False).astype(np.int64),
        rounds.to_numpy(zero_copy_only=False).astype(np.int64),
    )


def _round_sequence(table: pa.Table) -> Iterator[Problem]:
    if table.num_rows == 0:
        return
    codes, rounds = _keys(table)
    order = np.lexsort((rounds, codes))
    codes, rounds = codes[order], rounds[order]
    first = np.r_[True, codes[1:] != codes[:-1]]
    step = np.r_[0, np.diff(rounds)]
    starts_late = first & (rounds > 1)
    duplicate = ~first & (step == 0)
    # a closed-book row before round 2 is a gap as well: step 2 there
    gap = ~first & (step > 1)
    for index in np.flatnonzero(starts_late | duplicate | gap):
        position = int(order[index])
        question_id = table.column("question_id")[position].as_py()
        number = int(rounds[index])
        if duplicate[index]:
            message = f"question {question_id!r} has round {number} twice; each may appear once"
        elif starts_late[index]:
            message = (
                f"question {question_id!r} starts at round {number}; rounds run from 1 without gaps"
            )
        else:
            message = (
                f"question {question_id!r} jumps from round {int(rounds[index - 1])} to {number}; "
                "rounds run from 1 without gaps"
            )
        yield Problem(position, "round", message)
    closed_book_only = first & (rounds == 0) & np.r_[first[1:], True]
    for index in np.flatnonzero(closed_book_only):
        yield Problem(int(order[index]), "round", "a question with round 0 but no round 1")


def _one_split(table: pa.Table) -> Iterator[Problem]:
    if "split" not in table.column_names or table.num_rows == 0:
        return
    codes, rounds = _keys(table)
    splits = pc.fill_null(table.column("split"), "").combine_chunks().dictionary_encode()
    split_codes = splits.indices.to_numpy(zero_copy_only=False)
    order = np.lexsort((rounds, codes))
    same = codes[order][1:] == codes[order][:-1]
    changed = same & (split_codes[order][1:] != split_codes[order][:-1])
    for index in np.flatnonzero(changed):
        position = int(order[index + 1])
        yield Problem(position, "split", "a question's rounds must all lie in one split")


def _flat_logprobs(tokens: pa.ListArray) -> Iterator[tuple[str, pa.Array, pa.Array]]:
    """(column, values, row of each value) for tokens and their alternatives."""
    rows = pc.list_parent_indices(tokens)
    flat = pc.list_flatten(tokens)
    yield "tokens.logprob", pc.struct_field(flat, "logprob"), rows
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
            bad = np.flatnonzero(np.isnan(numbers) | (numbers == np.inf))
            for index in bad:
                found = values[int(index)].as_py()
                yield Problem(
                    start + int(rows[int(index)].as_py()),
                    column,
                    f"a log-probability must be a number or -inf, found {found}",
                )
        start += len(chunk)


def _sample_clusters(table: pa.Table) -> Iterator[Problem]:
    """One number a sample, each the position of the first sample of a cluster."""
    if "sample_clusters" not in table.column_names:
        return
    clusters = table.column("sample_clusters")
    drawn = _lengths(table.column("samples")) if "samples" in table.column_names else 0
    lengths = _lengths(clusters)
    unfitting = (lengths != drawn) & pc.is_valid(clusters).to_numpy()
    rows = np.repeat(np.arange(len(lengths)), lengths)
    starts = (np.cumsum(lengths) - lengths)[rows]
    # a null names no sample
    flat = pc.fill_null(pc.cast(pc.list_flatten(clusters), pa.int64()), -1).to_numpy()
    own = np.arange(len(flat)) - starts
    # one that names no earlier sample stands in for itself, so that the look-up stays in its list
    named = np.where((flat < 0) | (flat > own), own, flat)
    wrong = (named != flat) | (flat[starts + named] != named)
    astray = np.zeros(len(lengths), bool)
    astray[rows[wrong]] = True
    for position in np.flatnonzero(unfitting | astray):
        found = clusters[int(position)].as_py()
        if unfitting[position]:
            samples = int(np.broadcast_to(drawn, lengths.shape)[position])
            message = f"must have one number a sample, found {len(found)} for {samples} samples"
        else:
            message = f"must name the first sample of each one's cluster, found {found!r:.60}"
        yield Problem(int(position), "sample_clusters", message)


def _lengths(lists: pa.ChunkedArray) -> NDArray[np.int64]:
    """How many items each list has; 0 for a null."""
    return pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)  # type: ignore[no-any-return]


def _counts(table: pa.Table) -> Iterator[Problem]:
    for name in (column.name for column in USAGE_COLUMNS):
        if name in table.column_names:
            for position in _positions(pc.less(table.column(name), 0)):
                yield Problem(int(position), name, "a negative amount")
    if {"sample_calls", "llm_calls"} <= {*table.column_names}:
        more = pc.greater(table.column("sample_calls"), table.column("llm_calls"))
        for position in _positions(more):
            yield Problem(int(position), "sample_calls", "more sample calls than llm_calls")


_CHECKS: tuple[Callable[[pa.Table], Iterator[Problem]], ...] = (
    _required_values,
    _round_sequence,
    _one_split,
    _logprobs,
    _sample_clusters,
    _counts,
)
