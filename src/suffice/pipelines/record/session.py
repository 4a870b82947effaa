"""One run of a recorder: workers do the work, one thread of its own writes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from suffice.errors import BackendError, UsageError

# failures in a row after which the backend is taken to be down: so many before the first success, or
# so many for each worker with the very same reason
_GIVE_UP_AFTER = 5

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a recording is; ``finished`` counts what this run finished."""

    finished: int
    failed: int
    planned: int


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a piece of work could not be finished."""

    reason: str


class Work(Protocol[T_contra, R]):
    """What a session does, and where it puts what comes out."""

    @property
    def noun(self) -> str:
        """What the pieces are, for messages: ``questions``."""
        ...

    def do(self, task: T_contra, stop: threading.Event) -> R | Failure | None:
        """One piece, in any thread; ``None`` when told to stop before it was finished."""
        ...

    def add(self, results: Sequence[R]) -> None:
        """Make results durable."""
        ...

    def fail(self, task: T_contra, reason: str) -> None:
        """Note, durably, that a piece could not be finished."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Done(Generic[T, R]):
    task: T
    result: R | Failure | None


def _finished(ended: Mapping[Future[R | Failure | None], T]) -> list[_Done[T, R]]:
    """Those that did not raise."""
    return [
        _Done(task=task, result=future.result())
        for future, task in ended.items()
        if future.exception() is None
    ]


class Session(Generic[T, R]):
    """Does pieces of work side by side; each is durable before the next is reported.

    Ctrl-C reaches the main thread only, so it cannot cut a write in two.

    Parameters
    ----------
    work
        What is done.
    concurrency
        Workers.
    on_progress
        Told after every piece.
    """

    def __init__(
        self,
        work: Work[T, R],
        *,
        concurrency: int,
        on_progress: Callable[[Progress], None],
    ) -> None:
        if concurrency < 1:
            raise UsageError(f"concurrency must be at least 1, found {concurrency}")
        self._work = work
        self._concurrency = concurrency
        self._on_progress = on_progress
        self._stop = threading.Event()
        self._planned = 0
        self._failed_in_a_row = 0
        self._same_in_a_row = 0
        self._last_reason = ""
        self.finished = 0
        self.failed = 0

    def run(self, tasks: Sequence[T]) -> bool:
        """Do the work; true when interrupted.

        Raises
        ------
        BackendError
            When the first pieces all fail, with the reason, or the disk refuses.
        """
        self._planned = len(tasks)
        waiting = iter(tasks)
        pending: dict[Future[R | Failure | None], T] = {}
        with ThreadPoolExecutor(1) as disk, ThreadPoolExecutor(self._concurrency) as pool:
            # an interrupt while an executor starts its thread makes it forget the thread: start it now
            disk.submit(int).result()

            def submit() -> None:
                task = next(waiting, None)
                if task is not None and not self._stop.is_set():
                    pending[pool.submit(self._work.do, task, self._stop)] = task

            try:
                for _ in range(self._concurrency):
                    submit()
                while pending:
                    done, _ = wait(pending, return_when=FIRST_COMPLETED)
                    ended = {each: pending.pop(each) for each in done}
                    raised = [each for each in done if each.exception() is not None]
                    for _ in () if raised else done:
                        submit()
                    disk.submit(self._store, _finished(ended)).result()
                    for each in raised:
                        each.result()
                    self._report()
            except KeyboardInterrupt:
                self._stop.set()
                # behind a write that may be under way
                disk.submit(self._drain, pending).result()
                return True
            except BaseException:
                self._stop.set()
                with suppress(BackendError):  # a full disk; the first error is the one to tell
                    disk.submit(self._drain, pending, failures=False).result()
                raise
        return False

    def _drain(
        self, pending: Mapping[Future[R | Failure | None], T], *, failures: bool = True
    ) -> None:
        """Keep what finishes while the end comes in; ``failures`` too, unless that is why it ends."""
        wait(pending)
        ended = _finished(pending)
        self._store(ended if failures else [x for x in ended if not isinstance(x.result, Failure)])

    def _store(self, results: Sequence[_Done[T, R]]) -> None:
        finished = [each for each in results if not isinstance(each.result, Failure | None)]
        self._work.add([each.result for each in finished])  # type: ignore[misc]
        self.finished += len(finished)
        if finished:
            self._failed_in_a_row = self._same_in_a_row = 0
        for each in results:
            if isinstance(each.result, Failure):
                self._work.fail(each.task, each.result.reason)
                self.failed += 1
                self._failed_in_a_row += 1
                same = each.result.reason == self._last_reason
                self._same_in_a_row = self._same_in_a_row + 1 if same else 1
                self._last_reason = each.result.reason

    def _report(self) -> None:
        """Tell how far it is, and give up on a backend that is down."""
        self._on_progress(
            Progress(finished=self.finished, failed=self.failed, planned=self._planned)
        )
        alike = self._same_in_a_row >= _GIVE_UP_AFTER * self._concurrency
        if alike or (self._failed_in_a_row >= _GIVE_UP_AFTER and self.finished == 0):
            raise BackendError(
                f"{self._failed_in_a_row} {self._work.noun} failed in a row, the last with: "
                f"{self._last_reason}; what was recorded is kept, run the same command to go on"
            )
