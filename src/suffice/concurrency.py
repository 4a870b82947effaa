"""Work in several threads, which an interrupt ends without losing or halving a result."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from suffice.errors import BackendError, SufficeError, UsageError

_Task = TypeVar("_Task")
_Task_contra = TypeVar("_Task_contra", contravariant=True)
_Result = TypeVar("_Result")


class Work(Protocol[_Task_contra, _Result]):
    """Work on tasks in several threads: how to do a task, and how to keep its result."""

    def do(self, task: _Task_contra, stop: threading.Event) -> _Result:
        """Do a task, in any thread; it should end early once ``stop`` is set."""

    def keep(self, results: Sequence[tuple[_Task_contra, _Result]], *, broken: bool) -> None:
        """Keep results, in one thread of its own; ``broken``: an error is ending the work."""

    def report(self) -> None:
        """Report progress, in the caller's thread after each :meth:`keep`; may raise to end the work."""


def width_of(model: object) -> int:
    """Return how many tasks at a time suit a model: its attribute ``concurrency``, else 1."""
    return int(getattr(model, "concurrency", 1))


def started(work: Callable[[], object], name: str) -> threading.Thread:
    """Start a thread that does the work and does not keep the process alive."""
    thread = threading.Thread(target=work, name=f"suffice-{name}", daemon=True)
    thread.start()
    return thread


def side_by_side(work: Work[_Task, _Result], tasks: Iterable[_Task], *, concurrency: int) -> bool:
    """Do the tasks, ``concurrency`` at a time; return whether an interrupt ended them.

    Ctrl-C reaches the main thread only, so it cannot cut :meth:`Work.keep` in two. What is under way
    then, or when an error is raised, comes to its end and is kept; what pauses then (:func:`rest`) ends
    there, as work that was neither done nor failed.
    """
    if concurrency < 1:
        raise UsageError(f"concurrency must be at least 1, found {concurrency}")
    with ThreadPoolExecutor(1) as keeper, ThreadPoolExecutor(concurrency) as pool:
        # an interrupt while an executor starts its thread makes it forget the thread: start it now
        keeper.submit(int).result()
        stop, pauses, waiting = threading.Event(), _Cuttable(), iter(tasks)
        pending: dict[Future[_Result], _Task] = {}

        def do(task: _Task) -> _Result:
            _HERE.pauses = pauses
            return work.do(task, stop)

        def fill() -> None:
            free = max(0, concurrency - len(pending))
            for task in () if stop.is_set() else islice(waiting, free):
                pending[pool.submit(do, task)] = task

        def end(*, broken: bool) -> None:
            """Wait for what runs and keep it: in the keeper's thread, behind a result that is being kept."""
            stop.set()
            pauses.cut()

            def drain() -> None:
                wait(pending)
                work.keep(_finished(pending), broken=broken)

            keeper.submit(drain).result()

        try:
            fill()
            while pending:
                done, _ = wait(pending, return_when=FIRST_COMPLETED)
                ended = {future: pending.pop(future) for future in done}
                raised = [future for future in done if future.exception() is not None]
                if not raised:
                    fill()
                keeper.submit(work.keep, _finished(ended), broken=False).result()
                for future in raised:
                    future.result()
                work.report()
        except KeyboardInterrupt:
            end(broken=False)
            return True
        except BaseException:
            with suppress(BackendError):  # a full disk; the first error is the one to tell
                end(broken=True)
            raise
    return False


def _finished(ended: Mapping[Future[_Result], _Task]) -> list[tuple[_Task, _Result]]:
    """Return the results of tasks that raised no error."""
    return [(task, future.result()) for future, task in ended.items() if future.exception() is None]


async def settled(value: _Result | Awaitable[_Result]) -> _Result:
    """A value, or what an awaitable gives."""
    return await value if isinstance(value, Awaitable) else value


def at_once(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Return the result of a coroutine that awaits nothing, without an event loop."""
    try:
        work.send(None)
    except StopIteration as over:
        result: _Result = over.value
        return result
    work.close()
    raise UsageError(
        "a coroutine function was given to a call that cannot wait; use its async form"
    )


class Cut(BaseException):
    """Raised in work that was cut; handlers of ``Exception`` do not catch it."""


class _Cuttable:
    """Blocks of several threads that end early once it is cut."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ways: list[Callable[[], object]] = []
        self.cut_off = False

    def cut(self) -> None:
        """End all current and future blocks."""
        with self._lock:
            self.cut_off = True
            ways = tuple(self._ways)
        for way in ways:
            way()

    @contextmanager
    def by(self, way: Callable[[], object]) -> Iterator[None]:
        """See :func:`may_be_cut`."""
        with self._lock:
            if self.cut_off:
                raise Cut
            self._ways.append(way)
        try:
            yield
        finally:
            with self._lock:
                self._ways.remove(way)
            if self.cut_off:
                raise Cut


class Aside:
    """Work in a thread of its own that can be cut."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._cuttable = _Cuttable()
        self._thread = started(self._run, "aside")

    def _run(self) -> None:
        _HERE.work = self._cuttable
        with suppress(BaseException):
            self._work()

    def cut(self, *, wait: bool = True) -> None:
        """End its waiting blocks early, and wait for the end of its thread."""
        self._cuttable.cut()
        if wait:
            self._thread.join()


class _Here(threading.local):
    """What can cut this thread, all its waiting blocks or its pauses alone, and until when it has time."""

    work: _Cuttable | None = None
    pauses: _Cuttable | None = None
    until: float = math.inf


_HERE = _Here()


@contextmanager
def awaited(until: float) -> Iterator[None]:
    """Return a block for whose result somebody waits until then (``time.monotonic``)."""
    _HERE.until = until
    try:
        yield
    finally:
        _HERE.until = math.inf


def seconds_left() -> float:
    """Return for how long somebody still waits for this thread's work."""
    return _HERE.until - time.monotonic()


def may_be_cut(way: Callable[[], object] = lambda: None) -> AbstractContextManager[None]:
    """Return a block that ends early once the :class:`Aside` of this thread is cut.

    ``way``, called from another thread, lets what the block waits for end. Raises :class:`Cut` at its begin
    or end; in every other thread it does nothing.
    """
    work = _HERE.work
    return nullcontext() if work is None else work.by(way)


@contextmanager
def pause(way: Callable[[], object]) -> Iterator[None]:
    """Return a block that waits for a time to come, which :func:`side_by_side` cuts as well."""
    pauses = _HERE.pauses
    with may_be_cut(way), nullcontext() if pauses is None else pauses.by(way):
        yield


def rest(seconds: float) -> None:
    """Sleep; end early once this thread's work is cut."""
    over = threading.Event()
    with pause(over.set):
        over.wait(seconds)


def as_here(work: Callable[[_Task], _Result]) -> Callable[[_Task], _Result]:
    """Return the work for another thread, which is cut together with this thread's work."""
    here = dict(vars(_HERE))

    def there(task: _Task) -> _Result:
        vars(_HERE).update(here)
        return work(task)

    return there


class Once(Generic[_Result]):
    """A value that the first thread to ask computes; all threads get it, or its error."""

    def __init__(self, compute: Callable[[], _Result]) -> None:
        self._compute = compute
        self._lock = threading.Lock()
        self._future: Future[_Result] = Future()

    def __call__(self) -> _Result:
        """Return the value, or raise its error again."""
        with self._lock:
            if not self._future.done():
                try:
                    self._future.set_result(self._compute())
                except SufficeError as error:
                    self._future.set_exception(error)
        return self._future.result()


# --- calls to a server -----------------------------------------------------------------------------
class CallTally:
    """A count of calls to a server over all threads, and of the failed ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.calls: int = 0
        self.failed: int = 0

    def note(self, *, failed: bool) -> None:
        """Count a call."""
        with self._lock:
            self.calls += 1
            self.failed += failed
