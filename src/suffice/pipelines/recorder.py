"""Record questions to their full budget: concurrent, resumable, nothing finished is ever lost."""

from __future__ import annotations

import fcntl
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from suffice.errors import BackendError, DataError, UsageError
from suffice.protocols import Retriever
from suffice.trace.atomic import replace_file
from suffice.trace.reader import failures_file, read_traces
from suffice.trace.records import Gold, Question, QuestionRecord, Round
from suffice.trace.table import TraceSet
from suffice.trace.writer import ShardWriter, records_to_table

__all__ = [
    "CERTAINTY_REASON",
    "Pipeline",
    "Progress",
    "RecordSummary",
    "RecorderSettings",
    "Task",
    "record",
]

# failures in a row after which the backend is taken to be down: so many before the first success, or
# so many for each question under way with the very same reason
_GIVE_UP_AFTER = 5

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
class Progress:
    """How far a recording is; ``finished`` counts this run's questions."""

    finished: int
    failed: int
    planned: int


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


@dataclass(frozen=True, slots=True)
class _Failure:
    reason: str


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
    with _locked(root):
        existing = _existing(root)
        # through JSON, since that is what the files hold: tuples come back as lists
        run = json.loads(json.dumps(settings.run))
        _check_same_run(existing, run, root)
        before = set() if existing is None else set(existing.question_ids)
        wanted = [task for task in tasks if task.question.id not in before]
        writer = ShardWriter(root, run=run)
        failures = _Failures(root)
        # a kill between the rows and this file leaves a failure that has since been mended
        failures.clear([task.question.id for task in tasks if task.question.id in before])
        # questions that fail every time would else look like a backend that is down
        wanted.sort(key=lambda task: task.question.id in failures)
        session = _Session(pipeline, writer, failures, settings, len(wanted))
        if settings.on_start is not None:
            settings.on_start(len(wanted))
        interrupted = session.run(wanted)
        found_before = sum(task.question.id in before for task in tasks)
    return RecordSummary(
        recorded=session.finished,
        before=found_before,
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


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    """Keep a second recorder out; the lock goes with the process, however it ends."""
    single = root.suffix == ".parquet"
    folder = root.parent if single else root
    name = f".{root.name}.lock" if single else ".lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / name).open("w")
    except OSError as error:
        raise DataError(
            f"cannot be written: {error.strerror or error}; choose another --out", file=str(folder)
        ) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"another recorder is writing {root}; wait for it or choose another --out"
            ) from error
        yield


def _existing(root: Path) -> TraceSet | None:
    has_rows = root.exists() if root.suffix == ".parquet" else any(root.glob("*.parquet"))
    return read_traces(root, columns=()) if has_rows else None


def _check_same_run(existing: TraceSet | None, run: Mapping[str, Any], root: Path) -> None:
    if existing is None:
        return
    before = existing.origin.run
    changed = [
        f"{name} was {before.get(name)!r}, now {run.get(name)!r}"
        for name in sorted({*before, *run} - _MAY_DIFFER)
        if before.get(name) != run.get(name)
    ]
    if changed:
        raise UsageError(
            f"{root} was recorded with other settings ({'; '.join(changed)}); "
            "use the same settings to go on, or choose another --out"
        )


class _Failures:
    """The failures file: one line a question that could not be finished."""

    def __init__(self, root: Path) -> None:
        self._path = failures_file(root)
        self._lines: dict[str, dict[str, Any]] = {}
        if self._path.exists():
            self._load()

    def _load(self) -> None:
        for number, line in enumerate(self._path.read_bytes().splitlines()):
            if not line.strip():
                continue
            try:
                entry = json.loads(line.decode("utf-8"))
                self._lines[entry["question_id"]] = {**entry, "attempts": int(entry["attempts"])}
            except (ValueError, KeyError, TypeError) as error:
                raise DataError(
                    "not a failure record; delete the line to go on",
                    file=str(self._path),
                    row=number,
                ) from error

    def __contains__(self, question_id: str) -> bool:
        return question_id in self._lines

    def add(self, question_id: str, reason: str) -> None:
        attempts = int(self._lines.get(question_id, {}).get("attempts", 0)) + 1
        self._lines[question_id] = {
            "question_id": question_id,
            "reason": reason,
            "attempts": attempts,
        }
        self._write()

    def clear(self, question_ids: Sequence[str]) -> None:
        known = [each for each in question_ids if each in self._lines]
        for each in known:
            del self._lines[each]
        if known:
            self._write()

    def _write(self) -> None:
        lines = [json.dumps(entry, ensure_ascii=False) for entry in self._lines.values()]
        replace_file(
            self._path, "".join(f"{line}\n" for line in lines).encode(errors="backslashreplace")
        )


class _Session:
    """One run of the recorder: workers run questions, one thread of its own writes.

    Ctrl-C reaches the main thread only, so it cannot cut a write in two.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        writer: ShardWriter,
        failures: _Failures,
        settings: RecorderSettings,
        planned: int,
    ) -> None:
        self._pipeline = pipeline
        self._writer = writer
        self._failures = failures
        self._settings = settings
        self._planned = planned
        self._stop = threading.Event()
        self._failed_in_a_row = 0
        self._same_in_a_row = 0
        self._last_reason = ""
        self.finished = 0
        self.failed = 0

    def run(self, tasks: Sequence[Task]) -> bool:
        """Record the tasks; true when interrupted."""
        waiting = iter(tasks)
        pending: dict[Future[QuestionRecord | _Failure | None], Task] = {}
        with ThreadPoolExecutor(1) as disk, ThreadPoolExecutor(self._settings.concurrency) as pool:
            # an interrupt while an executor starts its thread makes it forget the thread: start it now
            disk.submit(int).result()

            def submit() -> None:
                task = next(waiting, None)
                if task is not None and not self._stop.is_set():
                    pending[pool.submit(self._record_one, task)] = task

            try:
                for _ in range(self._settings.concurrency):
                    submit()
                while pending:
                    done, _ = wait(pending, return_when=FIRST_COMPLETED)
                    results = [(pending.pop(future), future.result()) for future in done]
                    for _ in done:
                        submit()
                    disk.submit(self._store, results).result()
                    self._report()
            except KeyboardInterrupt:
                self._stop.set()
                # behind a write that may be under way
                disk.submit(self._drain, pending).result()
                return True
            except BaseException:
                self._stop.set()
                raise
        return False

    def _drain(self, pending: Mapping[Future[QuestionRecord | _Failure | None], Task]) -> None:
        """Keep what finished while the interrupt came in."""
        done, _ = wait(pending)
        self._store([(pending[future], future.result()) for future in done])

    def _record_one(self, task: Task) -> QuestionRecord | _Failure | None:
        """``None`` when told to stop before the question was finished."""
        rounds: list[Round] = []
        answer = self._settings.closed_book
        try:
            closed_book = None if answer is None else answer(task.question)
            for each in self._pipeline.rounds(task.question, task.retriever):
                rounds.append(each)
                if self._stop.is_set():
                    return None
            if not rounds:
                return _Failure("the retriever returned no passage")
            finished = QuestionRecord(
                question=task.question,
                gold=task.gold,
                rounds=tuple(rounds),
                closed_book=closed_book,
            )
            records_to_table([finished])  # what no file can hold is this question's failure alone
        except (BackendError, DataError) as error:
            return _Failure(str(error))
        return finished

    def _store(self, results: Sequence[tuple[Task, QuestionRecord | _Failure | None]]) -> None:
        records = [each for _, each in results if isinstance(each, QuestionRecord)]
        self._writer.add(records)
        self._failures.clear([each.question.id for each in records])
        self.finished += len(records)
        if records:
            self._failed_in_a_row = self._same_in_a_row = 0
        for task, result in results:
            if isinstance(result, _Failure):
                self._failures.add(task.question.id, result.reason)
                self.failed += 1
                self._failed_in_a_row += 1
                same = result.reason == self._last_reason
                self._same_in_a_row = self._same_in_a_row + 1 if same else 1
                self._last_reason = result.reason

    def _report(self) -> None:
        """Tell how far it is, and give up on a backend that is down."""
        self._settings.on_progress(
            Progress(finished=self.finished, failed=self.failed, planned=self._planned)
        )
        alike = self._same_in_a_row >= _GIVE_UP_AFTER * self._settings.concurrency
        if alike or (self._failed_in_a_row >= _GIVE_UP_AFTER and self.finished == 0):
            raise BackendError(
                f"{self._failed_in_a_row} questions failed in a row, the last with: "
                f"{self._last_reason}; what was recorded is kept, run the same command to go on"
            )
