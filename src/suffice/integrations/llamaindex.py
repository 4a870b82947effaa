"""LlamaIndex retrievers, agents (both need ``llama-index-core``) and workflows."""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from suffice._optional import require
from suffice.errors import DataError, UsageError
from suffice.integrations.agents import Framework, ToolResult, outcome, round_of_tools
from suffice.integrations.documents import AdapterSettings, Found, ShortWarning, failing_as, ranked
from suffice.pipelines.live.loop import Loop, Probe
from suffice.pipelines.live.reported import reported_tokens, reported_usage
from suffice.pipelines.live.watch import Watch
from suffice.retrieval.ranking import check_k
from suffice.trace.rounds.records import Draft, LoopView, Passage, Usage

_CORE = Framework(name="LlamaIndex", package="llama-index-core", tested="0.14.25")
_WORKFLOWS = Framework(
    name="LlamaIndex's workflows", package="llama-index-workflows", tested="2.26.1"
)
_SIZES = ("similarity_top_k", "_similarity_top_k")
_PARTS = ("_retrievers", "_retriever_dict")


class LlamaIndexRetriever:
    """A LlamaIndex ``BaseRetriever`` as a :class:`suffice.protocols.Retriever`.

    LlamaIndex's ``retrieve`` takes no number of nodes. It is set as ``similarity_top_k``, on a copy,
    where the retriever has it; any other keeps its own number: the result is cut to ``k``, and a warning
    is given once when it is shorter. Retrievers made of others (fusion, routers) hand no number down,
    so theirs must be set high enough.

    Nodes without an id of yours get a random one: give ``id_key`` then.

    Parameters
    ----------
    retriever
        A ``llama_index.core.base.base_retriever.BaseRetriever``; of an index, ``index.as_retriever()``.
    settings
        See :class:`suffice.integrations.documents.AdapterSettings`.
    max_k
        The largest number the retriever may be asked for, where a larger one is an error to it:
        ``BM25Retriever`` wants no more than it has nodes.

    Raises
    ------
    MissingExtra
        When ``llama-index-core`` is not installed.
    UsageError
        When it is no such retriever, or ``max_k`` is below 1.
    """

    def __init__(
        self, retriever: Any, *, settings: AdapterSettings | None = None, max_k: int | None = None
    ) -> None:
        module = require(
            "llama_index.core.base.base_retriever",
            package="llama-index-core",
            purpose="A LlamaIndex retriever",
        )
        if not isinstance(retriever, module.BaseRetriever):
            raise UsageError(
                f"wanted a LlamaIndex BaseRetriever, found {type(retriever).__name__}; of an index give "
                "index.as_retriever()"
            )
        if max_k is not None and max_k < 1:
            raise UsageError(f"max_k must be at least 1, found {max_k}")
        self._max_k = max_k
        self._retriever = retriever
        self._settings = settings or AdapterSettings()
        self._source = f"LlamaIndex's {type(retriever).__name__}"
        self._sizes = [size for size in _SIZES if hasattr(retriever, size)]
        self._own_number = not self._sizes or any(hasattr(retriever, part) for part in _PARTS)
        self._short = ShortWarning(
            self._source, "Raise its own number of nodes, or that of the retrievers it is made of."
        )

    def retrieve(self, query: str, k: int) -> tuple[Passage, ...]:
        """At most ``k`` passages, in LlamaIndex's order.

        Raises
        ------
        BackendError
            On one of the exceptions named as failures.
        """
        check_k(k)
        retriever = copy.copy(self._retriever)
        asked = k if self._max_k is None else min(k, self._max_k)
        for name in self._sizes:
            setattr(retriever, name, asked)
        with failing_as(self._source, self._settings.failures):
            nodes = retriever.retrieve(query)
        ranking = (
            Found(
                text=node.get_content(), id=node.node_id, score=node.score, metadata=node.metadata
            )
            for node in nodes
        )
        passages = ranked(ranking, k, self._settings, source=self._source)
        if self._own_number:
            self._short.check(len(passages), k)
        return passages


# --- agents and workflows ------------------------------------------------------------------------
def watched(
    workflow: Any,
    watch: Watch,
    *,
    tools: Collection[str] | None = None,
    probe: bool | Probe = False,
) -> Any:
    """The workflow itself, each of whose runs is from now on a question of ``watch``.

    Of an agent or an ``AgentWorkflow`` a round is the tool calls of one message. Where the loop is to end,
    the agent's next model call is made without tools, so that the model writes its answer from what it has;
    where a probe wrote that answer already, it is returned without a call. ``result["suffice"]`` says how
    the run ended. In the steps of any other workflow :func:`watched_loop` is the run's loop.

    Parameters
    ----------
    workflow
        ``FunctionAgent`` or another agent, ``AgentWorkflow``, or a workflow of one's own.
    watch
        What decides and records. The question's id is the run's: ``handler.run_id``.
    tools
        Names of an agent's tools that retrieve; ``None``: all but handoffs.
    probe
        ``True``: an agent's model is asked, without tools, for the answer so far where something needs it.
        Or a function of the loop, as in ``loop.observe(probe=...)``.

    Raises
    ------
    MissingExtra
        When ``llama-index-workflows`` is not installed.
    UsageError
        When it is no workflow, or watched already.
    """
    if not isinstance(workflow, _WORKFLOWS.point("workflows", "Workflow")):
        raise UsageError(
            f"wanted a LlamaIndex agent or workflow, found {type(workflow).__name__}; give the object "
            "whose run(...) is called"
        )
    if isinstance(workflow, _WatchedRuns):
        raise UsageError(f"this {type(workflow).__name__} is watched already; watch a new one")
    settings = _Settings(watch=watch, tools=tools, probe=probe)
    agents = getattr(workflow, "agents", None)
    for agent in agents.values() if isinstance(agents, Mapping) else [workflow]:
        if hasattr(agent, "take_step"):
            _CORE.point("llama_index.core.agent.workflow.agent_context", "SimpleAgentContext")
            _become(agent, _WatchedSteps)
    _become(workflow, _WatchedRuns)
    type(workflow).suffice_settings = settings
    return workflow


def watched_loop(question: str | None = None) -> Loop:
    """The loop of the run under way, inside a step of a watched workflow.

    The first call of a run gives the question and begins it. What the run returns, where it is a text,
    counts as the answer, unless ``loop.answered(...)`` or ``loop.observe(answer=...)`` said another.

    Raises
    ------
    UsageError
        Outside a watched run, or before the question is known.
    """
    run = _RUN.get()
    if run is None:
        raise UsageError(
            "no watched run is under way here; write workflow = watched(workflow, watch), and call "
            "watched_loop(question) in its steps"
        )
    return run.begun(question)


def _become(workflow: Any, mixin: Any) -> None:
    """Make the object one of a subclass of its class, with the methods of ``mixin`` before its own."""
    base: Any = type(workflow)
    if not issubclass(base, mixin):
        body = {"__module__": base.__module__, "__qualname__": base.__qualname__}
        workflow.__class__ = type(base)(base.__name__, (mixin, base), body)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Settings:
    watch: Watch
    tools: Collection[str] | None
    probe: bool | Probe


class _WatchedRuns:
    """Runs that are questions of a watch."""

    suffice_settings: _Settings

    def run(self, *args: Any, **kwargs: Any) -> Any:
        run = _Run(self.suffice_settings, kwargs.setdefault("run_id", uuid.uuid4().hex[:20]))
        token = _RUN.set(run)
        try:
            handler = super().run(*args, **kwargs)  # type: ignore[misc]
        finally:
            _RUN.reset(token)
        task = getattr(handler, "_result_task", None)
        if task is None:
            task = asyncio.ensure_future(handler.stop_event_result())
        task.add_done_callback(run.over)  # before whoever waits for the result goes on
        return handler


class _WatchedSteps:
    """An agent whose steps are rounds of the run they are in."""

    async def take_step(self, ctx: Any, llm_input: Any, tools: Any, memory: Any) -> Any:
        run, take = _RUN.get(), super().take_step  # type: ignore[misc]
        if run is None:
            return await take(ctx, llm_input, tools, memory)
        return await run.step(self, take, ctx, llm_input, tools, memory)

    async def handle_tool_call_results(self, ctx: Any, results: Any, memory: Any) -> None:
        await super().handle_tool_call_results(ctx, results, memory)  # type: ignore[misc]
        run = _RUN.get()
        if run is not None:
            await run.finished(self, super().take_step, ctx, results)  # type: ignore[misc]

    async def finalize(self, ctx: Any, output: Any, memory: Any) -> Any:
        written = output.response.content
        output = await super().finalize(ctx, output, memory)  # type: ignore[misc]
        run = _RUN.get()
        if run is not None:
            await run.answered(output, memory, as_written=output.response.content == written)
        return output


@dataclass(slots=True, eq=False)
class _Run:
    """A run under way: its loop, and what its steps leave for one another."""

    settings: _Settings
    run_id: str
    loop: Loop | None = None
    llm_input: Sequence[Any] = ()
    spent: list[Usage] = field(default_factory=list)
    heard: _Heard | None = None
    handing_off: bool = False
    given: Any = None
    ended: bool = False

    def begun(self, question: str | None) -> Loop:
        """The loop, begun where it is not."""
        if self.loop is None:
            if question is None:
                raise UsageError("the run has no question yet; call watched_loop(question) first")
            self.loop = self.settings.watch.question(question, question_id=self.run_id).begin()
        return self.loop

    # --- an agent's steps ------------------------------------------------------------------------
    async def step(
        self, agent: Any, take: _Take, ctx: Any, llm_input: Any, tools: Any, memory: Any
    ) -> Any:
        """A model call: without tools, or none, where the loop is done."""
        loop = self.begun(await ctx.store.get("user_msg_str", default="") or "")
        self.llm_input = llm_input
        if loop.done and loop.answer is not None:
            return await self._known(agent, ctx, loop.answer)
        self.heard = heard = _Heard(ctx)
        output = await take(heard, llm_input, [] if loop.done else tools, memory)
        self.spent.append(heard.usage(output))
        if loop.done:
            output.tool_calls = []
        return output

    async def _known(self, agent: Any, ctx: Any, answer: str) -> Any:
        """The step's output where a probe wrote the answer."""
        events = _CORE.point("llama_index.core.agent.workflow")
        messages = _CORE.point("llama_index.core.llms")
        self.given = messages.ChatMessage(role="assistant", content=answer)
        for key in _scratch(agent):
            if key != getattr(agent, "scratchpad_key", None):
                await ctx.store.set(key, [])
        name = agent.name
        event = events.AgentStream(delta=answer, response=answer, current_agent_name=name)
        ctx.write_event_to_stream(event)
        return events.AgentOutput(response=self.given, current_agent_name=name)

    async def finished(self, agent: Any, take: _Take, ctx: Any, results: Sequence[Any]) -> None:
        """A round: the results of one message's calls."""
        loop, self.heard = self.begun(None), None
        direct = [one for one in results if one.return_direct and not one.tool_output.is_error]
        self.handing_off = bool(direct) and direct[0].tool_name == "handoff"
        calls = [_result(one) for one in results if one.tool_name != "handoff"]
        held = round_of_tools(calls, self.settings.tools)
        if held is None or loop.done:
            return
        probe = self.settings.probe
        if probe is True:

            async def probe(_view: LoopView) -> Draft:
                return await self._draft(agent, take, ctx)

        usage, self.spent = self.spent, []
        await loop.aobserve(**held, usage=usage or None, probe=probe or None)

    async def _draft(self, agent: Any, take: _Take, ctx: Any) -> Draft:
        """What the agent would answer now, asked on a copy of what it keeps of this run."""
        scratch = _CORE.point("llama_index.core.agent.workflow.agent_context", "SimpleAgentContext")
        heard = _Heard(scratch())
        for key in _scratch(agent):
            await heard.store.set(key, list(await ctx.store.get(key, default=[])))
        output = await take(heard, list(self.llm_input), [], None)
        return Draft(
            output.response.content or "",
            tokens=heard.tokens(output),
            usage=heard.usage(output),
        )

    async def answered(self, output: Any, memory: Any, *, as_written: bool) -> None:
        """The run's answer, which ends the question; a handoff's is none."""
        loop = self.loop
        if self.handing_off or loop is None:
            self.handing_off = False
            return
        if self.given is None:
            tokens = self.heard.tokens(output) if self.heard is not None and as_written else None
            self._answer(loop, output.response.content or "", tokens)
        else:
            await memory.aput(self.given)
        self.ended = True
        await loop.aend()
        output["suffice"] = outcome(loop)

    def _answer(self, loop: Loop, text: str, tokens: Any = None) -> None:
        usage, self.spent = self.spent, []
        if loop.rounds:
            loop.answered(text, tokens=tokens, usage=usage or None)
        else:
            loop.observe(passages=(), answer=text, tokens=tokens, usage=usage or None)

    # --- the end ---------------------------------------------------------------------------------
    def over(self, task: asyncio.Future[Any]) -> None:
        """The run is over; a question whose answer no agent gave ends here."""
        loop = self.loop
        if loop is None or self.ended:
            return
        self.ended = True
        error = asyncio.CancelledError("cancelled") if task.cancelled() else task.exception()
        result = None if error is not None else getattr(task.result(), "result", None)
        response = getattr(result, "response", None)
        text = result if isinstance(result, str) else getattr(response, "content", None)
        if text is not None and text != loop.answer:
            self._answer(loop, text)
        loop.end(error, mend=False)
        if result is not None and response is not None:
            result["suffice"] = outcome(loop)


_Take = Callable[..., Awaitable[Any]]
_RUN: ContextVar[_Run | None] = ContextVar("suffice_llamaindex_run", default=None)


def _scratch(agent: Any) -> list[str]:
    """Where agents keep the messages of a run."""
    names = ("scratchpad_key", "reasoning_key")
    return [getattr(agent, name) for name in names if hasattr(agent, name)]


def _result(result: Any) -> ToolResult:
    output = result.tool_output
    documents = getattr(output.raw_output, "source_nodes", output.raw_output)
    return ToolResult(
        tool=result.tool_name,
        output=None if output.is_error else documents,
        arguments=result.tool_kwargs,
    )


class _Heard:
    """An agent's context that keeps what a streamed reply tells in pieces."""

    def __init__(self, ctx: Any) -> None:
        self._ctx = ctx
        self.store = ctx.store
        self._usage: Any = None
        self._logprobs: list[Any] = []

    @property
    def is_running(self) -> bool:
        return bool(self._ctx.is_running)

    def write_event_to_stream(self, event: Any) -> None:
        raw = getattr(event, "raw", None)
        if isinstance(raw, Mapping):
            self._usage = raw.get("usage") or self._usage
            for choice in raw.get("choices") or ():
                self._logprobs += (choice.get("logprobs") or {}).get("content") or ()
        self._ctx.write_event_to_stream(event)

    def usage(self, output: Any) -> Usage:
        """Of the call; one that tells no tokens is a call all the same."""
        try:
            return reported_usage(self._usage or output.raw or {})
        except DataError:
            return Usage(llm_calls=1)

    def tokens(self, output: Any) -> Any:
        """Of the reply, where the model's client shows them."""
        raw = output.raw
        if not self._logprobs and not (isinstance(raw, Mapping) and raw.get("choices")):
            return None
        with suppress(DataError):
            return reported_tokens(self._logprobs or raw)
        return None
