"""Loops in LangGraph: one for each run or thread."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from suffice.errors import UsageError
from suffice.pipelines.live.loop import Loop
from suffice.pipelines.live.watch import Watch


class RunEnded(Exception):  # noqa: N818
    """A graph's run was left before its loop ended: a failed tool, a limit, another question."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a run stands: a thread, which may be resumed, and the graph's place among subgraphs."""

    thread: str
    graph: str


class GraphLoops:
    """The loops under way in the runs of a graph, by a key.

    A run that fails tells nobody. Without a thread its loop ends, as failed, when the run is gone and another
    begins; on a thread, which may be resumed, when another question is begun there.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._open: dict[Hashable, tuple[Loop, _Place | None]] = {}
        self._threads: dict[str, dict[str, Hashable]] = {}
        self._gone: deque[Hashable] = deque()

    def sweep(self) -> None:
        """End the loops of runs that are gone: memory is freed anywhere, so no more than noted there."""
        while self._gone:
            self.abandon(self._gone.popleft(), "the run ended before its answer")

    def get(self, key: Hashable) -> Loop | None:
        """The loop under way."""
        held = self._open.get(key)
        return None if held is None else held[0]

    def begin(self, text: str, runtime: Any, key: Hashable = None) -> Loop:
        """A new loop; its key is its question's id where none is given."""
        self.sweep()
        place = _place(runtime)
        for left in () if place is None else self._under(place):
            self.abandon(left, "another question was asked on its thread")
        run_id = _info(runtime, "run_id")
        try:
            loop = self._watch.question(text, question_id=run_id and str(run_id)).begin()
        except UsageError:  # another question of this run is under way
            loop = self._watch.question(text).begin()
        key = loop.question_id if key is None else key
        self._open[key] = loop, place
        if place is not None:
            self._threads.setdefault(place.thread, {})[place.graph] = key
        else:
            weakref.finalize(run_of(runtime), self._gone.append, key).atexit = False
        return loop

    def pop(self, key: Hashable) -> Loop | None:
        """The loop, for its caller to end."""
        loop, place = self._open.pop(key, (None, None))
        if place is not None and self._threads.get(place.thread, {}).get(place.graph) == key:
            del self._threads[place.thread][place.graph]
            if not self._threads[place.thread]:
                del self._threads[place.thread]
        return loop

    def abandon(self, key: Hashable, why: str) -> None:
        """End a loop whose run did not come to its end."""
        loop = self.pop(key)
        if loop is not None:
            loop.end(RunEnded(why))

    def _under(self, place: _Place) -> list[Hashable]:
        """What is under way in this graph of the thread, and in its subgraphs."""
        held = self._threads.get(place.thread, {})
        return [key for graph, key in held.items() if graph.startswith(place.graph)]


def run_of(runtime: Any) -> Any:
    """What a run makes for itself and lets go of at its end."""
    return runtime.stream_writer


def _place(runtime: Any) -> _Place | None:
    thread = _info(runtime, "thread_id")
    if thread is None:
        return None
    return _Place(str(thread), str(_info(runtime, "checkpoint_ns") or "").rpartition("|")[0])


def _info(runtime: Any, name: str) -> Any:
    return getattr(getattr(runtime, "execution_info", None), name, None)
