"""Let a rule stop an agent of Google's ADK when its searches bring nothing new.

python examples/agents/google_adk_agent.py http://localhost:8080/v1 MODEL

The plugin may be copied or imported: it needs google-adk 2.13.0, as tested.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models.lite_llm import LiteLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import InMemoryRunner
from google.genai import types

import suffice
from suffice.integrations.agents import AgentRun, Reply, ToolResult, outcome
from suffice.live.loop import Loop, Probe
from suffice.live.watch import Watch
from suffice.trace.rounds.records import Token, TopToken, Usage

_HANDS_OVER = "transfer_to_agent"
_FINAL = "set_model_response"  # called with an answer of an output schema


class SufficePlugin(BasePlugin):  # type: ignore[misc]
    """For ``App(plugins=[...])`` or a runner: ``watch`` sees every invocation.

    A round is a model message that called tools. After the watch says stop, the model is asked once more, by
    every agent, and is to call no tool: it answers from what it has. Tools that it calls all the same are not
    run: the run ends with the best answer at hand. The event with the answer says why under
    ``custom_metadata["suffice"]``; the question's id is the invocation's.
    """

    def __init__(
        self, watch: Watch, *, tools: Collection[str] | None = None, probe: bool | Probe = False
    ) -> None:
        super().__init__(name="suffice")
        self.watch, self.tools, self.probe = watch, tools, probe
        self.runs: dict[str, _Run] = {}

    async def before_run_callback(self, *, invocation_context: Any) -> None:
        name = invocation_context.invocation_id
        question = self.watch.question(_text(invocation_context.user_content), question_id=name)
        self.runs[name] = _Run(question.begin(), name, self)

    async def after_tool_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, result: Any
    ) -> None:
        alone = isinstance(result, Mapping) and result.keys() == {"result"}
        self._called(tool_context, tool, tool_args, result["result"] if alone else result)

    async def on_tool_error_callback(
        self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, error: Exception
    ) -> None:
        del error
        self._called(tool_context, tool, tool_args, None)

    def _called(self, context: Any, tool: Any, arguments: dict[str, Any], output: Any) -> None:
        run = self.runs.get(context.invocation_id)
        if run is not None and tool.name != _HANDS_OVER:
            run.results.append(ToolResult(tool=tool.name, output=output, arguments=arguments))

    async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> Any:
        run = self.runs.get(callback_context.invocation_id)
        if run is None:
            return None
        run.loop.describe(llm_request, llm_request.config.system_instruction)

        async def ask() -> Reply:
            agent = callback_context.get_invocation_context().agent
            model = await agent.canonical_model_async(callback_context)
            held = {
                "contents": list(llm_request.contents),
                "config": llm_request.config.model_copy(),
            }
            bare = llm_request.model_copy(update=held)
            _call_nothing(bare)
            responses = [response async for response in model.generate_content_async(bare)]
            return _reply(responses[-1], run.final)

        results, run.results = run.results, []
        run.final = _FINAL if _FINAL in llm_request.tools_dict else ""
        kept = await run.astep(results, ask)
        if not run.loop.done:
            return None
        if run.ends(callback_context.agent_name):
            return run.told(_without_calls("", None, run.loop.answer or ""))
        if kept is None:
            _call_nothing(llm_request)
        return kept and run.told(kept)

    async def on_model_error_callback(
        self, *, callback_context: Any, llm_request: Any, error: Exception
    ) -> Any:
        del llm_request
        run = self.runs.get(callback_context.invocation_id)
        if run is None or not run.loop.done:
            return None

        def failed() -> Reply:
            raise error

        with suppress(type(error)):  # no answer is known either
            return run.told(await run.finish(failed))

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> Any:
        run = self.runs.get(callback_context.invocation_id)
        if run is None or llm_response.partial:
            return None
        reply = _reply(llm_response, run.final)
        if run.loop.done:
            return run.told(await run.finish(lambda: reply))
        run.replied(reply)
        if not reply.text or (reply.calls and not reply.final):
            run.reply = None
        else:
            run.told(llm_response)
        return None

    async def after_run_callback(self, *, invocation_context: Any) -> None:
        run = self.runs.get(invocation_context.invocation_id)
        if run is not None:
            run.answered()
            run.ended()

    async def on_run_error_callback(self, *, invocation_context: Any, error: Exception) -> None:
        run = self.runs.get(invocation_context.invocation_id)
        if run is not None:
            run.ended(error)


class _Run(AgentRun):
    """An invocation under way."""

    def __init__(self, loop: Loop, name: str, plugin: SufficePlugin) -> None:
        self.final: str = ""  # the tool by which an answer of an output schema is given
        write = lambda response, text: _without_calls(self.final, response, text)  # noqa: E731
        super().__init__(loop, tools=plugin.tools, probe=plugin.probe, write=write)
        self.name, self.runs, self.results = name, plugin.runs, list[ToolResult]()
        self.asked: set[str] = set()  # agents, after the stop
        self.task = asyncio.current_task()
        if self.task is not None:  # a cancelled invocation tells its plugins nothing
            self.task.add_done_callback(self.abandoned)

    def ends(self, agent: str) -> bool:
        """Whether the agent was asked after the stop; another one of the invocation may be asked once."""
        again = agent in self.asked
        if self.asked and not again:
            self.given = None
        self.asked.add(agent)
        return again

    def told(self, response: Any) -> Any:
        """The response with why the run ends."""
        said = outcome(self.loop)
        said["stopped_by"] = said["stopped_by"] or "end"
        response.custom_metadata = {**(response.custom_metadata or {}), "suffice": said}
        return response

    def ended(self, error: BaseException | None = None) -> None:
        self.runs.pop(self.name, None)
        if self.task is not None:
            self.task.remove_done_callback(self.abandoned)
        self.loop.end(error)

    def abandoned(self, task: asyncio.Task[Any]) -> None:
        """Its task is over and it did not say how it ended."""
        del task
        self.ended(asyncio.CancelledError("the invocation was cancelled"))


def _call_nothing(request: Any) -> None:
    """Keep its tools, which the model has read before, and have none called but that of the answer."""
    if not request.config.tools:
        return
    final = {"mode": "ANY", "allowed_function_names": [_FINAL]}
    choice = final if _FINAL in request.tools_dict else {"mode": "NONE"}
    request.config.tool_config = types.ToolConfig.model_validate(
        {"function_calling_config": choice}
    )


def _text(content: Any) -> str:
    """What is said in it, without thoughts."""
    parts = [] if content is None else content.parts or []
    return "".join(part.text for part in parts if part.text and not part.thought)


def _reply(response: Any, final: str) -> Reply:
    text, usage, tokens = _text(response.content), _usage(response), _tokens(response)
    calls = response.get_function_calls()
    given = [call.args for call in calls if call.name == final]
    return Reply(
        raw=response,
        text=json.dumps(given[-1]) if given else text,
        usage=usage,
        logprobs=tokens,
        calls=len(calls) - len(given),
        final=bool(given),
    )


def _without_calls(final: str, response: Any, text: str) -> Any:
    made = LlmResponse() if response is None else response
    parts = (made.content.parts or []) if made.content is not None else []
    given = [part for part in parts if part.function_call and part.function_call.name == final]
    content = types.Content(role="model", parts=given or [types.Part(text=text)])
    return made.model_copy(update={"content": content, "logprobs_result": None})


def _usage(response: Any) -> Usage:
    spent = response.usage_metadata
    if spent is None:
        return Usage(llm_calls=1)
    written = [spent.candidates_token_count, spent.thoughts_token_count]
    return Usage(
        llm_calls=1,
        prompt_tokens=spent.prompt_token_count,
        cached_tokens=spent.cached_content_token_count,
        completion_tokens=sum(count or 0 for count in written) if any(written) else None,
    )


def _tokens(response: Any) -> tuple[Token, ...] | None:
    """Google's chosen candidates with the top ones of each place."""
    held = response.logprobs_result
    if held is None or not held.chosen_candidates:
        return None
    tops = [top.candidates or [] for top in held.top_candidates or []]
    tops += [[]] * (len(held.chosen_candidates) - len(tops))
    return tuple(
        Token(
            chosen.token or "",
            chosen.log_probability or 0.0,
            tuple(TopToken(one.token or "", one.log_probability or 0.0) for one in top),
        )
        for chosen, top in zip(held.chosen_candidates, tops, strict=False)
    )


# --- the example ------------------------------------------------------------------------------
NOTES = {
    "n1": "The observatory on the hill was founded in 1904 by Ada Marsh.",
    "n2": "Ada Marsh, born in Lund, drew star maps.",
}


def search(query: str) -> list[dict[str, str]]:
    """Search the notes."""
    words = set(query.lower().split())
    best = max(NOTES, key=lambda name: len(words & set(NOTES[name].lower().split())))
    return [{"id": best, "text": NOTES[best]}]


def main(url: str, name: str) -> None:
    model = LiteLlm(model=f"openai/{name}", api_base=url, api_key="none")
    agent = LlmAgent(name="asker", model=model, tools=[search])
    watch = suffice.Watch(suffice.Rule(rule="new_passages < 0.5"), mode="live", max_rounds=6)
    app = App(name="asking", root_agent=agent, plugins=[SufficePlugin(watch)])
    events = asyncio.run(
        InMemoryRunner(app=app).run_debug("Who founded the observatory?", quiet=True)
    )
    print(events[-1].content.parts[0].text)
    print(events[-1].custom_metadata["suffice"])


if __name__ == "__main__":
    main(*sys.argv[1:])
