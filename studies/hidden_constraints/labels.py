"""People's verdicts on plans: the sheet they fill in, blind, and the sheet read back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from studies.hidden_constraints.recorded import Recorded, Run
from suffice.datasets.files import FileTable, Row, open_table
from suffice.errors import DataError, UsageError, did_you_mean
from suffice.results.markup import visible
from suffice.results.table import Column, Table

NEEDED = ("run", "task", "constraint", "satisfied")
_SHEET = ("run", "task", "goal", "context", "constraint", "requirement", "plan", "satisfied")
_SAID = {"yes": True, "y": True, "true": True, "1": True}
_SAID |= {"no": False, "n": False, "false": False, "0": False}


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
    text = _in_form(path, rows)
    try:
        with path.open("x", encoding="utf-8", newline="") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path} exists and may hold verdicts; name another file") from error


def _in_form(path: Path, rows: Sequence[Sequence[str]]) -> str:
    if path.suffix == ".csv":
        return Table(name="sheet", columns=[Column(name=name) for name in _SHEET], rows=rows).csv()
    if path.suffix == ".jsonl":
        named = (dict(zip(_SHEET, row, strict=True)) for row in rows)
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in named)
    raise UsageError(f"--out must end in .csv or .jsonl, found {path}")


@dataclass(frozen=True, slots=True)
class Labels:
    """Verdicts of people by run; ``elsewhere`` are of runs in none of the records."""

    by_run: Mapping[str, bool]
    elsewhere: int


def read_labels(path: Path, records: Sequence[Recorded]) -> Labels:
    """Verdicts by run; rows whose verdict is empty are passed over.

    Raises
    ------
    DataError
        For a missing column, a task that no record has, another task or constraint than the run's, a run
        twice, a word that is no verdict, and where no verdict is of a recorded run.
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
    for row in _filled(table):
        name, task = row.required("run").strip(), _plain(row.required("task"))
        if task not in tasks:
            raise row.error(f"no task {task!r:.60} is recorded{did_you_mean(task, tasks)}", "task")
        if name in rows:
            raise row.error(
                f"the run {name!r:.60} has a verdict in row {rows[name]} already", "run"
            )
        rows[name], verdict = row.number, _verdict(row)
        if name in known:
            _check(row, known[name])
            labels[name] = verdict
    if not labels:
        found = "no verdict is filled in; write yes or no under satisfied"
        if rows:
            named = ", ".join(record.name for record in records)
            found = f"none of its {len(rows)} runs is in {named}; name the record the sheet was written from"
        raise DataError(found, file=str(path))
    return Labels(labels, len(rows) - len(labels))


def _filled(table: FileTable) -> list[Row]:
    """The rows with a verdict."""
    return [row for row in table.rows(NEEDED) if _word(row)]


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


def _word(row: Row) -> str:
    value = row.values.get("satisfied")
    return "" if value is None else str(value).strip().lower().removesuffix(".0")


def _verdict(row: Row) -> bool:
    word = _word(row)
    if word not in _SAID:
        raise row.error(f"must be yes or no, found {row.values['satisfied']!r:.60}", "satisfied")
    return _SAID[word]
