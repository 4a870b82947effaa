"""Haystack's agents, watched by a hook. Needs ``haystack-ai``."""

from __future__ import annotations

import asyncio
import json
import weakref
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import cache
from operator import is_
from typing import Any, ClassVar, Self

from suffice.concurrency import at_once, settled
from suffice.errors import BackendError, UsageError
from suffice.integrations.agents import AgentRun, Framework, Reply, ToolResult, outcome
from suffice.live.loop import Probe
from suffice.live.watch import Watch

_AGENTS = Framework(name="Haystack's agents", package="haystack-ai", tested="3.4.0")


class SufficeHook:
    """Let ``watch`` see every run of an ``Agent``, by ``Agent(..., hooks=hook.points)``.

    A round is a step that ran tools. When the loop ends, the run stops before the next model call, with exit
    reason ``suffice_policy`` or ``suffice_budget``. The generator then answers the run's messages and is to
    call no tool, unless a probe wrote the answer already. What it calls all the same is not run. The last
    message's ``meta["suffice"]`` says how the run ended. Haystack's token usage is without these calls.

    Parameters
    ----------
    watch
        What decides and records; or :class:`suffice.Watch`'s arguments in a mapping, such as
        ``{"policy": "policy.json", "mode": "live"}``, which a serialized pipeline needs.
    generator
        The chat generator that writes answers, mostly the agent's own. It streams to its own callback, or to
        ``agent.run(..., hook_context={"streaming_callback": ...})``.
    tools
        Names of the tools that retrieve; ``None``: all.
    probe
        ``True``: the generator is asked for the answer so far where something needs it. Or a function of the
        loop, as in ``loop.observe(probe=...)``.
    documents
        Key of the agent's state that its tools put documents under (``outputs_to_state``). Where the state
        has no such key, a tool's result is read: JSON of documents, else text.
    """

    allowed_hook_points: ClassVar[tuple[str, ...]] = ("before_run", "after_tool", "after_run")

    def __init__(
        self,
        watch: Watch | Mapping[str, Any],
        generator: Any,
        *,
        tools: Collection[str] | None = None,
        probe: bool | Probe = False,
        documents: str = "documents",
    ) -> None:
        _AGENTS.point("haystack.hooks.protocol", "Hook")
        self._arguments = None if isinstance(watch, Watch) else dict(watch)
        self.watch: Watch = watch if isinstance(watch, Watch) else _watch(json.dumps(dict(watch)))
        self.generator = generator
        self.tools: list[str] | None = None if tools is None else list(tools)
        self.probe = probe
        self.documents = documents

    @property
    def points(self) -> dict[str, list[SufficeHook]]:
        """Return the ``hooks`` argument of an agent, to use alone or with other hooks."""
        return {point: [self] for point in self.allowed_hook_points}

    # --- what Haystack calls ---------------------------------------------------------------------
    def run(self, state: Any) -> None:
        """Take in a round that just ended, or the end of the run."""
        at_once(self._heard(state, lambda: self.generator.run(**_inputs(self.generator, state))))

    async def run_async(self, state: Any) -> None:
        """Do the same as :meth:`run`, with asyncio."""
        ask: Any = getattr(self.generator, "run_async", None)
        if ask is None:
            ask = lambda **held: asyncio.to_thread(self.generator.run, **held)  # noqa: E731
        await self._heard(state, lambda: ask(**_inputs(self.generator, state)))

    async def _heard(self, state: Any, generate: Callable[[], Any]) -> None:
        run, messages = self._run(state), state.data["messages"]
        prompts = (message.text for message in messages if message.is_from("system"))
        run.loop.describe(self.generator, next(prompts, None))

        async def ask() -> Reply:
            return _reply((await settled(generate()))["replies"][0])

        if state.data.get("exit_reason") is None:
            calls, documents = run.new(state, self.documents)
            await run.astep(calls, ask, documents)
            if run.loop.done:  # the run stops before the next call of the model
                state.set("stop_run", f"suffice_{run.loop.stopped_by}")
            return
        ends = f"suffice_{run.loop.stopped_by}", "max_agent_steps"
        if run.loop.done and state.data["exit_reason"] in ends:
            if run.given is None and run.loop.rounds[-1].answer:  # of a probe that is a function
                run.given = _without_calls(None, run.loop.answer or "")
            state.set("messages", [await run.finish(ask)])
        run.end(state)

    def to_dict(self) -> dict[str, Any]:
        """Return the hook as Haystack serializes hooks."""
        if self._arguments is None or not isinstance(self.probe, bool):
            raise UsageError(
                "a SufficeHook is written where the watch is given as its arguments, as in "
                'SufficeHook({"policy": "policy.json", "mode": "live"}, generator), and probe is no function'
            )
        core = _AGENTS.point("haystack.core.serialization")
        held: dict[str, Any] = core.default_to_dict(
            self,
            watch=self._arguments,
            generator=core.component_to_dict(obj=self.generator, name="generator"),
            tools=self.tools,
            probe=self.probe,
            documents=self.documents,
        )
        return held

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Read what :meth:`to_dict` returned; the hooks of one agent share a watch."""
        parts = dict(data["init_parameters"])
        point = _AGENTS.point("haystack.utils.deserialization", "deserialize_component_inplace")
        point(parts, key="generator")
        return cls(**parts)

    def _run(self, state: Any) -> _Run:
        run = _RUNS.get(state)
        if run is None:
            while _GONE:
                _GONE.popleft().abandon()
            run = _RUNS[state] = _Run(self.watch, state, tools=self.tools, probe=self.probe)
            weakref.finalize(state, _GONE.append, run).atexit = False
        return run


class _Run(AgentRun):
    def __init__(self, watch: Watch, state: Any, **settings: Any) -> None:
        messages = state.data["messages"]
        asked = [message for message in messages if message.is_from("user")]
        question = (asked[-1].text if asked else None) or ""
        super().__init__(watch.question(question).begin(), write=_without_calls, **settings)
        calls = [at for at, message in enumerate(messages) if message.tool_calls]
        ran = bool(messages) and messages[-1].tool_call_results and calls
        self.seen = calls[-1] if ran else len(messages)
        self.documents: list[Any] = []
        self.ended = False

    def abandon(self) -> None:
        """End a loop whose run did not finish."""
        if not self.ended:
            self.loop.end(BackendError("the agent's run ended before its answer"), mend=False)

    def new(self, state: Any, key: str) -> tuple[list[ToolResult], list[Any] | None]:
        """Return the calls since the last round, and the documents that they added to the state."""
        messages, self.seen = state.data["messages"][self.seen :], len(state.data["messages"])
        for message in messages:
            if message.is_from("assistant"):
                self.replied(_reply(message))
        calls = [
            ToolResult(
                tool=result.origin.tool_name,
                output=None if result.error else _parsed(result.result),
                arguments=result.origin.arguments,
            )
            for message in messages
            for result in message.tool_call_results
        ]
        if key not in state.data:
            return calls, None
        before, now = self.documents, list(state.data[key] or ())
        self.documents = now
        added = len(now) >= len(before) and all(map(is_, before, now))
        return calls, now[len(before) :] if added else now

    def end(self, state: Any) -> None:
        """Take in the answer, and say in the last message how the run ended."""
        self.ended = True
        error: BackendError | None = None
        last, reason = state.data["messages"][-1], state.data["exit_reason"]
        tools = [held for held in last.tool_call_results if held.origin.tool_name == reason]
        if tools:  # one is an exit condition
            self.replied(Reply(raw=last, text=str(tools[-1].result)))
            self.answered(unsearched=True, usage=None)
        elif last.is_from("assistant") and last.text is not None:
            if last is not self.given:
                self.replied(_reply(last))
                self.answered(unsearched=True)
        else:
            error = BackendError(f"the agent's run ended without an answer: {reason}")
        self.loop.end(error, mend=False)
        last.meta["suffice"] = outcome(self.loop)


_RUNS: weakref.WeakKeyDictionary[Any, _Run] = weakref.WeakKeyDictionary()
_GONE: deque[_Run] = deque()


def _inputs(generator: Any, state: Any) -> dict[str, Any]:
    callback = (state.data.get("hook_context") or {}).get("streaming_callback")
    held = {} if callback is None else {"streaming_callback": callback}
    names = {base.__name__ for base in type(generator).__mro__}
    if state.data["tools"] and names & {"OpenAIChatGenerator", "OpenAIResponsesChatGenerator"}:
        held |= {"tools": state.data["tools"], "generation_kwargs": {"tool_choice": "none"}}
    return {"messages": list(state.data["messages"]), **held}


@cache
def _watch(arguments: str) -> Watch:
    return Watch(**json.loads(arguments))


def _parsed(result: Any) -> Any:
    with suppress(TypeError, ValueError):
        held = json.loads(result)
        return held if isinstance(held, list | dict) else result
    return result


def _reply(message: Any) -> Reply:
    usage, logprobs = message.meta.get("usage"), message.meta.get("logprobs")
    calls, text = len(message.tool_calls), message.text or ""
    return Reply(raw=message, text=text, usage=usage, logprobs=logprobs, calls=calls)


def _without_calls(message: Any, text: str) -> Any:
    meta = {} if message is None else {k: v for k, v in message.meta.items() if k != "logprobs"}
    return _AGENTS.point("haystack.dataclasses", "ChatMessage").from_assistant(text, meta=meta)
