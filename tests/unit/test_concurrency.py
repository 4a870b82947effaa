"""Work side by side: what is kept when it ends as planned, by an interrupt or by an error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from suffice.concurrency import Aside, as_here, may_be_cut, rest, side_by_side
from suffice.errors import BackendError, UsageError


class Squares:
    """Squares numbers; ``hook`` may do something else instead."""

    def __init__(self, *, after: Callable[[int], None] | None = None) -> None:
        self.kept: dict[int, int] = {}
        self.keepers: set[str] = set()
        self.broken: list[bool] = []
        self.reports: list[int] = []
        self.after = after

    def do(self, task: int, stop: threading.Event) -> int:
        if task < 0:
            raise ZeroDivisionError
        if task == 99:
            stop.set()
        return task * task

    def keep(self, results: Sequence[tuple[int, int]], *, broken: bool) -> None:
        self.keepers.add(threading.current_thread().name)
        self.broken.append(broken)
        self.kept.update(results)

    def report(self) -> None:
        self.reports.append(len(self.kept))
        if self.after is not None:
            self.after(len(self.kept))


@pytest.mark.parametrize("concurrency", [1, 3])
def test_every_result_is_kept_by_one_thread(concurrency: int) -> None:
    work = Squares()
    assert not side_by_side(work, range(20), concurrency=concurrency)
    assert work.kept == {number: number * number for number in range(20)}
    assert len(work.keepers) == 1
    assert threading.current_thread().name not in work.keepers
    assert work.reports[-1] == 20
    assert not any(work.broken)


def test_tasks_are_taken_as_they_are_needed() -> None:
    taken: list[int] = []

    def numbers() -> Iterator[int]:
        for number in range(10):
            taken.append(number)
            yield number

    ahead: list[int] = []
    work = Squares(after=lambda kept: ahead.append(len(taken) - kept))
    side_by_side(work, numbers(), concurrency=2)
    assert max(ahead) <= 2


def test_work_may_say_that_it_is_enough() -> None:
    work = Squares()
    assert not side_by_side(work, [1, 99, *range(2, 50)], concurrency=1)
    assert work.kept == {1: 1, 99: 9801}


def test_an_interrupt_keeps_what_is_under_way() -> None:
    def interrupt(kept: int) -> None:
        if kept >= 3:
            raise KeyboardInterrupt

    work = Squares(after=interrupt)
    assert side_by_side(work, range(50), concurrency=2)
    assert 3 <= len(work.kept) <= 6  # two by two
    assert not any(work.broken)


def test_an_interrupt_cuts_pauses_short() -> None:
    """Those of the work's own threads, too; what pauses is neither kept nor failed."""
    resting = threading.Barrier(3)

    class Rests(Squares):
        def do(self, task: int, stop: threading.Event) -> int:
            if task < 2:
                resting.wait(5)
                if task:
                    rest(60)
                with ThreadPoolExecutor(1) as pool:
                    list(pool.map(as_here(rest), [60.0]))
            else:
                resting.wait(5)
            return super().do(task, stop)

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    work = Rests(after=interrupt)
    begun = time.perf_counter()
    assert side_by_side(work, range(3), concurrency=3)
    assert time.perf_counter() - begun < 20
    assert work.kept == {2: 4}
    rest(0.001)  # this thread was not cut


def test_an_error_of_the_work_ends_it_and_the_others_are_kept() -> None:
    work = Squares()
    with pytest.raises(ZeroDivisionError):
        side_by_side(work, [1, 2, -1, *range(3, 50)], concurrency=1)
    assert work.kept == {1: 1, 2: 4}
    assert work.broken[-1]


def test_the_first_error_is_the_one_to_tell() -> None:
    class Full(Squares):
        def keep(self, results: Sequence[tuple[int, int]], *, broken: bool) -> None:
            raise BackendError("second" if broken else "first")

    with pytest.raises(BackendError, match="first"):
        side_by_side(Full(), range(5), concurrency=2)


def test_no_worker_at_all() -> None:
    with pytest.raises(UsageError, match="concurrency must be at least 1, found 0"):
        side_by_side(Squares(), [1], concurrency=0)


def test_work_aside_that_is_cut_ends_at_its_next_block() -> None:
    reached: list[str] = []
    go = threading.Event()

    def work() -> None:
        go.wait(5)
        reached.append("before")
        with may_be_cut():
            reached.append("never")

    aside = Aside(work)
    threading.Timer(0.02, go.set).start()
    aside.cut()
    assert reached == ["before"]
    with may_be_cut(lambda: reached.append("nobody cuts this thread")):
        reached.append("after")
    assert reached == ["before", "after"]
