"""Record questions to their full budget: concurrent, resumable, nothing finished is ever lost."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from suffice.errors import DataError
from suffice.loops.record.session import Recorder, RecordSummary, SessionSettings, record_all
from suffice.protocols import Retriever
from suffice.trace.durable import Shard
from suffice.trace.rounds.records import Gold, Question, QuestionRecord, Round
from suffice.trace.rounds.writer import question_writer


class Recordable(Protocol):
    """A loop that can be recorded."""

    def rounds(self, question: Question, retriever: Retriever) -> Iterator[Round]:
        """Rounds as they happen, to the full budget."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One question to record. The gold record travels to the writer unread."""

    question: Question
    gold: Gold
    retriever: Retriever


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderSettings(SessionSettings):
    """How a recording runs."""

    concurrency: int = 8
    closed_book: Callable[[Question], Round] | None = None
    may_differ: frozenset[str] = frozenset({"version"})
    rounds: int | None = None
    shard: Shard | None = None


def record(
    tasks: Sequence[Task], pipeline: Recordable, out: str | Path, settings: RecorderSettings
) -> RecordSummary:
    """Record every task that ``out`` does not hold yet.

    Notes
    -----
    Each finished question is in a database before the next is reported, and in Parquet when the recording
    ends. A question that fails is kept with its reason and tried again by the next run, after the others. An
    interrupt lets the rounds under way end, keeps what is finished and returns with ``interrupted``.

    A BackendError or DataError is the failure of its question alone, such as a prompt that is too long;
    a UsageError, such as a wrong key or model name, would meet every question and ends the run at once.
    """
    _check_ids(tasks)
    shard = settings.shard
    if shard is not None:
        tasks = [task for task in tasks if shard.holds(task.question.id)]
    with question_writer(
        out, run=settings.run, may_differ=settings.may_differ, shard=shard
    ) as writer:
        recorder = Recorder(
            noun="questions",
            key=lambda task: (task.question.id,),
            record=partial(_recorded, pipeline, settings),
        )
        return record_all(tasks, recorder, writer, settings)


def _check_ids(tasks: Sequence[Task]) -> None:
    seen: set[str] = set()
    for row, task in enumerate(tasks):
        name = task.question.id
        if not name or name in seen:
            what = f"question id {name!r} appears twice" if name else "a question without an id"
            raise DataError(f"{what}; every question needs its own", row=row, column="question_id")
        seen.add(name)


def _recorded(
    pipeline: Recordable, settings: RecorderSettings, task: Task, stop: threading.Event
) -> QuestionRecord | None:
    closed_book = None
    if settings.closed_book is not None:
        closed_book = _ended_now(settings.closed_book(task.question))
    rounds: list[Round] = []
    for finished in pipeline.rounds(task.question, task.retriever):
        rounds.append(_ended_now(finished))
        if stop.is_set():
            return None
    if not rounds:
        raise DataError("the retriever returned no passage")
    return QuestionRecord(
        question=task.question,
        gold=task.gold,
        rounds=tuple(rounds),
        closed_book=closed_book,
        stopped_by="end" if len(rounds) < (settings.rounds or 0) else None,
    )


def _ended_now(finished: Round) -> Round:
    return replace(finished, time=datetime.now(UTC))
