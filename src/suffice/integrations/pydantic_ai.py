"""pydantic-ai agents, watched by a capability. Needs ``pydantic-ai-slim``."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import Any

from suffice.integrations.agents import DOCUMENTS, AgentRun, Framework, Reply, ToolResult, outcome
from suffice.live.loop import Asking
from suffice.live.watch import Watch
from suffice.loops.prompts import ANSWER_NOW

_PYDANTIC_AI = Framework(name="pydantic-ai", package="pydantic-ai-slim", tested="2.68.0")


def suffice_capability(
    watch: Watch, *, tools: Collection[str] | None = None, probe: Asking = False
) -> Any:
    """Return a capability by which ``watch`` sees every run of an agent, or one run.

    A round is a model message that called tools. After the watch says stop, the next model request offers no
    function tools. So the model answers from what it has, in the agent's output type. The last request and
    the response to it say why in ``metadata["suffice"]``; the question's id is the run's.

    ``probe=True``: if a round needs an answer, the model is called without function tools; at a stop that
    answer is the run's. ``"in-loop"``: it is asked for a few words at the end of the conversation, with the
    same tools and none to call; a stopped run still writes its answer. Or what ``loop.observe`` takes.
    """
    return _capability()(watch, **AgentRun.settings(tools, probe))


@cache
def _capability() -> type[Any]:
    names = ("AbstractCapability.wrap_model_request", "AbstractCapability")
    base: Any = [_PYDANTIC_AI.point("pydantic_ai.capabilities", name) for name in names][-1]

    class SufficeCapability(base):  # type: ignore[misc]
        run: AgentRun
        sent: list[Any]  # the messages of the request that comes next
        final: Collection[str]  # names of the output's tools

        def __init__(self, watch: Watch, **settings: Any) -> None:
            super().__init__()
            self.watch, self.settings = watch, settings

        async def for_run(self, ctx: Any) -> Any:
            made = type(self)(self.watch, **self.settings)
            loop = self.watch.question(_question(ctx), question_id=ctx.run_id)
            made.run = AgentRun(loop, **self.settings)
            made.sent, made.final = [], ()
            return made

        async def wrap_run(self, ctx: Any, *, handler: Any) -> Any:
            del ctx
            loop = self.run.loop.begin()
            try:
                result = await handler()
            except BaseException as error:
                with suppress(Exception):  # of a limit that was reached before the model was asked
                    self.run.take(tuple(_results(self.sent, self.final)))
                loop.end(error)
                raise
            self.run.answered()
            loop.end()
            for message in _last_exchange(result.all_messages()):
                message.metadata = {**(message.metadata or {}), "suffice": outcome(loop)}
            return result

        async def before_node_run(self, ctx: Any, *, node: Any) -> Any:
            if hasattr(node, "request"):
                self.sent = [*ctx.messages, node.request]
            return node

        async def wrap_model_request(self, ctx: Any, *, request_context: Any, handler: Any) -> Any:
            del ctx
            run, request, self.sent = self.run, request_context, []
            first = request.messages[0]
            told = [part.content for part in first.parts if part.part_kind == "system-prompt"]
            run.loop.describe(request.model, "\n".join([*told, first.instructions or ""]).strip())
            self.final = [tool.name for tool in request.model_request_parameters.output_tools]

            async def ask() -> Reply:
                bare = (_asked_now if run.in_loop else _without_tools)(request)
                parameters = bare.model_request_parameters
                return _reply(
                    await bare.model.request(bare.messages, bare.model_settings, parameters)
                )

            kept = await run.astep(tuple(_results(request.messages, self.final)), ask)
            if kept is not None:
                return kept
            began = time.perf_counter()
            response = await handler(_without_tools(request) if run.loop.done else request)
            run.replied(_reply(response), time.perf_counter() - began)
            return response

    return SufficeCapability


def _last_exchange(messages: Sequence[Any]) -> Sequence[Any]:
    places = [place for place, held in enumerate(messages) if held.kind == "response"]
    return messages[max(places[-1] - 1, 0) : places[-1] + 1] if places else ()


def _question(run: Any) -> str:
    asked = run.prompt
    if asked is None:
        parts = [part for message in run.messages for part in message.parts]
        asked = next(
            (part.content for part in reversed(parts) if part.part_kind == "user-prompt"), ""
        )
    if isinstance(asked, str):
        return asked
    texts = (part if isinstance(part, str) else getattr(part, "content", None) for part in asked)
    return "\n".join(text for text in texts if isinstance(text, str))


def _results(messages: Sequence[Any], final: Collection[str]) -> Iterator[ToolResult]:
    called = next((held for held in reversed(messages) if held.kind == "response"), None)
    calls = {} if called is None else {call.tool_call_id: call for call in called.tool_calls}
    for part in messages[-1].parts if messages else ():
        call = calls.get(getattr(part, "tool_call_id", None))
        if call is None or call.tool_name in final:
            continue
        output = None
        if part.part_kind == "tool-return" and part.outcome == "success":
            held = part.metadata if isinstance(part.metadata, Mapping) else {}
            output = held if held.keys() & DOCUMENTS else part.content
        yield ToolResult(tool=call.tool_name, output=output, arguments=call.args_as_dict())


def _without_tools(request: Any) -> Any:
    parameters = replace(request.model_request_parameters, function_tools=[], native_tools=[])
    settings = {
        name: value
        for name, value in (request.model_settings or {}).items()
        if name not in ("tool_choice", "parallel_tool_calls")
    }
    return replace(request, model_request_parameters=parameters, model_settings=settings)


def _asked_now(request: Any) -> Any:
    *before, last = request.messages
    asked = _PYDANTIC_AI.point("pydantic_ai.messages", "UserPromptPart")(ANSWER_NOW)
    settings = {**(request.model_settings or {}), "tool_choice": "none"}
    messages = [*before, replace(last, parts=[*last.parts, asked])]
    return replace(request, messages=messages, model_settings=settings)


def _reply(response: Any) -> Reply:
    text, details = response.text or "", response.provider_details or {}
    if response.tool_calls:
        fields, details = response.tool_calls[-1].args_as_dict(), {}
        only = next(iter(fields.values())) if len(fields) == 1 else None
        text = only if isinstance(only, str) else json.dumps(fields)
    return Reply(raw=response, text=text, usage=response.usage, logprobs=details.get("logprobs"))
