"""What a record holds: questions, rounds, who made it, splits, labels, columns, and the signals it gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from suffice.measures.exploration import exploration
from suffice.measures.measures import Measures
from suffice.measures.seen import record_banners, seen_of
from suffice.results.table import Column, Table, Value
from suffice.results.tabular import Tabular
from suffice.signals.registry import SIGNALS
from suffice.signals.table import given_signals, lack
from suffice.trace.rounds.labels import labelled, names_passages
from suffice.trace.rounds.reader import (
    ATTRIBUTES,
    TraceInspection,
    inspect_traces,
)
from suffice.trace.rounds.schema import COLUMNS, SCHEMA
from suffice.trace.rounds.table import TraceSet


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Questions that share something: a split, a type, a data set, a model or a loop (``what``)."""

    what: str
    name: str | None
    questions: int
    labelled: int
    rounds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldColumn:
    """A column of the files; ``empty`` is the share of its rows that are null."""

    name: str
    type: str
    known: bool
    empty: float
    meaning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldSignal:
    """A signal that the record gives; ``undefined`` is the share of rounds where it has no value."""

    name: str
    stored: bool
    undefined: float
    undefined_after_1: float | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Contents(Tabular):
    """What a record holds."""

    source: str
    files: int
    questions: int
    rounds: int
    max_rounds: int
    closed_book: int
    labelled: int
    with_gold_passages: int
    ending: Mapping[int, int]
    failures: int
    groups: tuple[Group, ...]
    columns: tuple[HeldColumn, ...]
    signals: tuple[HeldSignal, ...]
    lacking: Mapping[str, str]
    run: Mapping[str, Any]
    notes: tuple[str, ...]

    def tables(self) -> Sequence[Table]:
        """The record, its groups, its columns and its signals, as far as there are any."""
        parts = (self._groups(), self._columns(), self._signals(), self._lacking())
        return (self._record(), *(table for table in parts if table.rows))

    def _record(self) -> Table:
        ends = ", ".join(f"{count:,} at round {last}" for last, count in self.ending.items())
        rows: list[tuple[Value, ...]] = [
            ("files", f"{self.files:,}"),
            ("questions", f"{self.questions:,}"),
            ("rounds", f"{self.rounds:,}, at most {self.max_rounds} a question"),
            ("questions end", ends),
            ("with gold answers", f"{self.labelled:,}"),
            ("with gold passages", f"{self.with_gold_passages:,}"),
            ("with round 0 (closed book)", f"{self.closed_book:,}"),
            ("failed when recorded", f"{self.failures:,}"),
        ]
        columns = (Column(name="what", head="record"), Column(name="value", head=""))
        return Table(name="record", title=self.source, columns=columns, rows=rows, notes=self.notes)

    def _groups(self) -> Table:
        columns = (
            Column(name="what", once=True),
            Column(name="name"),
            Column(name="questions", kind="count"),
            Column(name="labelled", kind="count"),
            Column(name="rounds", kind="count"),
        )
        rows = [
            (group.what, group.name or "(none)", group.questions, group.labelled, group.rounds)
            for group in self.groups
        ]
        return Table(name="groups", title="Questions by", columns=columns, rows=rows, names=2)

    def _columns(self) -> Table:
        columns = (
            Column(name="column"),
            Column(name="empty", kind="percent", head="empty %"),
            Column(name="type", in_text=False),
            Column(name="meaning"),
        )
        rows = [(column.name, column.empty, column.type, column.meaning) for column in self.columns]
        return Table(name="columns", title="Columns", columns=columns, rows=rows)

    def _signals(self) -> Table:
        columns = (
            Column(name="signal"),
            Column(name="stored"),
            Column(name="undefined", kind="percent", head="undefined\n% of rounds"),
            Column(name="undefined_after_1", kind="percent", head="undefined\n% after round 1"),
        )
        rows = [
            (
                signal.name,
                "stored" if signal.stored else "computed",
                signal.undefined,
                signal.undefined_after_1,
            )
            for signal in self.signals
        ]
        return Table(
            name="signals", title="Signals it gives without a model", columns=columns, rows=rows
        )

    def _lacking(self) -> Table:
        columns = (Column(name="signal"), Column(name="why"))
        title = "Signals it does not give"
        return Table(
            name="lacking", title=title, columns=columns, rows=sorted(self.lacking.items())
        )


def traces_info(path: str | Path, *, skip_invalid: bool = False) -> Contents:
    """What the record at ``path`` holds.

    Parameters
    ----------
    path
        A Parquet file or a directory of them.
    skip_invalid
        Leave out invalid files and questions; the notes count them.

    Raises
    ------
    DataError
        For an invalid trace set.
    """
    source = inspect_traces(path, keep_unknown=True, kept=(*SCHEMA.names, *ATTRIBUTES))
    traces = source.valid(skip_invalid=skip_invalid)
    given = given_signals(traces)
    beside = len(source.labels.questions)
    signals = tuple(_signals(traces, given))
    return Contents(
        source=source.name,
        files=len({part.file for part in source.parts}),
        questions=traces.n_questions,
        rounds=traces.table.num_rows,
        max_rounds=traces.n_rounds,
        closed_book=traces.closed_book.num_rows,
        labelled=int(labelled(traces).sum()),
        with_gold_passages=int(names_passages(traces).sum()),
        ending=dict(sorted(Counter(traces.last_rounds.tolist()).items())),
        failures=traces.origin.failures,
        groups=tuple(_groups(source)),
        columns=tuple(_columns(source)),
        signals=tuple(signal for signal in signals if signal.undefined < 1.0),
        lacking={
            **{
                name: why.why
                for name, spec in SIGNALS.items()
                if name not in given and (why := lack(spec, traces)) is not None
            },
            **{
                signal.name: "it is undefined in every round"
                for signal in signals
                if signal.undefined == 1.0
            },
        },
        run=traces.origin.run,
        notes=(
            *source.remarks,
            *_notes(traces),
            *([f"{beside:,} questions are labelled beside their rows"] if beside else []),
        ),
    )


def _groups(source: TraceInspection) -> Iterator[Group]:
    traces = source.traces
    has_gold = labelled(traces)
    values: dict[str, Sequence[str | None]] = {
        "split": traces.of_questions("split"),
        "type": traces.of_questions("question_type"),
        **{name: source.attribute(name) for name in ATTRIBUTES},
    }
    for what, names in values.items():
        if not any(names):
            continue
        for name in sorted({value or "" for value in names}):
            member = np.array([(value or "") == name for value in names], bool)
            yield Group(
                what=what,
                name=name or None,
                questions=int(member.sum()),
                labelled=int(member[has_gold].sum()),
                rounds=int(traces.last_rounds[member].sum()),
            )


def _columns(source: TraceInspection) -> Iterator[HeldColumn]:
    """Those of the schema first, as they stand in the first file that has them."""
    rows = sum(part.rows for part in source.parts)
    types = {column.name: column.type for part in reversed(source.parts) for column in part.stored}
    meanings = {column.name: column.meaning for column in COLUMNS}
    for name in sorted(types, key=[*meanings, *types].index):
        yield HeldColumn(
            name=name,
            type=str(types[name]),
            known=name in meanings,
            empty=1 - source.filled[name] / rows,
            meaning=meanings.get(name, "(not of the schema: kept, not read)"),
        )


def _signals(traces: TraceSet, names: Sequence[str]) -> Iterator[HeldSignal]:
    table = Measures(traces).signals(names)
    stored = set(traces.signal_names)
    for name in names:
        undefined = np.isnan(table.signal(name)) & traces.exists
        later = int(traces.exists[:, 1:].sum())
        yield HeldSignal(
            name=name,
            stored=name in stored,
            undefined=float(undefined.sum() / traces.exists.sum()),
            undefined_after_1=float(undefined[:, 1:].sum() / later) if later else None,
        )


def _notes(traces: TraceSet) -> Iterator[str]:
    yield from Measures(traces).unit_notes
    skipped = traces.origin.skipped
    if skipped:
        yield f"{len(skipped)} invalid parts were skipped, the first: {skipped[0]}"
    yield from record_banners(traces)
    if (seen := seen_of(traces)) is not None:
        yield from exploration(seen, traces.of_questions("question_type"), labelled(traces)).notes()
    groups = [group for group in traces.of_questions("group") if group]
    if groups:
        yield f"{len(groups):,} questions are of {len(set(groups)):,} groups (column group)"
    if not traces.splits:
        yield f"no question has a split; {traces.how_to_split()}"
    if not labelled(traces).any():
        own = "; its own scores (column 'score') are what policies are compared by"
        yield (
            "no question has gold answers, so nothing can be scored or fitted that reads them"
            f"{own if traces.has('score') else ''}"
        )
