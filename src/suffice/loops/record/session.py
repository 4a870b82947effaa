"""One run of any recorder: the work left, its failures, and the point where it gives up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from suffice.concurrency import side_by_side
from suffice.errors import BackendError, DataError, StorageError
from suffice.llm.connect import KeptReplies
from suffice.trace.parquet import RecordKey
from suffice.trace.recording import RecordWriter, StoredRecord

# a backend is taken to be down after so many failures in a row where nothing was finished yet or lately, or
# so many for each worker with the very same reason
_GIVE_UP_AFTER = 5
_LATELY_S = 60.0
# before what failed in passing is tried again, where nothing got better
_PAUSES_S = (5.0, 10.0, 20.0)

_Task = TypeVar("_Task")
_Record = TypeVar("_Record")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of a recording; ``finished`` counts records of this run."""

    finished: int
    failed: int
    planned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSummary:
    """Counts of a run: records made now, made before, and failed; and whether it was interrupted."""

    recorded: int
    before: int
    failed: int
    interrupted: bool = False

    @property
    def whole(self) -> bool:
        return not self.failed and not self.interrupted


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    run: Mapping[str, Any]
    concurrency: int = 1
    kept: KeptReplies | None = None
    on_start: Callable[[int], None] | None = None
    on_progress: Callable[[Progress], None] = lambda _: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorder(Generic[_Task, _Record]):
    """How tasks, such as ``questions``, become records."""

    noun: str
    key: Callable[[_Task], RecordKey]
    record: Callable[[_Task, threading.Event], _Record | None]


def record_all(
    tasks: Sequence[_Task],
    recorder: Recorder[_Task, _Record],
    writer: RecordWriter[_Record],
    settings: SessionSettings,
) -> RecordSummary:
    """Record every task that the writer does not hold yet.

    Each finished record is durable before the next is reported. A passing failure is tried up to three
    times more when the other tasks have ended; any other failure waits for the next run. An interrupt lets
    running tasks end, keeps what is finished and returns with ``interrupted``.
    """
    wanted = [task for task in tasks if recorder.key(task) not in writer.done]
    # those that fail every time would else look like a backend that is down
    wanted.sort(key=lambda task: recorder.key(task) in writer.failed)
    session = _Session(recorder=recorder, writer=writer, settings=settings, planned=len(wanted))
    if settings.on_start is not None:
        settings.on_start(len(wanted))
    interrupted = _until_nothing_is_left(session, wanted, settings.concurrency)
    return RecordSummary(
        recorded=session.finished,
        before=len(tasks) - len(wanted),
        failed=len(session.failed),
        interrupted=interrupted,
    )


_Made = tuple[StoredRecord, tuple[str, ...]]
"""A record, and the keys of the replies that it is made of."""


_Failure = BackendError | DataError


def _passes(failure: _Failure) -> bool:
    return isinstance(failure, BackendError) and failure.passing


@dataclass(slots=True, kw_only=True)
class _Session(Generic[_Task, _Record]):
    """The work of a recording; fulfils :class:`suffice.concurrency.Work`."""

    recorder: Recorder[_Task, _Record]
    writer: RecordWriter[_Record]
    settings: SessionSettings
    planned: int
    finished: int = 0
    failed: dict[RecordKey, tuple[_Task, _Failure]] = field(default_factory=dict)  # and not since
    _succeeded: float = field(default_factory=time.monotonic)
    _failed_in_a_row: int = 0
    _same_in_a_row: int = 0
    _last: _Failure | None = None

    def do(self, task: _Task, stop: threading.Event) -> _Made | _Failure | None:
        kept = self.settings.kept
        if kept is not None:
            kept.asked()  # for what failed before
        try:
            record = self.recorder.record(task, stop)
            if record is None:
                return None
            # here, since what no file can hold is this task's failure alone
            return self.writer.stored(record), () if kept is None else kept.asked()
        except StorageError:
            raise
        except (BackendError, DataError) as error:
            return error.with_traceback(None)  # which would keep the question's passages

    def keep(
        self, results: Sequence[tuple[_Task, _Made | _Failure | None]], *, broken: bool
    ) -> None:
        stored = [(task, result) for task, result in results if isinstance(result, tuple)]
        self.writer.add([result[0] for _, result in stored])
        if self.settings.kept is not None:
            self.settings.kept.drop(key for _, result in stored for key in result[1])
        self.finished += len(stored)
        for task, _ in stored:
            self.failed.pop(self.recorder.key(task), None)
        if stored:
            self._failed_in_a_row = self._same_in_a_row = 0
            self._succeeded = time.monotonic()
        if broken:
            return  # failures are those of what ends it
        for task, result in results:
            if isinstance(result, _Failure):
                self._fail(task, result)

    def _fail(self, task: _Task, failure: _Failure) -> None:
        key = self.recorder.key(task)
        self.writer.fail(key, str(failure))
        self.failed[key] = (task, failure)
        self._failed_in_a_row += 1
        same = str(failure) == str(self._last) and not _passes(failure)
        self._same_in_a_row = self._same_in_a_row + 1 if same else 1
        self._last = failure

    def report(self) -> None:
        """Report progress, and give up on a backend that is down."""
        self.settings.on_progress(
            Progress(finished=self.finished, failed=len(self.failed), planned=self.planned)
        )
        why = self._hopeless()
        if why is not None:
            raise BackendError(f"{why}; what was recorded is kept, run the same command to go on")

    def _hopeless(self) -> str | None:
        if getattr(self._last, "until", None) is not None:  # the server named a time to wait for
            return str(self._last)
        alike = self._same_in_a_row >= _GIVE_UP_AFTER * self.settings.concurrency
        silent = not self.finished or time.monotonic() - self._succeeded >= _LATELY_S
        if alike or (self._failed_in_a_row >= _GIVE_UP_AFTER and silent):
            what = f"all of the last {self._failed_in_a_row} {self.recorder.noun} failed"
            return f"{what}, the last with: {self._last}"
        return None


def _until_nothing_is_left(
    session: _Session[_Task, _Record], tasks: Sequence[_Task], concurrency: int
) -> bool:
    for pause_s in (*_PAUSES_S, 0.0):
        finished = session.finished
        if side_by_side(session, tasks, concurrency=concurrency):
            return True
        failed = session.failed.values() if session.finished else ()
        tasks = [task for task, failure in failed if _passes(failure)]
        if not tasks:
            return False
        if session.finished == finished:
            try:
                time.sleep(pause_s)
            except KeyboardInterrupt:
                return True
    return False
