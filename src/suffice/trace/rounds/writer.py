"""Writer of traces: whole sets, single questions, or rows of a record with other answers."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError
from suffice.trace.durable import Shard, in_turn, written_aside
from suffice.trace.lazy import in_memory
from suffice.trace.parquet import Column, RowSet, only_file, part_name, write_table
from suffice.trace.recording import RecordWriter, check_goes_on, recorded_before, stores_at
from suffice.trace.rounds.checks import key_problems, row_problems
from suffice.trace.rounds.reader import question_ids_of
from suffice.trace.rounds.records import SAID, Passage, QuestionRecord, Round
from suffice.trace.rounds.schema import (
    QUESTION_ROWS,
    QUESTIONS,
    SCHEMA,
    USAGE_COLUMNS,
    records_to_table,
    round_cells,
    round_from_row,
)
from suffice.trace.rounds.trace_set import TraceSet, in_columns, with_column

_OF_SHARDS = frozenset({"shard", "shards"})
"""Entries of a run document that say which of several recorders a file is of."""


def write_traces(
    records: Iterable[QuestionRecord] | TraceSet,
    path: str | Path,
    *,
    run: Mapping[str, Any] | None = None,
) -> None:
    rows = (
        _all_rows(records, run) if isinstance(records, TraceSet) else records_to_table(records, run)
    )
    _check_rows(rows)
    root = Path(path)
    if root.suffix == ".parquet":
        write_table(rows, root)
        return
    with in_turn(root, "write"):
        held = any(root.glob("*.parquet")) or stores_at(root)
        known = question_ids_of(root) if held else set()
        if repeated := sorted(known & {*rows.column("question_id").to_pylist()}):
            raise UsageError(
                f"{root} holds {len(repeated)} of these questions already, the first {repeated[0]!r}; "
                "nothing was written: leave them out, or write to another place"
            )
        parts = [file.stem.removeprefix("part-") for file in root.glob("part-*.parquet")]
        numbers = [int(part) for part in parts if part.isdecimal()]
        write_table(rows, root / part_name(max(numbers, default=-1) + 1))


def write_new(records: Iterable[QuestionRecord], out: Path, run: Mapping[str, Any]) -> None:
    """Write records to a free place, a ``.parquet`` file or a directory: whole, or nothing at all."""
    rows = records_to_table(records, run)
    _check_rows(rows)
    with written_aside(out) as aside:
        write_table(rows, aside if out.suffix == ".parquet" else aside / part_name(0))


def _check_rows(rows: pa.Table) -> None:
    if rows.num_rows == 0:
        raise DataError("no question to write; give at least one")
    for problem in (*row_problems(rows), *key_problems(rows)):
        row = rows.select(["question_id", "round"]).slice(problem.position, 1).to_pylist()[0]
        said = f"question {row['question_id']!r}, round {row['round']}: {problem.message}"
        raise DataError(said, column=problem.column)


def write_trace_set(traces: TraceSet, path: str | Path) -> Path:
    """Write a trace set with all its columns; return the file."""
    file = only_file(path)
    write_table(_all_rows(traces), file)
    return file


def _all_rows(traces: TraceSet, run: Mapping[str, Any] | None = None) -> pa.Table:
    both = (traces.table, traces.closed_book)
    rows = pa.concat_tables(map(in_memory, both), promote_options="default")
    stamped = QUESTION_ROWS.stamped(traces.origin.run if run is None else run)
    return rows.replace_schema_metadata(stamped.metadata)


def question_writer(
    path: str | Path,
    *,
    run: Mapping[str, Any],
    may_differ: frozenset[str] = frozenset({"version"}),
    kind: RowSet[Any] = QUESTION_ROWS,
    shard: Shard | None = None,
) -> RecordWriter[Any]:
    own = {} if shard is None else {"shard": shard.number, "shards": shard.of}
    return RecordWriter(
        kind,
        path,
        run={name: run[name] for name in run.keys() - _OF_SHARDS} | own,
        may_differ=may_differ | _OF_SHARDS,
        shard=shard,
    )


def check_settings(path: str | Path, *, run: Mapping[str, Any], may_differ: frozenset[str]) -> None:
    """Refuse a ``path`` recorded with other settings, before any long preparation."""
    root = Path(path)
    before = recorded_before(root, QUESTION_ROWS)
    check_goes_on(root, before, run, may_differ=may_differ | _OF_SHARDS)


# --- rows of a record, of which answers are filled in ---------------------------------------------
_ANSWERED = (*SAID, "probed", *(column.name for column in USAGE_COLUMNS))
OF_LOOP = "loop_"
"""What columns begin with that keep what a loop answered where another answer stands in its place."""
_EVIDENCE = (
    *("question_id", "round", "question", "query"),
    *("passages", "answer", "intermediate_answer"),
)
_READ = ("query", "passages", "intermediate_answer", *_ANSWERED)


@dataclass(frozen=True)
class QuestionRows:
    """Rows of a question's rounds from 1 in order, and of its round 0 if any, with all columns."""

    rows: pa.Table
    closed_book: pa.Table

    @property
    def id(self) -> str:
        return str(self.rows.column("question_id")[0].as_py())

    @property
    def question(self) -> str:
        return str(self.rows.column("question")[0].as_py())

    @cached_property
    def unanswered(self) -> NDArray[np.bool_]:
        """Rounds without an answer, (n_rounds,)."""
        return np.array([held.answer is None for held in self.rounds], np.bool_)

    @cached_property
    def own(self) -> NDArray[np.bool_]:
        """Rounds that the loop itself answered, (n_rounds,)."""
        return np.array(
            [held.answer is not None and not held.probed for held in self.rounds], np.bool_
        )

    @cached_property
    def blind(self) -> NDArray[np.bool_]:
        """Rounds up to which the loop found nothing, (n_rounds,)."""
        found = [
            bool(held.passages) or held.intermediate_answer is not None for held in self.rounds
        ]
        so_far: NDArray[np.bool_] = np.logical_or.accumulate(found)
        return ~so_far

    @cached_property
    def textless(self) -> int:
        """Number of its passages without a text."""
        return sum(passage.text is None for held in self.rounds for passage in held.passages or ())

    @cached_property
    def rounds(self) -> tuple[Round, ...]:
        """Its rounds with passages, queries, answers and usage."""
        read = [name for name in _READ if name in self.rows.column_names]
        return tuple(round_from_row(row) for row in self.rows.select(read).to_pylist())

    def filled(self, answered: Mapping[int, Round], schema: pa.Schema) -> pa.Table:
        """Return the rows in ``schema``'s columns, some with another answer beside the loop's own."""
        written = {place: round_cells(round_) for place, round_ in answered.items()}
        cells: dict[str, Mapping[int, Any]] = {
            name: {place: row[name] for place, row in written.items()} for name in _ANSWERED
        }
        moved = [place for place in answered if self.own[place]]
        for name in SAID:
            if moved and name in self.rows.column_names:
                own = self.rows.column(name)
                cells[OF_LOOP + name] = {place: own[place].as_py() for place in moved}
        rows = self.rows
        for name in cells.keys() & {*schema.names}:
            there = name in rows.column_names
            column = rows.column(name).to_pylist() if there else [None] * rows.num_rows
            for place, value in cells[name].items():
                column[place] = value
            kind = schema.field(name).type
            try:
                new = pa.chunked_array([pa.array(column, kind)])
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                said = f"question {self.id!r}: cannot be stored as {kind}: {error}"
                raise DataError(said, column=name) from error
            rows = with_column(rows, name, new)
        return in_columns([self.closed_book, rows], schema)


def question_rows(traces: TraceSet, corpus: Sequence[Passage] = ()) -> Iterator[QuestionRows]:
    """Yield every question; passages without a text get that of the same id in the corpus."""
    table = _with_texts(in_memory(traces.evened().table), corpus).combine_chunks()
    closed_book = in_memory(traces.closed_book)
    zeros = closed_book.column("question_id").to_pylist()
    start = 0
    for name, rounds in zip(traces.question_ids, traces.last_rounds.tolist(), strict=True):
        zero = bisect_left(zeros, name)
        yield QuestionRows(
            rows=table.slice(start, rounds),
            closed_book=closed_book.slice(zero, int(zeros[zero : zero + 1] == [name])),
        )
        start += rounds


def _with_texts(table: pa.Table, corpus: Sequence[Passage]) -> pa.Table:
    if not corpus or "passages" not in table.column_names:
        return table
    known = {passage.id: passage for passage in corpus}
    cells = table.column("passages").to_pylist()
    for cell in cells:
        for passage in cell or ():
            if passage["text"] is None and (held := known.get(passage["id"])) is not None:
                passage |= {"text": held.text, "title": passage["title"] or held.title}
    return with_column(table, "passages", cells)


def evidence_sha256(traces: TraceSet) -> str:
    """Return a hash of all questions, passages and answers, independent of the files."""
    digest = hashlib.sha256()
    there = [name for name in _EVIDENCE if name in traces.table.column_names]
    for batch in traces.table.select(there).to_batches(max_chunksize=1024):
        for row in batch.to_pylist():
            values = [row.get(name) for name in _EVIDENCE]
            digest.update(json.dumps(values).encode("ascii") + b"\n")
    return digest.hexdigest()


class _Tables(RowSet[pa.Table]):
    def table(self, records: Iterable[pa.Table], run: Mapping[str, Any]) -> pa.Table:
        return pa.concat_tables(records).replace_schema_metadata(self.stamped(run).metadata)


def rows_of(traces: TraceSet, *, beside: bool) -> RowSet[pa.Table]:
    """Return the row format of this record, with columns ``beside`` it for the loop's own answers."""
    types = {
        field.name: field.type for field in traces.table.schema if field.name not in SCHEMA.names
    }
    there = [name for name in SAID if beside and name in traces.table.column_names]
    types |= {OF_LOOP + name: SCHEMA.field(name).type for name in there}
    own = [Column(Round, name, type_, "the user's own") for name, type_ in types.items()]
    return _Tables(
        schema=replace(QUESTIONS, columns=(*QUESTIONS.columns, *own)),
        rows=pa.Table.to_pylist,
        key=QUESTION_ROWS.key,
        key_of=lambda rows: (rows.column("question_id")[0].as_py(),),
    )
