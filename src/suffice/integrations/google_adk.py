"""Agents of Google's ADK, watched: a plugin that decides before each model call. Needs ``google-adk``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from suffice.integrations.agents import Framework, ToolResult, outcome, round_of_tools
from suffice.live.loop import Loop, Probe
from suffice.live.watch import Watch
from suffice.trace.rounds.records import Draft, LoopView, Token, TopToken, Usage

_ADK = Framework(name="Google ADK", package="google-adk", tested="2.13.0")
_HANDS_OVER = "transfer_to_agent"


def suffice_plugin(
    watch: Watch, *, tools: Collection[str] | None = None, probe: bool | Probe = False
) -> Any:
    """A plugin for ``App(plugins=[...])`` or a runner, by which ``watch`` sees every invocation.

    A round is a model message that called tools. After the watch says stop, the next model call has no tools,
    so the model answers from what it has. The event with the answer says why under
    ``custom_metadata["suffice"]``; the question's id is the invocation's.
    """
    return _plugin()(watch, tools, probe=probe)


@dataclass(slots=True, eq=False, kw_only=True)
class _Run:
    """An invocation under way: what came since its last round, drafts by round, and its last answer."""

    loop: Loop
    invocation: str
    runs: dict[str, _Run]
    task: asyncio.Task[Any] | None
    results: list[ToolResult] = field(default_factory=list)
    usages: list[Usage] = field(default_factory=list)
    drafts: dict[int, Any] = field(default_factory=dict)
    last: Draft | None = None

    def told(self, response: Any) -> Any:
        """The response with why the run ends."""
        said = outcome(self.loop)
        said["stopped_by"] = said["stopped_by"] or "end"
        response.custom_metadata = {**(response.custom_metadata or {}), "suffice": said}
        return response

    async def ended(self, error: BaseException | None = None) -> None:
        """Its last text is the answer of its last round."""
        self.runs.pop(self.invocation, None)
        if self.task is not None:
            self.task.remove_done_callback(self.abandoned)
        if error is None and self.last is not None and self.loop.rounds:
            self.loop.answered(self.last.answer, tokens=self.last.tokens, usage=self.last.usage)
        await self.loop.aend(error)

    def abandoned(self, task: asyncio.Task[Any]) -> None:
        """Its task is over and it did not say how it ended."""
        del task
        self.runs.pop(self.invocation, None)
        self.loop.end(asyncio.CancelledError("the invocation was cancelled"))


@cache
def _plugin() -> type[Any]:
    base = _ADK.point("google.adk.plugins.base_plugin", "BasePlugin")
    for name in ("before_model_callback", "after_tool_callback", "on_run_error_callback"):
        _ADK.point("google.adk.plugins.base_plugin", f"BasePlugin.{name}")

    class SufficePlugin(base):  # type: ignore[misc, valid-type]
        """Runs by invocation."""

        def __init__(
            self, watch: Watch, tools: Collection[str] | None, *, probe: bool | Probe
        ) -> None:
            super().__init__(name="suffice")
            self.watch, self.tools, self.probe = watch, tools, probe
            self.runs: dict[str, _Run] = {}

        async def before_run_callback(self, *, invocation_context: Any) -> None:
            name = invocation_context.invocation_id
            question = self.watch.question(_text(invocation_context.user_content), question_id=name)
            task = asyncio.current_task()
            run = _Run(loop=question.begin(), invocation=name, runs=self.runs, task=task)
            self.runs[name] = run
            if run.task is not None:  # a cancelled invocation tells its plugins nothing
                run.task.add_done_callback(run.abandoned)

        async def after_tool_callback(
            self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, result: Any
        ) -> None:
            run = self.runs.get(tool_context.invocation_id)
            if run is not None and tool.name != _HANDS_OVER:
                alone = isinstance(result, Mapping) and result.keys() == {"result"}
                output = result["result"] if alone else result
                run.results.append(ToolResult(tool=tool.name, output=output, arguments=tool_args))

        async def on_tool_error_callback(
            self, *, tool: Any, tool_args: dict[str, Any], tool_context: Any, error: Exception
        ) -> None:
            del error
            run = self.runs.get(tool_context.invocation_id)
            if run is not None:
                run.results.append(ToolResult(tool=tool.name, output=None, arguments=tool_args))

        async def before_model_callback(self, *, callback_context: Any, llm_request: Any) -> Any:
            run = self.runs.get(callback_context.invocation_id)
            if run is None:
                return None
            results, run.results = run.results, []
            held = None if run.loop.done else round_of_tools(results, self.tools)
            if held is not None:
                usages, run.usages = run.usages, []
                probe = self._probe(run, callback_context, llm_request)
                await run.loop.aobserve(**held, usage=usages, probe=probe)
                draft = run.drafts.get(run.loop.answer_round or 0)
                if run.loop.done and draft is not None and run.loop.rounds[-1].answer is not None:
                    run.last = None
                    return run.told(draft)
            if run.loop.done:
                _take_tools(llm_request)
            return None

        async def after_model_callback(self, *, callback_context: Any, llm_response: Any) -> None:
            run = self.runs.get(callback_context.invocation_id)
            if run is None or llm_response.partial:
                return
            run.last = None
            if llm_response.get_function_calls() or not _text(llm_response.content):
                run.usages.append(_usage(llm_response))
                return
            run.last = _draft(llm_response)
            run.told(llm_response)

        async def after_run_callback(self, *, invocation_context: Any) -> None:
            run = self.runs.get(invocation_context.invocation_id)
            if run is not None:
                await run.ended()

        async def on_run_error_callback(self, *, invocation_context: Any, error: Exception) -> None:
            run = self.runs.get(invocation_context.invocation_id)
            if run is not None:
                await run.ended(error)

        def _probe(self, run: _Run, context: Any, request: Any) -> Probe | None:
            if not isinstance(self.probe, bool):
                return self.probe

            async def ask(view: LoopView) -> Draft:
                began = time.perf_counter()
                agent = context.get_invocation_context().agent
                model = await agent.canonical_model_async(context)
                bare = request.model_copy(
                    update={
                        "contents": list(request.contents),
                        "config": request.config.model_copy(),
                        "tools_dict": {},
                    }
                )
                _take_tools(bare)
                async for response in model.generate_content_async(bare):
                    run.drafts[len(view.rounds)] = response
                draft = _draft(run.drafts[len(view.rounds)])
                spent = replace(draft.usage, latency_s=time.perf_counter() - began)
                return replace(draft, usage=spent)

            return ask if self.probe else None

    return SufficePlugin


def _take_tools(request: Any) -> None:
    request.config.tools = []
    request.config.tool_config = None
    request.tools_dict = {}


def _text(content: Any) -> str:
    """What is said in it, without thoughts."""
    parts = [] if content is None else content.parts or []
    return "".join(part.text for part in parts if part.text and not part.thought)


def _draft(response: Any) -> Draft:
    return Draft(_text(response.content), tokens=_tokens(response), usage=_usage(response))


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
