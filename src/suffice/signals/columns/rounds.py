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
from suffice.trace.lazy import LazyTable
from suffice.trace.rounds.schema import SCHEMA
from suffice.trace.rounds.trace_set import TraceSet

_Derived = TypeVar("_Derived")


def by_appearance(keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Numbers (n,) from 0, equal where the keys (n,) are, as these appear; and where each appears first."""
    numbers = pa.array(keys).dictionary_encode().indices.to_numpy().astype(np.int64)
    return numbers, np.flatnonzero(np.diff(np.maximum.accumulate(numbers), prepend=-1))


class RoundColumns:
    """The rounds of a record, a row each, sorted by question and round.

    Columns are read when first asked for. What several signals are computed of is derived once, see
    :meth:`once`.
    """

    def __init__(self, traces: TraceSet) -> None:
        self.traces = traces
        self.n_rows: int = int(traces.table.num_rows)
        self._derived: dict[Callable[[Any], Any], Any] = {}
        self._texts: dict[str, Texts] = {}
        self._lists: dict[str, Ragged] = {}

    def once(self, derive: Callable[[RoundColumns], _Derived]) -> _Derived:
        """What a function gives of these rounds, kept by the function."""
        if derive not in self._derived:
            self._derived[derive] = derive(self)
        derived: _Derived = self._derived[derive]
        return derived

    # --- rows ------------------------------------------------------------------------------------
    @cached_property
    def question(self) -> NDArray[np.int64]:
        """Which question each row is of, (n_rows,), from 0."""
        return np.repeat(np.arange(self.traces.n_questions), self.traces.last_rounds)

    @cached_property
    def first(self) -> NDArray[np.bool_]:
        """Rows of round 1, (n_rows,)."""
        first = np.ones(self.n_rows, bool)
        first[1:] = self.question[1:] != self.question[:-1]
        return first

    @cached_property
    def first_row(self) -> NDArray[np.int64]:
        """Of every row that of its question's round 1, (n_rows,)."""
        return np.flatnonzero(self.first)[self.question]

    def before(self, values: NDArray[Any], absent: object) -> NDArray[Any]:
        """Of every row the value of the round before, (n_rows,); ``absent`` in round 1."""
        earlier = np.empty_like(values)
        earlier[1:] = values[:-1]
        earlier[self.first] = absent
        return earlier

    def so_far(self, holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Of every row whether ``holds`` is true there or in an earlier round of its question, (n_rows,)."""
        counts = np.cumsum(holds)
        return counts > (counts - holds)[self.first_row]

    def undefined(self) -> NDArray[np.float64]:
        """NaN in every row, to be filled."""
        return np.full(self.n_rows, np.nan)

    # --- columns ---------------------------------------------------------------------------------
    def texts(self, column: str) -> Texts:
        """A column of texts; nothing but nulls where it is not there."""
        if column not in self._texts:
            self._texts[column] = Texts.of(self._cells(column))
        return self._texts[column]

    def lists(self, column: str) -> Ragged:
        """A column of lists; nothing but nulls where it is not there."""
        table = self.traces.table
        if column in self._lists:
            return self._lists[column]
        if isinstance(table, LazyTable) and column in table.column_names:
            lists = Ragged.reading(  # only the fields that are asked for
                lambda field: table.column(column, (field,) if field else ()),
                "".join(table.slimmest(column)),
            )
        else:
            lists = Ragged.of(self._cells(column))
        self._lists[column] = lists
        return lists

    def numbers(self, column: str) -> NDArray[np.float64]:
        """A column of numbers as float64, (n_rows,); NaN for a null, and where it is not there."""
        cells = pc.cast(self._cells(column), "float64")
        return np.asarray(cells.to_numpy(), np.float64)

    def _cells(self, column: str) -> pa.ChunkedArray:
        if column in self.traces.table.column_names:
            return self.traces.table.column(column)
        return pa.chunked_array([pa.nulls(self.n_rows, SCHEMA.field(column).type)])

    @property
    def answered(self) -> NDArray[np.bool_]:
        """Rows whose loop was asked for an answer, (n_rows,)."""
        return self.texts("answer").codes >= 0


AT_ONCE = 20_000  # questions whose texts are worked on together


def only_columns(traces: TraceSet, *columns: str) -> TraceSet:
    """The record with these columns only, as far as it has them, without its closed-book rounds."""
    names = [n for n in ("question_id", "round", *columns) if n in traces.table.column_names]
    table = traces.table.select(names)
    return replace(traces, table=table, closed_book=table.slice(0, 0))


def blocks(traces: TraceSet, questions: int | None = None) -> Iterator[TraceSet]:
    """What lies in memory of a record by so many consecutive questions at a time."""
    questions = AT_ONCE if questions is None else questions
    ends, start = np.cumsum(traces.last_rounds, dtype=np.int64), 0
    for stop in [*ends[questions - 1 : -1 : questions].tolist(), *ends[-1:].tolist()]:
        yield replace(traces, table=traces.table.slice(start, stop - start))
        start = stop


def asked_in_both(first: TraceSet, second: TraceSet) -> list[str]:
    """The questions that both records ask, in normal form, each once; blank ones are left out."""
    one, other = (
        pc.unique(normal_forms(pc.unique(traces.first_rounds("question")).drop_null()))
        for traces in (first, second)
    )
    shared = one.filter(pc.and_(pc.is_in(one, value_set=other), pc.not_equal(one, "")))
    return list(shared.to_pylist())


@dataclass(frozen=True, slots=True, eq=False)
class Listings:
    """The passages that rounds list, end to end; those of a question with one id are one passage.

    ``passage`` (n_listings,) numbers them from 0 in the order in which they are first listed, so a question's
    are consecutive. ``places`` (n_passages,) are their first listings.
    """

    lists: Ragged
    passage: NDArray[np.int64]
    places: NDArray[np.int64]

    @property
    def rows(self) -> NDArray[np.int64]:
        """The row in which each passage is first listed, (n_passages,), rising."""
        return self.lists.rows[self.places]

    @property
    def new(self) -> NDArray[np.int64]:
        """How many passages each row lists that no earlier round of its question lists, (n_rows,)."""
        return np.bincount(self.rows, minlength=len(self.lists))


def listings(rounds: RoundColumns) -> Listings:
    """Those of the column ``passages``."""
    lists = rounds.lists("passages")
    ids = codes_of_ids(lists.field("id"))
    keys = rounds.question[lists.rows] * (int(ids.max(initial=0)) + 1) + ids
    return Listings(lists, *by_appearance(keys))


def codes_of_ids(ids: pa.Array) -> NDArray[np.int64]:
    """Equal for equal ids, of which a null is an empty one."""
    return Texts.of(pc.fill_null(ids, "")).codes


def added_nothing(rounds: RoundColumns) -> NDArray[np.bool_]:
    """Rows whose passages were recorded and none of which is new by id, (n_rows,)."""
    listed = rounds.once(listings)
    return np.where(listed.new == 0, listed.lists.valid, False)


def unrecorded_so_far(rounds: RoundColumns) -> NDArray[np.bool_]:
    """Rows of whose question this round's passages or an earlier one's were not recorded, (n_rows,)."""
    return rounds.so_far(~rounds.lists("passages").valid)


@dataclass(frozen=True, slots=True, eq=False)
class GoldPassages:
    """How many a question names, (n_questions,), and which of the passages listed are so, (n_passages,)."""

    named: NDArray[np.int64]
    listed: NDArray[np.bool_]


def gold_passages(rounds: RoundColumns) -> GoldPassages:
    """Those that round 1 of each question names, each once."""
    named, listed = rounds.lists("gold_passage_ids"), rounds.once(listings)
    stated = rounds.first[named.rows] & named.values.is_valid().to_numpy(zero_copy_only=False)
    names = named.values.filter(pa.array(stated))
    ids = listed.lists.field("id").take(pa.array(listed.places))
    codes = codes_of_ids(pa.concat_arrays([names, ids]))
    rows = np.concatenate([named.rows[stated], listed.rows])
    keys = rounds.question[rows] * (int(codes.max(initial=0)) + 1) + codes
    wanted, firsts = np.unique(keys[: len(names)], return_index=True)
    return GoldPassages(
        np.bincount(rounds.question[rows[firsts]], minlength=rounds.traces.n_questions),
        np.isin(keys[len(names) :], wanted),
    )
