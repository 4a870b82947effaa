"""Agents of the OpenAI Agents SDK, watched by a runner. Needs ``openai-agents``."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any

from suffice.errors import UsageError
from suffice.integrations.agents import AgentRun, Framework, Reply, ToolResult, outcome
from suffice.live.loop import Asking, Loop
from suffice.live.watch import Watch
from suffice.loops.prompts import ANSWER_NOW

_SDK = Framework(name="the OpenAI Agents SDK", package="openai-agents", tested="0.24.0")
_REQUEST = (
    "system_instructions", "input", "model_settings", "tools", "output_schema", "handoffs", "tracing",
)  # fmt: skip


_ID = "__fake_id__"  # as the SDK names what the model's server did not name


@cache
def _point(name: str) -> Any:
    return _SDK.point("agents", name)


class SufficeRunner:
    """Run agents as ``agents.Runner`` does, with the same arguments; ``watch`` sees every run.

    A round is a turn in which tools were called. After the watch says stop, the model is asked once more, by
    ``tool_choice="none"``: it answers from what it has. Tools and handoffs that it calls all the same are not
    run: the run ends with the best answer at hand. The result says why in its attribute
    ``suffice``, and the run's trace in a custom span of that name.

    Parameters
    ----------
    watch
        What decides and records, for many runs at once.
    tools
        Names of the tools that retrieve; ``None``: all. Turns without one of them are no rounds.
    probe
        For an answer after each round, where the watch needs one: ``True`` asks the model in that way on
        the same input; if the run stops there, this is the final answer. ``"in-loop"`` asks it for a few
        words by one more message, with the same tools and none to call; a stopped run still writes its
        answer. Or a function of your own. It counts in the record, and not in the run's usage. With an
        answer at hand, a run that reaches ``max_turns`` ends with it, unless ``error_handlers`` differ.
    """

    def __init__(
        self, watch: Watch, *, tools: Collection[str] | None = None, probe: Asking = False
    ) -> None:
        self._runner = [_point(name) for name in ("RunHooks.on_llm_start", "Runner")][-1]
        self._watch, self._settings = watch, AgentRun.settings(tools, probe)

    async def run(self, agent: Any, asked: Any, **options: Any) -> Any:
        """Run as ``Runner.run``."""
        run = self._begun(asked)
        with run.ending():
            result = await self._runner.run(run.prepared(agent, options), asked, **run.options)
        return run.over_with(result)

    def run_sync(self, agent: Any, asked: Any, **options: Any) -> Any:
        """Run as ``Runner.run_sync``."""
        run = self._begun(asked)
        with run.ending():
            result = self._runner.run_sync(run.prepared(agent, options), asked, **run.options)
        return run.over_with(result)

    def run_streamed(self, agent: Any, asked: Any, **options: Any) -> Any:
        """Run as ``Runner.run_streamed``; the question ends with ``stream_events()``."""
        run = self._begun(asked)
        result = self._runner.run_streamed(run.prepared(agent, options), asked, **run.options)
        events = result.stream_events

        async def stream_events() -> AsyncIterator[Any]:
            try:
                with run.ending():
                    async for event in events():
                        yield event
                run.over_with(result)
            finally:
                result.suffice = outcome(run.loop)

        result.stream_events = stream_events
        return result

    def _begun(self, asked: Any) -> _Run:
        if not isinstance(asked, str | list):
            raise UsageError(
                f"a question is watched from its start: a text or a list of items, found "
                f"{type(asked).__name__}; a run that was interrupted goes on with Runner.run"
            )
        run = _Run(self._watch.question(_question(asked)), **self._settings)
        run.loop.begin()
        return run


class _Run(AgentRun):
    def __init__(self, loop: Loop, **settings: Any) -> None:
        super().__init__(loop, write=_without_calls, **settings)
        self.options: dict[str, Any] = {}
        self.results: list[ToolResult] = []
        self.failures: list[Any] = []  # the contexts of calls that failed
        self.error: Exception | None = None
        self.over = False
        self.asking = False  # for its model; other calls are those of runs inside tools

    # --- into the SDK ----------------------------------------------------------------------------
    def prepared(self, agent: Any, options: Mapping[str, Any]) -> Any:
        """Return the agent with its model watched; change the run's ``options`` to match."""
        config = options.get("run_config") or {}
        if isinstance(config, Mapping):
            config = _point("RunConfig")(**config)
        model_type = _point("Model")
        provider = copy.copy(config.model_provider)
        by_name = config.model_provider.get_model
        provider.get_model = lambda name: self._watched(by_name(name))
        if isinstance(config.model, model_type):
            config = replace(config, model=self._watched(config.model))
        agent = self._own(agent)
        config = replace(config, tool_error_formatter=self._noted(config.tool_error_formatter))
        self.options = {
            **options,
            "run_config": replace(config, model_provider=provider),
            "hooks": _hooks()(self, options.get("hooks")),
            "error_handlers": {
                "max_turns": self._at_max_turns,
                **(options.get("error_handlers") or {}),
            },
        }
        return agent

    def _own(self, agent: Any) -> Any:
        """Return the agent with model and tools watched, and those of the agents that it hands over to."""
        model, handoffs = agent.model, [self._handed(held) for held in agent.handoffs]
        model = self._watched(model) if isinstance(model, _point("Model")) else model
        made = agent.clone(model=model, handoffs=handoffs)

        async def get_all_tools(context: Any) -> list[Any]:
            return [self._tool(tool) for tool in await agent.get_all_tools(context)]

        made.get_all_tools = get_all_tools
        return made

    def _tool(self, tool: Any) -> Any:
        """Return a tool that tells of its failures where it words them itself."""
        if not isinstance(tool, _point("FunctionTool")):
            return tool
        made, of = copy.copy(tool), _SDK.point("agents.tool")
        words = getattr(tool, "_failure_error_function", None)
        if words is not None:
            of.set_function_tool_failure_error_function(made, self._noted(words))
        late = partial(of.default_tool_timeout_error_message, tool_name=tool.name)
        made.timeout_error_function = self._noted(
            tool.timeout_error_function or (lambda *_: late(timeout_seconds=tool.timeout_seconds))
        )
        return made

    def _noted(self, words: Any) -> Any:
        """Return what words an error, for a run's errors or for a tool's, and notes whose it is."""

        def noted(told: Any, *error: Exception) -> Any:
            self.failures.append(getattr(told, "run_context", told))
            if getattr(told, "kind", None) == "tool_not_found":
                self.results.append(ToolResult(tool=told.tool_name, output=None))
            return None if words is None else words(told, *error)

        return noted

    def _handed(self, held: Any) -> Any:
        made = copy.copy(held if isinstance(held, _point("Handoff")) else _point("handoff")(held))
        invoke = made.on_invoke_handoff

        async def on_invoke_handoff(context: Any, arguments: str) -> Any:
            return self._own(await invoke(context, arguments))

        made.on_invoke_handoff = on_invoke_handoff
        return made

    def _watched(self, model: Any) -> Any:
        made = copy.copy(model)

        def requested(held: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
            request = {**dict(zip(_REQUEST, held, strict=False)), **named}
            if self.asking:
                self.loop.describe(model, request.get("system_instructions"))
            return request

        async def get_response(*held: Any, **named: Any) -> Any:
            request = requested(held, named)
            if not self.asking:
                return await model.get_response(**request)
            results, self.results = self.results, []
            return await self.turn(results, partial(self._ask, model, request))

        async def stream_response(*held: Any, **named: Any) -> AsyncIterator[Any]:
            request = requested(held, named)
            if self.asking:
                results, self.results = self.results, []
                await self.astep(results, partial(self._ask, model, request, "draft"))
            began, stopped = time.perf_counter(), self.asking and self.loop.done
            stream = partial(self._last, model) if stopped else model.stream_response
            async for event in stream(**request):
                if event.type == "response.completed" and self.asking and not stopped:
                    self.replied(_reply(event.response), time.perf_counter() - began)
                yield event

        made.get_response, made.stream_response = get_response, stream_response
        return made

    async def _last(self, model: Any, **request: Any) -> AsyncIterator[Any]:
        """Yield what the model writes after the stop as it comes, and nothing of its calls."""
        ended: Any = Exception("the stream ended before its reply")
        shown = ""
        try:
            if self.given is None:
                async for event in model.stream_response(**_without_tools(request)):
                    kind = event.type + getattr(getattr(event, "item", None), "type", "")
                    if event.type == "response.completed":
                        ended = event.response
                    elif "_call" not in kind:
                        shown += event.delta if kind == "response.output_text.delta" else ""
                        yield event
        except Exception as error:  # noqa: BLE001
            ended = error

        def answer() -> Reply:
            if isinstance(ended, Exception):
                raise ended
            return _reply(ended)

        for event in _events(await self.finish(answer), shown):
            yield event

    def _at_max_turns(self, held: Any) -> Any:
        if self.loop.answer is None or held.run_data.last_agent.output_type not in (None, str):
            return None
        self.error = held.error
        self.failed()
        return self.loop.answer

    # --- what the SDK says -----------------------------------------------------------------------
    async def _ask(self, model: Any, request: Mapping[str, Any], how: str) -> Reply:
        if how == "draft" and request.get("conversation_id"):
            raise UsageError("a draft would be added to a conversation that the server keeps")
        asked = request if how == "on" else _without_tools(request)
        if how == "draft" and self.in_loop:
            said = [*request["input"], {"role": "user", "content": ANSWER_NOW}]
            asked = {**asked, "input": said, "output_schema": None}
        return _reply(await model.get_response(**asked))

    def failed(self) -> None:
        """Take in what the tools of the last turn gave."""
        self.over = True
        with suppress(Exception):
            self.take(self.results)

    @contextmanager
    def ending(self) -> Iterator[None]:
        """End the question if the run fails."""
        try:
            yield
        except BaseException as error:
            self.failed()
            self.loop.end(error)
            raise

    def end(self, output: Any) -> None:
        """Take in the final output, once, which may be what a tool gave, and end the question."""
        if not self.over and output is not None:
            self.over = True
            text = output if isinstance(output, str) else None
            if not self.take(self.results, str(output)) and self.given is None:
                self.answered(text)
        error, self.error = self.error, None
        self.loop.end(error)

    def over_with(self, result: Any) -> Any:
        """Return the result of a finished run, with the reason."""
        self.end(result.final_output)
        result.suffice = outcome(self.loop)
        return result


@cache
def _hooks() -> type[Any]:
    base: Any = _point("RunHooks")
    custom_span = _point("custom_span")

    class Hooks(base):  # type: ignore[misc]
        def __init__(self, run: _Run, own: Any) -> None:
            self.run, self.own = run, own or base()
            for name in ("on_agent_start", "on_handoff", "on_tool_start"):
                setattr(self, name, getattr(self.own, name))

        async def on_llm_start(self, *held: Any) -> None:
            self.run.asking = True
            await self.own.on_llm_start(*held)

        async def on_llm_end(self, *held: Any) -> None:
            self.run.asking = False
            await self.own.on_llm_end(*held)

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            arguments: Any = {}
            with suppress(ValueError):
                arguments = json.loads(getattr(context, "tool_arguments", None) or "{}")
            known = arguments if isinstance(arguments, dict) else {}
            output = None if any(held is context for held in self.run.failures) else result
            self.run.results.append(ToolResult(tool=tool.name, output=output, arguments=known))
            await self.own.on_tool_end(context, agent, tool, result)

        async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
            self.run.end(output)
            with custom_span("suffice", outcome(self.run.loop)):
                await self.own.on_agent_end(context, agent, output)

    return Hooks


def _question(asked: str | list[Any]) -> str:
    if isinstance(asked, str):
        return asked
    said: Any = next((item for item in reversed(asked) if item.get("role") == "user"), {})
    content = said.get("content") or ""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if isinstance(part.get("text"), str))


def _without_tools(request: Mapping[str, Any]) -> dict[str, Any]:
    return {**request, "model_settings": replace(request["model_settings"], tool_choice="none")}


def _reply(response: Any) -> Reply:
    parts = [
        part
        for item in response.output
        if item.type == "message"
        for part in item.content
        if part.type == "output_text"
    ]
    tokens = [token for part in parts for token in part.logprobs or ()]
    return Reply(
        raw=response,
        text="".join(part.text for part in parts),
        usage=response.usage,
        logprobs=tokens or None,
        calls=sum(item.type not in ("message", "reasoning") for item in response.output),
    )


def _without_calls(response: Any, text: str) -> Any:
    types, usage = _SDK.point("openai.types.responses"), _point("Usage")
    content = types.ResponseOutputText(text=text, type="output_text", annotations=[])
    message = types.ResponseOutputMessage(
        id=_ID, content=[content], role="assistant", status="completed", type="message"
    )
    made = copy.copy(response) or _point("ModelResponse")(
        output=[], usage=usage(), response_id=None
    )
    made.output = [message]
    return made


def _events(response: Any, shown: str = "") -> Iterator[Any]:
    """Yield a response as events of a stream that showed a text already."""
    types, text = _SDK.point("openai.types.responses"), _reply(response).text
    places: dict[str, Any] = {"item_id": _ID, "content_index": 0, "output_index": 0, "logprobs": []}
    if text != shown:
        yield types.ResponseTextDeltaEvent(
            delta=text, sequence_number=0, type="response.output_text.delta", **places
        )
    if not isinstance(response, types.Response):  # of a draft, whose usage is not the run's
        response = types.Response.model_construct(id=None, output=response.output, usage=None)
    yield types.ResponseCompletedEvent.model_construct(
        response=response, sequence_number=1, type="response.completed"
    )
