"""pydantic-ai agents, watched by a capability. Needs ``pydantic-ai-slim``."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any

from suffice.datasets.pairing import paired
from suffice.integrations.agents import DOCUMENTS, AgentRun, Framework, Reply, ToolResult, outcome
from suffice.live.loop import Asking
from suffice.live.watch import Watch
from suffice.loops.prompts import ANSWER_NOW

_PYDANTIC_AI = Framework(name="pydantic-ai", package="pydantic-ai-slim", tested="2.68.0")


def suffice_capability(
    watch: Watch, *, tools: Collection[str] | None = None, probe: Asking = False
) -> Any:
    """Return a capability by which ``watch`` sees every run of an agent, or one run.

    A round is a model message that called tools. After the watch says stop, the model is asked once more, by
    ``tool_choice="none"``: it answers from what it has, in the agent's output type. Function tools that it
    calls all the same are not run: the run ends with the best answer at hand. The last request and
    the response to it say why in ``metadata["suffice"]``; the question's id is the run's.

    ``probe=True``: if a round needs an answer, the model is asked in that way; at a stop that
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
        is_text: bool  # whether the output may be any text, also an empty one

        def __init__(self, watch: Watch, **settings: Any) -> None:
            super().__init__()
            self.watch, self.settings = watch, settings

        async def for_run(self, ctx: Any) -> Any:
            made = type(self)(self.watch, **self.settings)
            loop = self.watch.question(_question(ctx), question_id=ctx.run_id)
            write = partial(_without_calls, made)
            made.run = AgentRun(loop, write=write, **self.settings)
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
            asked = request.model_request_parameters
            self.final = [tool.name for tool in asked.output_tools]
            self.is_text = asked.allow_text_output and asked.output_object is None

            async def ask(how: str) -> Reply:
                if how != "draft":
                    asked = request if how == "on" else _without_tools(request)
                    return _reply(await handler(asked), self.final)
                bare = (_asked_now if run.in_loop else _without_tools)(request)
                settings, parameters = bare.model_settings, bare.model_request_parameters
                held = await bare.model.request(bare.messages, settings, parameters)
                return _reply(held, self.final)

            return await run.turn(tuple(_results(request.messages, self.final)), ask)

        async def wrap_node_run(self, ctx: Any, *, node: Any, handler: Any) -> Any:
            del ctx
            following = await handler(node)
            unanswered = self.run.given is not None and not self.run.loop.answer
            if hasattr(following, "request") and unanswered and self.is_text:
                final = _PYDANTIC_AI.point("pydantic_ai.result", "FinalResult")
                return _PYDANTIC_AI.point("pydantic_graph", "End")(final(""))
            return following

        async def wrap_tool_execute(
            self, ctx: Any, *, call: Any, tool_def: Any, args: Any, handler: Any
        ) -> Any:
            del ctx, call
            if self.run.loop.done and tool_def.kind == "function":
                return "not run: the run was stopped"
            return await handler(args)

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
    calls = [] if called is None else called.tool_calls
    parts = [
        held for held in (messages[-1].parts if messages else ()) if hasattr(held, "tool_name")
    ]
    named = [[(held.tool_call_id, held.tool_name) for held in side] for side in (calls, parts)]
    for part, at in zip(parts, paired(*named), strict=True):
        if at is None or (call := calls[at]).tool_name in final:
            continue
        output = None
        if part.part_kind == "tool-return" and part.outcome == "success":
            held = part.metadata if isinstance(part.metadata, Mapping) else {}
            output = held if held.keys() & DOCUMENTS else part.content
        yield ToolResult(tool=call.tool_name, output=output, arguments=call.args_as_dict())


def _without_tools(request: Any) -> Any:
    parameters = replace(request.model_request_parameters, native_tools=[])
    settings = {**(request.model_settings or {}), "tool_choice": "none"}
    return replace(request, model_request_parameters=parameters, model_settings=settings)


def _asked_now(request: Any) -> Any:
    *before, last = request.messages
    asked = _PYDANTIC_AI.point("pydantic_ai.messages", "UserPromptPart")(ANSWER_NOW)
    messages = [*before, replace(last, parts=[*last.parts, asked])]
    return replace(_without_tools(request), messages=messages)


def _reply(response: Any, final: Collection[str]) -> Reply:
    text, details = response.text or "", response.provider_details or {}
    given = [call for call in response.tool_calls if call.tool_name in final]
    if given:
        fields, details = given[-1].args_as_dict(), {}
        only = next(iter(fields.values())) if len(fields) == 1 else None
        text = only if isinstance(only, str) else json.dumps(fields)
    calls, tokens = len(response.tool_calls) - len(given), details.get("logprobs")
    told = {"usage": response.usage, "logprobs": tokens, "calls": calls, "final": bool(given)}
    return Reply(raw=response, text=text, **told)


def _without_calls(run: Any, response: Any, text: str) -> Any:
    messages = _PYDANTIC_AI.point("pydantic_ai.messages")
    made = messages.ModelResponse(parts=[]) if response is None else response
    given = [call for call in made.tool_calls if call.tool_name in run.final]
    kept = [part for part in made.parts if part.part_kind not in ("tool-call", "text")]
    return replace(made, parts=[*kept, *(given or [messages.TextPart(text)])])
