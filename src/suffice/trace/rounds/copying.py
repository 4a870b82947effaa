"""Writing the questions of trace sets again: what splitting, joining, narrowing and labelling them share.

Files are checked and copied one at a time, so that one is in memory and not all. Columns and metadata
that the schema does not know are kept. The result takes its place when all of it is written, or nothing does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from suffice.errors import DataError, UsageError
from suffice.trace.durable import replace_file, written_aside
from suffice.trace.lazy import in_memory
from suffice.trace.parquet import parquet_writer, part_name
from suffice.trace.reader import agreed, coerce_column
from suffice.trace.recording import failures_file, failures_of
from suffice.trace.rounds.labels import Labels
from suffice.trace.rounds.reader import FILE, Part, inspect_traces
from suffice.trace.rounds.schema import QUESTION_ROWS, SCHEMA
from suffice.trace.rounds.table import TraceSet

ATTRIBUTES = ("dataset", "model", "pipeline")
"""What tells records apart: entries of a run document, or columns of one's own."""
_KEPT = (
    "split",
    "group",
    "question_type",
    "gold_answers",
    "score",
    "propensity",
    "stopped_by",
    "policy_hash",
    *ATTRIBUTES,
)
_KNOWN = {column.name: column.type for column in SCHEMA}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A trace set that was written."""

    out: str
    questions: int
    rounds: int
    splits: Mapping[str, int]
    failures: int = 0
    notes: tuple[str, ...] = ()
    stays: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A checked trace set as it lies in its files; ``traces`` holds its keys, types, groups, splits and gold.

    ``labels`` lie beside the files: ``traces`` has them, the files have not.
    """

    traces: TraceSet
    parts: tuple[Part, ...]
    labels: Labels = field(default_factory=Labels)

    @classmethod
    def read(cls, path: str | Path, *, skip_invalid: bool = False) -> Source:
        """Check every file, one at a time."""
        inspection = inspect_traces(path, keep_unknown=True, kept=_KEPT)
        traces = inspection.valid(skip_invalid=skip_invalid)
        return cls(traces=traces, parts=inspection.parts, labels=inspection.labels)

    @property
    def name(self) -> str:
        """The path read."""
        return self.traces.origin.source

    def rows(self) -> pa.Table:
        """Those of every round, round 0 included."""
        both = (self.traces.table, self.traces.closed_book)
        return pa.concat_tables(map(in_memory, both))

    def as_written(self, notes: Sequence[str]) -> Written:
        """What it holds, where it lies."""
        return Written(
            out=self.name,
            questions=self.traces.n_questions,
            rounds=self.traces.table.num_rows,
            splits=self.traces.splits,
            notes=tuple(notes),
        )

    def attribute(self, name: str) -> tuple[str | None, ...]:
        """What a question's own column says, else the run document of its file; by question."""
        stated = [part.run.get(name) for part in self.parts]
        own = self.traces.of_questions(name)
        values = (
            stated[number] if value is None else value
            for value, number in zip(own, self.traces.of_questions(FILE), strict=True)
        )
        return tuple(None if value is None else str(value) for value in values)


_Change = Callable[[pa.Table, pa.ChunkedArray], pa.Table]


def _unchanged(table: pa.Table, _: pa.ChunkedArray) -> pa.Table:
    return table


@dataclass(frozen=True, slots=True)
class Copy:
    """The questions of the sources, file by file, to a new place."""

    sources: Sequence[Source]
    out: str | Path
    step: Mapping[str, Any]
    stated: Mapping[str, Any] = field(default_factory=dict)
    change: _Change = _unchanged
    fills: Sequence[str] = ()
    max_rounds: int | None = None

    def write(
        self, *, splits: Mapping[str, int], failures: bool = False, notes: Sequence[str] = ()
    ) -> Written:
        """Write all of it, or nothing."""
        target = Path(self.out)
        self._refuse_inside(target)
        parts = [part for source in self.sources for part in source.parts]
        runs = list({json.dumps(part.run, sort_keys=True): part.run for part in parts}.values())
        apart = _told_apart(parts)
        filled = [name for source in self.sources for name in source.labels.columns()]
        added = {name: _KNOWN[name] for name in (*filled, *self.fills)}
        added |= dict.fromkeys(apart, pa.string())
        schema = _joint_schema(parts, added, self._metadata(parts, runs))
        rounds = 0
        with written_aside(target) as aside:
            with _writer(aside, schema, single=target.suffix == ".parquet") as put:
                for table in self._tables(apart):
                    put(_in_schema(table, schema))
                    rounds += pc.sum(pc.greater(_rounds(table), 0)).as_py() or 0
            carried = self._failures(aside) if failures and aside.is_dir() else 0
        if failures and target.suffix == ".parquet":
            carried = self._failures(target)
        questions = sum(source.traces.n_questions for source in self.sources)
        return Written(
            out=str(target),
            questions=questions,
            rounds=rounds,
            splits=dict(splits),
            failures=carried,
            notes=(*notes, *self._notes(runs, questions, splits)),
        )

    def _refuse_inside(self, target: Path) -> None:
        for source in self.sources:
            if (
                Path(source.name).is_dir()
                and target.resolve().parent == Path(source.name).resolve()
            ):
                raise UsageError(
                    f"{target} would become a part of {source.name}; choose another --out"
                )

    def _metadata(
        self, parts: Sequence[Part], runs: Sequence[Mapping[str, Any]]
    ) -> dict[bytes, bytes]:
        """What all files say alike, and the run document with what was done."""
        run = agreed(runs)
        done = run.get("derived")
        run |= {
            **self.stated,
            "derived": [*(done if isinstance(done, list) else []), dict(self.step)],
        }
        if len(runs) > 1:
            run["runs"] = [dict(each) for each in runs]
        foreign = agreed([part.stored.metadata or {} for part in parts])
        return {**foreign, **(QUESTION_ROWS.stamped(run).metadata or {})}

    def _tables(self, apart: Collection[str]) -> Iterator[pa.Table]:
        """The rows to write, a file at a time."""
        for source in self.sources:
            ids = pa.array(source.traces.question_ids, pa.string())
            for part in source.parts:
                table = part.read()
                which = _as(table, "question_id")
                kept = pc.is_in(which, value_set=ids)
                if self.max_rounds is not None:
                    kept = pc.and_(kept, pc.less_equal(_rounds(table), self.max_rounds))
                table = source.labels.onto(table.filter(kept))
                table = self.change(table, which.filter(kept))
                for name in apart:
                    if name not in table.column_names and part.run.get(name) is not None:
                        value = pa.scalar(str(part.run[name]), pa.string())
                        table = table.append_column(name, pa.repeat(value, table.num_rows))
                if table.num_rows:
                    yield table

    def _failures(self, root: Path) -> int:
        """Note there what the recorders of the sources could not finish."""
        finished = {name for source in self.sources for name in source.traces.question_ids}
        failed: dict[str, tuple[str, int]] = {}
        for source in self.sources:
            failed = failures_of(Path(source.name)) | failed
        lines = [
            json.dumps({"question_id": name, "reason": reason, "attempts": attempts})
            for name, (reason, attempts) in failed.items()
            if name not in finished
        ]
        if lines:
            replace_file(failures_file(root), "".join(f"{line}\n" for line in lines).encode())
        return len(lines)

    def _notes(
        self, runs: Sequence[Mapping[str, Any]], questions: int, splits: Mapping[str, int]
    ) -> Iterator[str]:
        skipped = sum(len(source.traces.origin.skipped) for source in self.sources)
        if skipped:
            yield f"{skipped} invalid parts were skipped"
        for name in ATTRIBUTES:
            values = dict.fromkeys(str(run[name]) for run in runs if name in run)
            if len(values) > 1:
                yield f"they differ in {name}: {', '.join(values)} (now the column {name!r})"
        without = questions - sum(splits.values())
        if splits and without:
            yield f"{without} of {questions} questions have no split"


def _rounds(table: pa.Table) -> pa.ChunkedArray:
    return _as(table, "round")


def _as(table: pa.Table, name: str) -> pa.ChunkedArray:
    """A column of the schema in the schema's type."""
    return coerce_column(table.column(name), _KNOWN[name])


def _told_apart(parts: Sequence[Part]) -> tuple[str, ...]:
    """The attributes for which questions need a column, since their files' run documents differ."""
    return tuple(
        name
        for name in ATTRIBUTES
        if len({str(part.run.get(name)) for part in parts}) > 1
        and all(
            pa.types.is_string(part.stored.field(name).type)
            for part in parts
            if name in part.stored.names
        )
    )


def _joint_schema(
    parts: Sequence[Part], added: Mapping[str, pa.DataType], metadata: Mapping[bytes, bytes]
) -> pa.Schema:
    """A type for every column that any of the files has, and for those that are added."""
    types: dict[str, dict[pa.DataType, None]] = {}
    for part in parts:
        for column in part.stored:
            types.setdefault(column.name, {})[column.type] = None
    for name, kind in added.items():
        types[name] = {kind: None}
    columns = [(name, _joint_type(name, list(kinds))) for name, kinds in types.items()]
    return pa.schema(columns, metadata=dict(metadata))


def _joint_type(name: str, kinds: Sequence[pa.DataType]) -> pa.DataType:
    if len(kinds) == 1:
        return kinds[0]
    try:
        schemas = [pa.schema([(name, kind)]) for kind in kinds]
        return pa.unify_schemas(schemas, promote_options="permissive").field(name).type
    except pa.ArrowException as error:
        if name in _KNOWN:
            return _KNOWN[name]
        raise DataError(
            f"the files disagree on a column the schema does not know: {error}", column=name
        ) from error


def _in_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    columns = []
    for column in schema:
        if column.name not in table.column_names:
            columns.append(pa.nulls(table.num_rows, column.type))
            continue
        cells = table.column(column.name)
        if cells.type != column.type:
            cells = _cast(cells, column.type)
        columns.append(cells)
    return pa.table(columns, schema=schema)


def _cast(cells: pa.ChunkedArray, target: pa.DataType) -> pa.ChunkedArray:
    try:
        both = [pa.table({"x": pa.nulls(0, target)}), pa.table({"x": cells})]
        return pa.concat_tables(both, promote_options="permissive").column("x").cast(target)
    except pa.ArrowException:
        return coerce_column(cells, target)


@contextmanager
def _writer(
    aside: Path, schema: pa.Schema, *, single: bool
) -> Iterator[Callable[[pa.Table], None]]:
    """Takes tables: parts of one file, or each a file of a directory."""
    if single:
        with parquet_writer(aside, schema) as sink:
            yield sink.write_table
        return
    aside.mkdir()
    numbers = count()

    def put(table: pa.Table) -> None:
        with parquet_writer(aside / part_name(next(numbers)), table.schema) as sink:
            sink.write_table(table)

    yield put
