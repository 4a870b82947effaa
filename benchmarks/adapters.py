"""What watching adds to a call of the model, framework by framework, each in its own environment.

python -m benchmarks.adapters langchain

The same agent with and without the adapter, in turn, with a model in this process that replies at once. It
searches eight times and answers; it is live with a rule that never holds, and records.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import suffice

SEARCHES = 8
RUNS = 150


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One run of the agent alone and one under the watch, and the model's calls in it."""

    alone: Callable[[], object]
    watched: Callable[[], object]
    calls: int = SEARCHES + 1


def measure(pair: Pair, runs: int = RUNS) -> dict[str, float]:
    """Microseconds a call of the model, of the clock and of this process's processor time."""
    clocks = {"wall": time.perf_counter, "processor": time.process_time}
    taken = {(clock, who): [] for clock in clocks for who in ("alone", "watched")}  # type: ignore[var-annotated]
    for number in range(runs + 10):
        for who, run in (("alone", pair.alone), ("watched", pair.watched)):
            begun = {clock: read() for clock, read in clocks.items()}
            run()
            if number >= 10:
                for clock, read in clocks.items():
                    taken[clock, who].append((read() - begun[clock]) / pair.calls * 1e6)
    figures = {}
    for clock in clocks:
        for share in (50, 99):
            alone, watched = (
                float(np.percentile(taken[clock, who], share)) for who in ("alone", "watched")
            )
            figures[f"{clock} time a call alone, p{share} of runs"] = alone
            figures[f"{clock} time a call that watching adds, p{share} (under 1000)"] = (
                watched - alone
            )
    return figures


def langchain(watch: suffice.Watch) -> Pair:
    """``create_agent`` with the middleware."""
    from langchain.agents import create_agent
    from langchain_core.documents import Document
    from langchain_core.language_models import BaseChatModel
    from langchain_core.messages import AIMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool

    from suffice.integrations.langchain import SufficeMiddleware

    class Scripted(BaseChatModel):  # type: ignore[misc]
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def bind_tools(self, tools: Any, **_: Any) -> Any:
            del tools
            return self

        def _generate(self, messages: Any, *_: Any, **__: Any) -> Any:
            rounds = sum(message.type == "tool" for message in messages)
            message = AIMessage(
                content="the answer",
                usage_metadata={"input_tokens": 9, "output_tokens": 3, "total_tokens": 12},
            )
            if rounds < SEARCHES:
                call = {"name": "search", "args": {"query": f"query {rounds}"}, "id": f"c{rounds}"}
                message = AIMessage(content="", tool_calls=[call])
            return ChatResult(generations=[ChatGeneration(message=message)])

    @tool(response_format="content_and_artifact")  # type: ignore[untyped-decorator]
    def search(query: str) -> tuple[str, list[Any]]:
        """Search."""
        found = [Document(page_content=f"{query}, note {n}", id=f"{query}{n}") for n in range(5)]
        return "five notes", found

    alone = create_agent(Scripted(), tools=[search])
    middleware = SufficeMiddleware(watch)
    watched = create_agent(Scripted(), tools=[search], middleware=[middleware])
    question = {"messages": "Where was Ibsen born?"}
    return Pair(alone=lambda: alone.invoke(question), watched=lambda: watched.invoke(question))


def pydantic_ai(watch: suffice.Watch) -> Pair:
    """An ``Agent`` with the capability."""
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    from suffice.integrations.pydantic_ai import suffice_capability

    async def scripted(messages: Any, _: Any) -> Any:
        rounds = sum(message.kind == "response" for message in messages)
        if rounds < SEARCHES:
            return ModelResponse(parts=[ToolCallPart("search", {"query": f"query {rounds}"})])
        return ModelResponse(parts=[TextPart("the answer")])

    alone = Agent(FunctionModel(scripted), tools=[search])
    capability = suffice_capability(watch)
    watched = Agent(FunctionModel(scripted), tools=[search], capabilities=[capability])
    question = "Where was Ibsen born?"
    return Pair(alone=lambda: alone.run_sync(question), watched=lambda: watched.run_sync(question))


def openai_agents(watch: suffice.Watch) -> Pair:
    """``Runner`` and the watch's runner."""
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool
    from agents import set_tracing_disabled as without_traces
    from suffice.integrations.openai_agents import SufficeRunner

    class Scripted(Model):  # type: ignore[misc]
        async def get_response(self, _: Any = None, input: Any = None, *__: Any, **___: Any) -> Any:  # noqa: A002
            items = [] if isinstance(input, str) else input
            rounds = sum(item.get("type") == "function_call_output" for item in items)
            output: Any = ResponseFunctionToolCall(
                arguments=f'{{"query": "query {rounds}"}}',
                call_id=f"c{rounds}",
                name="search",
                type="function_call",
            )
            if rounds == SEARCHES:
                text = ResponseOutputText(text="the answer", type="output_text", annotations=[])
                output = ResponseOutputMessage(
                    id="m", content=[text], role="assistant", status="completed", type="message"
                )
            usage = Usage(requests=1, input_tokens=9, output_tokens=3, total_tokens=12)
            return ModelResponse(output=[output], usage=usage, response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    without_traces(True)
    agent = Agent("asked", model=Scripted(), tools=[function_tool(search)])
    runner = SufficeRunner(watch)
    question = "Where was Ibsen born?"
    return Pair(
        alone=lambda: Runner.run_sync(agent, question, max_turns=20),
        watched=lambda: runner.run_sync(agent, question, max_turns=20),
    )


def search(query: str) -> list[dict[str, str]]:
    """Search."""
    return [{"id": f"{query}{n}", "text": f"{query}, note {n}"} for n in range(5)]


def llamaindex(watch: suffice.Watch) -> Pair:
    """``FunctionAgent``, watched."""
    from llama_index.core.agent.workflow import FunctionAgent
    from llama_index.core.llms import ChatMessage, ChatResponse, LLMMetadata
    from llama_index.core.llms.function_calling import FunctionCallingLLM
    from llama_index.core.llms.mock import MockLLM
    from llama_index.core.tools import ToolSelection

    from suffice.integrations.llamaindex import watched as watched_by

    class Scripted(MockLLM, FunctionCallingLLM):  # type: ignore[misc]
        @property
        def metadata(self) -> Any:
            return LLMMetadata(is_function_calling_model=True)

        def _prepare_chat_with_tools(self, *_: Any, **held: Any) -> Any:
            return {"messages": held["chat_history"]}

        async def achat_with_tools(self, *_: Any, **held: Any) -> Any:
            raw = {"usage": {"prompt_tokens": 9, "completion_tokens": 3}}
            rounds = sum(message.role == "tool" for message in held["chat_history"])
            message = ChatMessage(role="assistant", content="the answer" * (rounds == SEARCHES))
            message.additional_kwargs["rounds"] = rounds
            return ChatResponse(message=message, raw=raw)

        def get_tool_calls_from_response(self, response: Any, *_: Any, **__: Any) -> Any:
            rounds = response.message.additional_kwargs["rounds"]
            query = {"query": f"query {rounds}"}
            call = ToolSelection(tool_id=f"c{rounds}", tool_name="search", tool_kwargs=query)
            return [call] if rounds < SEARCHES else []

    def search(query: str) -> list[str]:
        """Search."""
        return [f"{query}, note {n}" for n in range(5)]

    def agent() -> Any:
        return FunctionAgent(tools=[search], llm=Scripted(), streaming=False)

    alone, watched = agent(), watched_by(agent(), watch)
    runner = asyncio.Runner()

    async def ask(asked: Any) -> Any:
        return await asked.run("Where was Ibsen born?")

    return Pair(alone=lambda: runner.run(ask(alone)), watched=lambda: runner.run(ask(watched)))


def haystack(watch: suffice.Watch) -> Pair:
    """``Agent`` with the hook."""
    from haystack import Document, component
    from haystack.components.agents import Agent
    from haystack.dataclasses import ChatMessage, ToolCall
    from haystack.tools import tool

    from suffice.integrations.haystack import SufficeHook

    @component
    class Scripted:
        @component.output_types(replies=list[ChatMessage])  # type: ignore[untyped-decorator]
        def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
            del tools
            rounds = sum(bool(message.tool_call_results) for message in messages)
            usage = {"usage": {"prompt_tokens": 9, "completion_tokens": 3}}
            call = ToolCall("search", {"query": f"query {rounds}"}, id=f"c{rounds}")
            made = ChatMessage.from_assistant
            if rounds < SEARCHES:
                return {"replies": [made(tool_calls=[call], meta=usage)]}
            return {"replies": [made("the answer", meta=usage)]}

    @tool  # type: ignore[untyped-decorator]
    def search(query: str) -> list[Document]:
        """Search."""
        return [Document(id=f"{query}{n}", content=f"{query}, note {n}") for n in range(5)]

    def agent(**hooks: Any) -> Any:
        return Agent(chat_generator=Scripted(), tools=[search], **hooks)

    alone, watched = agent(), agent(hooks=SufficeHook(watch, Scripted()).points)
    question = [ChatMessage.from_user("Where was Ibsen born?")]
    return Pair(
        alone=lambda: alone.run(messages=question), watched=lambda: watched.run(messages=question)
    )


def dspy(watch: suffice.Watch) -> Pair:
    """``ReAct``, without extractions of its own in between."""
    import dspy
    from dspy.utils.dummies import DummyLM

    from suffice.integrations.dspy import watched

    def search(query: str) -> list[str]:
        """Search."""
        return [f"{query}, note {n}" for n in range(5)]

    def step(tool: str, number: int) -> dict[str, Any]:
        arguments = {"query": f"query {number}"} if tool == "search" else {}
        return {"next_thought": "on", "next_tool_name": tool, "next_tool_args": arguments}

    steps = [*(step("search", n) for n in range(SEARCHES)), step("finish", 0)]
    answers = [*steps, {"reasoning": "so", "answer": "Skien"}] * (2 * (RUNS + 10))
    alone = dspy.ReAct("question -> answer", tools=[search])
    alone.set_lm(DummyLM(answers))
    asker = watched(alone, watch, probe=False)
    question = {"question": "Where was Ibsen born?"}
    return Pair(
        alone=lambda: alone(**question), watched=lambda: asker(**question), calls=SEARCHES + 2
    )


def google_adk(watch: suffice.Watch) -> Pair:
    """An ``LlmAgent`` with the plugin."""
    import asyncio

    from examples.agents.google_adk_agent import SufficePlugin
    from google.adk.agents import LlmAgent
    from google.adk.apps import App
    from google.adk.models.base_llm import BaseLlm
    from google.adk.models.llm_response import LlmResponse
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    class Scripted(BaseLlm):  # type: ignore[misc]
        async def generate_content_async(self, llm_request: Any, **_: Any) -> Any:
            rounds = sum(
                bool(part.function_response)
                for content in llm_request.contents
                for part in content.parts
            )
            part = types.Part(text="Skien")
            if rounds < SEARCHES:
                arguments = {"query": f"query {rounds}"}
                part = types.Part.from_function_call(name="search", args=arguments)
            yield LlmResponse(content=types.Content(role="model", parts=[part]))

    def search(query: str) -> list[str]:
        """Search."""
        return [f"{query}, note {n}" for n in range(5)]

    def run(plugins: list[Any]) -> Callable[[], object]:
        agent = LlmAgent(name="asker", model=Scripted(model="scripted"), tools=[search])
        app = App(name="asking", root_agent=agent, plugins=plugins)
        message = types.Content(role="user", parts=[types.Part(text="Where was Ibsen born?")])

        async def ask() -> None:
            runner = InMemoryRunner(app=app)
            session = await runner.session_service.create_session(app_name="asking", user_id="me")
            place = {"user_id": "me", "session_id": session.id}
            async for _ in runner.run_async(**place, new_message=message):
                pass

        return lambda: asyncio.run(ask())

    return Pair(alone=run([]), watched=run([SufficePlugin(watch)]))


def smolagents(watch: suffice.Watch) -> Pair:
    """A ``ToolCallingAgent``."""
    from examples.agents.smolagents_agent import watched
    from smolagents import ChatMessage, MessageRole, Model, ToolCallingAgent, tool

    class Scripted(Model):  # type: ignore[misc]
        def generate(self, messages: Any, **_: Any) -> Any:
            rounds = sum(message.role == MessageRole.TOOL_RESPONSE for message in messages)
            name, arguments = "search", {"query": f"query {rounds}"}
            if rounds == SEARCHES:
                name, arguments = "final_answer", {"answer": "Skien"}
            function = {"name": name, "arguments": arguments}
            call = {"id": f"c{rounds}", "type": "function", "function": function}
            return ChatMessage(role=MessageRole.ASSISTANT, content=None, tool_calls=[call])

    @tool  # type: ignore[untyped-decorator]
    def search(query: str) -> list:  # type: ignore[type-arg]
        """Search.

        Args:
            query: What to look for.
        """
        return [f"{query}, note {n}" for n in range(5)]

    alone = ToolCallingAgent(tools=[search], model=Scripted(), verbosity_level=0)
    asker = watched(alone, watch)
    question = "Where was Ibsen born?"
    return Pair(alone=lambda: alone.run(question), watched=lambda: asker.run(question))


ADAPTERS: dict[str, Callable[[suffice.Watch], Pair]] = {
    "langchain": langchain,
    "pydantic_ai": pydantic_ai,
    "openai_agents": openai_agents,
    "llamaindex": llamaindex,
    "haystack": haystack,
    "dspy": dspy,
    "google_adk": google_adk,
    "smolagents": smolagents,
}


def main(names: list[str]) -> None:
    never = suffice.RulePolicy(rule="new_passages < 0.01")
    for name in names or list(ADAPTERS):
        with (
            tempfile.TemporaryDirectory() as record,
            suffice.Watch(never, record=record, mode="live") as watch,
        ):
            print(name)
            for figure, value in measure(ADAPTERS[name](watch)).items():
                print(f"  {value:10.0f}  {figure}")


if __name__ == "__main__":
    main(sys.argv[1:])
