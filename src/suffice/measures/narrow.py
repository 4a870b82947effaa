"""Measures of a record, written once: its narrow columns and all that is measured of its wide ones.

What is written is a trace set itself, without passages, tokens and samples, which stands for the record
wherever these are not asked for again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suffice._version import VERSION
from suffice.errors import DataError, UsageError, plain_file
from suffice.measures.measured import (
    LabelledColumn,
    MeasuredColumn,
    RetrievalColumn,
    ScoreColumn,
    SignalColumn,
    column_name,
    measured_columns,
)
from suffice.measures.shards import Shard, map_tasks, shards_of, tasks_of
from suffice.scoring import F1_KINDS
from suffice.signals.available import given_signals
from suffice.signals.table import declared
from suffice.trace.lazy import in_memory
from suffice.trace.parquet import opened, readable
from suffice.trace.postgres import as_place
from suffice.trace.reader import parquet_files, run_document
from suffice.trace.rounds.schema import QUESTIONS
from suffice.trace.rounds.table import TraceSet
from suffice.trace.schema import MEASURED, RUN_KEY, STATED
from suffice.trace.store import Store, store_at
from suffice.trace.writer import write_table

WIDE = (
    "query",
    "action",
    "passages",
    "refound",
    "response",
    "tokens",
    "answer_starts",
    "samples",
    "sample_clusters",
    "intermediate_answer",
    "candidate_scores",
)
"""The columns that measures stand for, and do not hold."""
_LENGTHS = ("passages", "samples")
_FOOTER = 65_536  # bytes at the end of a file by which it is told from others


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Measures that were written.

    ``parts`` files hold ``questions`` and ``rounds``, with ``signals``; ``kept`` of the files were there.
    """

    out: str
    parts: int
    kept: int
    questions: int
    rounds: int
    signals: tuple[str, ...]


def write_measures(
    traces: TraceSet,
    out: str | Path,
    *,
    executor: Executor | None = None,
    again: bool = False,
    on_part: Callable[[int, int], None] = lambda *_: None,
) -> Measured:
    """Measure a record and write it to a folder, a file for some of its shards each.

    Files that a run before wrote of the same record by the same code are kept.
    """
    folder = Path(out)
    if STATED in traces.origin.run:
        raise UsageError(
            f"{traces.origin.source} holds measures already; name the traces they are of"
        )
    signals = given_signals(traces)
    stated: dict[str, Any] = {
        "source": traces.origin.source,
        "code": code_stamp(),
        "files": _stamps(traces),
    }
    shards = shards_of(traces)
    tasks: Sequence[Sequence[Shard] | TraceSet] = tasks_of(shards) if shards else [traces]
    stated |= {"signals": list(signals), "parts": len(tasks)}
    run = {**traces.origin.run, STATED: stated}
    names = [f"part-{number:06d}.parquet" for number in range(len(tasks))]
    _refuse_others(folder, names, run, again=again)
    missing = [i for i, name in enumerate(names) if again or not (folder / name).exists()]
    write = _Writing(run, tuple(signals))
    done = len(tasks) - len(missing)
    work = [(tasks[i], folder / names[i]) for i in missing]
    for _ in map_tasks(write, work, executor if shards else None):
        done += 1
        on_part(done, len(tasks))
    return Measured(
        out=str(folder),
        parts=len(tasks),
        kept=len(tasks) - len(missing),
        questions=traces.n_questions,
        rounds=traces.table.num_rows,
        signals=tuple(signals),
    )


def _refuse_others(
    folder: Path, names: Sequence[str], run: Mapping[str, Any], *, again: bool
) -> None:
    """Parts that a folder holds are of this record and this code, or are written anew."""
    there = sorted(folder.glob("*.parquet")) if folder.is_dir() else []
    for file in there:
        with readable(file), opened(file) as parquet:
            metadata = parquet.schema_arrow.metadata or {}
        stated = run_document(metadata).get(STATED)
        if stated is None:
            raise UsageError(
                f"{folder} holds {file.name}, which are no measures; choose another --out"
            )
        other = file.name not in names or stated != run[STATED]
        if other and not again:
            raise UsageError(
                f"{folder} holds measures of {stated.get('source')} as it was, or by other code; write them "
                f"anew with: suffice measure {run[STATED]['source']} --out {folder} --again"
            )
    for file in there:
        if again and file.name not in names:
            file.unlink()


@dataclass(frozen=True, slots=True)
class _Writing:
    """Measures some shards and writes a part of them."""

    run: dict[str, Any]
    signals: tuple[str, ...]

    def __call__(self, task: tuple[Sequence[Shard] | TraceSet, Path]) -> int:
        """The rows written."""
        shards, file = task
        if isinstance(shards, TraceSet):
            tables = [self._narrow(shards)]
        else:
            readings: dict[object, Any] = {}
            tables = [self._narrow(shard.traces(readings)) for shard in shards]
        table = pa.concat_tables(tables, promote_options="default")
        metadata = {
            QUESTIONS.key: str(QUESTIONS.version).encode(),
            RUN_KEY: json.dumps(self.run, sort_keys=True).encode(),
        }
        write_table(table.replace_schema_metadata(metadata), file)
        return int(table.num_rows)

    def _narrow(self, traces: TraceSet) -> pa.Table:
        keys: list[MeasuredColumn] = [
            *(ScoreColumn("f1", kind) for kind in F1_KINDS),
            ScoreColumn("em"),
            ScoreColumn("acc"),
            LabelledColumn(),
            RetrievalColumn("precision"),
            RetrievalColumn("recall"),
            *(SignalColumn(declared(name, traces)) for name in self.signals),
        ]
        narrow = [name for name in traces.table.column_names if name not in WIDE]
        table = traces.table.select(narrow)
        questions = np.repeat(np.arange(traces.n_questions), traces.last_rounds)
        rounds = np.asarray(table.column("round"), np.int64) - 1
        for key, values in zip(keys, measured_columns(traces, keys), strict=True):
            column = values[questions, rounds if key.of_rounds else 0]
            cells = pa.array(column, pa.float64(), mask=np.isnan(column))
            table = table.append_column(column_name(key), cells)
        for name in _LENGTHS:
            if traces.has(name):
                lengths = traces.lengths(name)[questions, rounds]
                cells = pa.array(lengths, mask=np.isnan(lengths)).cast(pa.int32())
                table = table.append_column(f"{MEASURED}length.{name}", cells)
        if not traces.closed_book.num_rows:
            return table
        closed_book = in_memory(traces.closed_book)
        closed_book = closed_book.select(
            [name for name in narrow if name in closed_book.column_names]
        )
        both = pa.concat_tables([closed_book, table], promote_options="default")
        order = [("question_id", "ascending"), ("round", "ascending")]
        return both.take(pc.sort_indices(both, sort_keys=order))


# --- of which record, by which code ---------------------------------------------------------------
def _stamps(traces: TraceSet) -> list[list[Any]]:
    """Name, size and a hash of the footer of every file; none of a record in memory."""
    source = as_place(traces.origin.source)
    return _stamps_at(source) if source.exists() or store_at(source) is not None else []


def _stamps_at(source: Path) -> list[list[Any]]:
    files = [[file.name, file.stat().st_size, _footer(file)] for file in parquet_files(source)]
    store = store_at(source)
    return files if store is None else [*files, [store.name, *Store(store).stamp()]]


def _footer(file: Path) -> str:
    with plain_file(file).open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _FOOTER))
        return hashlib.sha256(stream.read()).hexdigest()[:16]


@cache
def code_stamp() -> str:
    """The version, and a hash of the code that measures."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    files = [root / "scoring.py", *(root / "measures").glob("*.py")]
    for folder in ("columns", "signals"):
        files += (root / folder).rglob("*.py")
    for file in sorted(files):
        digest.update(file.read_bytes())
    return f"{VERSION} {digest.hexdigest()[:16]}"


def refuse_stale(traces: TraceSet) -> None:
    """Refuse measures of a record that is another one now, or that other code took.

    A record that is not there any more is taken to be as it was.
    """
    stated = traces.origin.run.get(STATED)
    if not isinstance(stated, dict):
        return
    source, here = str(stated.get("source")), traces.origin.source
    command = f"measure it again: suffice measure {source} --out {here} --again"
    if stated.get("code") != code_stamp():
        raise DataError(
            f"measured by {stated.get('code')}, and this is {code_stamp()}; {command}", file=here
        )
    parts = stated.get("parts", 0)
    if Path(here).is_dir() and (found := len(parquet_files(Path(here)))) < parts:
        raise DataError(f"holds {found} of its {parts} parts; {command}", file=here)
    there = as_place(source)
    if not there.exists() and store_at(there) is None:
        return
    if _stamps_at(there) != stated.get("files"):
        raise DataError(f"{source} has changed since it was measured; {command}", file=here)
