"""Agents of smolagents, watched: told to stop after a step, they answer. Needs ``smolagents``."""

from __future__ import annotations

import copy
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from suffice.errors import BackendError, DataError, UsageError
from suffice.integrations.agents import Framework, ToolResult, outcome, round_of_tools
from suffice.live.loop import Loop, Probe
from suffice.live.reported import reported_tokens, reported_usage
from suffice.live.watch import Watch
from suffice.trace.rounds.records import Draft, LoopView, Token, Usage

_SMOLAGENTS = Framework(name="smolagents", package="smolagents", tested="1.26.0")
_FINAL = "final_answer"
_CODE = "python_interpreter"
_FAILED = "Error in generating final LLM output:"


def watched(
    agent: Any,
    watch: Watch,
    *,
    tools: Collection[str] | None = None,
    probe: bool | Probe = False,
) -> Any:
    """An agent of smolagents that ``watch`` sees: a copy that shares model, tools and memory.

    A round is a step that called tools. After the watch says stop no further step is taken:
    ``provide_final_answer`` has the model answer from what it has, as it does after the last step. Why the
    last run ended is the agent's ``suffice``.
    """
    base = _SMOLAGENTS.point("smolagents.agents", "MultiStepAgent")
    for name in ("_run_stream", "_finalize_step", "provide_final_answer"):
        _SMOLAGENTS.point("smolagents.agents", f"MultiStepAgent.{name}")
    if not isinstance(agent, base):
        raise UsageError(f"wanted an agent of smolagents, found {type(agent).__name__}")
    kind: Any = type(agent)
    copied = copy.copy(agent)
    copied.__class__ = _watched(kind)
    copied.watching = _Watching(watch=watch, tools=tools, probe=probe)
    copied.suffice = None
    return copied


@dataclass(frozen=True, slots=True, kw_only=True)
class _Watching:
    """How an agent is watched."""

    watch: Watch
    tools: Collection[str] | None
    probe: bool | Probe


@dataclass(slots=True, eq=False, kw_only=True)
class _Run:
    """A run under way: what came since its last round, and drafts by round."""

    agent: Any
    task: str
    loop: Loop
    calls: dict[str, ToolResult] = field(default_factory=dict)
    usages: list[Usage] = field(default_factory=list)
    drafts: dict[int, Any] = field(default_factory=dict)
    last: Any = None

    def observe(self, step: Any) -> None:
        """Take in an action that is over, where it is a round."""
        results = [
            replace(result, output=step.observations) if result.tool == _CODE else result
            for result in self.calls.values()
        ]
        self.calls = {}
        watching = self.agent.watching
        held = None if self.loop.done else round_of_tools(results, watching.tools)
        if held is None:
            return
        usages, self.usages = self.usages, []
        probe = self.ask if watching.probe is True else watching.probe or None
        self.loop.observe(**held, usage=usages, probe=None if step.is_final_answer else probe)

    def ask(self, view: LoopView) -> Draft:
        """What the agent would answer now."""
        began = time.perf_counter()
        message = self.agent.provide_final_answer(self.task)
        answer = _text(message.content)
        if answer.startswith(_FAILED):
            raise BackendError(answer)
        self.drafts[len(view.rounds)] = message
        usage = replace(_usage(message), latency_s=time.perf_counter() - began)
        return Draft(answer, tokens=_tokens(message.raw), usage=usage)

    def rest(self) -> Sequence[Usage]:
        """What was spent on the answer since the last round, where the agent ended by itself."""
        final = self.agent.memory.steps[-1]
        if final is not self.last:  # the answer after the last step that was allowed
            return [_usage(final)]
        return self.usages or [Usage(llm_calls=0, prompt_tokens=0, completion_tokens=0)]

    @property
    def best(self) -> Any:
        """The draft that the watch returns; ``None``: there is none."""
        return self.drafts.get(self.loop.answer_round or 0)

    def answer(self) -> Any:
        """After the end: the message that answers, asked for where it was not drafted."""
        if self.best is None or self.loop.rounds[-1].answer is None:
            with suppress(BackendError):
                draft = self.ask(self.loop.view)
                self.loop.answered(draft.answer, tokens=draft.tokens, usage=draft.usage)
        return self.best


@cache
def _watched(base: Any) -> type[Any]:
    from smolagents.agents import ToolOutput
    from smolagents.memory import ActionStep, FinalAnswerStep, PlanningStep, ToolCall
    from smolagents.monitoring import Timing

    class WatchedAgent(base):  # type: ignore[misc]
        """An agent whose steps pass by its watch."""

        def _run_stream(self, task: str, *args: Any, **settings: Any) -> Iterator[Any]:
            run = _Run(agent=self, task=task, loop=self.watching.watch.question(task).begin())
            try:
                yield from self._steps(run, super()._run_stream(task, *args, **settings))
            except GeneratorExit:
                run.loop.stop("the caller left the stream")
                raise
            except BaseException as error:
                if run.loop.end(error) and run.best is not None:
                    self.suffice = outcome(run.loop)
                    yield FinalAnswerStep(_text(run.best.content))
                    return
                raise
            finally:
                run.loop.end()
                self.suffice = outcome(run.loop)

        def _steps(self, run: _Run, steps: Iterator[Any]) -> Iterator[Any]:
            for step in steps:
                if isinstance(step, ToolCall) and step.name != _FINAL:
                    held = (
                        step.arguments
                        if isinstance(step.arguments, Mapping)
                        else {"input": step.arguments}
                    )
                    run.calls[step.id] = ToolResult(tool=step.name, output=None, arguments=held)
                elif isinstance(step, ToolOutput) and step.id in run.calls:
                    run.calls[step.id] = replace(run.calls[step.id], output=step.output)
                elif isinstance(step, ActionStep | PlanningStep) and step is not run.last:
                    run.last = step
                    run.usages.append(_usage(step))
                    if isinstance(step, ActionStep):
                        run.observe(step)
                elif isinstance(step, FinalAnswerStep) and run.loop.rounds:
                    run.loop.answered(str(step.output), usage=run.rest())
                yield step
                if isinstance(step, ActionStep) and run.loop.done and not step.is_final_answer:
                    yield from self._answered(run)
                    return

        def _answered(self, run: _Run) -> Iterator[Any]:
            began, message = time.time(), run.answer()
            if message is None:
                raise BackendError("the model gave no final answer")
            output = _text(message.content)
            last = ActionStep(
                step_number=self.step_number + 1,
                timing=Timing(start_time=began, end_time=time.time()),
                token_usage=message.token_usage,
                action_output=output,
                is_final_answer=True,
            )
            self._finalize_step(last)
            self.memory.steps.append(last)
            yield last
            final = FinalAnswerStep(output)
            self._finalize_step(final)
            yield final

    return WatchedAgent


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part.get("text") or "" for part in content or ())


def _usage(held: Any) -> Usage:
    """Of a step or a message; one whose model says nothing is a call."""
    spent = held.token_usage
    return Usage(llm_calls=1) if spent is None else reported_usage(spent)


def _tokens(raw: Any) -> tuple[Token, ...] | None:
    """Of the reply behind a message, where it has OpenAI's shape."""
    with suppress(DataError):
        return reported_tokens(raw)
    return None
