"""Recorded rounds as columns for signals, with passages by id."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.signals.columns.answer_columns import normal_forms
from suffice.signals.columns.arrays import Ragged, Texts
from suffice.stats.units import Array, Mask
from suffice.trace.lazy import LazyTable
from suffice.trace.rounds.schema import SCHEMA
from suffice.trace.rounds.trace_set import TraceSet

_Derived = TypeVar("_Derived")


def by_appearance(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Number the keys (n,) from 0 in order of appearance; return also where each appears first."""
    numbers = pa.array(keys).dictionary_encode().indices.to_numpy().astype(np.int64)
    return numbers, np.flatnonzero(np.diff(np.maximum.accumulate(numbers), prepend=-1))


class RoundColumns:
    """Give the rounds of a record as columns, one row per round, sorted by question and round.

    Columns are read when first used. :meth:`once` keeps what several signals share. No value is asked for
    in rows before ``read_from``.
    """

    def __init__(self, traces: TraceSet, read_from: int = 0) -> None:
        self.traces = traces
        self.read_from: int = read_from
        self.n_rows: int = int(traces.table.num_rows)
        self._derived: dict[Callable[[Any], Any], Any] = {}
        self._texts: dict[str, Texts] = {}
        self._lists: dict[str, Ragged] = {}

    def once(self, derive: Callable[[RoundColumns], _Derived]) -> _Derived:
        """Return ``derive`` of these rounds; compute it only once."""
        if derive not in self._derived:
            self._derived[derive] = derive(self)
        derived: _Derived = self._derived[derive]
        return derived

    @cached_property
    def question(self) -> NDArray[np.int64]:
        """Return the number of each row's question, (n_rows,), from 0."""
        return np.repeat(np.arange(self.traces.n_questions), self.traces.last_rounds)

    @cached_property
    def first(self) -> Mask:
        """Say which rows are a round 1, (n_rows,)."""
        first = np.ones(self.n_rows, bool)
        first[1:] = self.question[1:] != self.question[:-1]
        return first

    @cached_property
    def first_row(self) -> NDArray[np.int64]:
        """Return for every row the row of its question's round 1, (n_rows,)."""
        return np.flatnonzero(self.first)[self.question]

    def before(self, values: NDArray[Any], absent: object) -> NDArray[Any]:
        """Return for every row the value of the previous round, (n_rows,); ``absent`` in round 1."""
        earlier = np.empty_like(values)
        earlier[1:] = values[:-1]
        earlier[self.first] = absent
        return earlier

    def so_far(self, holds: Mask) -> Mask:
        """Say for every row whether ``holds`` is true in this or an earlier round, (n_rows,)."""
        counts = np.cumsum(holds)
        return counts > (counts - holds)[self.first_row]

    def undefined(self) -> Array:
        return np.full(self.n_rows, np.nan)

    def texts(self, column: str) -> Texts:
        """Return a column of texts; all null if it is absent."""
        if column not in self._texts:
            self._texts[column] = Texts.of(self._cells(column))
        return self._texts[column]

    def lists(self, column: str) -> Ragged:
        """Return a column of lists; all null if it is absent."""
        table = self.traces.table
        if column in self._lists:
            return self._lists[column]
        if isinstance(table, LazyTable) and column in table.column_names:
            # only the fields that are asked for
            lists = Ragged.reading(
                lambda field: table.column(column, field), table.slimmest(column)
            )
        else:
            lists = Ragged.of(self._cells(column))
        self._lists[column] = lists
        return lists

    def numbers(self, column: str) -> Array:
        """Return a column of numbers as float64, (n_rows,); NaN for null or an absent column."""
        cells = pc.cast(self._cells(column), "float64")
        return np.asarray(cells.to_numpy(), np.float64)

    def _cells(self, column: str) -> pa.ChunkedArray:
        if column in self.traces.table.column_names:
            return self.traces.table.column(column)
        return pa.chunked_array([pa.nulls(self.n_rows, SCHEMA.field(column).type)])

    @property
    def answered(self) -> Mask:
        """Say in which rows the loop was asked for an answer, (n_rows,)."""
        return self.texts("answer").codes >= 0


AT_ONCE = 20_000  # questions whose texts are worked on together


def only_columns(traces: TraceSet, *columns: str) -> TraceSet:
    """Return the record with only these columns (as far as present) and without closed-book rounds."""
    names = [n for n in ("question_id", "round", *columns) if n in traces.table.column_names]
    table = traces.table.select(names)
    return replace(traces, table=table, closed_book=table.slice(0, 0))


def blocks(traces: TraceSet, questions: int | None = None) -> Iterator[TraceSet]:
    """Split a record in memory into blocks of consecutive questions."""
    questions = AT_ONCE if questions is None else questions
    ends, start = np.cumsum(traces.last_rounds, dtype=np.int64), 0
    for stop in [*ends[questions - 1 : -1 : questions].tolist(), *ends[-1:].tolist()]:
        yield replace(traces, table=traces.table.slice(start, stop - start))
        start = stop


def asked_in_both(first: TraceSet, second: TraceSet) -> list[str]:
    """Return the questions that both records ask, normalized, each once; leave out blank ones."""
    one, other = (
        pc.unique(normal_forms(pc.unique(traces.first_rounds("question")).drop_null()))
        for traces in (first, second)
    )
    shared = one.filter(pc.and_(pc.is_in(one, value_set=other), pc.not_equal(one, "")))
    return list(shared.to_pylist())


@dataclass(frozen=True, slots=True, eq=False)
class Listings:
    """Hold the passages that rounds list, end to end; equal ids within a question are one passage.

    ``passage`` (n_listings,) numbers passages from 0 by first listing, so those of a question are
    consecutive. ``places`` (n_passages,) are their first listings.
    """

    lists: Ragged
    passage: NDArray[np.int64]
    places: NDArray[np.int64]

    @property
    def rows(self) -> NDArray[np.int64]:
        """Return the row that first lists each passage, (n_passages,), rising."""
        return self.lists.rows[self.places]

    @property
    def new(self) -> NDArray[np.int64]:
        """Count the passages that each row lists first in its question, (n_rows,)."""
        return np.bincount(self.rows, minlength=len(self.lists))


def listings(rounds: RoundColumns) -> Listings:
    lists = rounds.lists("passages")
    ids = codes_of_ids(lists.field("id"))
    keys = rounds.question[lists.rows] * (int(ids.max(initial=0)) + 1) + ids
    return Listings(lists, *by_appearance(keys))


def codes_of_ids(ids: pa.Array) -> NDArray[np.int64]:
    """Return equal codes for equal ids; a null counts as an empty id."""
    return Texts.of(pc.fill_null(ids, "")).codes


def added_nothing(rounds: RoundColumns) -> Mask:
    """Say which rows recorded passages of which none is new by id, (n_rows,)."""
    listed = rounds.once(listings)
    return np.where(listed.new == 0, listed.lists.valid, False)


def unrecorded_so_far(rounds: RoundColumns) -> Mask:
    """Say which rows lack recorded passages in this or an earlier round, (n_rows,)."""
    return rounds.so_far(~rounds.lists("passages").valid)


def gold_passages(rounds: RoundColumns) -> tuple[NDArray[np.int64], Mask]:
    """Count the distinct gold passages named in round 1, (n_questions,); mark the listed, (n_passages,)."""
    named, listed = rounds.lists("gold_passage_ids"), rounds.once(listings)
    stated = rounds.first[named.rows] & named.values.is_valid().to_numpy(zero_copy_only=False)
    names = named.values.filter(pa.array(stated))
    ids = listed.lists.field("id").take(pa.array(listed.places))
    codes = codes_of_ids(pa.concat_arrays([names, ids]))
    rows = np.concatenate([named.rows[stated], listed.rows])
    keys = rounds.question[rows] * (int(codes.max(initial=0)) + 1) + codes
    wanted, firsts = np.unique(keys[: len(names)], return_index=True)
    counts = np.bincount(rounds.question[rows[firsts]], minlength=rounds.traces.n_questions)
    return counts, np.isin(keys[len(names) :], wanted)
