"""Where a watched policy stands: its tests, what stopping loses and saves, its alarms; in tables and JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from suffice.costs.usage import find_cost
from suffice.monitor.aspects import Alarm, PerQuestion, Promised, ReliabilityBin
from suffice.monitor.coverage import Tested, Watched
from suffice.numbers.intervals.anytime import AnytimeMean
from suffice.results.as_json import as_json
from suffice.results.formats import counted, percent
from suffice.results.table import Cell, Column, Table, Value
from suffice.results.tabular import Tabular


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Produced(Tabular):
    """Where everything stands.

    ``counts`` are of questions and rounds, ``waiting`` of those whose labels may come, ``lacking`` of those
    that are to stand for the past still. ``early`` is the share that the policy stops before the full
    budget; ``loss`` and ``saved`` are per question, of all.
    """

    policy: str
    level: float
    first: int
    promised: Promised
    counts: Mapping[str, int]
    waiting: int
    lacking: int
    tests: tuple[Tested, ...]
    early: AnytimeMean
    loss: PerQuestion
    saved: tuple[PerQuestion, ...]
    reliability: tuple[ReliabilityBin, ...]
    coverage: Watched | None
    alarms: tuple[Alarm, ...]

    @property
    def alarmed(self) -> bool:
        """Whether there was any alarm."""
        return bool(self.alarms)

    @property
    def alarm_notes(self) -> list[str]:
        """A sentence each."""
        return [
            f"ALARM, {alarm.kind} at question {alarm.question:,}: {alarm.text}."
            for alarm in self.alarms
        ]

    @property
    def rounds_saved(self) -> float | None:
        """Of the rounds of full budgets the share that was not run, explored questions among them."""
        full = self.counts["full_rounds"]
        return 1.0 - self.counts["budgeted"] / full if full else None

    def to_json(self) -> dict[str, Any]:
        """Strict JSON."""
        return {
            "policy": self.policy,
            "level": self.level,
            "metric": self.promised.metric.key(self.promised.score),
            "promised_loss": self.promised.most,
            **self.counts,
            "waiting_for_labels": self.waiting,
            "alarm": self.alarmed,
            "tests": as_json(self.tests),
            "stopped_early": as_json(self.early),
            "loss": as_json(self.loss),
            "saved": as_json(self.saved),
            "rounds_saved": self.rounds_saved,
            "reliability": as_json(self.reliability),
            "coverage": None if self.coverage is None else self.coverage.to_json(),
            "alarms": [alarm.to_json() for alarm in self.alarms],
        }

    def tables(self) -> tuple[Table, ...]:
        """The tests, what stopping loses and saves, and reliability where there are labels."""
        tables = [self._tests(), self._stopping()]
        if self.reliability:
            tables.append(self._reliability())
        if self.coverage is not None:
            tables.extend(self.coverage.tables())
        return tuple(tables)

    def _tests(self) -> Table:
        columns = (
            Column(name="watched"),
            Column(name="of", head=""),
            Column(name="taken", kind="count"),
            Column(name="capital", kind="significant", digits=4),
            Column(name="p_value", kind="significant", digits=3, head="p-value"),
            Column(name="alarm", kind="count"),
        )
        rows: list[list[Value]] = [
            [
                *(test.kind, test.of, test.taken, test.capital, test.p_value),
                Cell(None, "no")
                if test.alarmed_at is None
                else Cell(test.alarmed_at, f"at {test.alarmed_at:,}", "bad"),
            ]
            for test in self.tests
            if test.taken or test.kind not in ("calibration", "exploration")
        ]
        drifts = sum(test.kind == "drift" for test in self.tests)
        notes = []
        if self.lacking:
            notes.append(
                f"Drift is not tested yet: the first {self.first:,} questions stand for the past, "
                f"{self.lacking:,} to come."
            )
        if drifts:
            notes.append(
                f"Each kind raises a false alarm with probability at most {self.level:g}, ever; the "
                f"{drifts} numbers whose drift is watched have {self.level / drifts:.2g} each."
            )
        notes += self.alarm_notes
        return Table(
            name="tests", title=self._title(), columns=columns, rows=rows, notes=notes, names=2
        )

    def _title(self) -> str:
        counts = self.counts
        title = (
            f"{counted(counts['questions'], 'question')} of policy {self.policy}, {counts['rounds']:,} "
            "rounds: "
            f"{counts['early']:,} stopped early, of which {counts['explored']:,} ran on; "
            f"{counts['labelled']:,} labelled, {self.waiting:,} waiting for a label."
        )
        if counts["others"]:
            title += f"\n{counted(counts['others'], 'question')} of another policy passed over."
        return title

    def _stopping(self) -> Table:
        columns = (
            Column(name="per_question", head="per question"),
            Column(name="explored", kind="count", head="ran on"),
            Column(name="mean", kind="percent", interval=True, head="mean, %"),
            Column(name="promised", kind="percent", head="promised"),
        )
        rows: list[list[Value]] = []
        if self.loss.explored:
            rows.append([self.loss.name, self.loss.explored, self.loss, self.promised.most])
        rows += [
            [f"{find_cost(part.name).label} saved", part.explored, part, None]
            for part in self.saved
        ]
        notes = [
            f"Intervals hold at all times together with probability {1 - self.level:g} each, for "
            "questions whose means do not change."
        ]
        if not self.counts["explored"]:
            notes = [
                "No question ran on past its stop: what stopping loses is unknown (explore=0.05)."
            ]
        elif not self.loss.explored:
            notes.append("The loss is unknown: no question that ran on was scored at both ends.")
        if self.counts["unanswered"]:
            ran_on = f"{counted(self.counts['unanswered'], 'question')} that ran on have no"
            notes.append(
                f"{ran_on} score of yours at the stop: observe(..., score=...), or --metric em."
                if self.promised.metric.against == "scores"
                else f"{ran_on} answer at the stop; suffice probe asks for it."
            )
        if self.counts["cut"]:
            notes.append(
                f"{counted(self.counts['cut'], 'question')} ended by a budget, an error or the user; what "
                "they returned counts as what running on brings."
            )
        if self.rounds_saved is not None:
            notes.append(
                f"By plain count {percent(self.rounds_saved)}% of the rounds of full budgets were not run, "
                "those of explored questions included."
            )
        return Table(
            name="stopping",
            title="What stopping early loses and saves.",
            columns=columns,
            rows=rows,
            notes=notes,
        )

    def _reliability(self) -> Table:
        columns = (
            Column(name="confidence"),
            Column(name="labelled", kind="count"),
            Column(name="stated", kind="percent", head="stated, %"),
            Column(name="right", kind="percent", interval=True, head="right, %"),
        )
        rows: list[list[Value]] = [
            [f"{part.low:.1f}-{part.high:.1f}", part.right.count, part.confidence, part.right]
            for part in self.reliability
        ]
        return Table(
            name="reliability",
            title="How often labelled answers are right, by the policy's confidence.",
            columns=columns,
            rows=rows,
        )
