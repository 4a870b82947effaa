"""Record questions to their full budget: concurrent, resumable, nothing finished is ever lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from suffice.errors import BackendError, DataError
from suffice.pipelines.record.session import Failure, Progress, Session
from suffice.protocols import Retriever
from suffice.trace.durable import FailureFile, check_same_run, locked
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import Gold, Question, QuestionRecord, Round
from suffice.trace.rounds.writer import ShardWriter, records_to_table

CERTAINTY_REASON = "certainty_reason"
# said of a run, and no part of what was recorded
_MAY_DIFFER = frozenset({"version", CERTAINTY_REASON})


class Pipeline(Protocol):
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
class RecordSummary:
    """What a run did: questions recorded now, found recorded before, failed; and whether it was cut."""

    recorded: int
    before: int
    failed: int
    interrupted: bool = False


def _ignore(_: Progress) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecorderSettings:
    """How a recording runs.

    ``run`` is the ``suffice.run`` document; a resumed recording must state the same. ``closed_book``
    answers a question without passages, for round 0; ``None``: there is no round 0. ``on_start`` is told,
    before the first call to the model, how many questions are still to be recorded.
    """

    run: Mapping[str, Any]
    concurrency: int = 8
    closed_book: Callable[[Question], Round] | None = None
    on_start: Callable[[int], None] | None = None
    on_progress: Callable[[Progress], None] = field(default=_ignore)


def record(
    tasks: Sequence[Task], pipeline: Pipeline, out: str | Path, settings: RecorderSettings
) -> RecordSummary:
    """Record every task that ``out`` does not hold yet.

    Parameters
    ----------
    tasks
        Questions in the order to record them.
    pipeline
        The loop to run.
    out
        A directory, or a ``.parquet`` file.
    settings
        Provenance, concurrency and progress.

    Notes
    -----
    Each finished question is durable before the next is reported. A question that fails is stored in
    ``failures.jsonl`` beside the shards and tried again by the next run, after the others. An interrupt
    lets the rounds under way end, keeps what is finished and returns with ``interrupted``.

    A BackendError or DataError is the failure of its question alone, such as a prompt that is too long;
    a UsageError, such as a wrong key or model name, would meet every question and ends the run at once.

    Raises
    ------
    UsageError
        When ``out`` was recorded with other settings, another recorder is writing it, or a model or
        retriever cannot be used as asked.
    BackendError
        When the first questions all fail, with the reason, or the disk refuses.
    """
    _check_ids(tasks)
    root = Path(out)
    with locked(root):
        # through JSON, since that is what the files hold: tuples come back as lists
        run = json.loads(json.dumps(settings.run))
        before = _recorded(root, run)
        wanted = [task for task in tasks if task.question.id not in before]
        writer = ShardWriter(root, run=run)
        failures = FailureFile(root)
        # a kill between the rows and this file leaves a failure that has since been mended
        failures.clear([(task.question.id,) for task in tasks if task.question.id in before])
        # questions that fail every time would else look like a backend that is down
        wanted.sort(key=lambda task: (task.question.id,) in failures)
        session = Session(
            _Questions(pipeline, writer, failures, settings.closed_book),
            concurrency=settings.concurrency,
            on_progress=settings.on_progress,
        )
        if settings.on_start is not None:
            settings.on_start(len(wanted))
        interrupted = session.run(wanted)
    return RecordSummary(
        recorded=session.finished,
        before=sum(task.question.id in before for task in tasks),
        failed=session.failed,
        interrupted=interrupted,
    )


def _check_ids(tasks: Sequence[Task]) -> None:
    seen: set[str] = set()
    for row, task in enumerate(tasks):
        name = task.question.id
        if not name or name in seen:
            what = f"question id {name!r} appears twice" if name else "a question without an id"
            raise DataError(f"{what}; every question needs its own", row=row, column="question_id")
        seen.add(name)


def _recorded(root: Path, run: Mapping[str, Any]) -> set[str]:
    """Ids of the questions recorded before, which must be with the same settings."""
    has_rows = root.exists() if root.suffix == ".parquet" else any(root.glob("*.parquet"))
    if not has_rows:
        return set()
    existing = read_traces(root, columns=())
    check_same_run(existing.origin.run, run, root, may_differ=_MAY_DIFFER)
    return set(existing.question_ids)


class _Questions:
    """The work of a recording; fulfils :class:`suffice.pipelines.record.session.Work`."""

    noun = "questions"

    def __init__(
        self,
        pipeline: Pipeline,
        writer: ShardWriter,
        failures: FailureFile,
        closed_book: Callable[[Question], Round] | None,
    ) -> None:
        self._pipeline = pipeline
        self._writer = writer
        self._failures = failures
        self._closed_book = closed_book

    def add(self, results: Sequence[QuestionRecord]) -> None:
        self._writer.add(results)
        self._failures.clear([(each.question.id,) for each in results])

    def fail(self, task: Task, reason: str) -> None:
        self._failures.add((task.question.id,), reason)

    def do(self, task: Task, stop: threading.Event) -> QuestionRecord | Failure | None:
        rounds: list[Round] = []
        answer = self._closed_book
        try:
            closed_book = None if answer is None else answer(task.question)
            for each in self._pipeline.rounds(task.question, task.retriever):
                rounds.append(each)
                if stop.is_set():
                    return None
            if not rounds:
                return Failure("the retriever returned no passage")
            finished = QuestionRecord(
                question=task.question,
                gold=task.gold,
                rounds=tuple(rounds),
                closed_book=closed_book,
            )
            records_to_table([finished])  # what no file can hold is this question's failure alone
        except (BackendError, DataError) as error:
            return Failure(str(error))
        return finished
