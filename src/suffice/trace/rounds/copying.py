"""Writing the questions of trace sets again: what splitting, joining, narrowing and labelling them share.

Files are checked and copied one at a time, so that one is in memory and not all. Columns and metadata
that the schema does not know are kept. The result takes its place when all of it is written, or nothing does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suffice.errors import DataError, UsageError
from suffice.trace.durable import replace_file, written_aside
from suffice.trace.parquet import parquet_writer, part_name
from suffice.trace.reader import StoredFile, agreed, coerce_column
from suffice.trace.recording import failures_file, failures_of
from suffice.trace.rounds.reader import ATTRIBUTES, TraceInspection, inspect_traces
from suffice.trace.rounds.schema import QUESTION_ROWS, SCHEMA
from suffice.trace.rounds.table import TraceSet

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

    @classmethod
    def of(cls, traces: TraceSet, out: str | Path, **more: Any) -> Written:
        """That of all of a trace set."""
        rounds, splits = int(traces.last_rounds.sum()), traces.splits
        return cls(out=str(out), questions=traces.n_questions, rounds=rounds, splits=splits, **more)


def read_source(path: str | Path, *, skip_invalid: bool = False) -> TraceInspection:
    """Check every file of a set, one at a time; held are the columns that say what a question is."""
    inspection = inspect_traces(path, keep_unknown=True, kept=_KEPT)
    inspection.valid(skip_invalid=skip_invalid)
    return inspection


Change = Callable[[pa.Table, pa.ChunkedArray], pa.Table]


def write_copy(
    sources: Sequence[TraceInspection],
    out: str | Path,
    *,
    step: Mapping[str, Any],
    splits: Mapping[str, int] | None = None,
    stated: Mapping[str, Any] | None = None,
    change: Change = lambda table, _: table,
    fills: Sequence[str] = (),
    max_rounds: int | None = None,
    failures: bool = False,
    notes: Sequence[str] = (),
) -> Written:
    """Write the questions of the sources, file by file, to a new place: all of it, or nothing.

    ``change`` is given rows and their question ids; ``fills`` are the columns of the schema that it adds.
    ``step`` and ``stated`` go into the run document. ``splits`` are those that it makes.
    """
    target = Path(out)
    for source in sources:
        place = Path(source.name)
        if place.is_dir() and target.resolve().parent == place.resolve():
            raise UsageError(f"{target} would become a part of {place}; choose another --out")
    parts = [part for source in sources for part in source.parts]
    runs = list({json.dumps(part.run, sort_keys=True): part.run for part in parts}.values())
    apart = _told_apart(parts)
    filled = [name for source in sources for name in source.labels.columns()]
    added = {name: _KNOWN[name] for name in (*filled, *fills)} | dict.fromkeys(apart, pa.string())
    schema = _joint_schema(parts, added).with_metadata(_metadata(parts, runs, step, stated or {}))
    tables = (_in_schema(one, schema) for one in _tables(sources, apart, change, max_rounds))
    carried = 0
    with written_aside(target) as aside:
        _write(tables, aside, schema, single=target.suffix == ".parquet")
        if failures and aside.is_dir():
            carried = _carry_failures(sources, aside)
    if failures and target.suffix == ".parquet":
        carried = _carry_failures(sources, target)
    questions = sum(source.traces.n_questions for source in sources)
    splits = splits or sum((Counter(source.traces.splits) for source in sources), Counter[str]())
    last = np.concatenate([source.traces.last_rounds for source in sources])
    return Written(
        out=str(target),
        questions=questions,
        rounds=int(np.minimum(last, max_rounds or last).sum()),
        splits=dict(splits),
        failures=carried,
        notes=(*notes, *_notes(sources, runs, questions, splits)),
    )


def _metadata(
    parts: Sequence[StoredFile],
    runs: Sequence[Mapping[str, Any]],
    step: Mapping[str, Any],
    stated: Mapping[str, Any],
) -> dict[bytes, bytes]:
    """What all files say alike, and the run document with what was done."""
    run = agreed(runs)
    done = run.get("derived")
    run |= {**stated, "derived": [*(done if isinstance(done, list) else []), dict(step)]}
    if len(runs) > 1:
        run["runs"] = [dict(each) for each in runs]
    foreign = agreed([part.stored.metadata or {} for part in parts])
    return {**foreign, **(QUESTION_ROWS.stamped(run).metadata or {})}


def _tables(
    sources: Sequence[TraceInspection],
    apart: Collection[str],
    change: Change,
    max_rounds: int | None,
) -> Iterator[pa.Table]:
    """The rows to write, a file at a time."""
    for source in sources:
        ids = pa.array(source.traces.question_ids, pa.string())
        for part in source.parts:
            table = part.as_stored()
            which = coerce_column(table.column("question_id"), pa.string())
            kept = pc.is_in(which, value_set=ids)
            if max_rounds is not None:
                rounds = coerce_column(table.column("round"), _KNOWN["round"])
                kept = pc.and_(kept, pc.less_equal(rounds, max_rounds))
            table = change(source.labels.onto(table.filter(kept)), which.filter(kept))
            for name in apart:
                if name not in table.column_names and part.run.get(name) is not None:
                    value = pa.scalar(str(part.run[name]), pa.string())
                    table = table.append_column(name, pa.repeat(value, table.num_rows))
            if table.num_rows:
                yield table


def _write(tables: Iterable[pa.Table], aside: Path, schema: pa.Schema, *, single: bool) -> None:
    """As parts of one file, or each as a file of a directory."""
    if single:
        with parquet_writer(aside, schema) as sink:
            for table in tables:
                sink.write_table(table)
        return
    aside.mkdir()
    for number, table in enumerate(tables):
        with parquet_writer(aside / part_name(number), schema) as sink:
            sink.write_table(table)


def _carry_failures(sources: Sequence[TraceInspection], root: Path) -> int:
    """Note there what the recorders of the sources could not finish."""
    finished = {name for source in sources for name in source.traces.question_ids}
    failed: dict[str, tuple[str, int]] = {}
    for source in sources:
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
    sources: Sequence[TraceInspection],
    runs: Sequence[Mapping[str, Any]],
    questions: int,
    splits: Mapping[str, int],
) -> Iterator[str]:
    skipped = sum(len(source.errors) for source in sources)
    if skipped:
        yield f"{skipped} invalid parts were skipped"
    for name in ATTRIBUTES:
        values = dict.fromkeys(str(run[name]) for run in runs if name in run)
        if len(values) > 1:
            yield f"they differ in {name}: {', '.join(values)} (now the column {name!r})"
    without = questions - sum(splits.values())
    if splits and without:
        yield f"{without} of {questions} questions have no split"


def _told_apart(parts: Sequence[StoredFile]) -> tuple[str, ...]:
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


def _joint_schema(parts: Sequence[StoredFile], added: Mapping[str, pa.DataType]) -> pa.Schema:
    """Every column of the files in its own type, in the schema's where they differ, and those added."""
    types: dict[str, dict[pa.DataType, None]] = {}
    for part in parts:
        for column in part.stored:
            types.setdefault(column.name, {})[column.type] = None
    types |= {name: {kind: None} for name, kind in added.items()}
    types |= {
        name: {_KNOWN[name]: None} for name in types if name in _KNOWN and len(types[name]) > 1
    }
    each = [pa.schema([(name, kind)]) for name, kinds in types.items() for kind in kinds]
    try:
        return pa.unify_schemas(each, promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(
            f"the files disagree on a column the schema does not know: {error}"
        ) from error


def _in_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    for name in {*table.column_names} & {*_KNOWN}:
        cells = coerce_column(table.column(name), schema.field(name).type)
        table = table.set_column(table.column_names.index(name), name, cells)
    whole = pa.concat_tables([schema.empty_table(), table], promote_options="permissive")
    return whole.select(schema.names).cast(schema)
