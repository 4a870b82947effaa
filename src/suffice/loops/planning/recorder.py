"""Record runs of planning agents: concurrent, resumable, nothing finished is ever lost."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from suffice.contracts import Judge
from suffice.errors import UsageError
from suffice.loops.planning.agent import PlanningAgent
from suffice.loops.record.session import Recorder, RecordSummary, SessionSettings, record_all
from suffice.trace.plans.file import plan_writer
from suffice.trace.plans.records import PlanGold, PlanKey, PlanRecord, PlanTask

UNREADABLE = "unreadable"
"""Begins the recorded word of a judge whose reply could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanJob:
    """One run to record. The gold record travels to the writer, and to the judge, unread by the agent."""

    task: PlanTask
    agent: PlanningAgent
    retriever: str | None
    seed: int
    gold: PlanGold | None = None

    @property
    def key(self) -> PlanKey:
        """What no two runs share."""
        return self.task.id, self.agent.control.name, self.retriever, self.seed


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRecorderSettings(SessionSettings):
    """How a recording runs."""

    judge: Judge | None = None


def record_plans(
    jobs: Sequence[PlanJob], out: str | Path, settings: PlanRecorderSettings
) -> RecordSummary:
    """Record every run that ``out`` does not hold yet.

    Each finished run is in a database before the next is reported, and in Parquet when the recording ends.
    One that fails is kept with its reason and tried again by the next recording. An interrupt lets the steps
    under way end, keeps the runs that are finished, and returns with ``interrupted``.
    """
    keys = [job.key for job in jobs]
    if len(set(keys)) < len(keys):
        twice = next(key for at, key in enumerate(keys) if key in keys[:at])
        raise UsageError(
            f"two jobs are the run {twice} (task, agent, retriever, seed); give one of them"
        )
    with plan_writer(out, run=settings.run) as writer:
        recorder = Recorder(
            noun="runs", key=lambda job: job.key, record=partial(_recorded, settings.judge)
        )
        return record_all(jobs, recorder, writer, settings)


def _recorded(judge: Judge | None, job: PlanJob, stop: threading.Event) -> PlanRecord | None:
    ran = job.agent.run_unless(stop, job.task, seed=job.seed)
    if ran is None:
        return None
    record = PlanRecord(
        task=job.task,
        agent=job.agent.control.name,
        retriever=job.retriever,
        seed=job.seed,
        steps=ran.steps,
        outcome=ran.outcome,
        gold=job.gold,
    )
    return _judged(record, judge)


def _judged(record: PlanRecord, judge: Judge | None) -> PlanRecord:
    """With the judge's word: a plan succeeds when it satisfies every hidden constraint."""
    if judge is None or record.gold is None or not record.gold.constraints:
        return record
    verdicts = [judge.judge(token, record.outcome.plan) for token in record.gold.constraints]
    said = "; ".join(f"{verdict.parsed or UNREADABLE}: {verdict.reason}" for verdict in verdicts)
    outcome = replace(
        record.outcome, semantic=all(verdict.ok for verdict in verdicts), verdict=said
    )
    return replace(record, outcome=outcome)
