"""Recorded runs as raters see them: a name, a task, what is asked of the plan, and the recorded verdict."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from studies.hidden_constraints.checker import satisfies
from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import BenchmarkSettings, PlanningTask
from suffice.errors import DataError, UsageError
from suffice.loops.planning.recorder import UNREADABLE
from suffice.trace.plans.file import read_plans
from suffice.trace.plans.plan_set import PlanSet
from suffice.trace.plans.records import PlanRecord


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
    def recorded(self) -> bool | None:
        """The recorded judge's verdict."""
        return self.record.outcome.semantic

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
    places = [_plans(path) for path in paths]
    if len({place.resolve() for place in places}) < len(places):
        raise UsageError(f"a record is named twice: {', '.join(paths)}; name each once")
    return tuple(
        _recorded(path, read_plans(place)) for path, place in zip(paths, places, strict=True)
    )


def _plans(path: str) -> Path:
    inside = Path(path) / "plans"
    return inside if inside.is_dir() else Path(path)


def _recorded(name: str, plans: PlanSet) -> Recorded:
    tasks = _tasks(plans)
    runs = tuple(
        _run(record, tasks.get(record.task.id))
        for record in plans.records
        if record.gold is not None and record.gold.constraints
    )
    if not runs:
        raise DataError("no run has a hidden constraint to judge", file=name)
    judge = str(plans.run.get("judge", "not recorded"))
    return Recorded(name=name, judge=judge, runs=runs, left_out=len(plans.records) - len(runs))


def _tasks(plans: PlanSet) -> dict[str, PlanningTask]:
    """The benchmark's tasks, made again from the settings a record states."""
    made = plans.run.get("benchmark")
    if plans.run.get("experiment") != "hidden-constraints" or not isinstance(made, dict):
        return {}
    return {task.id: task for task in generate(BenchmarkSettings(**made)).tasks}


def _run(record: PlanRecord, task: PlanningTask | None) -> Run:
    tokens = () if record.gold is None else record.gold.constraints
    known = task is not None and tokens == (task.constraint.token,)
    named = json.dumps([*record.key, *tokens, record.outcome.plan])
    digest = hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return Run(
        id=f"run-{digest}",  # a spreadsheet takes 12e45678 for a number
        record=record,
        constraint="; ".join(tokens),
        requirement=task.constraint.requirement if task is not None and known else "",
        checked=satisfies(task.constraint, record.outcome.plan).ok
        if task is not None and known
        else None,
    )
