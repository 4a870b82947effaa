"""Trace sets from trace sets: split by a seed, merge, filter by questions and rounds."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError, counted, did_you_mean, read_plain
from suffice.options import Option, as_share
from suffice.trace.durable import check_free, written_aside
from suffice.trace.lazy import LazyTable
from suffice.trace.parquet import parquet_writer, part_name
from suffice.trace.rounds.labels import labelled
from suffice.trace.rounds.reader import ATTRIBUTES, question_ids_of, read_traces, told_apart
from suffice.trace.rounds.records import sampled_ids
from suffice.trace.rounds.schema import QUESTION_ROWS
from suffice.trace.rounds.trace_set import TraceSet, in_columns, unit_keys
from suffice.trace.stored_file import BATCH, agreed, one_schema


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
    """Write the trace set again, with a random split of its questions, drawn by the seed.

    ``source`` is a Parquet file or a directory of them, and stays as it is; ``out`` is a new ``.parquet``
    file or directory. ``shares``, by name, have the sum 1 (default: 0.4 tune, 0.6 eval) and hold within each
    data set and type, to about one question. ``replace_splits`` draws again for questions that have a split,
    else a UsageError. ``skip_invalid`` leaves out invalid files and questions, else a DataError.
    """
    shares = {"tune": 0.4, "eval": 0.6} if shares is None else dict(shares)
    _check_shares(shares, f"the shares {shares}")
    check_free(Path(out))
    traces = read_source(source, skip_invalid=skip_invalid)
    place = traces.origin.source
    if traces.splits and not replace_splits:
        held = ", ".join(f"{name} ({questions})" for name, questions in traces.splits.items())
        raise UsageError(
            f"{place} has splits already: {held}; use them, or draw anew with --replace "
            "(replace_splits=True)"
        )
    ids = traces.question_ids
    datasets, types = traces.attribute("dataset"), traces.of_questions("question_type")
    order = sorted(range(len(ids)), key=lambda i: (datasets[i] or "", types[i] or "", ids[i]))
    labels, units = [""] * len(ids), unit_keys(traces)
    for index, label in zip(order, assign_splits(units[order], shares, seed=seed), strict=True):
        labels[index] = label
    step = {"by": "split", "from": Path(place).name, "splits": shares, "seed": seed}
    stated = {"splits": shares, "split_seed": seed}
    return write_copy([traces.with_splits(labels)], out, step=step, stated=stated)


def _check_shares(shares: Mapping[str, float], said: str) -> None:
    total = sum(shares.values())
    if abs(total - 1.0) > 1e-9 or not all(share >= 0.0 for share in shares.values()):
        raise UsageError(f"{said}: the shares sum to {total:g}, not to 1")


def parse_splits(text: str) -> dict[str, float]:
    """Parse ``tune=0.4,eval=60%`` to shares that sum to 1."""
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
    """Draw a split for each question, in order, given their units: a unit has one split."""
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
    """Write the questions of several trace sets as one; see :func:`split_traces`.

    ``runs`` keeps the entries in which their run documents differ. If data set, model or pipeline differ,
    columns of these names tell the value of each question. A question in two of them, or fewer than two
    sources, is a UsageError; own columns whose types do not match are a DataError.
    """
    if isinstance(sources, str | Path) or len(sources) < 2:
        raise UsageError(f"name at least two trace sets to join, found {sources!r}")
    check_free(Path(out))
    read = [read_source(source, skip_invalid=skip_invalid) for source in sources]
    times_of = Counter(name for source in read for name in source.question_ids)
    if repeated := [name for name, times in times_of.items() if times > 1]:
        name = repeated[0]
        first, second, *_ = (one.origin.source for one in read if name in one.question_ids)
        raise UsageError(
            f"more than one of them holds {counted(len(repeated), 'question')}, the first {name!r} in "
            f"{first} and {second}; compare such records side by side with: suffice replay {first} {second} "
            f"--policy P, or leave them out of one: suffice traces filter {second} --without {first} --out "
            "NEW"
        )
    step = {"by": "merge", "from": [Path(source.origin.source).name for source in read]}
    return write_copy(read, out, step=step)


# --- written again --------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A written trace set."""

    out: str
    questions: int
    rounds: int
    splits: Mapping[str, int]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, traces: TraceSet, out: str | Path, **more: Any) -> Written:
        rounds, splits = int(traces.last_rounds.sum()), traces.splits
        return cls(out=str(out), questions=traces.n_questions, rounds=rounds, splits=splits, **more)


def read_source(path: str | Path, *, skip_invalid: bool = False) -> TraceSet:
    """Read a record with all its columns."""
    return read_traces(path, keep_unknown=True, skip_invalid=skip_invalid).evened()


def write_copy(
    sources: Sequence[TraceSet],
    out: str | Path,
    *,
    step: Mapping[str, Any],
    stated: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
) -> Written:
    """Write the questions of the sources to a new place: all of it, or nothing."""
    target = Path(out)
    for source in sources:
        place = Path(source.origin.source)
        if place.is_dir() and target.resolve().parent == place.resolve():
            raise UsageError(f"{target} would become a part of {place}; choose another --out")
    documents = [run for source in sources for run in source.origin.runs or (source.origin.run,)]
    runs = list({json.dumps(run, sort_keys=True): run for run in documents}.values())
    run = agreed(runs)
    done = run.get("derived")
    run |= {**(stated or {}), "derived": [*(done if isinstance(done, list) else []), dict(step)]}
    if len(runs) > 1:
        run["runs"] = runs
    own = [source.origin.run for source in sources]
    tables = [
        *told_apart([source.table for source in sources], own),
        *told_apart([source.closed_book for source in sources], own),
    ]
    schema = one_schema(table.schema for table in tables)
    schema = schema.with_metadata(QUESTION_ROWS.stamped(run).metadata)
    with written_aside(target) as aside:
        if target.suffix != ".parquet":
            aside.mkdir()
        file = aside if target.suffix == ".parquet" else aside / part_name(0)
        with parquet_writer(file, schema) as sink:
            for table in tables:
                for some in _pieces(table):
                    sink.write_table(in_columns([some], schema))
    questions = sum(source.n_questions for source in sources)
    splits = sum((Counter(source.splits) for source in sources), Counter[str]())
    return Written(
        out=str(target),
        questions=questions,
        rounds=sum(int(source.last_rounds.sum()) for source in sources),
        splits=dict(splits),
        notes=(*notes, *_notes(sources, runs, questions, splits)),
    )


def _pieces(table: pa.Table) -> Iterator[pa.Table]:
    lazily = isinstance(table, LazyTable)
    order = np.argsort(table.rows, kind="stable") if lazily else np.zeros(0, np.int64)
    for start in range(0, table.num_rows, BATCH):
        some = order[start : start + BATCH]
        yield table.taken(some).whole() if lazily else table.slice(start, BATCH)


def _notes(
    sources: Sequence[TraceSet],
    runs: Sequence[Mapping[str, Any]],
    questions: int,
    splits: Mapping[str, int],
) -> Iterator[str]:
    skipped = sum(len(source.origin.skipped) for source in sources)
    if skipped:
        yield f"{skipped} invalid parts were skipped"
    for name in ATTRIBUTES:
        values = dict.fromkeys(str(run[name]) for run in runs if name in run)
        if len(values) > 1:
            yield f"they differ in {name}: {', '.join(values)} (now the column {name!r})"
    without = questions - sum(splits.values())
    if splits and without:
        yield f"no split: {without} of {counted(questions, 'question')}"


# --- narrow ---------------------------------------------------------------------------------------
def _names(meaning: str) -> Option:
    return Option(help=f"keep questions of {meaning}. Repeatable.", metavar="NAME", repeats=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFilter:
    """The questions and rounds to keep; all conditions hold together, as the options' help tells them.

    ``split``, ``type``, ``group``, ``dataset``, ``model`` and ``pipeline`` are names, one or several; the
    last three are read from a column of that name, else from the run document of the file. ``ids`` and
    ``without`` are question ids, or a path to a text file with one a line or to another trace set.
    ``max_rounds`` cuts later rounds off; ``sample`` draws so many of the questions left, by the ``seed``.
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
            help="keep these questions: a text file with one id a line, or another record",
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
        told: dict[str, Any] = {}
        for condition in fields(self):
            value = getattr(self, condition.name)
            if value != condition.default and condition.name != "seed":
                told[condition.name] = value if isinstance(value, int | str) else list(value)
        return told | ({"seed": self.seed} if self.sample is not None else {})


def filter_traces(
    source: str | Path, out: str | Path, keep: TraceFilter, *, skip_invalid: bool = False
) -> Written:
    """Write the part of a trace set that meets the conditions; see :func:`split_traces`.

    No condition is a UsageError; a name that no question has, or an empty result, is a DataError.
    """
    if not keep.stated():
        options = ", ".join(f"--{option.name.replace('_', '-')}" for option in fields(keep))
        raise UsageError(f"name what to keep: {options}")
    check_free(Path(out))
    read = read_source(source, skip_invalid=skip_invalid)
    chosen, notes = _chosen(read, keep)
    narrowed = read.take(chosen)
    stated: dict[str, Any] = {}
    if keep.max_rounds is not None:
        table = narrowed.table
        kept = pc.less_equal(table.column("round"), keep.max_rounds)
        narrowed = replace(narrowed, table=table.filter(kept), known_starts=None)
        if isinstance(rounds := read.origin.run.get("rounds"), int):
            stated["rounds"] = min(rounds, keep.max_rounds)
    step = {"by": "filter", "from": Path(read.origin.source).name, **keep.stated()}
    return write_copy([narrowed], out, step=step, stated=stated, notes=notes)


def _chosen(traces: TraceSet, keep: TraceFilter) -> tuple[NDArray[np.bool_], list[str]]:
    ids = np.array(traces.question_ids, object)
    chosen = np.ones(len(ids), bool)
    notes: list[str] = []
    for name in ("split", "type", "group", *ATTRIBUTES):
        wanted = getattr(keep, name)
        if wanted:
            chosen &= _named(traces, name, wanted)
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
            f"none of {counted(traces.n_questions, 'question')} meets all conditions: {conditions}; "
            f"what there is: suffice traces info {traces.origin.source}",
            file=traces.origin.source,
        )
    if keep.sample is not None:
        drawn = frozenset(sampled_ids(ids[chosen], keep.sample, seed=keep.seed))
        chosen &= np.array([name in drawn for name in ids], bool)
    return chosen, notes


def _named(traces: TraceSet, name: str, wanted: Sequence[str]) -> NDArray[np.bool_]:
    values = traces.attribute("question_type" if name == "type" else name)
    there = sorted({value for value in values if value})
    for value in wanted:
        if value not in there:
            raise DataError(
                f"no question is of {name} {value!r}; found: {', '.join(there) or 'none'}"
                f"{did_you_mean(value, there)}",
                file=traces.origin.source,
            )
    return np.array([value in wanted for value in values], bool)


def read_ids(ids: str | Path | Iterable[str]) -> tuple[str, ...]:
    """Read question ids: as given, from a text file with one per line, or from a trace set."""
    if not isinstance(ids, str | Path):
        return tuple(ids)
    path = Path(ids)
    if path.is_dir() or path.suffix == ".parquet":
        return tuple(question_ids_of(path))
    try:
        lines = [line.strip() for line in read_plain(path).decode("utf-8-sig").splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot be read: {getattr(error, 'strerror', error)}; name a trace set, or a text file with "
            "one question id a line",
            file=str(path),
        ) from error
    found = tuple(line for line in lines if line)
    if not found:
        raise DataError("names no question; write one id a line", file=str(path))
    return found
