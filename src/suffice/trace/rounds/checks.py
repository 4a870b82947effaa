"""Validation of the rows of a trace, column by column."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.errors import DataError
from suffice.trace.rounds.records import (
    PROPENSITY,
    SCORE,
    STOPPED_BY,
    fitting_clusters,
    not_a_logprob,
    wrong_logprob,
)
from suffice.trace.rounds.schema import REQUIRED, USAGE_COLUMNS
from suffice.trace.values import Range


@dataclass(frozen=True, slots=True)
class Problem:
    """One invalid row of a combined table; ``position`` is its index there."""

    position: int
    column: str
    message: str

    def error(self, file: str, row: int) -> DataError:
        return DataError(self.message, file=file, row=row, column=self.column)


def row_problems(table: pa.Table) -> Iterator[Problem]:
    """Yield the problems that a single row shows; columns already have the schema's types."""
    start = 0
    for rows in table.to_batches():
        for check in _ROW_CHECKS:
            for problem in check(rows):
                yield replace(problem, position=start + problem.position)
        start += rows.num_rows


def key_problems(table: pa.Table, keys: Keys | None = None) -> Iterator[Problem]:
    """Return problems across the rows of a question: its rounds, its split, its end."""
    if not table.num_rows:
        return
    keys = keys or Keys.of(table)
    if not keys.in_order:
        yield from _round_sequence(table, keys)
    yield from _one_value(table, keys)
    yield from _stops(table, keys)


def _positions(mask: pa.Array) -> list[int]:
    return pc.indices_nonzero(mask).to_pylist()  # type: ignore[no-any-return]


def _cells(rows: pa.RecordBatch) -> Iterator[Problem]:
    there = {*rows.schema.names}
    for name in REQUIRED:
        if name in there and name != "answer":  # null: not asked for
            for position in _positions(rows.column(name).is_null()):
                yield Problem(position, name, "null where a value is required")
    for name in there & {"question_id"}:
        for position in _positions(pc.equal(rows.column(name), "")):
            yield Problem(position, name, "empty question_id")
    for name in there & {"stopped_by"}:
        known = pc.is_in(rows.column(name), pa.array([*STOPPED_BY, None], pa.string()))
        for position in _positions(pc.invert(known)):
            said = f"must be one of {', '.join(STOPPED_BY)}; found {rows.column(name)[position]}"
            yield Problem(position, name, f"{said}; null where the question ran to its full budget")
    for name, allowed in _RANGES.items():
        if name in there:
            cells = rows.column(name)
            inside = pc.and_(
                pc.greater_equal(cells, allowed.least), pc.less_equal(cells, allowed.most)
            )
            if name != "propensity":  # undefined
                inside = pc.or_(inside, pc.is_nan(cells))
            for position in _positions(pc.invert(inside)):
                yield Problem(position, name, allowed.refusal(cells[position].as_py()))


_RANGES: Mapping[str, Range] = {
    "round": Range(0, math.inf, "a round from 1 (0: closed book)"),
    "propensity": PROPENSITY,
    "score": SCORE,
    "answer_starts": Range(0, math.inf, "the number of a token from 0"),
    **{column.name: Range(0, math.inf, "an amount of at least 0") for column in USAGE_COLUMNS},
}


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
        # in one chunk: else each one's dictionary holds those of all before it
        ids = table.column("question_id").cast("large_string").combine_chunks().dictionary_encode()
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

    def grouped(self, table: pa.Table) -> tuple[pa.Table, NDArray[np.int64], NDArray[np.int64]]:
        """Return id, round and columns of questions, question by question; where each begins; the order."""
        there = filter(table.column_names.__contains__, ("question_id", "round", *OF_QUESTIONS))
        table = table.select([*there])
        if self.in_order:
            return table, self.starts, np.arange(table.num_rows)
        order = self.by_question
        by_group = Keys(self.codes[order], self.rank, self.rounds[order])
        return table.take(pa.array(order)), by_group.starts, order

    @cached_property
    def by_question(self) -> NDArray[np.int64]:
        """Return the rows in order of question id and round; rows without an id come first."""
        places = np.append(self.rank, -1)[self.codes]
        return np.lexsort((self.rounds, places))


def _round_sequence(table: pa.Table, keys: Keys) -> Iterator[Problem]:
    order = keys.by_question
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


OF_QUESTIONS = (
    *("question", "gold_answers", "gold_passage_ids", "question_type"),
    *("split", "group", "propensity", "policy_hash"),
)
"""The columns of a question as a whole: each of its rows states the one value, or nothing."""
_NULLS = {"split": "", "group": "", "propensity": 1.0, "policy_hash": ""}
"""What a null says, where it says something."""


def meant(name: str, cell: Any) -> Any:
    """Return what a cell says of its question, a list in any order; ``None``: nothing."""
    if name in _NULLS:
        return (_NULLS[name] if cell is None else cell,)
    return frozenset(filter(None, cell)) or None if isinstance(cell, list) else cell or None


def stating_rows(
    name: str, cells: pa.ChunkedArray, starts: NDArray[np.int64]
) -> tuple[NDArray[np.int64] | None, list[tuple[int, int]]]:
    """Return the row that states each question's value, and pairs of rows that contradict.

    Rows ``starts[i]`` to ``starts[i + 1]`` are those of question i. ``None``: all rows of each question are
    equal, as they mostly are.
    """
    changed = _changed(cells) if len(cells) else np.zeros(0, bool)
    changed[starts[1:-1] - 1] = False
    if not changed.any():
        return None, []
    stating, pairs = starts[:-1].copy(), list[tuple[int, int]]()
    uneven = np.unique(np.searchsorted(starts, np.flatnonzero(changed) + 1, side="right") - 1)
    chosen = np.flatnonzero(np.repeat(np.isin(np.arange(len(stating)), uneven), np.diff(starts)))
    values, at = [meant(name, cell) for cell in cells.take(pa.array(chosen)).to_pylist()], 0
    for number, rows in zip(uneven.tolist(), np.diff(starts)[uneven].tolist(), strict=True):
        said = [place for place in range(at, at + rows) if values[place] is not None]
        stating[number] = chosen[said[0] if said else at]
        if other := next((place for place in said if values[place] != values[said[0]]), 0):
            pairs.append((int(stating[number]), int(chosen[other])))
        at += rows
    return stating, pairs


def _changed(cells: pa.ChunkedArray) -> NDArray[np.bool_]:
    """Return where a row differs from the one before, (n_rows - 1,)."""
    if not pa.types.is_list(cells.type):
        null = np.asarray(cells.is_null(), bool)
        equal = np.asarray(pc.fill_null(pc.equal(cells[1:], cells[:-1]), False), bool)
        alike: NDArray[np.bool_] = equal | (null[1:] & null[:-1])
        return ~alike
    sizes = np.asarray(pc.fill_null(pc.list_value_length(cells), 0)).astype(np.int64)
    items, first = pc.list_flatten(cells), int(sizes[0])
    rows = np.repeat(np.arange(len(sizes)), sizes)[first:]
    # in lists of one length an item stands that length behind its like; others differ anyway
    before = items.take(pa.array(np.maximum(np.arange(first, len(items)) - sizes[rows], 0)))
    equal = np.asarray(pc.fill_null(pc.equal(items[first:], before), False), bool)
    changed: NDArray[np.bool_] = sizes[1:] != sizes[:-1]
    changed[rows[~equal] - 1] = True
    return changed


def evened(table: pa.Table, starts: NDArray[np.int64]) -> pa.Table:
    """Return checked rows, question by question, with its own values in each row of a question."""
    for name in filter(table.column_names.__contains__, OF_QUESTIONS):
        rows, _ = stating_rows(name, table.column(name), starts)
        if rows is not None:
            cells = table.column(name).take(pa.array(np.repeat(rows, np.diff(starts))))
            table = table.set_column(table.column_names.index(name), name, cells)
    return table


def contradiction(table: pa.Table, name: str, first: int, other: int) -> str:
    """Return the message for two rows that state different values of their question."""
    one, another = table.select(["question_id", "round", name]).take([first, other]).to_pylist()
    return (
        f"question {one['question_id']!r} has {one[name]!r:.80} in round {one['round']} and "
        f"{another[name]!r:.80} in round {another['round']}; write one {name} in all its rows"
    )


def _one_value(table: pa.Table, keys: Keys) -> Iterator[Problem]:
    grouped, starts, order = keys.grouped(table)
    for name in grouped.column_names[2:]:
        for first, other in stating_rows(name, grouped.column(name), starts)[1]:
            yield Problem(int(order[other]), name, contradiction(grouped, name, first, other))


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


def _items(rows: pa.RecordBatch) -> Iterator[Problem]:
    for name in ("passages", "refound", "tokens"):
        if name not in rows.schema.names:
            continue
        cells = rows.column(name)
        items, parents = pc.list_flatten(cells), pc.list_parent_indices(cells)
        read = {field.name for field in items.type} if name == "tokens" else set()
        if "logprob" in read:
            yield from _logprobs(f"{name}.logprob", items, parents)
        else:
            for row in pc.unique(parents.filter(items.is_null())).to_pylist():
                yield Problem(row, name, "a null among its items")
        if "top" in read:
            tops = pc.struct_field(items, "top")
            of_tops = parents.take(pc.list_parent_indices(tops))
            yield from _logprobs(f"{name}.top.logprob", pc.list_flatten(tops), of_tops)


def _logprobs(column: str, items: pa.StructArray, parents: pa.Array) -> Iterator[Problem]:
    values = pc.struct_field(items, "logprob")
    for index in np.flatnonzero(not_a_logprob(values.to_numpy(zero_copy_only=False))).tolist():
        yield Problem(parents[index].as_py(), column, wrong_logprob(values[index].as_py()))


def _sample_clusters(rows: pa.RecordBatch) -> Iterator[Problem]:
    if "sample_clusters" not in rows.schema.names:
        return
    clusters = rows.column("sample_clusters")
    drawn = rows.column("samples") if "samples" in rows.schema.names else None
    for position in _positions(clusters.is_valid()):
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
        for name in ("prompt_tokens", "cached_tokens", "completion_tokens", "usd")
    },
}


def _counts(rows: pa.RecordBatch) -> Iterator[Problem]:
    there = {*rows.schema.names}
    for whole, parts in _PARTS.items():
        for name in parts:
            if {name, whole} <= there:
                words = name.replace("_", " ")
                for position in _positions(pc.greater(rows.column(name), rows.column(whole))):
                    yield Problem(position, name, f"more {words} than {whole}")
    if {*_CALL_PARTS, "llm_calls"} <= there:
        parts_of_calls = (pc.cast(rows.column(name), pa.int32()) for name in _CALL_PARTS)
        more = pc.greater(pc.add(*parts_of_calls), rows.column("llm_calls"))
        for position in _positions(more):
            said = "more answer and sample calls together than llm_calls"
            yield Problem(position, "answer_calls", said)


_ROW_CHECKS: tuple[Callable[[pa.RecordBatch], Iterator[Problem]], ...] = (
    _cells,
    _items,
    _sample_clusters,
    _counts,
)

CHECKED_WITH: Mapping[str, tuple[str, ...]] = {
    "sample_clusters": ("samples",),
    **{part: (whole,) for whole, parts in _PARTS.items() for part in parts if whole != "llm_calls"},
    **dict.fromkeys(_CALL_PARTS, ("llm_calls", *_CALL_PARTS)),
}
"""The columns without which one cannot be checked, by its name."""
