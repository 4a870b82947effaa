"""Trace sets made of trace sets: split by a seed, joined, narrowed.

Files are checked and copied one at a time, so that one is in memory and not all. Columns and metadata
that the schema does not know are kept. The result takes its place when all of it is written, or nothing does.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError, did_you_mean
from suffice.options import Option
from suffice.trace.durable import FailureFile, check_free, written_aside
from suffice.trace.reader import agreed, coerce_column
from suffice.trace.rounds.reader import FILE, Part, inspect_traces, read_traces
from suffice.trace.rounds.records import sampled_ids
from suffice.trace.rounds.schema import SCHEMA
from suffice.trace.rounds.table import TraceSet
from suffice.trace.rounds.writer import QUESTION_ROWS
from suffice.trace.writer import shard_name

ATTRIBUTES = ("dataset", "model", "pipeline")
"""What tells records apart: entries of a run document, or columns of one's own."""
_KEPT = (
    "split",
    "question_type",
    "gold_answers",
    "propensity",
    "stopped_by",
    "policy_hash",
    *ATTRIBUTES,
)
_KNOWN = {column.name: column.type for column in SCHEMA}


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A trace set that was written.

    Parameters
    ----------
    out
        Where.
    questions, rounds
        How many; round 0 is not counted.
    splits
        Questions by split; those without one are left out.
    failures
        Questions a recorder could not finish, carried over.
    notes
        Sentences to know.
    """

    out: str
    questions: int
    rounds: int
    splits: Mapping[str, int]
    failures: int = 0
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A checked trace set as it lies in its files; ``traces`` holds its keys, types, splits and gold."""

    traces: TraceSet
    parts: tuple[Part, ...]

    @classmethod
    def read(cls, path: str | Path, *, skip_invalid: bool = False) -> Source:
        """Check every file, one at a time.

        Raises
        ------
        DataError
            As :func:`~suffice.read_traces`.
        """
        inspection = inspect_traces(path, keep_unknown=True, kept=_KEPT)
        return cls(traces=inspection.valid(skip_invalid=skip_invalid), parts=inspection.parts)

    @property
    def name(self) -> str:
        """The path read."""
        return self.traces.origin.source

    def attribute(self, name: str) -> tuple[str | None, ...]:
        """What a question's own column says, else the run document of its file; by question."""
        stated = [part.run.get(name) for part in self.parts]
        own = self.traces.of_questions(name)
        values = (
            stated[number] if value is None else value
            for value, number in zip(own, self.traces.of_questions(FILE), strict=True)
        )
        return tuple(None if value is None else str(value) for value in values)


# --- split ----------------------------------------------------------------------------------------
def split_traces(
    source: str | Path,
    out: str | Path,
    shares: Mapping[str, float] | None = None,
    *,
    seed: int = 42,
    replace_splits: bool = False,
    skip_invalid: bool = False,
) -> Written:
    """Write the trace set again with a split drawn by the seed for every question.

    Questions of each data set and type take their shares to within about one question.

    Parameters
    ----------
    source
        A Parquet file or a directory of them; left as it is.
    out
        A ``.parquet`` file or a directory, neither of which may be there yet.
    shares
        By name, summing to 1; default: 0.4 tune, 0.6 eval.
    seed
        Of the draw.
    replace_splits
        Draw anew where questions have a split already.
    skip_invalid
        Leave out invalid files and questions.

    Raises
    ------
    DataError
        For an invalid trace set.
    UsageError
        For shares that do not sum to 1, questions that have a split, or a place that is taken.
    """
    shares = {"tune": 0.4, "eval": 0.6} if shares is None else dict(shares)
    _check_shares(shares, f"the shares {shares}")
    check_free(Path(out))
    read = Source.read(source, skip_invalid=skip_invalid)
    there = read.traces.splits
    if there and not replace_splits:
        held = ", ".join(f"{name} ({questions})" for name, questions in there.items())
        raise UsageError(
            f"{read.name} has splits already: {held}; use them, or draw anew with --replace "
            "(replace_splits=True)"
        )
    ids = read.traces.question_ids
    datasets, types = read.attribute("dataset"), read.traces.of_questions("question_type")
    order = sorted(range(len(ids)), key=lambda i: (datasets[i] or "", types[i] or "", ids[i]))
    labels = [""] * len(ids)
    for index, label in zip(order, assign_splits(len(ids), shares, seed=seed), strict=True):
        labels[index] = label
    step = {"by": "split", "from": read.name, "splits": shares, "seed": seed}

    def labelled(table: pa.Table, which: pa.ChunkedArray) -> pa.Table:
        cells = pa.chunked_array([pa.array(labels, pa.string())]).take(
            pc.index_in(which, pa.array(ids))
        )
        if "split" in table.column_names:
            return table.set_column(table.column_names.index("split"), "split", cells)
        return table.append_column("split", cells)

    copy = _Copy(
        [read], out, step=step, stated={"splits": shares, "split_seed": seed}, change=labelled
    )
    counts = {name: labels.count(name) for name in shares}
    return copy.write(splits=counts, failures=True)


def _check_shares(shares: Mapping[str, float], said: str) -> None:
    total = sum(shares.values())
    if abs(total - 1.0) > 1e-9 or not all(share >= 0.0 for share in shares.values()):
        raise UsageError(f"{said}: the shares sum to {total:g}, not to 1")


def parse_splits(text: str) -> dict[str, float]:
    """``tune=0.4,eval=0.6`` as shares that sum to 1.

    >>> parse_splits("tune=0.4,eval=0.6")
    {'tune': 0.4, 'eval': 0.6}
    """
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.partition("=")
        try:
            value = float(share)
        except ValueError:
            value = -1.0
        if not name.strip() or not 0.0 <= value <= 1.0 or name.strip() in shares:
            raise UsageError(f"--splits {text!r}: expected name=share,..., as in tune=0.4,eval=0.6")
        shares[name.strip()] = value
    _check_shares(shares, f"--splits {text!r}")
    return shares


def assign_splits(count: int, shares: Mapping[str, float], *, seed: int) -> list[str]:
    """A split for each of the first ``count`` questions, in order.

    Each goes to the split furthest behind its share, with a seeded disturbance so that the pattern
    cannot fall in step with the data's own. Every prefix holds each share to within about one
    question, and the first assignments do not depend on how many follow.
    """
    names = list(shares)
    targets = np.array([shares[name] for name in names])
    taken = np.zeros(len(names))
    disturbance = np.random.default_rng(seed).uniform(-0.5, 0.5, size=(count, len(names)))
    assigned: list[str] = []
    for number in range(count):
        behind = targets * (number + 1) - taken + disturbance[number]
        pick = int(np.where(targets > 0, behind, -np.inf).argmax())
        taken[pick] += 1
        assigned.append(names[pick])
    return assigned


# --- join -----------------------------------------------------------------------------------------
def merge_traces(
    sources: Sequence[str | Path], out: str | Path, *, skip_invalid: bool = False
) -> Written:
    """Write the questions of several trace sets as one.

    Entries on which their run documents differ are kept under ``runs``; where they differ in data set, model
    or pipeline, columns of these names say which a question is of.

    Parameters
    ----------
    sources
        Parquet files or directories of them; left as they are.
    out
        A ``.parquet`` file or a directory, neither of which may be there yet.
    skip_invalid
        Leave out invalid files and questions.

    Raises
    ------
    DataError
        For an invalid trace set, or columns of one's own whose types do not go together.
    UsageError
        For a question that two of them hold, fewer than two sources, or a place that is taken.
    """
    if isinstance(sources, str | Path) or len(sources) < 2:
        raise UsageError(f"name at least two trace sets to join, found {sources!r}")
    check_free(Path(out))
    read = [Source.read(source, skip_invalid=skip_invalid) for source in sources]
    _refuse_repeated(read)
    step = {"by": "merge", "from": [source.name for source in read]}
    splits = sum((Counter(source.traces.splits) for source in read), Counter[str]())
    return _Copy(read, out, step=step).write(splits=splits, failures=True)


def _refuse_repeated(sources: Sequence[Source]) -> None:
    """A question is recorded once in a trace set."""
    held: dict[str, str] = {}
    repeated: dict[str, tuple[str, str]] = {}
    for source in sources:
        for name in source.traces.question_ids:
            if name in held:
                repeated[name] = (held[name], source.name)
            held[name] = source.name
    if repeated:
        name, (first, second) = next(iter(repeated.items()))
        raise UsageError(
            f"{len(repeated)} questions are in more than one of them, the first {name!r} in {first} and "
            f"{second}; compare such records side by side with: suffice replay {first} {second} --policy P, "
            f"or leave them out of one: suffice traces filter {second} --without {first} --out NEW"
        )


# --- narrow ---------------------------------------------------------------------------------------
def _names(meaning: str) -> Option:
    return Option(
        help=f"only questions of {meaning}; may be given several times",
        metavar="NAME",
        repeats=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFilter:
    """Which questions and rounds to keep; all conditions hold together.

    Parameters
    ----------
    split, type, dataset, model, pipeline
        Names, one or several. The last three are read from a column of that name, else from the run document
        of the file.
    ids, without
        Questions to keep, or to leave out: their ids, or a path to a text file with one a line or to another
        trace set.
    labelled
        Only questions with gold answers.
    min_rounds
        Only questions recorded to at least this round.
    max_rounds
        Only the rounds up to this one.
    sample, seed
        So many of the questions left, drawn by the seed.
    """

    split: Annotated[tuple[str, ...], _names("this split")] = ()
    type: Annotated[tuple[str, ...], _names("this type (column question_type)")] = ()
    dataset: Annotated[tuple[str, ...], _names("this data set")] = ()
    model: Annotated[tuple[str, ...], _names("this model")] = ()
    pipeline: Annotated[tuple[str, ...], _names("this loop")] = ()
    ids: Annotated[
        str | Sequence[str] | None,
        Option(
            help="only these questions: a text file with one id a line, or another trace set",
            metavar="FILE",
            parse=str,
        ),
    ] = None
    without: Annotated[
        str | Sequence[str] | None,
        Option(help="leave out these questions, named in the same way", metavar="FILE", parse=str),
    ] = None
    labelled: Annotated[bool, Option(help="only questions with gold answers")] = False
    min_rounds: Annotated[
        int | None,
        Option(help="only questions recorded to at least round R", metavar="R", at_least=1),
    ] = None
    max_rounds: Annotated[
        int | None, Option(help="only rounds up to R", metavar="R", at_least=1)
    ] = None
    sample: Annotated[
        int | None,
        Option(help="only N of the questions left, drawn by --seed", metavar="N", at_least=1),
    ] = None
    seed: Annotated[int, Option(help="of --sample", at_least=0)] = 42

    def __post_init__(self) -> None:
        for name in ("split", "type", *ATTRIBUTES):
            value = getattr(self, name)
            object.__setattr__(self, name, (value,) if isinstance(value, str) else tuple(value))

    def stated(self) -> dict[str, Any]:
        """The conditions that were given, as JSON holds them."""
        told: dict[str, Any] = {}
        for condition in fields(self):
            value = getattr(self, condition.name)
            if value != condition.default and condition.name != "seed":
                told[condition.name] = value if isinstance(value, int | str) else list(value)
        return told | ({"seed": self.seed} if self.sample is not None else {})


def filter_traces(
    source: str | Path, out: str | Path, keep: TraceFilter, *, skip_invalid: bool = False
) -> Written:
    """Write the part of a trace set that the conditions leave.

    Parameters
    ----------
    source
        A Parquet file or a directory of them; left as it is.
    out
        A ``.parquet`` file or a directory, neither of which may be there yet.
    keep
        The conditions.
    skip_invalid
        Leave out invalid files and questions.

    Raises
    ------
    DataError
        For an invalid trace set, a name that no question has, or when nothing is left.
    UsageError
        Without a condition, or for a place that is taken.
    """
    if not keep.stated():
        options = ", ".join(f"--{option.name.replace('_', '-')}" for option in fields(keep))
        raise UsageError(f"name what to keep: {options}")
    check_free(Path(out))
    read = Source.read(source, skip_invalid=skip_invalid)
    chosen, notes = _chosen(read, keep)
    narrowed = Source(traces=read.traces.take(chosen), parts=read.parts)
    stated: dict[str, Any] = {}
    rounds = agreed([part.run for part in read.parts]).get("rounds")
    if keep.max_rounds is not None and isinstance(rounds, int):
        stated["rounds"] = min(rounds, keep.max_rounds)
    step = {"by": "filter", "from": read.name, **keep.stated()}
    copy = _Copy([narrowed], out, step=step, stated=stated, max_rounds=keep.max_rounds)
    return copy.write(splits=narrowed.traces.splits, notes=notes)


def _chosen(source: Source, keep: TraceFilter) -> tuple[NDArray[np.bool_], list[str]]:
    """Which questions meet the conditions, (n_questions,), and what to know of it."""
    traces = source.traces
    ids = np.array(traces.question_ids, object)
    chosen = np.ones(len(ids), bool)
    notes: list[str] = []
    for name in ("split", "type", *ATTRIBUTES):
        wanted = getattr(keep, name)
        if wanted:
            chosen &= _named(source, name, wanted)
    for path, stays in ((keep.ids, True), (keep.without, False)):
        if path is not None:
            listed = frozenset(read_ids(path))
            absent = sorted(listed.difference(traces.question_ids))
            if absent:
                notes.append(
                    f"{len(absent)} of {len(listed)} ids are not recorded, the first {absent[0]!r}"
                )
            chosen &= np.array([(name in listed) == stays for name in ids], bool)
    if keep.labelled:
        chosen &= np.array([bool(gold.answers) for gold in traces.gold], bool)
    if keep.min_rounds is not None:
        chosen &= traces.last_rounds >= keep.min_rounds
    if not chosen.any():
        conditions = ", ".join(f"{name} {value}" for name, value in keep.stated().items())
        raise DataError(
            f"none of {traces.n_questions} questions meets all conditions: {conditions}; "
            f"what there is: suffice traces info {source.name}",
            file=source.name,
        )
    if keep.sample is not None:
        drawn = frozenset(sampled_ids(ids[chosen], keep.sample, seed=keep.seed))
        chosen &= np.array([name in drawn for name in ids], bool)
    return chosen, notes


def _named(source: Source, name: str, wanted: Sequence[str]) -> NDArray[np.bool_]:
    """The questions whose value is among those wanted, each of which some question has."""
    values: Sequence[str | None]
    if name in ATTRIBUTES:
        values = source.attribute(name)
    else:
        values = source.traces.of_questions("question_type" if name == "type" else name)
    there = sorted({value for value in values if value})
    for value in wanted:
        if value not in there:
            raise DataError(
                f"no question is of {name} {value!r}; found: {', '.join(there) or 'none'}"
                f"{did_you_mean(value, there)}",
                file=source.name,
            )
    return np.array([value in wanted for value in values], bool)


def read_ids(ids: str | Path | Iterable[str]) -> tuple[str, ...]:
    """Question ids: as given, of a text file with one a line, or of a trace set.

    Raises
    ------
    DataError
        When the file cannot be read or names none.
    """
    if not isinstance(ids, str | Path):
        return tuple(ids)
    path = Path(ids)
    if path.is_dir() or path.suffix == ".parquet":
        return read_traces(path, columns=()).question_ids
    try:
        lines = [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot be read: {error}; name a text file with one question id a line, or a trace set",
            file=str(path),
        ) from error
    found = tuple(line for line in lines if line)
    if not found:
        raise DataError("names no question; write one id a line", file=str(path))
    return found


# --- copying --------------------------------------------------------------------------------------
_Change = Callable[[pa.Table, pa.ChunkedArray], pa.Table]


def _unchanged(table: pa.Table, _: pa.ChunkedArray) -> pa.Table:
    return table


@dataclass(frozen=True, slots=True)
class _Copy:
    """The questions of the sources, file by file, to a new place.

    Parameters
    ----------
    sources
        Their ``traces`` say which questions are copied.
    out
        Where to.
    step
        What is done, for the run document.
    stated
        Its entries that are stated anew.
    change
        Of a file's rows and their question ids gives the rows to write.
    max_rounds
        Later rounds are left out.
    """

    sources: Sequence[Source]
    out: str | Path
    step: Mapping[str, Any]
    stated: Mapping[str, Any] = field(default_factory=dict)
    change: _Change = _unchanged
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
        schema = _joint_schema(parts, apart, self._metadata(parts, runs))
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
                with pq.ParquetFile(part.file) as file:
                    table = file.read(columns=part.stored.names)
                which = _as(table, "question_id")
                kept = pc.is_in(which, value_set=ids)
                if self.max_rounds is not None:
                    kept = pc.and_(kept, pc.less_equal(_rounds(table), self.max_rounds))
                table = self.change(table.filter(kept), which.filter(kept))
                for name in apart:
                    if name not in table.column_names and part.run.get(name) is not None:
                        value = pa.scalar(str(part.run[name]), pa.string())
                        table = table.append_column(name, pa.repeat(value, table.num_rows))
                if table.num_rows:
                    yield table

    def _failures(self, root: Path) -> int:
        """Note there what the recorders of the sources could not finish."""
        finished = {(name,) for source in self.sources for name in source.traces.question_ids}
        there = FailureFile(root)
        for source in self.sources:
            there.take_over(FailureFile(Path(source.name)), finished)
        return len(there.keys)

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
    parts: Sequence[Part], apart: Iterable[str], metadata: Mapping[bytes, bytes]
) -> pa.Schema:
    """A type for every column that any of the files has."""
    types: dict[str, dict[pa.DataType, None]] = {}
    for part in parts:
        for column in part.stored:
            types.setdefault(column.name, {})[column.type] = None
    for name in apart:
        types.setdefault(name, {pa.string(): None})
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
        with pq.ParquetWriter(aside, schema, compression="zstd") as writer:
            yield writer.write_table
        return
    aside.mkdir()
    numbers = count()

    def put(table: pa.Table) -> None:
        pq.write_table(table, aside / shard_name(next(numbers)), compression="zstd")

    yield put
