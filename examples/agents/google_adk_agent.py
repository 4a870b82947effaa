"""Let a rule stop an agent of Google's ADK when its searches bring nothing new.

python examples/agents/google_adk_agent.py http://localhost:8080/v1 MODEL

The plugin may be copied or imported: it needs google-adk 2.13.0, as tested.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Mapping
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models.lite_llm import LiteLlm
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import InMemoryRunner

import suffice
from suffice.integrations.agents import AgentRun, Reply, ToolResult, outcome
from suffice.live.loop import Loop, Probe
from suffice.live.watch import Watch
from suffice.trace.rounds.records import Token, TopToken, Usage

_HANDS_OVER = "transfer_to_agent"


class SufficePlugin(BasePlugin):  # type: ignore[misc]
    """For ``App(plugins=[...])`` or a runner: ``watch`` sees every invocation.

    A round is a model message that called tools. After the watch says stop, the next model call has no tools,
    so the model answers from what it has. The event with the answer says why under
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
            held = {"contents": list(llm_request.contents), "tools_dict": {}}
            config = llm_request.config.model_copy()
            bare = llm_request.model_copy(update={**held, "config": config})
            _take_tools(bare)
            return _reply([response async for response in model.generate_content_async(bare)][-1])

        results, run.results = run.results, []
        kept = await run.astep(results, ask)
        if kept is not None:
            return run.told(kept)
        if run.loop.done:
            _take_tools(llm_request)
        return None

    async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
        run = self.runs.get(callback_context.invocation_id)
        if run is None or llm_response.partial:
            return
        run.replied(_reply(llm_response))
        if llm_response.get_function_calls() or not _text(llm_response.content):
            run.reply = None
        else:
            run.told(llm_response)

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
        super().__init__(loop, tools=plugin.tools, probe=plugin.probe)
        self.name, self.runs, self.results = name, plugin.runs, list[ToolResult]()
        self.task = asyncio.current_task()
        if self.task is not None:  # a cancelled invocation tells its plugins nothing
            self.task.add_done_callback(self.abandoned)

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


def _take_tools(request: Any) -> None:
    request.config.tools = []
    request.config.tool_config = None
    request.tools_dict = {}


def _text(content: Any) -> str:
    """What is said in it, without thoughts."""
    parts = [] if content is None else content.parts or []
    return "".join(part.text for part in parts if part.text and not part.thought)


def _reply(response: Any) -> Reply:
    text, usage, tokens = _text(response.content), _usage(response), _tokens(response)
    return Reply(raw=response, text=text, usage=usage, logprobs=tokens)


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
