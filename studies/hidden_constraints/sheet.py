"""Recorded plans as raters see them, and the sheet that people fill in blind and that is read back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from studies.hidden_constraints.checker import satisfies
from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import BenchmarkSettings, PlanningTask
from suffice.datasets.files import Row, open_table
from suffice.errors import DataError, UsageError, did_you_mean
from suffice.loops.planning.agent import UNREADABLE
from suffice.results.markup import visible
from suffice.results.table import Column, Table
from suffice.trace.plans.file import read_plans
from suffice.trace.plans.records import PlanRecord, PlanSet

NEEDED = ("run", "task", "constraint", "satisfied")
_SHEET = ("run", "task", "goal", "context", "constraint", "requirement", "plan", "satisfied")
_SAID = {"yes": True, "y": True, "true": True, "1": True}
_SAID |= {"no": False, "n": False, "false": False, "0": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A recorded run with a hidden constraint.

    ``id`` is made of the run and its plan: a copy of a record keeps its ids, whoever judged it.
    """

    id: str
    record: PlanRecord
    constraint: str
    requirement: str
    checked: bool | None

    @property
    def unreadable(self) -> bool:
        """Whether the recorded judge's reply could not be read; it counts as not satisfied."""
        return (self.record.outcome.verdict or "").startswith(UNREADABLE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """The runs of a record; ``judge`` is the recorded one, ``left_out`` runs have no constraint."""

    name: str
    judge: str
    runs: tuple[Run, ...]
    left_out: int


def read_records(paths: Sequence[str]) -> tuple[Recorded, ...]:
    """Records by their folders, or by the folders of an experiment that hold them in ``plans``."""
    inside = [Path(path) / "plans" for path in paths]
    places = [one if one.is_dir() else one.parent for one in inside]
    if len({place.resolve() for place in places}) < len(places):
        raise UsageError(f"a record is named twice: {', '.join(paths)}; name each once")
    return tuple(
        _recorded(path, read_plans(place)) for path, place in zip(paths, places, strict=True)
    )


def _recorded(name: str, plans: PlanSet) -> Recorded:
    made, tasks = plans.run.get("benchmark"), dict[str, PlanningTask]()
    if plans.run.get("experiment") == "hidden-constraints" and isinstance(made, dict):
        tasks = {task.id: task for task in generate(BenchmarkSettings(**made)).tasks}
    runs = tuple(
        _run(record, record.gold.constraints, tasks.get(record.task.id))
        for record in plans.records
        if record.gold is not None and record.gold.constraints
    )
    if not runs:
        raise DataError("no run has a hidden constraint to judge", file=name)
    judge = str(plans.run.get("judge", "not recorded"))
    return Recorded(name=name, judge=judge, runs=runs, left_out=len(plans.records) - len(runs))


def _run(record: PlanRecord, tokens: tuple[str, ...], task: PlanningTask | None) -> Run:
    constraint = None if task is None or tokens != (task.constraint.token,) else task.constraint
    named = json.dumps([*record.key, *tokens, record.outcome.plan])
    digest = hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return Run(
        id=f"run-{digest}",  # a spreadsheet takes 12e45678 for a number
        record=record,
        constraint="; ".join(tokens),
        requirement="" if constraint is None else constraint.requirement,
        checked=None if constraint is None else satisfies(constraint, record.outcome.plan).ok,
    )


# --- the sheet -----------------------------------------------------------------------------------
def drawn_runs(records: Sequence[Recorded], runs: int | None, seed: int) -> list[Run]:
    """Some runs of all records in an order that tells nothing of agent and record; ``None``: all."""
    known = {run.id: run for record in records for run in record.runs}
    ids = sorted(known)
    if runs is not None and runs > len(ids):
        raise UsageError(
            f"--runs must be at most {len(ids)}, as many as are recorded; found {runs}"
        )
    order = np.random.default_rng(seed).permutation(len(ids))
    return [known[ids[at]] for at in order[:runs]]


def write_sheet(runs: Sequence[Run], path: Path) -> None:
    """The sheet to fill in, without agent, retriever and the judge's verdict; no file is replaced."""
    rows = [
        (
            *(run.id, run.record.task.id, run.record.task.goal, run.record.task.context),
            *(run.constraint, run.requirement, run.record.outcome.plan, ""),
        )
        for run in runs
    ]
    if path.suffix == ".csv":
        text = Table(name="", columns=[Column(name=name) for name in _SHEET], rows=rows).csv()
    else:
        named = (dict(zip(_SHEET, row, strict=True)) for row in rows)
        text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in named)
    try:
        with path.open("x", encoding="utf-8", newline="") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path} exists and may hold verdicts; name another file") from error


def read_labels(path: Path, records: Sequence[Recorded]) -> tuple[dict[str, bool], int]:
    """Verdicts of people by run, and how many are of runs in none of the records.

    Rows whose verdict is empty are passed over.
    """
    table = open_table(path)
    missing = [name for name in NEEDED if name not in table.names]
    if missing:
        raise DataError(
            f"has no column {missing[0]!r}; it must have {', '.join(NEEDED)}, and has "
            f"{', '.join(table.names)}; 'python -m studies.hidden_constraints sheet' writes such a file",
            file=str(path),
        )
    known = {run.id: run for record in records for run in record.runs}
    tasks = {_plain(run.record.task.id) for run in known.values()}
    labels: dict[str, bool] = {}
    rows: dict[str, int] = {}
    for row in table.rows(NEEDED):
        word = str(row.values.get("satisfied") or "").strip().lower().removesuffix(".0")
        if not word:
            continue
        name, task = row.required("run").strip(), _plain(row.required("task"))
        if task not in tasks:
            raise row.error(f"no task {task!r:.60} is recorded{did_you_mean(task, tasks)}", "task")
        if name in rows:
            raise row.error(
                f"the run {name!r:.60} has a verdict in row {rows[name]} already", "run"
            )
        if word not in _SAID:
            found = row.values["satisfied"]
            raise row.error(f"must be yes or no, found {found!r:.60}", "satisfied")
        rows[name] = row.number
        if name in known:
            _check(row, known[name])
            labels[name] = _SAID[word]
    if not labels:
        found = "no verdict is filled in; write yes or no under satisfied"
        if rows:
            named = ", ".join(record.name for record in records)
            found = f"none of its {len(rows)} runs is in {named}; name the record the sheet was written from"
        raise DataError(found, file=str(path))
    return labels, len(rows) - len(labels)


def _check(row: Row, run: Run) -> None:
    for column, wanted in (("task", run.record.task.id), ("constraint", run.constraint)):
        if _plain(row.required(column)) != _plain(wanted):
            found = row.values[column]
            raise row.error(
                f"{run.id} has the {column} {wanted!r:.60}, found {found!r:.60}", column
            )


def _plain(text: str) -> str:
    """A text as a sheet has it, without the apostrophe that keeps it from being computed."""
    return visible(text).removeprefix("'").strip()
