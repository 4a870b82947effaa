"""One run of a recorder, whatever it records: what is left to do, what failed, when it gives up."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from suffice.concurrency import Concurrency, at_once, side_by_side
from suffice.errors import BackendError, DataError, StorageError
from suffice.trace.writer import RecordKey, StoredRecord, TraceWriter

# failures in a row after which the backend is taken to be down: so many before the first success, or
# so many for each worker with the very same reason
_GIVE_UP_AFTER = 5

_Task = TypeVar("_Task")
_Task_contra = TypeVar("_Task_contra", contravariant=True)
_Record = TypeVar("_Record")
_Record_co = TypeVar("_Record_co", covariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a recording is; ``finished`` counts what this run finished."""

    finished: int
    failed: int
    planned: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSummary:
    """What a run did: records made now, found recorded before, failed; and whether it was cut."""

    recorded: int
    before: int
    failed: int
    interrupted: bool = False


def _ignore(_: Progress) -> None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """How a recording runs.

    Parameters
    ----------
    run
        The ``suffice.run`` document; a resumed recording must state the same.
    concurrency
        Pieces of work under way at once.
    on_start
        Told, before the first call to the model, how many are still to be recorded.
    on_progress
        Told after every one.
    """

    run: Mapping[str, Any]
    concurrency: Concurrency = 1
    on_start: Callable[[int], None] | None = None
    on_progress: Callable[[Progress], None] = field(default=_ignore)


class Recorder(Protocol[_Task_contra, _Record_co]):
    """Makes one record from one task."""

    @property
    def noun(self) -> str:
        """What the tasks are, for messages: ``questions``."""
        ...

    def key(self, task: _Task_contra) -> RecordKey:
        """The key of its record."""
        ...

    def record(self, task: _Task_contra, stop: threading.Event) -> _Record_co | None:
        """The record, in any thread; ``None`` when told to stop before it was finished.

        Raises
        ------
        BackendError, DataError
            A failure of this task alone.
        """
        ...


def record_all(
    tasks: Sequence[_Task],
    recorder: Recorder[_Task, _Record],
    writer: TraceWriter[_Record],
    settings: SessionSettings,
) -> RecordSummary:
    """Record every task that the writer does not hold yet.

    Each finished record is durable before the next is reported. What fails is stored in
    ``failures.jsonl`` beside the shards and tried again by the next run, after the others. An interrupt
    lets what is under way end, keeps what is finished and returns with ``interrupted``.

    Raises
    ------
    BackendError
        When the first pieces all fail, with the reason, or the disk refuses.
    """
    wanted = [task for task in tasks if recorder.key(task) not in writer.done]
    # those that fail every time would else look like a backend that is down
    wanted.sort(key=lambda task: recorder.key(task) in writer.failed)
    session = _Session(recorder, writer, len(wanted), settings)
    if settings.on_start is not None:
        settings.on_start(len(wanted))
    interrupted = side_by_side(session, wanted, concurrency=settings.concurrency)
    return RecordSummary(
        recorded=session.finished,
        before=len(tasks) - len(wanted),
        failed=session.failed,
        interrupted=interrupted,
    )


@dataclass(frozen=True, slots=True)
class _Failure:
    reason: str


class _Session(Generic[_Task, _Record]):
    """The work of a recording; fulfils :class:`suffice.concurrency.Work`."""

    def __init__(
        self,
        recorder: Recorder[_Task, _Record],
        writer: TraceWriter[_Record],
        planned: int,
        settings: SessionSettings,
    ) -> None:
        self._recorder = recorder
        self._writer = writer
        self._planned = planned
        self._on_progress = settings.on_progress
        self._concurrency = settings.concurrency
        self._failed_in_a_row = 0
        self._same_in_a_row = 0
        self._last_reason = ""
        self.finished = 0
        self.failed = 0

    def do(self, task: _Task, stop: threading.Event) -> StoredRecord | _Failure | None:
        try:
            record = self._recorder.record(task, stop)
            # here, since what no file can hold is this task's failure alone
            return None if record is None else self._writer.stored(record)
        except StorageError:
            raise
        except (BackendError, DataError) as error:
            return _Failure(str(error))

    def keep(
        self, results: Sequence[tuple[_Task, StoredRecord | _Failure | None]], *, broken: bool
    ) -> None:
        stored = [result for _, result in results if isinstance(result, StoredRecord)]
        self._writer.add_stored(stored)
        self.finished += len(stored)
        if stored:
            self._failed_in_a_row = self._same_in_a_row = 0
        if broken:
            return  # failures are those of what ends it
        for task, result in results:
            if isinstance(result, _Failure):
                self._fail(task, result.reason)

    def _fail(self, task: _Task, reason: str) -> None:
        self._writer.fail(self._recorder.key(task), reason)
        self.failed += 1
        self._failed_in_a_row += 1
        self._same_in_a_row = self._same_in_a_row + 1 if reason == self._last_reason else 1
        self._last_reason = reason

    def report(self) -> None:
        """Tell how far it is, and give up on a backend that is down."""
        self._on_progress(
            Progress(finished=self.finished, failed=self.failed, planned=self._planned)
        )
        alike = self._same_in_a_row >= _GIVE_UP_AFTER * at_once(self._concurrency)
        if alike or (self._failed_in_a_row >= _GIVE_UP_AFTER and self.finished == 0):
            raise BackendError(
                f"{self._failed_in_a_row} {self._recorder.noun} failed in a row, the last with: "
                f"{self._last_reason}; what was recorded is kept, run the same command to go on"
            )
