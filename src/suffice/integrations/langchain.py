"""LangChain's agents, LangGraph's agent among them, watched by a middleware. Needs ``langchain``."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, Self

from suffice.concurrency import at_once, settled
from suffice.datasets.pairing import paired
from suffice.integrations.agents import Framework, Reply, ToolResult, outcome
from suffice.integrations.langgraph import GraphRun, GraphRuns, run_of
from suffice.live.loop import Asking, Loop
from suffice.live.watch import Watch
from suffice.loops.prompts import ANSWER_NOW

_AGENTS = Framework(name="LangChain's agents", package="langchain", tested="1.4.7")
_KEY = "suffice"


class SufficeMiddleware:
    """Watch the runs of ``create_agent``, LangGraph's agent, and of deepagents.

    A round is a message that calls tools, with their results. After a stop the model is asked once more and
    may call no tool, so it answers from what it has. Tools that it calls all the same are not run: the run
    ends with the best answer at hand. Every message of the model says, under
    ``response_metadata["suffice"]``, of which question it is, who stopped it and why.

    Parameters
    ----------
    watch
        Decides, records. One middleware serves any number of runs at once.
    tools
        Names of the tools that retrieve; ``None``: all do.
    probe
        ``True``: if a round needs an answer, the model is asked on the same messages and may call no tool; at
        a stop that answer is the run's. ``"in-loop"``: it is asked for a few words by one more message, with
        the same tools and none to call; a stopped run still answers. Or what ``loop.observe`` takes.
    without_tools
        Makes the request that the model answers without searching; ``None``: the same one with
        ``tool_choice="none"``, or without tools where there is a response format. Of a provider that refuses
        such a choice: ``lambda request: request.override(tools=[])``.
    """

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Create an instance of a class that also derives from LangChain's."""
        base = _AGENTS.point("langchain.agents.middleware", "AgentMiddleware")
        made = cls if issubclass(cls, base) else _joined(cls, base)  # type: ignore[arg-type]
        return object.__new__(made)

    def __init__(
        self,
        watch: Watch,
        *,
        tools: Collection[str] | None = None,
        probe: Asking = False,
        without_tools: Callable[[Any], Any] | None = None,
    ) -> None:
        self._without_tools = without_tools or _without_tools
        self._runs = GraphRuns(watch, write=_without_calls, **GraphRun.settings(tools, probe))

    # --- what LangChain calls ---------------------------------------------------------------------
    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Take in the round that just ended, and have the model go on or answer."""
        return at_once(self._wrapped(request, handler))

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Do the same as :meth:`wrap_model_call`, with asyncio."""
        return await self._wrapped(request, handler)

    async def _wrapped(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        run = self._run(request)
        run.loop.describe(request.model, getattr(request, "system_prompt", None))

        async def ask(how: str) -> Reply:
            asked = request if how == "on" else self._without_tools(request)
            if how == "draft":
                asked = _unseen(_asked_now(request) if run.in_loop else asked)
            return _read(await settled(handler(asked)))

        return _stamped(run.loop, await run.turn(_results(run, request.state["messages"]), ask))

    def after_agent(self, state: Any, runtime: Any) -> Any:
        """End the run, with an earlier round's answer if the watch chooses it."""
        messages = state["messages"]
        own = next((held for held in reversed(messages) if _question_id(held)), None)
        run = None if own is None else self._runs.resume(_question_id(own) or "", None, runtime)
        if own is None or run is None:
            return None
        self._runs.pop(run)
        structured = state.get("structured_response")
        if structured is None:  # a tool may end a run with what it gives
            run.take(_results(run, messages))
        if run.given is None and (not own.tool_calls or messages[-1].type == "tool"):
            if run.reply is None:
                run.replied(_reply(own))
            run.answered(_written(structured, messages[-1] if own.tool_calls else own))
        run.loop.end()
        return _chosen(run.loop, state)

    async def aafter_agent(self, state: Any, runtime: Any) -> Any:
        """Do the same as :meth:`after_agent`, with asyncio."""
        return self.after_agent(state, runtime)

    # --- which loop -------------------------------------------------------------------------------
    def _run(self, request: Any) -> GraphRun:
        messages, runtime = request.state["messages"], request.runtime
        asked = -1
        for place, held in enumerate(messages):  # a summary of earlier messages asks nothing
            if held.type == "human" and "lc_source" not in held.additional_kwargs:
                asked = place
        question = messages[asked] if asked >= 0 else None
        last = _last_call(messages)
        if last is not None and (name := _question_id(messages[last])) is not None:
            if asked < last:
                return self._resumed(messages[max(asked, 0) :], messages[last], runtime)
            run = self._runs.get(name, runtime)
            if run is not None and not _open_calls(messages[last:]):
                return run  # a tool added a message of the user's
        begun = (getattr(question, "id", None), id(run_of(runtime)))
        text = "" if question is None else str(question.text)
        return self._runs.get(begun, runtime) or self._runs.begin(text, runtime, begun)

    def _resumed(self, messages: Sequence[Any], last: Any, runtime: Any) -> GraphRun:
        told = last.response_metadata[_KEY]
        run = self._runs.resume(told["question_id"], None, runtime)
        if run is not None:
            if run.taken is None and len(run.loop.rounds) > told["rounds"]:
                run.taken = last.id  # its results are among them
            return run
        run = self._runs.begin(str(messages[0].text), runtime, told["question_id"])
        numbered = enumerate(messages)
        places = [place for place, held in numbered if held.type == "ai" and held.tool_calls]
        for place, end in pairwise(places):
            run.take(_results(run, messages[place:end]))
        return run


@cache
def _joined(cls: type, base: type) -> type:
    return type(cls.__name__, (cls, base), {"__module__": cls.__module__, "__doc__": cls.__doc__})


def _unseen(request: Any) -> Any:
    if not hasattr(request.model, "tags"):
        return request
    tags = [*(request.model.tags or ()), "nostream"]
    return request.override(model=request.model.model_copy(update={"tags": tags}))


def _without_tools(request: Any) -> Any:
    packages = {base.__module__.partition(".")[0] for base in type(request.model).__mro__}
    # AWS knows no such choice; of a response format's tools LangChain has one called
    if "langchain_aws" in packages or request.response_format is not None:
        return request.override(tools=[], tool_choice=None)
    choice = {"type": "none"} if "langchain_anthropic" in packages else "none"
    return request.override(tool_choice=choice)


def _asked_now(request: Any) -> Any:
    asked = _AGENTS.point("langchain.messages", "HumanMessage")
    messages = [*request.messages, asked(ANSWER_NOW)]
    return _without_tools(request.override(messages=messages, response_format=None))


def _own(raw: Any) -> Any:
    return next(message for message in raw.result if message.type == "ai")


def _dropped(raw: Any) -> list[Any]:
    """Return a reply's calls, but that of a response format's tool."""
    fits, own = raw.structured_response is not None, _own(raw)
    calls = [*own.tool_calls, *own.invalid_tool_calls]
    kept = {at for at, _ in _pairs(calls, raw.result)} if fits else set()
    return [call for at, call in enumerate(calls) if at not in kept]


def _without_calls(raw: Any, text: str) -> Any:
    if raw is None:
        made = _AGENTS.point("langchain.messages", "AIMessage")
        return _AGENTS.point("langchain.agents.middleware", "ModelResponse")(result=[made(text)])
    own, dropped, fits = _own(raw), _dropped(raw), raw.structured_response is not None
    names, content = {call["id"] for call in dropped} - {None}, own.content if fits else text
    if isinstance(content, list):  # with the calls among its parts
        held = [(part, part if isinstance(part, dict) else {}) for part in content]
        content = [part for part, of in held if names.isdisjoint((of.get("id"), of.get("call_id")))]
    calls = [call for call in own.tool_calls if not any(call is held for held in dropped)]
    said = {name: v for name, v in own.response_metadata.items() if fits or name != "logprobs"}
    changed = {"content": content, "tool_calls": calls, "response_metadata": said}
    own = own.model_copy(update={**changed, "additional_kwargs": {}, "invalid_tool_calls": []})
    raw.result[:] = [own, *(raw.result[1:] if fits else ())]
    return raw


def _stamped(loop: Loop, reply: Any) -> Any:
    message, said = _own(reply), outcome(loop)
    last = not message.tool_calls or reply.structured_response is not None
    if last and said["stopped_by"] is None:
        said["stopped_by"] = "end"
    message.response_metadata[_KEY] = said
    return reply


def _chosen(loop: Loop, state: Any) -> dict[str, Any] | None:
    message = state["messages"][-1]
    earlier = loop.answer_round is not None and loop.answer_round < len(loop.rounds)
    if not earlier or loop.stopped_by not in {"policy", "budget"} or message.type != "ai":
        return None
    said = {**message.response_metadata, _KEY: {**outcome(loop), "answer_round": loop.answer_round}}
    changed = {"content": loop.answer, "response_metadata": said}
    return {"messages": [message.model_copy(update=changed)]}


def _last_call(messages: Sequence[Any]) -> int | None:
    last = next((n for n in reversed(range(len(messages))) if messages[n].type == "ai"), None)
    return last if last is not None and messages[last].tool_calls else None


def _open_calls(messages: Sequence[Any]) -> bool:
    calls = messages[0].tool_calls
    return len({at for at, _ in _pairs(calls, messages)}) < len(calls)


def _pairs(calls: Sequence[Any], messages: Sequence[Any]) -> list[tuple[int, Any]]:
    """Return the results among messages, each with the place of its call."""
    results = [message for message in messages if message.type == "tool"]
    named = [(result.tool_call_id, result.name) for result in results]
    places = paired([(call["id"], call["name"]) for call in calls], named)
    return [(at, held) for at, held in zip(places, results, strict=True) if at is not None]


def _question_id(message: Any) -> str | None:
    said = message.response_metadata.get(_KEY) if message.type == "ai" else None
    return None if said is None else said["question_id"]


def _results(run: GraphRun, messages: Sequence[Any]) -> list[ToolResult]:
    place = _last_call(messages)
    if place is None or run.taken == messages[place].id or _question_id(messages[place]) is None:
        return []
    message = messages[place]
    run.taken = message.id
    if run.reply is None:  # another process asked
        run.replied(_reply(message))
    return [
        ToolResult(
            tool=message.tool_calls[at]["name"],
            arguments=message.tool_calls[at]["args"],
            output=None if result.status == "error" else _output(result),
            text=result.text,
        )
        for at, result in _pairs(message.tool_calls, messages[place + 1 :])
    ]


def _output(result: Any) -> Any:
    held = result.content if result.artifact is None else result.artifact
    if not isinstance(held, list | tuple):
        return held
    return [vars(part) if hasattr(part, "page_content") else part for part in held]


def _read(raw: Any) -> Reply:
    message = _own(raw)
    fits, text = raw.structured_response is not None, _written(raw.structured_response, message)
    return replace(_reply(message), raw=raw, text=text, calls=len(_dropped(raw)), final=fits)


def _reply(message: Any) -> Reply:
    return Reply(
        raw=message,
        text=str(message.text),
        usage=getattr(message, "usage_metadata", None),
        logprobs=message.response_metadata.get("logprobs"),
    )


def _written(structured: Any, message: Any) -> str:
    if structured is None:
        return str(message.text)
    if hasattr(structured, "model_dump_json"):
        return str(structured.model_dump_json())
    return json.dumps(structured, default=lambda part: getattr(part, "__dict__", str(part)))
