"""Read trace sets from Parquet."""

from __future__ import annotations

import json
import warnings
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from suffice.errors import DataError, SufficeWarning
from suffice.trace.durable import failures_file
from suffice.trace.plans.schema import PLANS
from suffice.trace.rounds.coerce import coerce_table
from suffice.trace.rounds.schema import COLUMNS, QUESTIONS, REQUIRED
from suffice.trace.rounds.table import TraceSet, TraceSetOrigin
from suffice.trace.rounds.validate import Problem, find_problems
from suffice.trace.schema import RUN_KEY, TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceInspection:
    """A trace set with everything that is wrong with it."""

    traces: TraceSet
    errors: tuple[DataError, ...]


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
    """
    inspection = inspect_traces(path, columns=columns, keep_unknown=keep_unknown)
    if inspection.errors and not skip_invalid:
        raise first_error(inspection.errors)
    if inspection.traces.n_questions == 0:
        if inspection.errors:
            raise DataError(
                f"nothing valid is left to read; {len(inspection.errors)} parts were skipped, the "
                f"first: {inspection.errors[0]}",
                file=str(path),
            )
        raise DataError("the trace set is empty: no question to read", file=str(path))
    return inspection.traces


def first_error(errors: Sequence[DataError]) -> DataError:
    """The first of several problems, with what to do about them all."""
    more = len(errors) - 1
    first = errors[0]
    hint = f" ({more} more)" if more else ""
    return DataError(
        f"{first.message}{hint}; 'suffice traces validate' lists all, --skip-invalid reads the rest",
        file=first.file,
        row=first.row,
        column=first.column,
    )


def inspect_traces(
    path: str | Path, *, columns: Sequence[str] | None = None, keep_unknown: bool = False
) -> TraceInspection:
    """Read what can be read and list what cannot; ``traces`` holds the valid questions only.

    Raises
    ------
    DataError
        Only when there is no Parquet file at ``path``.
    """
    root = Path(path)
    errors: list[DataError] = []
    tables: list[pa.Table] = []
    names: list[str] = []
    run: dict[str, Any] = {}
    for file in parquet_files(root):
        try:
            table, file_run = read_file(file, _Wanted(columns, keep_unknown), QUESTIONS)
        except DataError as error:
            errors.append(error)
            continue
        run = run or file_run
        tables.append(table)
        names.append(str(file))
    combined = _combine(tables)
    _warn_of_empty_gold(combined, str(root))
    origin = _Origin(names, [table.num_rows for table in tables])
    problems = list(find_problems(combined))
    errors.extend(origin.error(problem) for problem in problems)
    combined = _without(combined, problems)
    traces = _sorted_set(
        combined,
        TraceSetOrigin(
            source=str(root), run=run, skipped=tuple(errors), failures=count_failures(root)
        ),
    )
    return TraceInspection(traces=traces, errors=tuple(errors))


def parquet_files(root: Path) -> list[Path]:
    """The Parquet files of a trace set, sorted by name."""
    if root.is_dir():
        files = sorted(file for file in root.glob("*.parquet") if not file.name.startswith("."))
        if files:
            return files
        raise DataError(
            "the directory holds no *.parquet file; name a trace file or a directory of them",
            file=str(root),
        )
    if not root.exists():
        raise DataError(
            "no such file or directory; name a trace file or a directory of them", file=str(root)
        )
    return [root]


class _Wanted:
    """Which columns to load."""

    def __init__(self, columns: Sequence[str] | None, keep_unknown: bool) -> None:  # noqa: FBT001
        known = {column.name for column in COLUMNS}
        self._named = known if columns is None else {*REQUIRED, *columns}
        self._known = known if keep_unknown else None

    def __contains__(self, name: object) -> bool:
        return name in self._named or (self._known is not None and name not in self._known)


def schema_of(path: str | Path) -> TableSchema:
    """Which kind of trace set stands at ``path``; one of questions where no file says otherwise.

    Raises
    ------
    DataError
        When there is no Parquet file at ``path``.
    """
    for file in parquet_files(Path(path)):
        try:
            found = pq.read_schema(file)
        except (pa.ArrowException, UnicodeDecodeError, OSError):
            continue  # said by whoever reads it
        stated = found.metadata or {}
        unstated_plan = QUESTIONS.key not in stated and {"task_id", "step"} <= {*found.names}
        if PLANS.key in stated or unstated_plan:
            return PLANS
    return QUESTIONS


def read_file(
    file: Path, wanted: Container[str], schema: TableSchema
) -> tuple[pa.Table, dict[str, Any]]:
    """The wanted columns of one file in the schema's types, and its run document.

    Raises
    ------
    DataError
        Naming the file: it is damaged, of another kind or newer, or a column has another type.
    """
    try:
        with pq.ParquetFile(file) as parquet:
            metadata = parquet.schema_arrow.metadata or {}
            _check_version(metadata, file, schema)
            present = [name for name in parquet.schema_arrow.names if name in wanted]
            table = parquet.read(columns=present, use_threads=True)
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        first_line = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"not a readable Parquet file, truncated or damaged: {first_line}", file=str(file)
        ) from error
    return coerce_table(table, str(file), schema), _run_document(metadata)


def _check_version(metadata: dict[bytes, bytes], file: Path, schema: TableSchema) -> None:
    stated = metadata.get(schema.key)
    key = schema.key.decode()
    if stated is None:
        for other in (QUESTIONS, PLANS):
            if other.key in metadata:
                raise DataError(
                    f"this is a {other.name} ({other.rows}), not a {schema.name} ({schema.rows}); "
                    f"'suffice traces validate' checks it and {other.reader} reads it",
                    file=str(file),
                )
        warnings.warn(
            f"{file} does not state {key}; read as version {schema.version}",
            SufficeWarning,
            stacklevel=6,
        )
        return
    try:
        version = int(stated)
    except ValueError:
        version = -1
    if version > schema.version:
        raise DataError(
            f"{schema.name} schema {version} is newer than {schema.version}, the newest this version reads; "
            "upgrade with: pip install -U suffice",
            file=str(file),
        )
    if version < 1:
        raise DataError(
            f"{key} is {stated!r}; it must be a version number from 1 to {schema.version}",
            file=str(file),
        )


def _run_document(metadata: dict[bytes, bytes]) -> dict[str, Any]:
    try:
        document = json.loads(metadata.get(RUN_KEY, b"{}"))
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


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

    def __init__(self, names: list[str], sizes: list[int]) -> None:
        self._names = names
        self._ends = np.cumsum(sizes)

    def error(self, problem: Problem) -> DataError:
        index = int(np.searchsorted(self._ends, problem.position, side="right"))
        before = int(self._ends[index - 1]) if index else 0
        return problem.error(self._names[index], problem.position - before)


def _warn_of_empty_gold(table: pa.Table, source: str) -> None:
    """``TraceSet.gold`` leaves them out; each question counts once."""
    if "gold_answers" not in table.column_names:
        return
    first = pc.equal(table.column("round"), 1)
    flat = pc.list_flatten(table.filter(first).column("gold_answers"))
    empty = pc.sum(pc.or_kleene(pc.is_null(flat), pc.equal(flat, ""))).as_py() or 0
    if empty:
        warnings.warn(
            f"{source}, column gold_answers: dropped {empty} empty gold answers",
            SufficeWarning,
            stacklevel=4,
        )


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


def count_failures(root: Path) -> int:
    """How many questions, or runs, a recorder could not finish."""
    file = failures_file(root)
    if not file.exists():
        return 0
    return sum(1 for line in file.read_bytes().splitlines() if line.strip())
