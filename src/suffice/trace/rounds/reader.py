"""Read trace sets of questions, and check them column by column: each problem names file, row and column."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from suffice.errors import DataError, SufficeWarning
from suffice.trace.reader import (
    FileRead,
    agreed,
    count_failures,
    first_error,
    nothing_read,
    parquet_files,
    read_file,
)
from suffice.trace.rounds.journal import Journal, free_id, journals
from suffice.trace.rounds.labels import Labels, labels_beside
from suffice.trace.rounds.records import STOPPED_BY, not_a_propensity, not_a_score, not_a_stop
from suffice.trace.rounds.schema import (
    COLUMNS,
    QUESTIONS,
    REQUIRED,
    USAGE_COLUMNS,
    record_to_rows,
)
from suffice.trace.rounds.table import TraceSet, TraceSetOrigin

FILE = "suffice.file"  # the column that says which of the parts a row came from


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A file of a trace set: where it lies, its run document, its columns and metadata as they stand.

    ``empty`` says by column of how many of its ``rows`` the value is null. ``journal`` holds the rows of a
    journal, whose loops may turn it into a Parquet file at any time.
    """

    file: Path
    run: Mapping[str, Any]
    stored: pa.Schema
    rows: int
    empty: Mapping[str, int]
    journal: pa.Table | None = None

    def read(self) -> pa.Table:
        """Its rows, with the columns as they stand."""
        if self.journal is not None:
            return self.journal
        with pq.ParquetFile(self.file) as parquet:
            return parquet.read(columns=self.stored.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceInspection:
    """A trace set with everything that is wrong with it.

    Parameters
    ----------
    traces
        Its valid questions.
    errors
        What was left out, and why.
    remarks
        Sentences on what was read, but perhaps not as it was meant.
    parts
        The files that could be read.
    labels
        Those that lie beside the files, which ``traces`` has taken already.
    """

    traces: TraceSet
    errors: tuple[DataError, ...]
    remarks: tuple[str, ...] = ()
    parts: tuple[Part, ...] = ()
    labels: Labels = field(default_factory=Labels)

    def valid(self, *, skip_invalid: bool) -> TraceSet:
        """The questions, where there are some and, unless invalid ones are skipped, nothing is wrong.

        Raises
        ------
        DataError
            Naming file, row and column of the first problem.
        """
        if self.errors and not skip_invalid:
            raise first_error(self.errors)
        if self.traces.n_questions == 0:
            empty = "the trace set is empty: no question to read"
            raise nothing_read(self.traces.origin.source, self.errors, empty)
        return self.traces


@dataclass(frozen=True, slots=True)
class Problem:
    """One broken row of a combined table; ``position`` is its index there."""

    position: int
    column: str
    message: str

    def error(self, file: str, row: int) -> DataError:
        """The problem as an error at its place in the file."""
        return DataError(self.message, file=file, row=row, column=self.column)


def read_traces(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    skip_invalid: bool = False,
    keep_unknown: bool = False,
) -> TraceSet:
    """Read a Parquet file, or a directory of them, as one trace set.

    Parameters
    ----------
    path
        A ``.parquet`` file or a directory; of a directory every ``*.parquet`` in it.
    columns
        Optional columns to load; the required ones always are. ``None``: all.
    keep_unknown
        Also load columns the schema does not know, as they are.
    skip_invalid
        Leave out files that cannot be read and questions with an invalid row, and report them in
        ``TraceSet.skipped``, instead of raising.

    Raises
    ------
    DataError
        Naming file, row and column of the first problem.

    Warns
    -----
    SufficeWarning
        Where something was read, but perhaps not as it was meant: a column near a name of the schema,
        rounds that count from 0.
    """
    inspection = inspect_traces(path, columns=columns, keep_unknown=keep_unknown)
    for remark in inspection.remarks:
        warnings.warn(remark, SufficeWarning, stacklevel=2)
    return inspection.valid(skip_invalid=skip_invalid)


def inspect_traces(
    path: str | Path,
    *,
    columns: Sequence[str] | None = None,
    keep_unknown: bool = False,
    kept: Sequence[str] | None = None,
) -> TraceInspection:
    """Read what can be read and list what cannot; ``traces`` holds the valid questions only.

    Parameters
    ----------
    path, columns, keep_unknown
        As in :func:`read_traces`.
    kept
        Every file is read and checked by itself, and of the optional columns loaded only these stay in
        memory, beside :data:`FILE`, the position of a row's file among ``parts``; ``None``: all stay.

    Raises
    ------
    DataError
        Only when there is no Parquet file at ``path``.
    """
    root = Path(path)
    errors: list[DataError] = []
    tables: list[pa.Table] = []
    parts: list[Part] = []
    broken: list[Problem] = []
    rows = 0
    remarks: dict[str, str] = {}
    wanted = _Wanted(columns, keep_unknown)
    under_way = journals(root) if root.is_dir() else []
    files = [] if under_way and not any(root.glob("*.parquet")) else parquet_files(root)
    sources: list[Path | Journal] = [*files, *under_way]
    for source in sources:
        file = source.file if isinstance(source, Journal) else source
        try:
            part = (
                _journal_part(source, wanted, tables)
                if isinstance(source, Journal)
                else read_file(source, wanted, QUESTIONS)
            )
        except DataError as error:
            errors.append(error)
            continue
        table = part.table
        for problem in (*_unanswered(part), *row_problems(table)):
            errors.append(problem.error(str(file), problem.position))
            broken.append(replace(problem, position=rows + problem.position))
        rows += table.num_rows
        remarks |= {text: str(file) for text in part.remarks if text not in remarks}
        tables.append(table if kept is None else _light(table, kept, len(parts)))
        part_read = _part_of(file, part)
        if isinstance(source, Journal) and kept is not None:
            part_read = replace(part_read, journal=table)
        parts.append(part_read)
    combined = _combine(tables)
    remarks |= dict.fromkeys(_empty_gold(combined), str(root))
    origin = _Origin(parts)
    problems = list(key_problems(combined))
    errors.extend(origin.error(problem) for problem in problems)
    problems += broken
    combined = _without(combined, problems)
    beside = labels_beside(root, combined)
    errors.extend(beside.errors)
    remarks |= dict.fromkeys(beside.remarks, str(root))
    combined = beside.labels.onto(combined, _Wanted(columns if kept is None else kept, False))
    traces = _sorted_set(
        combined,
        TraceSetOrigin(
            source=str(root),
            run=agreed([part.run for part in parts]),
            skipped=tuple(errors),
            failures=count_failures(root),
        ),
    )
    if columns is None and kept is None:
        remarks |= dict.fromkeys(_rounds_from_0(traces), str(root))
    return TraceInspection(
        traces=traces,
        errors=tuple(errors),
        remarks=tuple(f"{place}: {text}" for text, place in remarks.items()),
        parts=tuple(parts),
        labels=beside.labels,
    )


def _journal_part(journal: Journal, wanted: _Wanted, before: Sequence[pa.Table]) -> FileRead:
    """The finished questions of a journal, as its Parquet file will hold them."""
    names = pa.array([record.question.id for record in journal.finished], pa.string())
    taken: set[str] = set()
    for table in before:
        ids = table.column("question_id")
        taken.update(pc.unique(pc.filter(ids, pc.is_in(ids, names))).to_pylist())
    rows: list[dict[str, Any]] = []
    for record in journal.finished:
        name = free_id(record.question.id, taken)
        taken.add(name)
        rows += [{**row, "question_id": name} for row in record_to_rows(record)]
    table = pa.Table.from_pylist(rows, schema=QUESTIONS.arrow)
    table = table.select([name for name in table.column_names if name in wanted])
    remarks = [] if not journal.damaged else [f"{journal.damaged} lines are damaged and left out"]
    return FileRead(
        table=table,
        run=dict(journal.run),
        version=QUESTIONS.version,
        remarks=tuple(remarks),
        stored=table.schema,
    )


def _unanswered(part: FileRead) -> Iterator[Problem]:
    """Null answers of a file of version 1, which knows none."""
    if part.version > 1:
        return
    for position in _positions(pc.is_null(part.table.column("answer"))):
        yield Problem(
            int(position),
            "answer",
            "null where version 1 requires a value; write an empty string where the model gave none; where "
            f"it was not asked, state {QUESTIONS.key.decode()} = {QUESTIONS.version} in the file's metadata",
        )


def _part_of(file: Path, read: FileRead) -> Part:
    table = read.table
    empty = {name: table.column(name).null_count for name in table.column_names}
    return Part(file=file, run=read.run, stored=read.stored, rows=table.num_rows, empty=empty)


def _light(table: pa.Table, kept: Sequence[str], number: int) -> pa.Table:
    """The required columns and the kept ones, and which file it was."""
    names = [name for name in table.column_names if name in {*REQUIRED, *kept}]
    numbers = pa.array(np.full(table.num_rows, number, np.int32))
    return table.select(names).append_column(FILE, numbers)


class _Wanted:
    """Which columns to load."""

    def __init__(self, columns: Sequence[str] | None, keep_unknown: bool) -> None:  # noqa: FBT001
        known = {column.name for column in COLUMNS}
        self._named = known if columns is None else {*REQUIRED, *columns}
        self._known = known if keep_unknown else None

    def __contains__(self, name: object) -> bool:
        return name in self._named or (self._known is not None and name not in self._known)


def _combine(tables: Iterable[pa.Table]) -> pa.Table:
    """One table with every column any file has; missing ones null."""
    tables = list(tables)
    if not tables:
        return pa.table({column.name: pa.array([], column.type) for column in COLUMNS})
    try:
        return pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        # columns of the schema agree by now, so a column of the user's own does not
        raise DataError(
            f"the files disagree on a column the schema does not know: {error}"
        ) from error


class _Origin:
    """Where a row of the combined table came from."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._names = [str(part.file) for part in parts]
        self._ends = np.cumsum([part.rows for part in parts])

    def error(self, problem: Problem) -> DataError:
        index = int(np.searchsorted(self._ends, problem.position, side="right"))
        before = int(self._ends[index - 1]) if index else 0
        return problem.error(self._names[index], problem.position - before)


# --- what was read, perhaps not as it was meant ----------------------------------------------------
def _empty_gold(table: pa.Table) -> Iterator[str]:
    """``TraceSet.gold`` leaves them out; each question counts once."""
    if "gold_answers" not in table.column_names:
        return
    first = pc.equal(table.column("round"), 1)
    flat = pc.list_flatten(table.filter(first).column("gold_answers"))
    empty = pc.sum(pc.or_kleene(pc.is_null(flat), pc.equal(flat, ""))).as_py() or 0
    if empty:
        yield f"column gold_answers: dropped {empty} empty gold answers"


_RETRIEVED = ("passages", "query", "retrievals")


def _rounds_from_0(traces: TraceSet) -> Iterator[str]:
    """Round 0 is the closed-book answer: said where it retrieved, or nothing tells it from a round."""
    asked = traces.closed_book
    if not asked.num_rows:
        return
    retrieving = pa.array(np.zeros(asked.num_rows, bool))
    for name in _RETRIEVED:
        if name in asked.column_names:
            retrieving = pc.or_(retrieving, _holds_something(asked.column(name)))
    count = pc.sum(retrieving).as_py()
    tells = any(traces.has(name) for name in _RETRIEVED) or "pipeline" in traces.origin.run
    if not count and (tells or asked.num_rows < traces.n_questions):
        return
    why = f"{count} of them retrieved something" if count else "nothing tells it from a round"
    yield (
        f"column round: {asked.num_rows} of {traces.n_questions} questions have a round 0, taken for the "
        f"closed-book answer without passages, where no policy stops; {why}: if your rounds count from 0, "
        "write them from 1"
    )


def _holds_something(cells: pa.ChunkedArray) -> pa.Array:
    """Where a list or a text is not empty, or a number above 0; false for a null."""
    kind = cells.type
    if pa.types.is_list(kind):
        size = pc.list_value_length(cells)
    else:
        size = pc.utf8_length(cells) if pa.types.is_string(kind) else cells
    held = pc.fill_null(pc.greater(size, 0), False)
    return held.combine_chunks() if isinstance(held, pa.ChunkedArray) else held


_MANY_BLANK = 0.5


def answer_banners(traces: TraceSet) -> tuple[str, ...]:
    """What must stand above any figure where rounds have no answer, or a blank one."""
    rounds = traces.table.num_rows
    answers = traces.table.column("answer")
    blank = pc.sum(pc.equal(pc.utf8_trim_whitespace(answers), "")).as_py() or 0
    if answers.null_count:
        return (
            f"NO ANSWER in {answers.null_count:,} of {rounds:,} rounds, in which the loop was not asked for "
            "one: EM, F1 and Acc are not known there, and the costs of a policy that stops there lack the "
            "answer that it would ask for; ask a model for them: suffice probe "
            f"{traces.at} --llm URL --out NEW",
        )
    if blank <= _MANY_BLANK * rounds:
        return ()
    said = (
        f"BLANK ANSWERS: {blank:,} of {rounds:,} rounds have an empty answer, which is scored as wrong: "
        "figures before a question's last round say little; record in every round what the loop would "
        "answer there"
    )
    return (said,)


def _without(table: pa.Table, problems: list[Problem]) -> pa.Table:
    """The table without any question that has a problem."""
    if not problems:
        return table
    ids = table.column("question_id")
    bad = {ids[problem.position].as_py() for problem in problems}
    keep = pc.invert(pc.is_in(ids, value_set=pa.array(sorted(i for i in bad if i), pa.string())))
    if None in bad or "" in bad:
        keep = pc.and_(keep, pc.fill_null(pc.not_equal(ids, ""), False))
    return table.filter(keep)


def _sorted_set(table: pa.Table, origin: TraceSetOrigin) -> TraceSet:
    order = pc.sort_indices(table, sort_keys=[("question_id", "ascending"), ("round", "ascending")])
    table = table.take(order)
    is_round = pc.greater(table.column("round"), 0)
    return TraceSet(
        table=table.filter(is_round),
        closed_book=table.filter(pc.invert(is_round)),
        origin=origin,
    )


# --- what is wrong with rows -----------------------------------------------------------------------
def find_problems(table: pa.Table) -> Iterator[Problem]:
    """Every problem of ``table``, whose columns already have the schema's types."""
    yield from row_problems(table)
    yield from key_problems(table)


def row_problems(table: pa.Table) -> Iterator[Problem]:
    """Those that a row shows by itself."""
    for check in _ROW_CHECKS:
        yield from check(table)


def key_problems(table: pa.Table) -> Iterator[Problem]:
    """Those that show when all rows of a question are seen: its rounds, its split, what ended it."""
    yield from _round_sequence(table)
    yield from _one_value(table)
    yield from _stops(table)


def _positions(mask: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
    flags = pc.fill_null(mask, False)
    if isinstance(flags, pa.ChunkedArray):
        flags = flags.combine_chunks()
    return np.flatnonzero(flags.to_numpy(zero_copy_only=False))


def _cells(table: pa.Table) -> Iterator[Problem]:
    """Nulls where a value is required, and cells that are wrong by themselves."""
    for name in REQUIRED:
        if name == "answer":
            continue  # null: not asked for
        for position in _positions(pc.is_null(table.column(name))):
            yield Problem(int(position), name, "null where a value is required")
    for name, (wrong, said) in _WRONG_CELLS.items():
        if name in table.column_names:
            cells = table.column(name)
            for position in _positions(wrong(cells)):
                yield Problem(int(position), name, said(cells[int(position)].as_py()))


def _negative(cells: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.less(cells, 0)


_WRONG_CELLS: Mapping[
    str, tuple[Callable[[pa.ChunkedArray], pa.ChunkedArray], Callable[[Any], str]]
] = {
    "question_id": (lambda ids: pc.equal(ids, ""), lambda _: "empty question_id"),
    "round": (_negative, lambda number: f"round {number}: rounds count from 1 (0: closed book)"),
    "propensity": (
        lambda cells: pc.invert(pc.and_(pc.greater(cells, 0), pc.less_equal(cells, 1))),
        not_a_propensity,
    ),
    "score": (lambda cells: pc.or_(_negative(cells), pc.greater(cells, 1)), not_a_score),
    "stopped_by": (
        lambda cells: pc.invert(pc.is_in(cells, pa.array([*STOPPED_BY, None], pa.string()))),
        not_a_stop,
    ),
    **{column.name: (_negative, lambda _: "a negative amount") for column in USAGE_COLUMNS},
}
"""Of columns that may be there: which cells are wrong, and what is said of such a value."""


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


# of columns of questions: what a null means, and what is wrong where rows differ
_OF_QUESTIONS = {
    "split": ("", "a question's rounds must all lie in one split"),
    "propensity": (1.0, "a question's rounds must all state one propensity"),
    "policy_hash": ("", "a question's rounds must all state one policy"),
}


def _one_value(table: pa.Table) -> Iterator[Problem]:
    there = [name for name in _OF_QUESTIONS if name in table.column_names]
    if not there or table.num_rows == 0:
        return
    codes, rounds = _keys(table)
    order = np.lexsort((rounds, codes))
    same = codes[order][1:] == codes[order][:-1]
    for name in there:
        null, wrong = _OF_QUESTIONS[name]
        cells = table.column(name)
        filled = pc.fill_null(cells, pa.scalar(null, cells.type)).combine_chunks()
        values = filled.dictionary_encode().indices.to_numpy(zero_copy_only=False)[order]
        for index in np.flatnonzero(same & (values[1:] != values[:-1])):
            yield Problem(int(order[index + 1]), name, wrong)


def _stops(table: pa.Table) -> Iterator[Problem]:
    """What ended a question is said in its last row."""
    if "stopped_by" not in table.column_names or table.num_rows == 0:
        return
    cells = table.column("stopped_by")
    codes, rounds = _keys(table)
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
                logprob = values[int(index)].as_py()
                yield Problem(
                    start + int(rows[int(index)].as_py()),
                    column,
                    f"a log-probability must be a number or -inf, found {logprob}",
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
        numbers = clusters[int(position)].as_py()
        if unfitting[position]:
            samples = int(np.broadcast_to(drawn, lengths.shape)[position])
            message = f"must have one number a sample, found {len(numbers)} for {samples} samples"
        else:
            message = f"must name the first sample of each one's cluster, found {numbers!r:.60}"
        yield Problem(int(position), "sample_clusters", message)


def _lengths(lists: pa.ChunkedArray) -> NDArray[np.int64]:
    """How many items each list has; 0 for a null."""
    return pc.fill_null(pc.list_value_length(lists), 0).to_numpy().astype(np.int64)  # type: ignore[no-any-return]


_CALL_PARTS = ("answer_calls", "sample_calls")
_PARTS: Mapping[str, tuple[str, ...]] = {
    "llm_calls": _CALL_PARTS,
    **{
        name: (f"answer_{name}",)
        for name in ("prompt_tokens", "cached_tokens", "completion_tokens")
    },
}


def _counts(table: pa.Table) -> Iterator[Problem]:
    """A part of the calls or tokens is no more than the whole."""
    for whole, parts in _PARTS.items():
        there = [name for name in parts if {name, whole} <= {*table.column_names}]
        for name in there:
            more = pc.greater(table.column(name), table.column(whole))
            for position in _positions(more):
                words = name.replace("_", " ")
                yield Problem(int(position), name, f"more {words} than {whole}")
    if {*_CALL_PARTS, "llm_calls"} <= {*table.column_names}:
        together = pc.add_checked(
            *(pc.cast(table.column(name), pa.int32()) for name in _CALL_PARTS)
        )
        for position in _positions(pc.greater(together, table.column("llm_calls"))):
            said = "more answer and sample calls together than llm_calls"
            yield Problem(int(position), "answer_calls", said)


_ROW_CHECKS: tuple[Callable[[pa.Table], Iterator[Problem]], ...] = (
    _cells,
    _logprobs,
    _sample_clusters,
    _counts,
)
