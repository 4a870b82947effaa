"""Loops in LangGraph: one per run or thread, and a node that ends your own graph."""

from __future__ import annotations

import inspect
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any

from suffice.errors import UsageError
from suffice.integrations.agents import AgentRun, Framework, outcome
from suffice.live.loop import Loop
from suffice.live.watch import Watch

_LANGGRAPH = Framework(name="LangGraph", package="langgraph", tested="1.2.22")


# --- loops of runs -------------------------------------------------------------------------------
class RunEnded(Exception):  # noqa: N818
    """Warn that a graph's run ended before its loop: a failed tool, a limit, another question."""


class GraphRun(AgentRun):
    """Hold a loop that lives as long as its graph's run."""

    def __init__(self, loop: Loop, run: Any, keys: Sequence[Hashable], **settings: Any) -> None:
        super().__init__(loop, **settings)
        self.run: weakref.ref[Any] = weakref.ref(run)
        self.keys: tuple[Hashable, ...] = (loop.question_id, *keys)
        self.thread: str | None = None
        self.graph = ""
        self.taken: str | None = None  # id of the message whose calls were observed last


class GraphRuns:
    """Hold the running loops of a graph, by their keys and their questions' ids.

    A run that fails tells nobody. Without a thread its loop ends, as failed, when another run begins.
    A thread may be resumed, so there the loop ends when another run begins a question.
    """

    def __init__(self, watch: Watch, **settings: Any) -> None:
        self._watch, self._settings = watch, {"tools": None, "probe": False, **settings}
        self._open: dict[Hashable, GraphRun] = {}
        self._gone: deque[GraphRun] = deque()  # memory is freed anywhere, so no more is done there

    def get(self, key: Hashable, runtime: Any) -> GraphRun | None:
        """Return the running loop and bind it to this run."""
        while self._gone:
            self._abandon(self._gone.popleft(), "the run ended before its answer")
        held = self._open.get(key)
        if held is not None:
            held.run = weakref.ref(run_of(runtime))
        return held

    def begin(self, text: str, runtime: Any, *keys: Hashable) -> GraphRun:
        """Begin a loop."""
        run, run_id, thread = run_of(runtime), _info(runtime, "run_id"), _info(runtime, "thread_id")
        graph = str(_info(runtime, "checkpoint_ns") or "").rpartition("|")[0]
        for held in list(self._open.values()):
            beside = thread is not None and held.thread == thread and held.run() is not run
            if beside and held.graph.startswith(graph):
                self._abandon(held, "another question was asked on its thread")
        try:
            loop = self._watch.question(text, question_id=run_id and str(run_id)).begin()
        except UsageError:  # another question of this run is under way
            loop = self._watch.question(text).begin()
        made = self._made(loop, runtime, keys)
        made.graph = graph
        return made

    def resume(self, name: str, text: str | None, runtime: Any, *keys: Any) -> GraphRun | None:
        """Return the running loop of a question with that text, also of one that another process began."""
        held, loop = self._open.get(name), self._watch.resume(name)
        if held is not None and held.loop is not loop:  # another process resumed it since
            self.pop(held)
        if loop is None or text not in (None, loop.question):
            return None
        return self.get(name, runtime) or self._made(loop, runtime, keys)

    def _made(self, loop: Loop, runtime: Any, keys: Sequence[Hashable]) -> GraphRun:
        run, thread = run_of(runtime), _info(runtime, "thread_id")
        made = GraphRun(loop, run, keys, **self._settings)
        made.thread = thread
        loop.stays = thread is not None
        self._open |= dict.fromkeys(made.keys, made)
        if thread is None:
            weakref.finalize(run, self._gone.append, made).atexit = False
        return made

    def pop(self, held: GraphRun) -> None:
        """Forget a loop, which its caller ends."""
        for key in held.keys:
            self._open.pop(key, None)

    def _abandon(self, held: GraphRun, why: str) -> None:
        if held.loop.question_id in self._open:
            self.pop(held)
            held.loop.end(RunEnded(why))


def run_of(runtime: Any) -> Any:
    """Return an object that a run creates and drops at its end."""
    return runtime.stream_writer


def _info(runtime: Any, name: str) -> Any:
    return getattr(getattr(runtime, "execution_info", None), name, None)


# --- a graph of your own -------------------------------------------------------------------------
class StopNode:
    """Observe a round of your own graph, then go to the next round or to the answer.

    A graph that comes back after its stop ends.

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
        What ``loop.observe`` takes, as a function of the state. A mapping such as
        ``{"passages": state["documents"]}`` is the round that just ended. A list is all rounds so far. Give
        a list if another process may resume the thread: a mapping does not hold the earlier rounds.
    go_on
        The node that begins the next round.
    stop
        The node that answers at a stop, with its function in :meth:`answering`. ``None``: the graph ends and
        the last round's answer counts.
    otherwise
        A function of the state: the graph's own choice if the watch goes on. Anything but ``go_on`` ends the
        loop.
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
        self._end = _LANGGRAPH.point("langgraph.graph", "END")
        self._runs = GraphRuns(watch)
        self._question, self._rounds, self._probe = question, rounds, probe
        self._go_on, self._stop = go_on, self._end if stop is None else stop
        self._otherwise, self._is_told = otherwise, False
        self._stopped: Any = weakref.WeakKeyDictionary()  # by run, its questions after their stop

    def __call__(self, state: Any) -> Any:
        """Observe and go on, as a ``Command``."""
        key, runtime = self._key(state), self._runtime()
        stopped = self._stopped.setdefault(run_of(runtime), {})
        if key in stopped:  # its answer was written, and the graph goes on
            over = stopped[key]
            self._runs.pop(over)
            over.loop.end()
            return self._command(goto=self._end, update={"suffice": outcome(over.loop)})
        run = self._run(state) or self._runs.begin(_part(state, self._question), runtime, key)
        loop, held = run.loop, self._rounds(state)
        new = [held] if isinstance(held, Mapping) else held[len(loop.rounds) :]
        probe = None if self._probe is None else partial(lambda probe, _: probe(state), self._probe)
        for number, parts in enumerate(new, start=1):
            if not loop.done:
                loop.observe(**parts, probe=probe if number == len(new) else None)
        where = self._stop if loop.done else self._go_on
        if loop.done:
            stopped[key] = run
        if not loop.done and self._otherwise is not None:
            where = self._otherwise(state)
        if where != self._go_on and (where != self._stop or not self._is_told):
            self._runs.pop(run)
            loop.end()
        return self._command(goto=where, update={"suffice": outcome(loop)})

    def answering(self, node: Callable[[Any], Any], answer: str = "answer") -> Callable[[Any], Any]:
        """Wrap the node that answers, a function or a coroutine function of the state.

        The loop is told of its answer, under that key of what it returns.
        """
        self._is_told = True

        def told(state: Any) -> Any:
            return self._tell(state, node(state), answer)

        async def atold(state: Any) -> Any:
            return self._tell(state, await node(state), answer)

        return atold if inspect.iscoroutinefunction(node) else told

    def _tell(self, state: Any, update: Mapping[str, Any], answer: str) -> Mapping[str, Any]:
        run = self._run(state)
        if run is None:
            return update
        self._runs.pop(run)
        run.loop.answered(str(update[answer]))
        run.loop.end()
        return {**update, "suffice": outcome(run.loop)}

    def _run(self, state: Any) -> GraphRun | None:
        key, runtime = self._key(state), self._runtime()
        told = _part(state, "suffice")
        found = self._runs.get(key, runtime)
        if not told or (found is not None and found.loop.question_id != told["question_id"]):
            return found
        return self._runs.resume(told["question_id"], key[1], runtime, key)

    def _key(self, state: Any) -> tuple[Hashable, Any]:
        runtime = self._runtime()
        run = _info(runtime, "thread_id") or id(run_of(runtime))
        return run, _part(state, self._question)


def _part(state: Any, name: str) -> Any:
    return state.get(name) if isinstance(state, Mapping) else getattr(state, name, None)
