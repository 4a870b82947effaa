"""LlamaIndex's agents (``llama-index-core``) and workflows, watched from outside."""

from __future__ import annotations

import asyncio
import copy
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from suffice.errors import UsageError
from suffice.integrations.agents import AgentRun, Framework, Reply, ToolResult, outcome
from suffice.live.loop import Loop, Probe
from suffice.live.watch import Watch

_CORE = Framework(name="LlamaIndex", package="llama-index-core", tested="0.14.25")
_WORKFLOWS = Framework(
    name="LlamaIndex's workflows", package="llama-index-workflows", tested="2.26.1"
)


def watched(
    workflow: Any,
    watch: Watch,
    *,
    tools: Collection[str] | None = None,
    probe: bool | Probe = False,
) -> Any:
    """Let ``watch`` see a workflow; each later run of it is a question. Return the workflow.

    In an agent or an ``AgentWorkflow`` a round is the tool calls of one message. After a stop the model is
    asked once more and may call no tool, so it answers from what it has. Tools that it calls all the same are
    not run: the run ends with the best answer at hand. A probe's answer is returned
    without a call. ``result["suffice"]`` says how the run ended. In the steps of any other workflow
    :func:`watched_loop` is the run's loop.
    """
    if not isinstance(workflow, _WORKFLOWS.point("workflows", "Workflow")):
        raise UsageError(
            f"give a LlamaIndex agent or workflow, found {type(workflow).__name__}; give the object "
            "whose run(...) is called"
        )
    if isinstance(workflow, _WatchedRuns):
        raise UsageError(f"this {type(workflow).__name__} is watched already; watch a new one")
    agents = getattr(workflow, "agents", None)
    for agent in agents.values() if isinstance(agents, Mapping) else [workflow]:
        if hasattr(agent, "take_step"):
            _CORE.point("llama_index.core.agent.workflow.agent_context", "SimpleAgentContext")
            _become(agent, _WatchedSteps)
    _become(workflow, _WatchedRuns)
    type(workflow).suffice_settings = {"watch": watch, "tools": tools, "probe": probe}
    return workflow


def watched_loop(question: str | None = None) -> Loop:
    """Return the loop of the current run, inside a step of a watched workflow.

    The first call of a run gives the question and begins it. What the run returns, where it is a text,
    counts as the answer, unless ``loop.answered(...)`` or ``loop.observe(answer=...)`` said another.
    """
    run = _RUN.get()
    if run is None:
        raise UsageError(
            "no watched run is under way here; write workflow = watched(workflow, watch), and call "
            "watched_loop(question) in its steps"
        )
    return run.begun(question).loop


def _become(workflow: Any, mixin: Any) -> None:
    base: Any = type(workflow)
    if not issubclass(base, mixin):
        body = {"__module__": base.__module__, "__qualname__": base.__qualname__}
        workflow.__class__ = type(base)(base.__name__, (mixin, base), body)


class _WatchedRuns:
    suffice_settings: Mapping[str, Any]

    def run(self, *args: Any, **kwargs: Any) -> Any:
        run = _Run(kwargs.setdefault("run_id", uuid.uuid4().hex[:20]), **self.suffice_settings)
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
    async def take_step(self, ctx: Any, llm_input: Any, tools: Any, memory: Any) -> Any:
        run, take = _RUN.get(), super().take_step  # type: ignore[misc]
        if run is None:
            return await take(ctx, llm_input, tools, memory)
        agent, offered = _calling_nothing(self, tools)
        last = super(_WatchedSteps, agent).take_step  # type: ignore[misc]
        run.last = lambda ctx, llm_input, memory: last(ctx, llm_input, offered, memory)
        return await run.step(self, take, ctx, llm_input, tools, memory)

    async def handle_tool_call_results(self, ctx: Any, results: Any, memory: Any) -> None:
        await super().handle_tool_call_results(ctx, results, memory)  # type: ignore[misc]
        run = _RUN.get()
        if run is not None:
            await run.finished(self, super(), ctx, results)

    async def finalize(self, ctx: Any, output: Any, memory: Any) -> Any:
        written = output.response.content
        output = await super().finalize(ctx, output, memory)  # type: ignore[misc]
        run = _RUN.get()
        if run is not None:
            await run.answered(output, memory, as_written=output.response.content == written)
        return output


@dataclass(slots=True, eq=False)
class _Run:
    run_id: str
    watch: Watch
    tools: Collection[str] | None
    probe: bool | Probe
    agent: AgentRun | None = None
    llm_input: Sequence[Any] = ()
    last: _Take = field(init=False)  # a step that is to call nothing
    given: Any = None
    handing_off: bool = False
    ended: bool = False

    def begun(self, question: str | None) -> AgentRun:
        """Return the run with its loop; begin it if it is new."""
        if self.agent is None:
            if question is None:
                raise UsageError("the run has no question yet; call watched_loop(question) first")
            loop = self.watch.question(question, question_id=self.run_id).begin()
            self.agent = AgentRun(loop, tools=self.tools, probe=self.probe, write=_without_calls)
        return self.agent

    # --- an agent's steps ------------------------------------------------------------------------
    async def step(
        self, agent: Any, take: _Take, ctx: Any, llm_input: Any, tools: Any, memory: Any
    ) -> Any:
        """Call the model: after the loop ended once at most, and for no tools."""
        if self.agent is None:
            self.begun(await ctx.store.get("user_msg_str", default="") or "")
        run = self.begun(None)
        self.llm_input = llm_input
        run.loop.describe(getattr(agent, "llm", None), getattr(agent, "system_prompt", None))
        heard, output = _Heard(ctx, agent), None
        before = {key: list(await ctx.store.get(key, default=[])) for key in _scratch(agent)}

        async def ask(how: str) -> Reply:
            nonlocal output
            if how == "on":
                output = await take(heard, llm_input, tools, memory)
            else:
                output = await self.last(heard, llm_input, memory)
                output.retry_messages = []
            return heard.reply(output)

        given = await run.turn([], ask)
        if given is output:
            return output
        for key, held in before.items():
            await ctx.store.set(key, held if key == getattr(agent, "scratchpad_key", None) else [])
        self.given, given.current_agent_name = given, agent.name
        text, made = given.response.content or "", _CORE.point("llama_index.core.agent.workflow")
        stream = made.AgentStream(delta=text, response=text, current_agent_name=agent.name)
        ctx.write_event_to_stream(stream)
        return given

    async def finished(self, agent: Any, own: Any, ctx: Any, results: Sequence[Any]) -> None:
        """Observe a round: the results of one message's calls."""
        run = self.begun(None)
        direct = [one for one in results if one.return_direct and not one.tool_output.is_error]
        self.handing_off = bool(direct) and direct[0].tool_name == "handoff"
        run.reply = None
        calls = [_result(one) for one in results if one.tool_name != "handoff"]
        await run.astep(calls, lambda: self._draft(agent, own, ctx))

    async def _draft(self, agent: Any, own: Any, ctx: Any) -> Reply:
        """Return the agent's answer so far, asked on a copy of its memory of this run."""
        scratch = _CORE.point("llama_index.core.agent.workflow.agent_context", "SimpleAgentContext")
        heard, memory = _Heard(scratch(), agent), _NoMemory()
        for key in _scratch(agent):
            await heard.store.set(key, list(await ctx.store.get(key, default=[])))
        output = await self.last(heard, list(self.llm_input), memory)
        reply = heard.reply(output)
        return replace(reply, raw=await own.finalize(heard, output, memory))

    async def answered(self, output: Any, memory: Any, *, as_written: bool) -> None:
        """End the question with the run's answer; a handoff has none."""
        run = self.agent
        if self.handing_off or run is None:
            self.handing_off = False
            return
        if run.given is None:
            changed = {} if as_written else {"tokens": None}
            run.answered(output.response.content or "", unsearched=True, **changed)
        if self.given is not None:
            await memory.aput(output.response)
        self.ended = True
        run.loop.end()
        output["suffice"] = outcome(run.loop)

    # --- the end ---------------------------------------------------------------------------------
    def over(self, task: asyncio.Future[Any]) -> None:
        """End the run, and a question that no agent answered."""
        run = self.agent
        if run is None or self.ended:
            return
        self.ended = True
        error = asyncio.CancelledError("cancelled") if task.cancelled() else task.exception()
        result = None if error is not None else getattr(task.result(), "result", None)
        response = getattr(result, "response", None)
        text = result if isinstance(result, str) else getattr(response, "content", None)
        if text is not None and text != run.loop.answer:
            run.answered(text, unsearched=True)
        run.loop.end(error, mend=False)
        if result is not None and response is not None:
            result["suffice"] = outcome(run.loop)


_NATIVE = "allow_parallel_tool_calls"  # of an agent whose model does not write calls into its text
_Take = Callable[..., Awaitable[Any]]
_RUN: ContextVar[_Run | None] = ContextVar("suffice_llamaindex_run", default=None)


def _scratch(agent: Any) -> list[str]:
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


class _CallsNothing:
    """Stand for a model that is offered tools and is to call none."""

    def __init__(self, model: Any) -> None:
        self._model = model

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._model, name)
        return partial(found, tool_choice="none") if name.endswith("chat_with_tools") else found


def _calling_nothing(agent: Any, tools: Any) -> tuple[Any, Any]:
    """Return an agent and tools for a step that calls none; no tools where its model has no such choice."""
    bases = type(agent.llm).__mro__ if hasattr(agent, _NATIVE) else ()
    if not any(base.__module__.startswith("llama_index.llms.openai.") for base in bases):
        return agent, []
    agent = copy.copy(agent)
    agent.__dict__["llm"] = _CallsNothing(agent.llm)
    return agent, tools


def _without_calls(output: Any, text: str) -> Any:
    events = _CORE.point("llama_index.core.agent.workflow")
    message = _CORE.point("llama_index.core.llms", "ChatMessage")
    raw = None if output is None else output.raw
    said = message(role="assistant", content=text)
    return events.AgentOutput(response=said, tool_calls=[], raw=raw, current_agent_name="")


class _NoMemory:
    async def aput(self, message: Any) -> None:
        del message

    aput_messages = aput


class _Heard:
    """Stand for an agent's context and keep the pieces of a streamed reply."""

    def __init__(self, ctx: Any, agent: Any) -> None:
        self._ctx, self._native = ctx, hasattr(agent, _NATIVE)
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

    def reply(self, output: Any) -> Reply:
        """Return the reply with what the model's client shows of it."""
        raw = output.raw if isinstance(output.raw, Mapping) else {}
        text = output.response.content or ""
        tokens = self._logprobs or ({"choices": raw["choices"]} if raw.get("choices") else None)
        if not self._native:  # it writes its thoughts and calls
            tokens = None if "Answer:" in text else tokens
            text = "" if output.tool_calls else text.rpartition("Answer:")[2].strip()
        usage, calls = self._usage or output.raw, len(output.tool_calls)
        return Reply(raw=output, text=text, usage=usage, logprobs=tokens, calls=calls)
