"""Trace sets made of trace sets: split by a seed, joined, and pooled."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suffice.errors import UsageError
from suffice.options import as_share
from suffice.trace.durable import check_free
from suffice.trace.lazy import in_memory
from suffice.trace.loops import differences, in_words, of_loops
from suffice.trace.reader import agreed
from suffice.trace.rounds.copying import Written, read_source, write_copy
from suffice.trace.rounds.reader import TraceInspection, as_trace_set, one_table
from suffice.trace.rounds.table import TraceSet, with_column
from suffice.trace.store import free_id
from suffice.trace.units import unit_keys


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

    def labelled(table: pa.Table, which: pa.ChunkedArray) -> pa.Table:
        cells = pa.chunked_array([pa.array(labels, pa.string())]).take(
            pc.index_in(which, pa.array(ids))
        )
        return with_column(table, "split", cells)

    return write_copy(
        [read],
        out,
        step=step,
        splits={name: labels.count(name) for name in shares},
        stated={"splits": shares, "split_seed": seed},
        change=labelled,
        fills=("split",),
        failures=True,
    )


def _check_shares(shares: Mapping[str, float], said: str) -> None:
    total = sum(shares.values())
    if abs(total - 1.0) > 1e-9 or not all(share >= 0.0 for share in shares.values()):
        raise UsageError(f"{said}: the shares sum to {total:g}, not to 1")


def parse_splits(text: str) -> dict[str, float]:
    """``tune=0.4,eval=60%`` as shares that sum to 1.

    >>> parse_splits("tune=0.4,eval=60%")
    {'tune': 0.4, 'eval': 0.6}
    """
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
    """A split for each of the first questions, in order, given their units: one has one split.

    Each goes to the split furthest behind its share, with a seeded disturbance so that the pattern
    cannot fall in step with the data's own. Every prefix holds each share to within about one
    unit, and where each question is one the first assignments do not depend on how many follow.
    """
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
    _refuse_repeated(read)
    step = {"by": "merge", "from": [Path(source.name).name for source in read]}
    return write_copy(read, out, step=step, failures=True)


def _refuse_repeated(sources: Sequence[TraceInspection]) -> None:
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


# --- pool -----------------------------------------------------------------------------------------
def pool_traces(sets: Sequence[TraceSet]) -> TraceSet:
    """Several records of one loop as one, in memory.

    A question whose id an earlier record holds is kept under a new id, ``q1#2``. Questions of one text
    still count once in proofs and intervals.

    Raises
    ------
    UsageError
        Where the records say that they are of different loops, or for none.
    DataError
        For columns of one's own whose types do not go together.
    """
    if len(sets) == 1:
        return sets[0]
    if not sets:
        raise UsageError("name at least one record")
    if loops := of_loops(differences((traces.origin.source, traces.origin.run) for traces in sets)):
        raise UsageError(
            f"the records are of different loops, {in_words(loops)}; pool records of one loop, or "
            "take each by itself (where one policy shall serve several loops, join them first: suffice "
            "traces merge FILE FILE --out NEW)"
        )
    held: set[str] = set()
    tables = []
    for traces in sets:
        renamed = {name: free_id(name, held.__contains__) for name in traces.question_ids}
        held.update(renamed.values())
        for rows in (traces.table, traces.closed_book):
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
    return as_trace_set(one_table(tables), origin)
