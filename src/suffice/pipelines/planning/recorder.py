"""Record runs of planning agents: concurrent, resumable, nothing finished is ever lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from suffice.errors import BackendError, DataError, UsageError
from suffice.pipelines.planning.agent import PlanningAgent
from suffice.pipelines.record.recorder import RecordSummary
from suffice.pipelines.record.session import Failure, Progress, Session
from suffice.protocols import Judge
from suffice.trace.plans.file import PlanWriter
from suffice.trace.plans.records import PlanGold, PlanKey, PlanRecord, PlanTask
from suffice.trace.plans.rows import PLAN_ROWS
from suffice.trace.rounds.writer import rows_to_table

UNREADABLE = "unreadable"
"""Begins the recorded word of a judge whose reply could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanJob:
    """One run to record. The gold record travels to the writer, and to the judge, unread by the agent.

    Parameters
    ----------
    task, seed
        What is planned, and what its draws depend on.
    agent
        Who plans, with its retriever; may serve many jobs at once.
    retriever
        The retriever's name; ``None``: the agent has none.
    gold
        The task's hidden constraints and the documents that carry them.
    """

    task: PlanTask
    agent: PlanningAgent
    retriever: str | None
    seed: int
    gold: PlanGold | None = None

    @property
    def key(self) -> PlanKey:
        """What no two runs share."""
        return self.task.id, self.agent.control.name, self.retriever, self.seed


def _ignore(_: Progress) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecorderSettings:
    """How a recording runs.

    ``run`` is the ``suffice.run`` document; a resumed recording must state the same. ``judge`` is asked
    about the final plan of a task with gold, once for each hidden constraint; ``None``: nobody is.
    """

    run: Mapping[str, Any]
    concurrency: int = 1
    judge: Judge | None = None
    on_start: Callable[[int], None] | None = None
    on_progress: Callable[[Progress], None] = field(default=_ignore)


def record_plans(
    jobs: Sequence[PlanJob], out: str | Path, settings: PlanRecorderSettings
) -> RecordSummary:
    """Record every run that ``out`` does not hold yet.

    Each finished run is durable before the next is reported. One that fails is stored in
    ``failures.jsonl`` and tried again by the next recording, after the others. An interrupt lets the steps
    under way end, keeps the runs that are finished, and returns with ``interrupted``.

    Raises
    ------
    UsageError
        When two jobs are the same run, ``out`` was recorded with other settings, or a model or retriever
        cannot be used as asked.
    BackendError
        When the first runs all fail, with the reason, or the disk refuses.
    """
    keys = [job.key for job in jobs]
    if len(set(keys)) < len(keys):
        twice = next(key for at, key in enumerate(keys) if key in keys[:at])
        raise UsageError(
            f"two jobs are the run {twice} (task, agent, retriever, seed); give one of them"
        )
    with PlanWriter(out, run=settings.run) as writer:
        wanted = [job for job in jobs if job.key not in writer.done]
        # runs that fail every time would else look like a backend that is down
        wanted.sort(key=lambda job: job.key in writer.failed)
        session = Session(
            _Plans(writer, settings.judge),
            concurrency=settings.concurrency,
            on_progress=settings.on_progress,
        )
        if settings.on_start is not None:
            settings.on_start(len(wanted))
        interrupted = session.run(wanted)
        before = len(jobs) - len(wanted)
    return RecordSummary(
        recorded=session.finished, before=before, failed=session.failed, interrupted=interrupted
    )


class _Plans:
    """The work of a recording; fulfils :class:`suffice.pipelines.record.session.Work`."""

    noun = "runs"

    def __init__(self, writer: PlanWriter, judge: Judge | None) -> None:
        self._writer = writer
        self._judge = judge

    def add(self, results: Sequence[PlanRecord]) -> None:
        self._writer.add(results)

    def fail(self, task: PlanJob, reason: str) -> None:
        self._writer.fail(task.key, reason)

    def do(self, task: PlanJob, stop: threading.Event) -> PlanRecord | Failure | None:
        try:
            ran = task.agent.run_unless(stop, task.task, seed=task.seed)
            if ran is None:
                return None
            finished = PlanRecord(
                task=task.task,
                agent=task.agent.control.name,
                retriever=task.retriever,
                seed=task.seed,
                steps=ran.steps,
                outcome=ran.outcome,
                gold=task.gold,
            )
            finished = _judged(finished, self._judge)
            rows_to_table(
                PLAN_ROWS, [finished], {}
            )  # what no file can hold is this run's failure alone
        except (BackendError, DataError) as error:
            return Failure(str(error))
        return finished


def _judged(record: PlanRecord, judge: Judge | None) -> PlanRecord:
    """With the judge's word: a plan succeeds when it satisfies every hidden constraint."""
    if judge is None or record.gold is None or not record.gold.constraints:
        return record
    verdicts = [judge.judge(each, record.outcome.plan) for each in record.gold.constraints]
    said = "; ".join(f"{each.parsed or UNREADABLE}: {each.reason}" for each in verdicts)
    outcome = replace(record.outcome, semantic=all(each.ok for each in verdicts), verdict=said)
    return replace(record, outcome=outcome)
