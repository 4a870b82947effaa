"""Work done side by side in threads, so that an interrupt cuts no result in two."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import islice
from typing import Generic, Protocol, TypeVar

from suffice.errors import BackendError, UsageError

_Task = TypeVar("_Task")
_Task_contra = TypeVar("_Task_contra", contravariant=True)
_Result = TypeVar("_Result")


class Work(Protocol[_Task_contra, _Result]):
    """What is done, and where it is put what comes out."""

    def do(self, task: _Task_contra, stop: threading.Event) -> _Result:
        """One piece, in any thread; to be ended early when ``stop`` is set. Setting it takes no more."""
        ...

    def keep(self, results: Sequence[tuple[_Task_contra, _Result]], *, broken: bool) -> None:
        """Take in results, in one thread of its own; ``broken``: while an error ends it all."""
        ...

    def report(self) -> None:
        """Told in the caller's thread after each :meth:`keep`; may raise to end it."""
        ...


def side_by_side(work: Work[_Task, _Result], tasks: Iterable[_Task], *, concurrency: int) -> bool:
    """Do the work, so many tasks under way at once; true when interrupted.

    Ctrl-C reaches the main thread only, so it cannot cut :meth:`Work.keep` in two. What is under way
    then, or when an error is raised, comes to its end and is kept.

    Raises
    ------
    UsageError
        For no worker at all.
    """
    if concurrency < 1:
        raise UsageError(f"concurrency must be at least 1, found {concurrency}")
    with ThreadPoolExecutor(1) as keeper, ThreadPoolExecutor(concurrency) as pool:
        # an interrupt while an executor starts its thread makes it forget the thread: start it now
        keeper.submit(int).result()
        under_way = _UnderWay(work, iter(tasks), pool)
        try:
            under_way.submit(concurrency)
            while under_way.pending:
                ended, raised = under_way.wait()
                if not raised:
                    under_way.submit(len(ended))
                keeper.submit(work.keep, ended, broken=False).result()
                for future in raised:
                    future.result()
                work.report()
        except KeyboardInterrupt:
            under_way.stop.set()
            # behind a result that may just be kept
            keeper.submit(under_way.drain, broken=False).result()
            return True
        except BaseException:
            under_way.stop.set()
            with suppress(BackendError):  # a full disk; the first error is the one to tell
                keeper.submit(under_way.drain, broken=True).result()
            raise
    return False


class _UnderWay(Generic[_Task, _Result]):
    """The tasks that workers are at, and those that wait for one."""

    def __init__(
        self, work: Work[_Task, _Result], waiting: Iterator[_Task], pool: ThreadPoolExecutor
    ) -> None:
        self._work = work
        self._waiting = waiting
        self._pool = pool
        self.stop = threading.Event()
        self.pending: dict[Future[_Result], _Task] = {}

    def submit(self, count: int) -> None:
        """Begin so many more, unless told to stop."""
        for task in () if self.stop.is_set() else islice(self._waiting, count):
            self.pending[self._pool.submit(self._work.do, task, self.stop)] = task

    def wait(self) -> tuple[list[tuple[_Task, _Result]], list[Future[_Result]]]:
        """Results of those that come to their end next, and those that raised."""
        done, _ = wait(self.pending, return_when=FIRST_COMPLETED)
        ended = {future: self.pending.pop(future) for future in done}
        return _finished(ended), [future for future in done if future.exception() is not None]

    def drain(self, *, broken: bool) -> None:
        """Keep what is under way."""
        wait(self.pending)
        self._work.keep(_finished(self.pending), broken=broken)


def _finished(ended: Mapping[Future[_Result], _Task]) -> list[tuple[_Task, _Result]]:
    """Those that did not raise."""
    return [(task, future.result()) for future, task in ended.items() if future.exception() is None]
