"""The next round of a loop, begun while a round is answered and decided about."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from suffice.concurrency import Aside, may_be_cut
from suffice.live.budgets import Meter, Tab
from suffice.loops.steps import Step
from suffice.trace.rounds.records import Round, Usage

_Made = TypeVar("_Made")
ToBeAsked = tuple[Step, Callable[[], Round]]
"""A round that the loop has come to, and what gives it with what is read of its answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wasted:
    """What was done for rounds that were not wanted."""

    rounds: int = 0
    calls: int = 0
    cut: int = 0
    tokens: int | None = 0


class Ahead:
    """The rounds of a loop: while round t is decided about, round t + 1 is searched and asked in a thread.

    Its errors and costs are raised and counted where it is reached.
    """

    def __init__(self, steps: Iterator[Step], meter: Meter) -> None:
        self._steps = steps
        self._meter = meter
        self._begun: list[_Begun] = []
        self._reached = 0

    def rounds(self) -> Iterator[ToBeAsked]:
        """The rounds in their order; the one after each is begun when it is given."""
        self._begin(None)
        while self._reached < len(self._begun):
            begun = self._begun[self._reached]
            self._reached += 1
            begun.tab.take()
            step = begun.step.result()
            if step is None:
                return
            if not step.last:
                self._begin(step)
            yield step, begun.asked.result

    def _begin(self, before: Step | None) -> None:
        self._begun.append(_Begun(self._steps, before, Tab(self._meter)))

    def close(self) -> Wasted:
        """Cut what is under way and wait for its end; what of it was never reached."""
        for begun in self._begun:
            begun.aside.cut()
        rest = [begun for begun in self._begun[self._reached :] if begun.came_to_something]
        for begun in rest:
            if begun.looked_up is not None:
                self._meter.add_lookups(begun.looked_up)
        tokens = [begun.tab.tokens for begun in rest]
        replied = sum(begun.tab.replied for begun in rest)
        calls = sum(begun.tab.begun for begun in rest)
        for begun in rest:
            begun.tab.take()  # paid all the same
        return Wasted(
            rounds=len(rest),
            calls=calls,
            cut=calls - replied,
            tokens=None if None in tokens else sum(filter(None, tokens)),
        )


class _Begun:
    """A round under way: come to, then asked."""

    def __init__(self, steps: Iterator[Step], before: Step | None, tab: Tab) -> None:
        self._steps = steps
        self._before = before
        self.tab = tab
        self.step: Future[Step | None] = Future()
        self.asked: Future[Round] = Future()
        self.aside = Aside(self._run)

    def _run(self) -> None:
        step = _into(self.step, self._come_to)
        if step is not None:
            _into(self.asked, step.asked)

    def _come_to(self) -> Step | None:
        if self._before is not None and self._before.then is not None:
            self._before.then.begin()  # is asked in any case, and paid by the round before
        self.tab.open()
        return next(self._steps, None)

    @property
    def looked_up(self) -> Usage | None:
        """What its search cost; ``None``: there was none so far."""
        done = self.step.done() and self.step.exception() is None
        step = self.step.result() if done else None
        return None if step is None else step.found.usage

    @property
    def came_to_something(self) -> bool:
        """Whether anything was done for it."""
        return self.tab.begun > 0 or self.looked_up is not None


def _into(future: Future[_Made], work: Callable[[], _Made]) -> _Made:
    """Do the work; the future has its result or its error, whatever it is: somebody may wait for it."""
    try:
        with may_be_cut():
            result = work()
    except BaseException as error:
        future.set_exception(error)
        raise
    future.set_result(result)
    return result
