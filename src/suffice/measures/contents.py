"""What a record holds, and whether exploration went as promised: questions, labels, columns, signals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suffice.errors import counted
from suffice.measures.measures import Measures
from suffice.measures.seen import Seen, record_banners, seen_of
from suffice.results.formats import p_value, percent
from suffice.results.table import Column, Described, Table, Value, table_of
from suffice.results.tabular import Tabular
from suffice.signals.known_signals import SIGNALS
from suffice.signals.signal_table import SignalTable, given_signals, lack, nowhere_defined
from suffice.stats.p_values import binomial_cdf
from suffice.stats.units import Array, Mask
from suffice.trace.rounds.labels import labelled, names_passages
from suffice.trace.rounds.reader import ATTRIBUTES, TraceInspection, inspect_traces, one_table
from suffice.trace.rounds.schema import COLUMNS
from suffice.trace.rounds.trace_set import TraceSet

_GROUPS: Sequence[Described] = (
    ("what", Column(name="what", once=True)),
    (lambda one: one["name"] or "(none)", Column(name="name")),
    ("questions", Column(name="questions", kind="count")),
    ("labelled", Column(name="labelled", kind="count", head="labeled")),
    ("rounds", Column(name="rounds", kind="count")),
)
_COLUMNS: Sequence[Described] = (
    ("name", Column(name="column")),
    ("empty", Column(name="empty", kind="percent", head="empty %")),
    ("type", Column(name="type", in_text=False)),
    ("meaning", Column(name="meaning")),
)
_SIGNALS: Sequence[Described] = (
    ("name", Column(name="signal")),
    (lambda one: "stored" if one["stored"] else "computed", Column(name="stored")),
    ("undefined", Column(name="undefined", kind="percent", head="undefined\n% of rounds")),
    (
        "undefined_after_1",
        Column(name="undefined_after_1", kind="percent", head="undefined\n% after round 1"),
    ),
)
Entry = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Contents(Tabular):
    """Hold what a record contains.

    ``groups`` counts questions by split, type, data set, model or loop (``what``). In ``columns``, ``empty``
    is the share of rows that are null or an empty list. In ``signals``, ``undefined`` is the share of
    rounds without a value.
    """

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
    groups: tuple[Entry, ...]
    columns: tuple[Entry, ...]
    signals: tuple[Entry, ...]
    lacking: Mapping[str, str]
    run: Mapping[str, Any]
    notes: tuple[str, ...]

    def tables(self) -> Sequence[Table]:
        why = (Column(name="signal"), Column(name="why"))
        held = [one for one in self.columns if one["empty"] < 1.0]
        blank = ", ".join(one["name"] for one in self.columns if one["empty"] == 1.0)
        parts = (
            replace(table_of("groups", self.groups, _GROUPS, "Questions by"), names=2),
            table_of("columns", held, _COLUMNS, "Columns", [f"Empty: {blank}"] if blank else []),
            table_of("signals", self.signals, _SIGNALS, "Signals it can feed without a model"),
            Table(
                name="lacking",
                title="Signals it cannot feed",
                columns=why,
                rows=sorted(self.lacking.items()),
            ),
        )
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


def traces_info(path: str | Path, *, skip_invalid: bool = False) -> Contents:
    """Return what the record at ``path``, a Parquet file or a directory of them, holds.

    Raises DataError for an invalid trace set; ``skip_invalid`` leaves its invalid parts out and counts them.
    """
    source = inspect_traces(path, keep_unknown=True)
    traces = source.valid(skip_invalid=skip_invalid)
    given = given_signals(traces)
    beside = len(source.labels.questions)
    table = Measures(traces).signals(given)
    signals = tuple(_signals(traces, table, given))
    return Contents(
        source=traces.origin.source,
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
        signals=tuple(signal for signal in signals if signal["undefined"] < 1.0),
        lacking={
            name: why.why
            for name, spec in SIGNALS.items()
            if name not in given and (why := lack(spec, traces)) is not None
        }
        | nowhere_defined(traces, table, given),
        run=traces.origin.run,
        notes=(
            *source.remarks,
            *_notes(traces),
            *([f"labels in a separate table: of {counted(beside, 'question')}"] if beside else []),
        ),
    )


def _groups(source: TraceInspection) -> Iterator[Entry]:
    traces = source.traces
    has_gold = labelled(traces)
    values: dict[str, Sequence[str | None]] = {
        "split": traces.of_questions("split"),
        "type": traces.of_questions("question_type"),
        **{name: traces.attribute(name) for name in ATTRIBUTES},
    }
    for what, names in values.items():
        if not any(names):
            continue
        for name in sorted({value or "" for value in names}):
            member = np.array([(value or "") == name for value in names], bool)
            yield {
                "what": what,
                "name": name or None,
                "questions": int(member.sum()),
                "labelled": int(member[has_gold].sum()),
                "rounds": int(traces.last_rounds[member].sum()),
            }


def _columns(source: TraceInspection) -> Iterator[Entry]:
    table = one_table((source.traces.table, source.traces.closed_book))
    types = {column.name: column.type for part in reversed(source.parts) for column in part.stored}
    meanings = {column.name: column.meaning for column in COLUMNS}
    for name in sorted(types, key=[*meanings, *types].index):
        yield {
            "name": name,
            "type": str(types[name]),
            "known": name in meanings,
            "empty": _empty(table.column(name)) / table.num_rows,
            "meaning": meanings.get(name, "(not in the schema: kept, not read)"),
        }


def _empty(cells: pa.ChunkedArray) -> int:
    is_list = pa.types.is_list(cells.type) or pa.types.is_large_list(cells.type)
    blank = pc.equal(pc.list_value_length(cells), 0) if is_list else pc.is_null(cells)
    return int(pc.sum(pc.fill_null(blank, True)).as_py() or 0)


def _signals(traces: TraceSet, table: SignalTable, names: Sequence[str]) -> Iterator[Entry]:
    stored = set(traces.signal_names)
    for name in names:
        undefined = np.isnan(table.signal(name)) & traces.exists
        later = int(traces.exists[:, 1:].sum())
        yield {
            "name": name,
            "stored": name in stored,
            "undefined": float(undefined.sum() / traces.exists.sum()),
            "undefined_after_1": float(undefined[:, 1:].sum() / later) if later else None,
        }


def _notes(traces: TraceSet) -> Iterator[str]:
    yield from Measures(traces).unit_notes
    skipped = traces.origin.skipped
    if skipped:
        yield f"{len(skipped)} invalid parts were skipped; the first: {skipped[0]}"
    yield from record_banners(traces)
    if (seen := seen_of(traces)) is not None:
        yield from exploration(seen, labelled(traces)).notes()
    groups = [group for group in traces.of_questions("group") if group]
    if groups:
        yield f"{counted(len(set(groups)), 'group')} (column group) of {counted(len(groups), 'question')}"
    if not traces.splits:
        yield f"no question has a split; {traces.how_to_split()}"
    if not labelled(traces).any():
        own = "; policies are compared by the record's own scores (column 'score')"
        yield (
            "no question has gold answers, so metrics and fits that need them are not "
            f"possible{own if traces.has('score') else ''}"
        )


NOT_AS_PROMISED = "exploration NOT AS PROMISED"
_ALARM = 0.01
_FEWEST = 5
_MOST_TOLD = 3


def unlike(numbers: Mapping[str, Array], some: Mask, others: Mask) -> tuple[Entry, ...]:
    """Return the numbers (n_questions,) whose means differ between two groups, the most certain first."""
    from scipy.stats import ttest_ind_from_stats

    found = []
    for name, values in numbers.items():
        sides = [values[side & ~np.isnan(values)] for side in (some, others)]
        if min(map(len, sides)) < _FEWEST:
            continue
        told = (of for side in sides for of in (side.mean(), side.std(ddof=1), len(side)))
        with np.errstate(all="ignore"):  # two numbers that never vary are not told apart
            p = min(1.0, float(ttest_ind_from_stats(*told, False).pvalue) * len(numbers))
        if p < _ALARM:
            means = [float(side.mean()) for side in sides]
            found.append({"name": name, "some": means[0], "others": means[1], "p_value": p})
    return tuple(sorted(found, key=itemgetter("p_value")))


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    """Hold checks of a record's random exploration.

    ``shares`` has one entry per ``propensity``. It counts questions whose policy said stop (``stopped``) and
    those that ran on (``explored``). ``p_value`` is the exact two-sided binomial test. ``labels`` compares
    label rates; ``None`` means equal ones. ``unlike`` lists where labeled questions differ from the others.
    """

    shares: tuple[Entry, ...]
    labels: Entry | None = None
    unlike: tuple[Entry, ...] = ()

    def notes(self) -> list[str]:
        notes = []
        for share in self.shares:
            fits = NOT_AS_PROMISED if share["p_value"] < _ALARM else "exploration as promised"
            notes.append(
                f"{fits}: {share['explored']:,} of {counted(share['stopped'], 'question')} whose policy "
                f"said stop were explored ({percent(share['explored'] / share['stopped'])}%, configured "
                f"{percent(share['propensity'])}%, exact binomial p {p_value(share['p_value'])})"
            )
            if share["p_value"] < _ALARM:
                notes[-1] += (
                    "; inverse-propensity weights are wrong here: some questions are missing from the "
                    "record, or the recorded propensity is not the one that was used"
                )
        if (labels := self.labels) is not None:
            (some, ran), (others, cut) = labels["explored"], labels["cut"]
            alike = "alike" if labels["p_value"] >= _ALARM else "NOT ALIKE"
            notes.append(
                f"labels {alike}: {some:,} of {ran:,} explored and {others:,} of {cut:,} other questions "
                f"are labeled (Fisher's exact test p {p_value(labels['p_value'])}); each label is "
                "weighted by the inverse of its rate"
            )
        if self.unlike:
            told = ", ".join(
                f"{one['name']} {one['some']:.3g} and {one['others']:.3g} (p {p_value(one['p_value'])})"
                for one in self.unlike[:_MOST_TOLD]
            )
            notes.append(
                f"LABELED QUESTIONS DIFFER FROM THE OTHERS after their policy's stop, in means: {told}. "
                "No weight repairs labels that depend on the outcome: label a random sample"
            )
        return notes


def exploration(seen: Seen, labelled: Mask) -> Exploration:
    """Check the draws of a record; ``labelled`` (n_questions,) says which questions are labeled."""
    drawn = seen.explored | seen.stood_for
    shares = []
    for propensity in np.unique(seen.propensity[drawn]).tolist():
        group = drawn & (seen.propensity == propensity)
        stopped, explored = int(group.sum()), int(seen.explored[group].sum())
        low = float(binomial_cdf(explored, stopped, propensity))
        high = 1.0 - (float(binomial_cdf(explored - 1, stopped, propensity)) if explored else 0.0)
        p = min(1.0, 2 * min(low, high))
        shares.append(
            {"propensity": propensity, "stopped": stopped, "explored": explored, "p_value": p}
        )
    return Exploration(
        shares=tuple(shares),
        labels=_labelling(seen, labelled),
        unlike=unlike(
            {**seen.signals, "the stop": seen.until.astype(np.float64)},
            drawn & labelled,
            drawn & ~labelled,
        ),
    )


def _labelling(seen: Seen, labelled: Mask) -> Entry | None:
    from scipy.stats import fisher_exact

    arms = [(int(labelled[arm].sum()), int(arm.sum())) for arm in (seen.explored, seen.stood_for)]
    alike = {0, sum(size for _, size in arms)}  # all labelled, or none
    if not all(size for _, size in arms) or sum(some for some, _ in arms) in alike:
        return None
    table = [[some, size - some] for some, size in arms]
    return {"explored": arms[0], "cut": arms[1], "p_value": float(fisher_exact(table).pvalue)}
