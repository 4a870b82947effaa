"""Loops in LangGraph: one for each run or thread, and a node that ends a graph of your own."""

from __future__ import annotations

import inspect
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from suffice.errors import UsageError
from suffice.integrations.agents import Framework, outcome
from suffice.live.loop import Loop
from suffice.live.watch import Watch

_LANGGRAPH = Framework(name="LangGraph", package="langgraph", tested="1.2.22")


# --- loops of runs -------------------------------------------------------------------------------
class RunEnded(Exception):  # noqa: N818
    """A graph's run was left before its loop ended: a failed tool, a limit, another question."""


@dataclass(slots=True)
class _UnderWay:
    """A loop with its run, which is gone when nothing else holds it, and its place on a thread."""

    loop: Loop
    run: weakref.ref[Any]
    thread: str | None
    graph: str


class GraphLoops:
    """The loops under way in the runs of a graph, by a key.

    A run that fails tells nobody. Without a thread its loop ends, as failed, when the run is gone and another
    begins; on a thread, which may be resumed, when another run begins a question there.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._open: dict[Hashable, _UnderWay] = {}
        self._threads: dict[str, set[Hashable]] = {}
        self._gone: deque[Hashable] = deque()

    def sweep(self) -> None:
        """End the loops of runs that are gone: memory is freed anywhere, so no more than noted there."""
        while self._gone:
            self._abandon(self._gone.popleft(), "the run ended before its answer")

    def get(self, key: Hashable, runtime: Any) -> Loop | None:
        """The loop under way, which is this run's now."""
        held = self._open.get(key)
        if held is None:
            return None
        held.run = weakref.ref(run_of(runtime))
        return held.loop

    def begin(self, text: str, runtime: Any, key: Hashable = None) -> Loop:
        """A new loop; its key is its question's id where none is given."""
        run, run_id, thread = run_of(runtime), _info(runtime, "run_id"), _info(runtime, "thread_id")
        graph = str(_info(runtime, "checkpoint_ns") or "").rpartition("|")[0]
        for left in tuple(self._threads.get(thread, ())):
            held = self._open[left]
            if held.run() is not run and held.graph.startswith(graph):
                self._abandon(left, "another question was asked on its thread")
        try:
            loop = self._watch.question(text, question_id=run_id and str(run_id)).begin()
        except UsageError:  # another question of this run is under way
            loop = self._watch.question(text).begin()
        key = loop.question_id if key is None else key
        self._open[key] = _UnderWay(loop, weakref.ref(run), thread, graph)
        if thread is not None:
            self._threads.setdefault(thread, set()).add(key)
        else:
            weakref.finalize(run, self._gone.append, key).atexit = False
        return loop

    def pop(self, key: Hashable) -> None:
        """Forget a loop, which its caller ends."""
        held = self._open.pop(key, None)
        if held is not None and held.thread is not None:
            beside = self._threads[held.thread]
            beside.discard(key)
            if not beside:
                del self._threads[held.thread]

    def _abandon(self, key: Hashable, why: str) -> None:
        held = self._open.get(key)
        if held is not None:
            self.pop(key)
            held.loop.end(RunEnded(why))


def run_of(runtime: Any) -> Any:
    """What a run makes for itself and lets go of at its end."""
    return runtime.stream_writer


def _info(runtime: Any, name: str) -> Any:
    return getattr(getattr(runtime, "execution_info", None), name, None)


# --- a graph of your own -------------------------------------------------------------------------
class StopNode:
    """A node behind a round of a graph of your own: takes it in, and goes to the next one or to the answer.

    ``builder.add_node("enough", StopNode(...), destinations=("retrieve", "write"))``, with an edge from the
    round's last node to it and none from it. A state with a key ``suffice`` (a ``dict``) is told of which
    question it is, who stopped it and why. Questions that run beside each other in one run need different
    texts.

    Parameters
    ----------
    watch
        Decides, records.
    question
        Key of the question in the state.
    rounds
        What ``loop.observe`` takes, as a function of the state: of the round that just ended, a mapping such
        as ``{"passages": state["documents"]}``; or of all rounds so far, a list of them, of which those not
        yet observed are. With a list a thread that another process resumes is decided about as if it had not
        been left; with a mapping its rounds before are not known then.
    go_on
        The node that begins the next round.
    stop
        Where a loop goes that ends: the node that answers, whose function stands in :meth:`answering`, or
        ``None``, the graph's end, where the last round's answer is the answer.
    otherwise
        The graph's own choice, a function of the state, where the watch does not end the loop; anything but
        ``go_on`` ends it.
    probe
        The answer that the rounds so far would give, a function of the state; see ``loop.observe``.
    """

    def __init__(
        self,
        watch: Watch,
        *,
        question: str,
        rounds: Callable[[Any], Mapping[str, Any] | Sequence[Mapping[str, Any]]],
        go_on: str,
        stop: str | None = None,
        otherwise: Callable[[Any], str] | None = None,
        probe: Callable[[Any], Any] | None = None,
    ) -> None:
        self._runtime = _LANGGRAPH.point("langgraph.runtime", "get_runtime")
        self._command = _LANGGRAPH.point("langgraph.types", "Command")
        end = _LANGGRAPH.point("langgraph.graph", "END")
        self._loops = GraphLoops(watch)
        self._question, self._rounds, self._probe = question, rounds, probe
        self._go_on, self._stop = go_on, end if stop is None else stop
        self._otherwise, self._is_told = otherwise, False

    def __call__(self, state: Any) -> Any:
        """Observe and go on, as a ``Command``."""
        self._loops.sweep()
        key, runtime = self._key(state), self._runtime()
        loop = self._loops.get(key, runtime) or self._loops.begin(
            _part(state, self._question), runtime, key
        )
        held = self._rounds(state)
        new = [held] if isinstance(held, Mapping) else held[len(loop.rounds) :]
        probe = None if self._probe is None else partial(lambda probe, _: probe(state), self._probe)
        for number, parts in enumerate(new, start=1):
            if not loop.done:
                loop.observe(**parts, probe=probe if number == len(new) else None)
        where = self._stop if loop.done else self._go_on
        if not loop.done and self._otherwise is not None:
            where = self._otherwise(state)
        if where != self._go_on and (where != self._stop or not self._is_told):
            self._loops.pop(key)
            loop.end()
        return self._command(goto=where, update={"suffice": outcome(loop)})

    def answering(self, node: Callable[[Any], Any], answer: str = "answer") -> Callable[[Any], Any]:
        """The node that answers, a function or a coroutine function of the state.

        The loop is told of its answer, under that key of what it returns.
        """
        self._is_told = True

        def told(state: Any) -> Any:
            return self._tell(state, node(state), answer)

        async def atold(state: Any) -> Any:
            return self._tell(state, await node(state), answer)

        return atold if inspect.iscoroutinefunction(node) else told

    def _tell(self, state: Any, update: Mapping[str, Any], answer: str) -> Mapping[str, Any]:
        key = self._key(state)
        loop = self._loops.get(key, self._runtime())
        if loop is None:
            return update
        self._loops.pop(key)
        loop.answered(str(update[answer]))
        loop.end()
        return {**update, "suffice": outcome(loop)}

    def _key(self, state: Any) -> Hashable:
        runtime = self._runtime()
        run = _info(runtime, "thread_id") or id(run_of(runtime))
        return run, _part(state, self._question)


def _part(state: Any, name: str) -> Any:
    return state[name] if isinstance(state, Mapping) else getattr(state, name)
