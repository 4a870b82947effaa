"""Reader and validator of trace sets; each problem names its file, row and column."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suffice.errors import DataError, SufficeWarning, UsageError, counted
from suffice.trace.engines import as_place
from suffice.trace.lazy import LazyTable, Span, in_memory
from suffice.trace.parquet import TableSchema, footer_of
from suffice.trace.recording import count_failures, is_exported, stores_at
from suffice.trace.rounds.checks import Keys, Problem, evened, key_problems, row_problems
from suffice.trace.rounds.labels import LABELS_FILE, Labels, labels_beside
from suffice.trace.rounds.schema import QUESTIONS, SCHEMA
from suffice.trace.rounds.trace_set import (
    TraceSet,
    TraceSetOrigin,
    differences,
    in_words,
    with_column,
)
from suffice.trace.store import Store, StoredRun, exported, free_id
from suffice.trace.stored_file import (
    BATCH,
    EXAMPLE,
    StoredFile,
    agreed,
    check_version,
    first_error,
    nothing_read,
    one_schema,
    parquet_files,
)

READ_WHOLE = 32_000_000
"""Up to how many bytes a record is read, and checked, at once."""
_MANY_ROWS = 65_536  # above so many it is not either: what repeats takes little in a file

ATTRIBUTES = ("dataset", "model", "pipeline")
"""What tells records apart: entries of a run document, or columns of one's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceInspection:
    """A trace set with all its problems and its files."""

    traces: TraceSet
    errors: tuple[DataError, ...]
    remarks: tuple[str, ...] = ()
    parts: tuple[StoredFile, ...] = ()
    labels: Labels = field(default_factory=Labels)

    def valid(self, *, skip_invalid: bool) -> TraceSet:
        """Return the valid questions; raise on problems, unless invalid questions are skipped."""
        if self.errors and not skip_invalid:
            raise first_error(self.errors)
        if self.traces.n_questions == 0:
            empty = "the trace set is empty: no question to read"
            raise nothing_read(self.traces.origin.source, self.errors, empty)
        return self.traces


def read_traces(
    path: str | Path,
    *,
    skip_invalid: bool = False,
    keep_unknown: bool = False,
    lazily_above: int = READ_WHOLE,
    progress: Callable[[float], object] = lambda _: None,
) -> TraceSet:
    """Read a record as :func:`suffice.read` does, perhaps with columns that the schema does not know.

    Of a record with more bytes (encoded, not compressed) only the keys are read and checked at once, other
    columns on first use; ``progress`` gets the share of keys read so far. A store, a record with labels
    beside it, or one whose invalid parts are skipped is read whole.
    """
    if not skip_invalid:
        traces = _opened(as_place(path), _Wanted(keep_unknown), lazily_above, progress)
        if traces is not None:
            return traces
    inspection = inspect_traces(path, keep_unknown=keep_unknown)
    for remark in inspection.remarks:
        warnings.warn(remark, SufficeWarning, stacklevel=2)
    return inspection.valid(skip_invalid=skip_invalid)


def example_record() -> TraceSet:
    """Return the record that comes with suffice; commands take it as ``example``.

    It holds 250 questions of HotpotQA in the splits tune and eval. A ReAct agent of 1.5 billion parameters
    answered each in five rounds. Its texts are redacted: every signal, cost and score is there, and a hash
    for each text.

    Examples
    --------
    >>> import suffice
    >>> suffice.example_record()
    <TraceSet example: questions 250, rounds 1,250, eval 150, tune 100>
    """
    traces = read_traces(EXAMPLE)
    return replace(traces, origin=replace(traces.origin, source=EXAMPLE.stem))


# --- read when asked for --------------------------------------------------------------------------
_KEYS = ("question_id", "round", "split", "group", "propensity", "policy_hash", "stopped_by")


def _opened(
    root: Path, wanted: _Wanted, above: int, progress: Callable[[float], object]
) -> TraceSet | None:
    listed = parquet_files(root)
    stored = not listed or not is_exported(root, listed)
    if stored or (root.is_dir() and (root / LABELS_FILE).exists()):
        return None
    sizes = [_size(file) for file in listed]
    small = sum(n_bytes for n_bytes, _ in sizes) <= above and sum(n for _, n in sizes) <= _MANY_ROWS
    if small:
        return None
    files: list[StoredFile] = []
    errors: list[DataError] = []
    for file in listed:
        try:
            files.append(StoredFile.open(file, wanted, QUESTIONS))
        except DataError as error:
            errors.append(error)
    if errors:
        raise first_error(errors)
    if wanted.unknown and any(_differ([file.run for file in files], name) for name in ATTRIBUTES):
        return None  # a column tells them apart
    if not any(file.rows for file in files):
        raise nothing_read(root, (), "the trace set is empty: no question to read")
    for text, file in {text: one.file for one in reversed(files) for text in one.remarks}.items():
        warnings.warn(f"{file}: {text}", SufficeWarning, stacklevel=3)
    spans = [Span(file, 0, file.rows) for file in files]
    table = LazyTable(spans)
    names = [name for name in _KEYS if name in table.column_names]
    for number, name in enumerate(names, start=1):
        table.column(name)
        progress(number / len(names))
    keys = Keys.of(table)
    # other rounds are read without round 0, which may state what they do not
    read = table if (keys.rounds == 0).any() else table.select(names)
    placed = _placed((file.file, file.rows) for file in files)
    if problems := [*map(placed, key_problems(read, keys))]:
        raise first_error(problems)
    grouped, starts, _ = keys.grouped(read)
    if evened(grouped, starts) is not grouped:
        return None  # some rows lack what others of their question state
    rows = keys.by_question
    is_round = keys.rounds[rows] > 0
    known_starts = None
    if keys.in_order:
        lasts = keys.rounds[keys.starts[1:] - 1]  # how many rounds each question has
        known_starts = np.append(0, np.cumsum(lasts[np.argsort(keys.rank)], dtype=np.int64))
    traces = TraceSet(
        table=table.taken(rows[is_round]),
        closed_book=table.taken(rows[~is_round]),
        origin=_origin(root, files),
        known_starts=known_starts,
    )
    for text in _rounds_from_0(traces):
        warnings.warn(f"{root}: {text}", SufficeWarning, stacklevel=3)
    return traces


def _origin(
    root: Path, files: Sequence[StoredFile], skipped: Sequence[DataError] = ()
) -> TraceSetOrigin:
    runs = {json.dumps(file.run, sort_keys=True): file.run for file in files}
    return TraceSetOrigin(
        source=str(root),
        run=agreed([file.run for file in files]),
        runs=tuple(runs.values()) if len(runs) > 1 else (),
        skipped=tuple(skipped),
        failures=count_failures(root),
        loops=differences((file.file.name, file.run) for file in files),
    )


def _size(file: Path) -> tuple[int, int]:
    try:
        known = footer_of(file)
    except (pa.ArrowException, UnicodeDecodeError, OSError, DataError):
        return 0, 0
    groups = (known.row_group(i) for i in range(known.num_row_groups))
    return sum(group.total_byte_size for group in groups), known.num_rows


def inspect_traces(path: str | Path, *, keep_unknown: bool = False) -> TraceInspection:
    """Read the valid questions into ``traces``, and list every problem."""
    root = as_place(path)
    errors: list[DataError] = []
    tables: list[pa.Table] = []
    parts: list[StoredFile] = []
    broken: list[Problem] = []
    rows = 0
    remarks: dict[str, str] = {}
    for part, table in parts_of(root, _Wanted(keep_unknown), QUESTIONS, errors):
        for problem in row_problems(table):
            errors.append(problem.error(str(part.file), problem.position))
            broken.append(replace(problem, position=rows + problem.position))
        remarks |= {text: str(part.file) for text in part.remarks if text not in remarks}
        tables.append(table)
        parts.append(part)
        rows += table.num_rows
    if keep_unknown:
        tables = [*told_apart(tables, [part.run for part in parts])]
    combined = one_table(tables)
    problems = list(key_problems(combined))
    placed = _placed((part.file, part.rows) for part in parts)
    errors.extend(map(placed, problems))
    if problems := problems + broken:
        codes = Keys.of(combined).codes
        wrong = codes[[problem.position for problem in problems]]
        combined = combined.filter(pa.array(~np.isin(codes, wrong)))
    combined, said = in_order(combined), list[str]()
    labels = labels_beside(root, combined, errors, said)
    remarks |= dict.fromkeys(said, str(root))
    traces = as_trace_set(labels.onto(combined), _origin(root, parts, errors))
    remarks |= dict.fromkeys(_rounds_from_0(traces), str(root))
    return TraceInspection(
        traces=traces,
        errors=tuple(errors),
        remarks=tuple(f"{place}: {text}" for text, place in remarks.items()),
        parts=tuple(parts),
        labels=labels,
    )


def parts_of(
    root: Path, wanted: Container[str], kind: TableSchema, errors: list[DataError]
) -> Iterator[tuple[StoredFile, pa.Table]]:
    """Return a set's Parquet files and its stores' new rows; unreadable ones become errors."""
    files = parquet_files(root)
    for file in files:
        try:
            part = StoredFile.read_whole(file, wanted, kind)
        except DataError as error:
            errors.append(error)
        else:
            yield part
    after = exported(files)  # what is exported meanwhile comes once
    for store in stores_at(root):
        for run in (run for run in Store(store).runs(after) if run.rows):
            try:
                part = _of_run(store, run, wanted, kind)
            except DataError as error:
                errors.append(error)
            else:
                yield part


def question_ids_of(root: Path) -> set[str]:
    """Return the ids of a record's questions, whatever else is in it."""
    errors: list[DataError] = []
    parts = [*parts_of(root, {"question_id"}, QUESTIONS, errors)]
    if errors:
        raise first_error(errors)
    return {name for _, table in parts for name in table.column("question_id").to_pylist()}


def _of_run(
    file: Path, run: StoredRun, wanted: Container[str], kind: TableSchema
) -> tuple[StoredFile, pa.Table]:
    check_version(run.metadata, file, kind)
    table = run.rows.select([name for name in run.rows.column_names if name in wanted])
    part = StoredFile(
        file=file,
        kind=kind,
        names=tuple(table.column_names),
        row_groups=(table.num_rows,),
        run=dict(run.document),
        stored=table.schema,
    )
    return part, table


@dataclass(frozen=True)
class _Wanted:
    unknown: bool

    def __contains__(self, name: object) -> bool:
        return self.unknown or name in SCHEMA.names or name == "model"  # a round's own: tiers


def one_table(tables: Iterable[pa.Table]) -> pa.Table:
    """Return one table with every column of any file; missing ones null."""
    tables = list(tables)
    if not tables:
        return SCHEMA.empty_table()
    one_schema(table.schema for table in tables)
    joined = pa.concat_tables(tables, promote_options="permissive")
    return joined.combine_chunks() if joined.num_rows <= _MANY_ROWS else joined


def _differ(runs: Sequence[Mapping[str, Any]], name: str) -> bool:
    return len({str(run.get(name)) for run in runs}) > 1


def told_apart(tables: Sequence[pa.Table], runs: Sequence[Mapping[str, Any]]) -> Sequence[pa.Table]:
    """Return the tables, with a column for each attribute in which their run documents differ."""
    for name in filter(partial(_differ, runs), ATTRIBUTES):
        tables = [
            table
            if name in table.column_names or run.get(name) is None
            else with_column(
                table, name, pa.chunked_array([pa.repeat(str(run[name]), table.num_rows)])
            )
            for table, run in zip(tables, runs, strict=True)
        ]
    return tables


def _placed(files: Iterable[tuple[Path, int]]) -> Callable[[Problem], DataError]:
    held = list(files)
    ends = np.cumsum([rows for _, rows in held])

    def error(problem: Problem) -> DataError:
        index = int(np.searchsorted(ends, problem.position, side="right"))
        file, rows = held[index]
        return problem.error(str(file), problem.position - int(ends[index]) + rows)

    return error


# --- what was read, perhaps not as it was meant ----------------------------------------------------
_RETRIEVED: Mapping[str, Callable[[pa.ChunkedArray], pa.ChunkedArray]] = {
    "passages": pc.list_value_length,
    "query": pc.utf8_length,
    "retrievals": lambda cells: cells,
}
"""What says that a round retrieved something, where it is above 0."""


def _rounds_from_0(traces: TraceSet) -> Iterator[str]:
    """Warn if round 0 retrieved, or looks like any other round: it should be the closed-book answer."""
    asked = traces.closed_book
    if not asked.num_rows:
        return
    some = asked
    if isinstance(asked, LazyTable):
        some = asked.taken(np.flatnonzero(asked.rows < BATCH))
    retrieved = any(
        pc.any(pc.greater(size(some.column(name)), 0)).as_py()
        for name, size in _RETRIEVED.items()
        if name in some.column_names
    )
    tells = any(traces.has(name) for name in _RETRIEVED) or "pipeline" in traces.origin.run
    if retrieved or not (tells or asked.num_rows < traces.n_questions):
        why = "it retrieved something" if retrieved else "nothing tells it from a round"
        yield (
            f"column round: a round 0 in {asked.num_rows} of {counted(traces.n_questions, 'question')}, "
            f"taken for the closed-book answer without passages, where no policy stops; {why}: if your "
            "rounds count from 0, write them from 1"
        )


_MANY_BLANK = 0.5


def answer_banners(traces: TraceSet) -> tuple[str, ...]:
    """Return the warnings for reports on rounds without an answer, or with a blank one."""
    rounds = traces.table.num_rows
    unasked = blank = 0
    for answers in traces.batches("answer"):
        unasked += answers.null_count
        blank += pc.sum(pc.equal(pc.utf8_trim_whitespace(answers), "")).as_py() or 0
    if unasked:
        return (
            f"NO ANSWER in {unasked:,} of {counted(rounds, 'round')}, in which the loop was not asked for "
            "one: EM, F1 and Acc are not known there, and the costs of a policy that stops there lack the "
            "answer that it would ask for; ask a model for them: suffice probe "
            f"{traces.at} --llm URL --out NEW",
        )
    if blank <= _MANY_BLANK * rounds:
        return ()
    said = (
        f"BLANK ANSWERS in {blank:,} of {counted(rounds, 'round')}: an empty answer is scored as wrong, and "
        "figures before a question's last round say little; record in every round what the loop would "
        "answer there"
    )
    return (said,)


def in_order(table: pa.Table) -> pa.Table:
    """Return checked rows sorted by question and round, each with its question's own values."""
    order = pc.sort_indices(table, sort_keys=[("question_id", "ascending"), ("round", "ascending")])
    table = table.take(order)
    ids = table.column("question_id")
    ends = np.flatnonzero(pc.not_equal(ids[1:], ids[:-1])) + 1
    return evened(table, np.array([0, *ends, len(ids)]) if len(ids) else np.zeros(1, np.int64))


def as_trace_set(table: pa.Table, origin: TraceSetOrigin) -> TraceSet:
    """Return rows in order, each question's rounds complete, as a trace set."""
    is_round = pc.greater(table.column("round"), 0)
    return TraceSet(
        table=table.filter(is_round), closed_book=table.filter(pc.invert(is_round)), origin=origin
    )


def _refuse_other_golds(*pair: TraceSet) -> None:
    """Refuse a question of two records with other gold answers in one than in the other."""
    both = frozenset.intersection(*(frozenset(traces.question_ids) for traces in pair))
    some = (traces.only_questions(both).records() for traces in pair if both)
    for one, other in zip(*some, strict=True):
        golds = {frozenset(record.gold.answers) for record in (one, other)} - {frozenset()}
        if one.question.text == other.question.text and len(golds) > 1:
            first, second = (traces.origin.source for traces in pair)
            raise UsageError(
                f"gold answers of question {one.question.id!r} in {first} contradict those in {second}; "
                f"correct one of them: suffice traces label {second} LABELS --replace --out NEW"
            )


def pool_traces(sets: Sequence[TraceSet]) -> TraceSet:
    """Pool several records of one loop into one, in memory.

    A question whose id an earlier record holds gets a new id, ``q1#2``. Questions with equal text still
    count once in proofs and intervals. A UsageError: the records differ in its gold answers.
    """
    if len(sets) == 1:
        return sets[0]
    if not sets:
        raise UsageError("name at least one record")
    if loops := differences((traces.origin.source, traces.origin.run) for traces in sets):
        raise UsageError(
            f"the records come from different loops, {in_words(loops)}; pool records of one loop, or "
            "use each by itself (if one policy must serve several loops, merge them first: suffice "
            "traces merge FILE FILE --out NEW)"
        )
    for pair in combinations(sets, 2):
        _refuse_other_golds(*pair)
    held: set[str] = set()
    tables = []
    for traces in sets:
        renamed = {name: free_id(name, held.__contains__) for name in traces.question_ids}
        held.update(renamed.values())
        evenly = traces.evened()
        for rows in (evenly.table, evenly.closed_book):
            table = in_memory(rows)
            at = table.schema.get_field_index("question_id")
            names = [renamed[name] for name in table.column(at).to_pylist()]
            tables.append(table.set_column(at, "question_id", pa.array(names, pa.string())))
    first = sets[0].origin
    origin = replace(
        first,
        source=" + ".join(traces.origin.source for traces in sets),
        run=agreed([traces.origin.run for traces in sets]),
        skipped=tuple(error for traces in sets for error in traces.origin.skipped),
        failures=sum(traces.origin.failures for traces in sets),
    )
    return as_trace_set(in_order(one_table(tables)), origin)
