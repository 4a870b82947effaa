"""Let a rule stop an agent of smolagents when its searches bring nothing new.

python examples/agents/smolagents_agent.py http://localhost:8080/v1 MODEL

``watched`` may be copied or imported: it needs smolagents 1.26.0, as tested.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from smolagents import CodeAgent, OpenAIServerModel, ToolCallingAgent, tool
from smolagents.agents import MultiStepAgent, ToolOutput
from smolagents.memory import ActionStep, FinalAnswerStep, PlanningStep, ToolCall
from smolagents.models import ChatMessage, MessageRole
from smolagents.monitoring import Timing

import suffice
from suffice.concurrency import at_once
from suffice.errors import BackendError, UsageError
from suffice.integrations.agents import AgentRun, Reply, ToolResult, outcome
from suffice.live.loop import Probe
from suffice.live.reported import reported_usage
from suffice.live.watch import Watch
from suffice.trace.rounds.records import Usage

_FINAL = "final_answer"
_CODE = "python_interpreter"
_FAILED = "Error in generating final LLM output:"


def watched(
    agent: Any, watch: Watch, *, tools: Collection[str] | None = None, probe: bool | Probe = False
) -> Any:
    """An agent of smolagents that ``watch`` sees: a copy that shares model, tools and memory.

    A round is a step that called tools. After the watch says stop no further step is taken:
    ``provide_final_answer`` has the model answer from what it has, as it does after the last step. Tools that
    it calls there are not run: the run ends with the best answer at hand. Why the
    last run ended is the agent's ``suffice``.
    """
    if not isinstance(agent, MultiStepAgent):
        raise UsageError(f"wanted an agent of smolagents, found {type(agent).__name__}")
    kind: Any = type(agent)
    copied = copy.copy(agent)
    copied.__class__ = _watched(kind)
    copied.watch, copied.settings, copied.suffice = watch, {"tools": tools, "probe": probe}, None
    return copied


class _Run(AgentRun):
    """A run under way, with the calls since its last round."""

    def __init__(self, agent: Any, task: str) -> None:
        loop = agent.watch.question(task).begin()
        super().__init__(loop, write=_without_calls, **agent.settings)
        self.agent, self.task = agent, task
        self.calls: dict[str, ToolResult] = {}
        self.last: Any = None

    def observe(self, step: Any) -> None:
        """Take in an action that is over, where it is a round."""
        results = [
            replace(result, output=step.observations) if result.tool == _CODE else result
            for result in self.calls.values()
        ]
        self.calls = {}
        if step.is_final_answer:
            self.take(results)
        else:
            at_once(self.astep(results, self.ask))

    def ask(self) -> Reply:
        """What the agent would answer now."""
        message = self.agent.provide_final_answer(self.task)
        answer = _text(message.content)
        if answer.startswith(_FAILED):
            raise BackendError(answer)
        called, spent = len(message.tool_calls or ()), _usage(message)
        if isinstance(self.agent, CodeAgent) and self.agent.code_block_tags[0] in answer:
            called, answer = called + 1, ""  # a call that is written
        return Reply(raw=message, text=answer, usage=spent, logprobs=message.raw, calls=called)

    def rest(self) -> Sequence[Usage]:
        """What was spent on the answer since the last round, where the agent ended by itself."""
        final = self.agent.memory.steps[-1]
        if final is not self.last:  # the answer after the last step that was allowed
            return [_usage(final)]
        return self._usages or [Usage(llm_calls=0, prompt_tokens=0, completion_tokens=0)]

    def answer(self) -> Any:
        """After the end: the message that answers, asked for where it was not drafted."""
        message = at_once(self.finish(self.ask))
        if self.given is None:
            self.answered()
        return message


@cache
def _watched(base: Any) -> type[Any]:
    class WatchedAgent(base):  # type: ignore[misc]
        """An agent whose steps pass by its watch."""

        def _run_stream(self, task: str, *args: Any, **settings: Any) -> Iterator[Any]:
            run = _Run(self, task)
            run.loop.describe(self.model, self.system_prompt)
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
                    run.replied(Reply(raw=step, text=_said(self, step), usage=_usage(step)))
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


def _said(agent: Any, step: Any) -> str:
    """What the model wrote beside the calls of a step; of an agent that writes code it is the calls."""
    return _text(getattr(step, "model_output", "")) if isinstance(agent, ToolCallingAgent) else ""


def _without_calls(message: Any, text: str) -> Any:
    made = ChatMessage(role=MessageRole.ASSISTANT, content=text)
    return made if message is None else replace(message, content=text, tool_calls=None)


def _usage(held: Any) -> Usage:
    """Of a step or a message; one whose model says nothing is a call."""
    spent = held.token_usage
    return Usage(llm_calls=1) if spent is None else reported_usage(spent)


# --- the example ------------------------------------------------------------------------------
@tool  # type: ignore[untyped-decorator]
def search(query: str) -> list:  # type: ignore[type-arg]
    """Search the notes.

    Args:
        query: What to look for.
    """
    notes = {
        "n1": "The observatory on the hill was founded in 1904 by Ada Marsh.",
        "n2": "Ada Marsh, born in Lund, drew star maps.",
    }
    words = set(query.lower().split())
    best = max(notes, key=lambda name: len(words & set(notes[name].lower().split())))
    return [{"id": best, "text": notes[best]}]


def main(url: str, name: str) -> None:
    model = OpenAIServerModel(name, api_base=url, api_key="none")
    watch = suffice.Watch(suffice.Rule(rule="new_passages < 0.5"), mode="live", max_rounds=6)
    agent = watched(ToolCallingAgent(tools=[search], model=model), watch)
    print(agent.run("Who founded the observatory?"))
    print(agent.suffice)


if __name__ == "__main__":
    main(*sys.argv[1:])
