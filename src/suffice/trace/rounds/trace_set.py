"""A validated set of recorded questions as columns and records, with its units and loops."""

from __future__ import annotations

import hashlib
import shlex
import zoneinfo  # noqa: F401 - Arrow loads it at its first time, and takes Ctrl-C there for its absence
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError, counted, did_you_mean
from suffice.trace.lazy import LazyTable, in_memory
from suffice.trace.parquet import LOOP
from suffice.trace.rounds.checks import OF_QUESTIONS, Problem, contradiction, stating_rows
from suffice.trace.rounds.records import CUTS, Gold, LoopView, Question, QuestionRecord, sampled_ids
from suffice.trace.rounds.schema import QUESTION_COLUMNS, SCHEMA, record_from_rows, round_from_row
from suffice.trace.stored_file import EXAMPLE, first_error
from suffice.trace.values import MOST_INT16


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSetOrigin:
    """The source of a trace set, and its skipped parts."""

    source: str = "memory"
    run: Mapping[str, Any] = field(default_factory=dict)
    skipped: tuple[DataError, ...] = ()
    failures: int = 0
    runs: tuple[Mapping[str, Any], ...] = ()
    """Run documents of its files, where they differ."""
    loops: tuple[Difference, ...] = ()


@dataclass(frozen=True, eq=False)
class TraceSet:
    """Recorded questions sorted by id, their rounds in order.

    ``table`` has the rows of rounds 1.., sorted by question and round, in the schema's types. For a large
    record it is a :class:`suffice.trace.lazy.LazyTable`, which reads columns on first use. ``closed_book``
    has the rows of round 0, sorted by question; it may be empty. ``origin`` is the source of the rows.
    ``known_starts`` are :attr:`starts`, if known already.
    """

    table: pa.Table  # or a LazyTable, which is used alike
    closed_book: pa.Table
    origin: TraceSetOrigin = field(default_factory=TraceSetOrigin)
    known_starts: NDArray[np.int64] | None = None

    def __repr__(self) -> str:
        splits = "".join(f", {name} {count:,}" for name, count in self.splits.items())
        held = f"questions {self.n_questions:,}, rounds {self.table.num_rows:,}{splits}"
        return f"<TraceSet {self.origin.source}: {held}>"

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The row of each question's round 1, and the number of rows, (n_questions + 1,)."""
        known = self.known_starts
        if known is not None and known[-1] == self.table.num_rows:  # of the same rows
            return known
        ids = self.table.column("question_id").combine_chunks()
        if len(ids) == 0:
            return np.zeros(1, np.int64)
        changed = pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)
        starts = [np.zeros(1, np.int64), np.flatnonzero(changed) + 1, np.array([len(ids)])]
        return np.concatenate(starts)

    @cached_property
    def question_ids(self) -> tuple[str, ...]:
        """Sorted question ids."""
        return tuple(self._at("question_id", self.starts[:-1]).to_pylist())

    @property
    def n_questions(self) -> int:
        """Number of questions."""
        return len(self.starts) - 1

    @cached_property
    def last_rounds(self) -> NDArray[np.int16]:
        """The last recorded round of each question, (n_questions,)."""
        return np.diff(self.starts).astype(np.int16)

    @property
    def stated_rounds(self) -> int | None:
        """The full budget in its run document; ``None``: not stated."""
        stated = self.origin.run.get("rounds")
        return stated if type(stated) is int and 1 <= stated <= MOST_INT16 else None

    @property
    def full_budget(self) -> int:
        """Most rounds of a question: as stated, or the longest question's if that is more."""
        return max(self.n_rounds, self.stated_rounds or 0)

    @cached_property
    def n_rounds(self) -> int:
        """Number of round columns: the longest question's, or the stated budget if that question was cut."""
        longest = int(self.last_rounds.max(initial=0))
        if (self.stated_rounds or 0) <= longest or not self.has("stopped_by"):
            return longest
        ends = self._at("stopped_by", self.starts[1:][self.last_rounds == longest] - 1)
        cut = bool(pc.any(pc.is_in(ends, value_set=pa.array(CUTS))).as_py())
        return self.stated_rounds or longest if cut else longest

    @cached_property
    def exists(self) -> NDArray[np.bool_]:
        """The recorded rounds, (n_questions, n_rounds)."""
        return np.arange(self.n_rounds)[None, :] < self.last_rounds[:, None]

    @cached_property
    def answered(self) -> NDArray[np.bool_]:
        """Rounds with an answer, (n_questions, n_rounds)."""
        return np.equal(self.dense(self.valid("answer")), 1.0)

    @cached_property
    def _cells(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        questions = np.repeat(np.arange(self.n_questions), self.last_rounds)
        return questions, np.arange(self.table.num_rows) - self.starts[questions]

    def has(self, column: str) -> bool:
        """Whether the column exists and has a value."""
        if column not in self._held:
            table, there = self.table, column in self.table.column_names
            if there and table.num_rows and isinstance(table, LazyTable):
                self._held[column] = table.holds(column)
            else:
                self._held[column] = there and table.column(column).null_count < table.num_rows
        return self._held[column]

    @cached_property
    def _held(self) -> dict[str, bool]:
        return {}

    def valid(self, column: str) -> NDArray[np.bool_]:
        """Return the rows where a column is not null, (n_rows,)."""
        if isinstance(self.table, LazyTable):
            return self.table.valid(column)
        return self.table.column(column).is_valid().to_numpy()  # type: ignore[no-any-return]

    def lengths(self, column: str) -> NDArray[np.float64]:
        """Return the length of each list of a column, (n_questions, n_rounds); NaN: null or no such round."""
        if isinstance(self.table, LazyTable):
            return self.dense(self.table.lengths(column))
        return self.dense(pc.list_value_length(self.table.column(column)))

    def dense(self, values: NDArray[Any] | pa.ChunkedArray) -> NDArray[np.float64]:
        """Return one value per row as float64 (n_questions, n_rounds), round-major; NaN: null or absent."""
        if not isinstance(values, np.ndarray):
            values = pc.cast(values, pa.float64()).combine_chunks().to_numpy(zero_copy_only=False)
        rounds_first = np.full((self.n_rounds, self.n_questions), np.nan)
        questions, rounds = self._cells
        rounds_first[rounds, questions] = values
        return rounds_first.T

    def column(self, name: str) -> NDArray[np.float64] | None:
        """Return a numeric column as :meth:`dense` does; ``None`` if the trace lacks it."""
        return self.dense(self.table.column(name)) if self.has(name) else None

    def batches(self, column: str) -> Iterator[pa.ChunkedArray]:
        """Yield a column in batches of rows, in any order."""
        if isinstance(self.table, LazyTable):
            return self.table.batches(column)
        return iter([self.table.column(column)])

    @cached_property
    def signal_names(self) -> tuple[str, ...]:
        """Names stored in the ``signals`` map of any round, sorted."""
        if not self.has("signals"):
            return ()
        names: set[str] = set()
        for chunk in (chunk for cells in self.batches("signals") for chunk in cells.chunks):
            names.update(pc.unique(pc.struct_field(_pairs(chunk), [0])).to_pylist())
        return tuple(sorted(names))

    def stored_signal(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return a signal of the ``signals`` map, and where it is stored, perhaps as undefined.

        Both are (n_questions, n_rounds); values are NaN where undefined or not stored.
        """
        values = pc.map_lookup(self.table.column("signals"), pa.scalar(name), "last")
        stored = np.zeros(self.table.num_rows)
        start = 0
        for chunk in self.table.column("signals").chunks:
            keys = pc.struct_field(_pairs(chunk), [0])
            rows = pc.list_parent_indices(_entries(chunk)).filter(pc.equal(keys, name))
            stored[start + rows.to_numpy(zero_copy_only=False)] = 1.0
            start += len(chunk)
        return self.dense(values), self.dense(stored) == 1.0

    def of_questions(self, column: str) -> list[Any]:
        """Return a column's value in round 1 of every question; ``None``: null or absent."""
        if column not in self.table.column_names:
            return [None] * self.n_questions
        values: list[Any] = self.first_rounds(column).to_pylist()
        return values

    def attribute(self, name: str) -> list[str | None]:
        """Return a question's own column, else the run document's entry."""
        stated = self.origin.run.get(name)
        values = (stated if own is None else own for own in self.of_questions(name))
        return [None if value is None else str(value) for value in values]

    def first_rounds(self, column: str) -> pa.ChunkedArray:
        """Return a column in round 1 of every question, (n_questions,); nulls if it is absent."""
        if column not in self.table.column_names:
            return pa.chunked_array([pa.nulls(self.n_questions, SCHEMA.field(column).type)])
        if isinstance(self.table, LazyTable) and column in OF_QUESTIONS:
            return self._stated(self.table, column)[0]
        return self._at(column, self.starts[:-1])

    def _stated(self, table: LazyTable, column: str) -> tuple[pa.ChunkedArray, bool]:
        """Read and check a column of questions; also say whether all rows of each are equal."""
        if column not in self._of_questions:
            cells = table.at(column, np.arange(table.num_rows))
            rows, pairs = stating_rows(column, cells, self.starts)
            if pairs:
                two = table.taken(np.array(pairs[0])).select(["question_id", "round", column])
                problem = Problem(pairs[0][1], column, contradiction(two, column, 0, 1))
                raise first_error([problem.error(*table.place(problem.position))] * len(pairs))
            values = cells.take(pa.array(self.starts[:-1] if rows is None else rows))
            self._of_questions[column] = values, rows is None
        return self._of_questions[column]

    @cached_property
    def _of_questions(self) -> dict[str, tuple[pa.ChunkedArray, bool]]:
        return {}

    def evened(self) -> TraceSet:
        """Return the set with each question's own values in all its rows, as sets in memory are."""
        evened, table = self, self.table
        lazily = isinstance(table, LazyTable)
        for name in filter(table.column_names.__contains__, OF_QUESTIONS if lazily else ()):
            values, even = self._stated(table, name)
            if not even:
                evened = evened._with_column_of_questions(name, values.combine_chunks())
        return evened

    def _at(self, column: str, rows: NDArray[np.int64]) -> pa.ChunkedArray:
        if isinstance(self.table, LazyTable):
            return self.table.at(column, rows)
        return self.table.column(column).take(pa.array(rows))

    def of_last_rounds(self, column: str) -> list[Any]:
        """Return a column's value in the last round of every question."""
        values: list[Any] = self._at(column, self.starts[1:] - 1).to_pylist()
        return values

    @cached_property
    def questions(self) -> tuple[Question, ...]:
        """The questions, without labels."""
        names = [column.key for column in QUESTION_COLUMNS]
        fields = zip(*(self.of_questions(column.name) for column in QUESTION_COLUMNS), strict=True)
        return tuple(Question(**dict(zip(names, values, strict=True))) for values in fields)

    @cached_property
    def gold(self) -> tuple[Gold, ...]:
        """Gold answers and passages of each question; only fitting and scoring may read them."""
        pairs = zip(
            self.of_questions("gold_answers"), self.of_questions("gold_passage_ids"), strict=True
        )
        return tuple(
            Gold(
                answers=tuple(answer for answer in answers or () if answer),
                passage_ids=tuple(name for name in ids or () if name is not None),
            )
            for answers, ids in pairs
        )

    @cached_property
    def splits(self) -> Mapping[str, int]:
        """Number of questions in each split, in order of name; unnamed splits do not count."""
        counted = Counter(self.of_questions("split"))
        return {name: counted[name] for name in sorted(filter(None, counted))}

    def in_split(self, name: str) -> NDArray[np.bool_]:
        """Return the questions of a split as a mask, (n_questions,)."""
        return np.asarray(pc.fill_null(pc.equal(self.first_rounds("split"), name), False), bool)

    def only_split(self, name: str) -> TraceSet:
        """Return the questions of one split; if it is empty, the error names the existing splits."""
        chosen = self.in_split(name)
        if not chosen.any():
            splits = ", ".join(self.splits) or "none"
            shares = f"{'tune' if name == 'eval' else name}=0.4,eval=0.6"
            way_out = did_you_mean(name, self.splits) or f"; {self.how_to_split(shares)}"
            if name == "all":
                way_out = "; name one of them: only replay and report take all questions together"
            raise DataError(
                f"no question lies in split {name!r}; splits found: {splits}{way_out}",
                file=self.origin.source,
                column="split",
            )
        return self.take(chosen)

    def how_to_split(self, shares: str = "tune=0.4,eval=0.6") -> str:
        """The command that draws splits for this record, for the end of an error message."""
        draw = "draw others" if self.splits else "draw splits"
        again = " --replace" if self.splits else ""
        return f"{draw} with: suffice traces split {self.at} --splits {shares}{again} --out NEW"

    @property
    def at(self) -> str:
        """The record's path for a command; ``TRACES`` if it has none."""
        from suffice.trace.store import store_at

        source = self.origin.source
        named = source == EXAMPLE.stem or store_at(source) is not None or Path(source).exists()
        return shlex.quote(source) if named else "TRACES"

    def only_questions(self, ids: Iterable[str]) -> TraceSet:
        """Return the recorded questions with these ids."""
        wanted = frozenset(ids)
        return self.take(np.array([name in wanted for name in self.question_ids], bool))

    def sample(self, count: int, *, seed: int) -> TraceSet:
        """Return a sample by :func:`suffice.trace.rounds.records.sampled_ids`; the source says so."""
        drawn = self.only_questions(sampled_ids(self.question_ids, count, seed=seed))
        said = f"{drawn.n_questions:,} of {counted(self.n_questions, 'question')}, seed {seed}"
        source = f"{self.origin.source} (a sample of {said})"
        return replace(drawn, origin=replace(self.origin, source=source))

    def take(self, chosen: NDArray[np.bool_]) -> TraceSet:
        """Return the questions that a mask (n_questions,) selects, in the order of the record."""
        if chosen.dtype != bool or chosen.shape != (self.n_questions,):
            raise UsageError(
                f"questions are chosen by a mask of shape ({self.n_questions},), found {chosen.dtype} of "
                f"shape {chosen.shape}"
            )
        rows = pa.array(np.repeat(chosen, self.last_rounds))
        closed_book = self.closed_book
        if closed_book.num_rows:
            firsts = pa.array(self.starts[:-1][chosen])
            ids = self.table.column("question_id").take(firsts)
            kept = pc.is_in(closed_book.column("question_id"), value_set=ids.cast(pa.string()))
            closed_book = closed_book.filter(kept)
        return replace(
            self,
            table=self.table.filter(rows),
            closed_book=closed_book,
            known_starts=np.concatenate([[0], np.cumsum(self.last_rounds[chosen], dtype=np.int64)]),
        )

    def labelled_by_full_budget(self) -> TraceSet:
        """Return the same rounds, with each question's last recorded answer as its gold answer.

        A question whose last answer is blank has none.
        """
        last = self._at("answer", self.starts[1:] - 1)
        blank = pc.fill_null(pc.equal(pc.utf8_trim_whitespace(last), ""), True)
        kept = pc.invert(blank).combine_chunks()
        ends = np.concatenate([[0], np.cumsum(np.asarray(kept, bool))]).astype(np.int32)
        gold = pa.ListArray.from_arrays(ends, last.filter(kept).combine_chunks())
        return self._with_column_of_questions("gold_answers", gold)

    def with_splits(self, splits: Sequence[str | None]) -> TraceSet:
        """Return the same rounds, each question in the named split, (n_questions,)."""
        return self._with_column_of_questions("split", pa.array(splits, pa.string()))

    def _with_column_of_questions(self, name: str, values: pa.Array) -> TraceSet:
        by_row = pa.chunked_array([values.take(pa.array(self._cells[0]))])
        ids = pa.array(self.question_ids, pa.string())
        of = pc.index_in(self.closed_book.column("question_id"), ids).combine_chunks()
        return replace(
            self,
            table=with_column(self.table, name, by_row),
            closed_book=with_column(self.closed_book, name, pa.chunked_array([values.take(of)])),
        )

    def closed_book_rounds(self) -> TraceSet:
        """Return round 0 of every question that has one, as its only round."""
        rows = in_memory(self.closed_book)
        ones = pa.array(np.ones(rows.num_rows, np.int16))
        rows = rows.set_column(rows.column_names.index("round"), "round", ones)
        return replace(self, table=rows, closed_book=rows.slice(0, 0), known_starts=None)

    def with_abstention(self, phrases: Iterable[str]) -> TraceSet:
        """Return the same record with these phrases of abstention.

        The signal ``abstained`` uses them, and policies fitted on the record keep them; see
        :func:`suffice.signals.abstained.abstained_signal`.
        """
        run = {**self.origin.run, "abstention": list(phrases)}
        return replace(self, origin=replace(self.origin, run=run))

    def views(self, columns: Sequence[str]) -> Iterator[tuple[LoopView, ...]]:
        """Yield each question's views of rounds 1, 1..2, ..., without labels, with only ``columns``."""
        wanted = [name for name in ("answer", *columns) if name in self.table.column_names]
        table = self.table.select(list(dict.fromkeys(wanted)))
        texts = self.of_questions("question")
        for start, stop, text in zip(self.starts[:-1], self.starts[1:], texts, strict=True):
            rows = table.slice(start, stop - start).to_pylist()
            rounds = tuple(round_from_row(row) for row in rows)
            yield tuple(LoopView(text, rounds[:t]) for t in range(1, len(rounds) + 1))

    def records(self) -> Iterator[QuestionRecord]:
        """Yield every question with all its rounds."""
        closed = {row["question_id"]: row for row in in_memory(self.closed_book).to_pylist()}
        table = in_memory(self.table)
        for index, question in enumerate(self.questions):
            start, stop = int(self.starts[index]), int(self.starts[index + 1])
            rows = table.slice(start, stop - start).to_pylist()
            yield record_from_rows(question, self.gold[index], rows, closed.get(question.id))


def with_column(table: pa.Table, name: str, values: Sequence[Any] | pa.ChunkedArray) -> pa.Table:
    """Return the table with a column replaced or added, given a value for every row."""
    if not isinstance(values, pa.ChunkedArray):
        values = pa.chunked_array([pa.array(values, type=SCHEMA.field(name).type)])
    if isinstance(table, LazyTable):
        return table.with_column(name, values)
    if name in table.column_names:
        return table.set_column(table.column_names.index(name), name, values)
    return table.append_column(name, values)


def in_columns(tables: Sequence[pa.Table], schema: pa.Schema) -> pa.Table:
    """Return all rows in the columns of a schema; missing ones are null."""
    rows = pa.concat_tables([schema.empty_table(), *tables], promote_options="permissive")
    return rows.select(schema.names).cast(schema)


def _entries(chunk: pa.MapArray) -> pa.ListArray:
    return pc.cast(chunk, pa.list_(pa.struct([("key", pa.string()), ("value", pa.float64())])))


def _pairs(chunk: pa.MapArray) -> pa.StructArray:
    return pc.list_flatten(_entries(chunk))


# --- which questions count as one: those of one group, or else of one text ------------------------
_ENDS = " .,;:!?"  # what a question asked again may end with or not


def unit_keys(traces: TraceSet) -> NDArray[np.float64]:
    """Return an integer for every question, equal within a unit in any part of any record.

    Questions of one ``group`` are a unit. Others form a unit with questions of equal text, apart from case,
    white space and closing punctuation. A question with neither is its own unit. The numbers are hashes
    below 2**52: in a record of a million units two collide with probability 1 in 9,000.
    """
    group = traces.first_rounds("group") if traces.has("group") else None
    return _hashes(traces.first_rounds("question"), group, lambda: traces.question_ids)


def keys_of(questions: Sequence[Question]) -> NDArray[np.float64]:
    """Return the same for questions that are not recorded yet."""
    return _hashes(
        pa.array([question.text for question in questions], pa.string()),
        pa.array([getattr(question, "group", None) for question in questions], pa.string()),
        lambda: [question.id for question in questions],
    )


def _hashes(
    text: pa.Array | pa.ChunkedArray,
    group: pa.Array | pa.ChunkedArray | None,
    ids: Callable[[], Sequence[str]],
) -> NDArray[np.float64]:
    words = pc.binary_join(pc.utf8_split_whitespace(pc.utf8_lower(pc.cast(text, pa.string()))), " ")
    form = pc.utf8_trim(words, characters=" ")
    form = pc.fill_null(pc.utf8_rtrim(form, characters=_ENDS), "")
    keys = pc.binary_join_element_wise("text", form, " ")
    alone = pc.equal(form, "")
    if pc.any(alone).as_py():
        names = pa.chunked_array([pa.array(ids(), pa.string())])
        keys = pc.if_else(alone, pc.binary_join_element_wise("id", names, " "), keys)
    if group is not None:
        group = pc.fill_null(pc.cast(group, pa.string()), "")
        grouped = pc.binary_join_element_wise("group", group, " ")
        keys = pc.if_else(pc.equal(group, ""), keys, grouped)
    hashes = [
        int.from_bytes(hashlib.blake2b(key, digest_size=8).digest()) >> 12
        for key in pc.cast(keys, pa.binary()).to_pylist()
    ]
    return np.array(hashes, np.float64)


# --- which loop the questions of a file are of ----------------------------------------------------
_UNSTATED = {"budget_note": False}  # stated only where it is on
_MOST_FILES = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """An entry of run documents, with the files that state each value."""

    entry: str
    files: Mapping[str, tuple[str, ...]]

    @property
    def between_files(self) -> bool:
        """Whether two files state different values; else one merged file states both."""
        return len({frozenset(names) for names in self.files.values()}) > 1


def differences(files: Iterable[tuple[str, Mapping[str, Any]]]) -> tuple[Difference, ...]:
    """Return the entries that tell the loops of files apart, given their names and run documents."""
    said: dict[str, dict[str, dict[str, None]]] = {entry: {} for entry in (*LOOP, *_UNSTATED)}
    for file, run in files:
        for document in loops_of(run):
            for entry, value in document.items():
                said[entry].setdefault(str(value), {})[file] = None
    return tuple(
        Difference(entry, {value: tuple(names) for value, names in by_value.items()})
        for entry, by_value in said.items()
        if len(by_value) > 1
    )


def loops_of(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the loops that a run document states, by the entries that tell loops apart."""
    loops: list[dict[str, Any]] = []
    for document in _documents(run.get("runs")) or [dict(run)]:
        if not any(_filtered_out(document, step) for step in _documents(run.get("derived"))):
            stated = _UNSTATED | document if "pipeline" in document else document
            loop = {entry: stated[entry] for entry in (*LOOP, *_UNSTATED) if entry in stated}
            loops += [loop] if loop not in loops else []
    return loops


def in_words(found: Sequence[Difference]) -> str:
    """Return ``they differ in pipeline react (a.parquet), iterative (b.parquet); step 1 (a.parquet), 3``."""
    told = []
    for difference in found:
        values = []
        for value, names in difference.files.items():
            more = f" and {len(names) - _MOST_FILES} more" if len(names) > _MOST_FILES else ""
            files = f" ({', '.join(names[:_MOST_FILES])}{more})" if difference.between_files else ""
            values.append(f"{value:.40}{files}")
        told.append(f"{difference.entry} {', '.join(values)}")
    return f"they differ in {'; '.join(told)}"


def steps(run: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the steps of a record since its recording, and the records merged in it."""
    documents = (run, *_documents(run.get("runs")))
    return [step for document in documents for step in _documents(document.get("derived"))]


def is_veiled(run: Mapping[str, Any]) -> bool:
    """Whether names replace its texts, because of :class:`suffice.Watch` or a later redaction."""
    watched = run.get("watch")
    named = isinstance(watched, dict) and watched.get("texts", "all") != "all"
    return named or any(step.get("by") == "redact" for step in steps(run))


def refuse_veiled(traces: TraceSet) -> None:
    """Refuse a record about which no model can be asked."""
    if is_veiled(traces.origin.run):
        raise DataError(
            "names replace its texts, so no model can be asked about them; give the original record",
            file=traces.origin.source,
        )


def _documents(value: object) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _filtered_out(stated: Mapping[str, Any], step: Mapping[str, Any]) -> bool:
    wanted = ((value, step.get(entry)) for entry, value in stated.items())
    return any(isinstance(kept, list) and str(value) not in kept for value, kept in wanted)
