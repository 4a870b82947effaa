"""Trace sets made of trace sets: split by a seed, joined, narrowed to questions and rounds."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError, did_you_mean, plain_file
from suffice.options import Option, as_share
from suffice.trace.durable import check_free, written_aside
from suffice.trace.parquet import parquet_writer, part_name
from suffice.trace.rounds.labels import labelled
from suffice.trace.rounds.reader import ATTRIBUTES, TraceInspection, inspect_traces, read_traces
from suffice.trace.rounds.records import sampled_ids
from suffice.trace.rounds.schema import QUESTION_ROWS, SCHEMA
from suffice.trace.rounds.trace_set import TraceSet, unit_keys, with_column
from suffice.trace.stored_file import StoredFile, agreed


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
    read = read_source(source, skip_invalid=skip_invalid)
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
    labels, units = [""] * len(ids), unit_keys(read.traces)
    for index, label in zip(order, assign_splits(units[order], shares, seed=seed), strict=True):
        labels[index] = label
    step = {"by": "split", "from": Path(read.name).name, "splits": shares, "seed": seed}

    def labelled(table: pa.Table) -> pa.Table:
        places = pc.index_in(table.column("question_id"), pa.array(ids))
        cells = pa.chunked_array([pa.array(labels, pa.string())]).take(places)
        return with_column(table, "split", cells)

    return write_copy(
        [read],
        out,
        step=step,
        splits={name: labels.count(name) for name in shares},
        stated={"splits": shares, "split_seed": seed},
        change=labelled,
        fills=("split",),
    )


def _check_shares(shares: Mapping[str, float], said: str) -> None:
    total = sum(shares.values())
    if abs(total - 1.0) > 1e-9 or not all(share >= 0.0 for share in shares.values()):
        raise UsageError(f"{said}: the shares sum to {total:g}, not to 1")


def parse_splits(text: str) -> dict[str, float]:
    """``tune=0.4,eval=60%`` as shares that sum to 1."""
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = (word.strip() for word in part.partition("="))
        if not name or not share or name in shares:
            raise UsageError(f"--splits {text!r}: expected name=share,..., as in tune=0.4,eval=60%")
        shares[name] = as_share(share, f"--splits: the share of {name}")
    _check_shares(shares, f"--splits {text!r}")
    return shares


def assign_splits(
    units: Iterable[Hashable], shares: Mapping[str, float], *, seed: int
) -> list[str]:
    """A split for each of the first questions, in order, given their units: one has one split."""
    units = list(units)
    sizes, names, targets = Counter(units), list(shares), list(shares.values())
    taken = [0] * len(names)
    disturbance = np.random.default_rng(seed).uniform(-0.5, 0.5, size=(len(sizes), len(names)))
    assigned: dict[Hashable, str] = {}
    for (unit, size), number, by in zip(
        sizes.items(), accumulate(sizes.values()), disturbance.tolist(), strict=True
    ):
        behind = [
            share * number - had + disturbed if share > 0 else -math.inf
            for share, had, disturbed in zip(targets, taken, by, strict=True)
        ]
        pick = behind.index(max(behind))
        taken[pick] += size
        assigned[unit] = names[pick]
    return [assigned[unit] for unit in units]


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
    read = [read_source(source, skip_invalid=skip_invalid) for source in sources]
    held: dict[str, str] = {}
    repeated: dict[str, tuple[str, str]] = {}
    for source in read:
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
    step = {"by": "merge", "from": [Path(source.name).name for source in read]}
    return write_copy(read, out, step=step)


# --- written again --------------------------------------------------------------------------------
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


Change = Callable[[pa.Table], pa.Table]


def write_copy(
    sources: Sequence[TraceInspection],
    out: str | Path,
    *,
    step: Mapping[str, Any],
    splits: Mapping[str, int] | None = None,
    stated: Mapping[str, Any] | None = None,
    change: Change = lambda table: table,
    fills: Sequence[str] = (),
    max_rounds: int | None = None,
    notes: Sequence[str] = (),
) -> Written:
    """Write the questions of the sources, file by file, to a new place: all of it, or nothing."""
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
    run = agreed(runs)
    done = run.get("derived")
    run |= {**(stated or {}), "derived": [*(done if isinstance(done, list) else []), dict(step)]}
    if len(runs) > 1:
        run["runs"] = runs
    foreign = agreed([part.stored.metadata or {} for part in parts])
    metadata = {**foreign, **(QUESTION_ROWS.stamped(run).metadata or {})}
    schema = _joint_schema(parts, added).with_metadata(metadata)
    tables = (_in_schema(one, schema) for one in _tables(sources, apart, change, max_rounds))
    with written_aside(target) as aside:
        if target.suffix == ".parquet":  # parts of one file, else each a file of a directory
            with parquet_writer(aside, schema) as sink:
                for table in tables:
                    sink.write_table(table)
        else:
            aside.mkdir()
            for number, table in enumerate(tables):
                with parquet_writer(aside / part_name(number), schema) as sink:
                    sink.write_table(table)
    questions = sum(source.traces.n_questions for source in sources)
    splits = splits or sum((Counter(source.traces.splits) for source in sources), Counter[str]())
    last = np.concatenate([source.traces.last_rounds for source in sources])
    return Written(
        out=str(target),
        questions=questions,
        rounds=int(np.minimum(last, max_rounds or last).sum()),
        splits=dict(splits),
        notes=(*notes, *_notes(sources, runs, questions, splits)),
    )


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
            table = part.whole()
            kept = pc.is_in(table.column("question_id"), value_set=ids)
            if max_rounds is not None:
                kept = pc.and_(kept, pc.less_equal(table.column("round"), max_rounds))
            table = change(source.labels.onto(table.filter(kept)))
            for name in apart:
                if name not in table.column_names and part.run.get(name) is not None:
                    value = pa.scalar(str(part.run[name]), pa.string())
                    table = table.append_column(name, pa.repeat(value, table.num_rows))
            if table.num_rows:
                yield table


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
    """Every column of the files, in the schema's type or its own, and those added."""
    types = [
        (column.name, _KNOWN.get(column.name, column.type))
        for part in parts
        for column in part.stored
    ]
    each = [pa.schema([one]) for one in dict.fromkeys([*types, *added.items()])]
    try:
        return pa.unify_schemas(each, promote_options="permissive")
    except pa.ArrowException as error:
        raise DataError(
            f"the files disagree on a column the schema does not know: {error}"
        ) from error


def _in_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    whole = pa.concat_tables([schema.empty_table(), table], promote_options="permissive")
    return whole.select(schema.names).cast(schema)


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
    split, type, group, dataset, model, pipeline
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
    group: Annotated[tuple[str, ...], _names("this group")] = ()
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
        for name in ("split", "type", "group", *ATTRIBUTES):
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
    read = read_source(source, skip_invalid=skip_invalid)
    chosen, notes = _chosen(read, keep)
    narrowed = replace(read, traces=read.traces.take(chosen))
    stated: dict[str, Any] = {}
    rounds = agreed([part.run for part in read.parts]).get("rounds")
    if keep.max_rounds is not None and isinstance(rounds, int):
        stated["rounds"] = min(rounds, keep.max_rounds)
    step = {"by": "filter", "from": Path(read.name).name, **keep.stated()}
    return write_copy(
        [narrowed], out, step=step, stated=stated, max_rounds=keep.max_rounds, notes=notes
    )


def _chosen(source: TraceInspection, keep: TraceFilter) -> tuple[NDArray[np.bool_], list[str]]:
    """Which questions meet the conditions, (n_questions,), and what to know of it."""
    traces = source.traces
    ids = np.array(traces.question_ids, object)
    chosen = np.ones(len(ids), bool)
    notes: list[str] = []
    for name in ("split", "type", "group", *ATTRIBUTES):
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
        chosen &= labelled(traces)
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


def _named(source: TraceInspection, name: str, wanted: Sequence[str]) -> NDArray[np.bool_]:
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
    """Question ids: as given, of a text file with one a line, or of a trace set."""
    if not isinstance(ids, str | Path):
        return tuple(ids)
    path = Path(ids)
    if path.is_dir() or path.suffix == ".parquet":
        return read_traces(path, columns=()).question_ids
    try:
        lines = [
            line.strip() for line in plain_file(path).read_text(encoding="utf-8-sig").splitlines()
        ]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot be read: {error}; name a text file with one question id a line, or a trace set",
            file=str(path),
        ) from error
    found = tuple(line for line in lines if line)
    if not found:
        raise DataError("names no question; write one id a line", file=str(path))
    return found
