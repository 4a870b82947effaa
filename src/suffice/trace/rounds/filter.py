"""Trace sets narrowed to some of their questions and rounds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from suffice.errors import DataError, UsageError, did_you_mean, plain_file
from suffice.options import Option
from suffice.trace.durable import check_free
from suffice.trace.reader import agreed
from suffice.trace.rounds.copying import Written, read_source, write_copy
from suffice.trace.rounds.labels import labelled
from suffice.trace.rounds.reader import ATTRIBUTES, TraceInspection, read_traces
from suffice.trace.rounds.records import sampled_ids


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
        [narrowed],
        out,
        step=step,
        stated=stated,
        max_rounds=keep.max_rounds,
        notes=notes,
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
