"""Agents of Google's ADK, watched."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="runs in its own environment: make test-integrations")

from examples.agents import google_adk_agent as adapter
from google.adk.agents import LlmAgent, LoopAgent, SequentialAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.models.lite_llm import LiteLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from tests.integrations.agent_server import AgentServer
from tests.integrations.watching import NEWS, QUESTION, Asked, Calling, Search, found, records

import suffice
from suffice.trace.rounds.records import Token, TopToken


def search(query: str) -> list[dict[str, str]]:
    """Search the notes."""
    return found(query)


def other(query: str) -> str:
    return f"Passage of {query}"


def runner(server: AgentServer, plugin: Any, *tools: Any) -> InMemoryRunner:
    model = LiteLlm(model="openai/scripted", api_base=server.url, api_key="none")
    agent = LlmAgent(name="asker", model=model, tools=list(tools or (search,)))
    return InMemoryRunner(app=App(name="asking", root_agent=agent, plugins=[plugin]))


async def ask(running: InMemoryRunner, question: str = QUESTION, **config: Any) -> list[Any]:
    session = await running.session_service.create_session(app_name="asking", user_id="me")
    message = types.Content(role="user", parts=[types.Part(text=question)])
    stream = running.run_async(
        user_id="me", session_id=session.id, new_message=message, run_config=RunConfig(**config)
    )
    return [event async for event in stream]


def answer_of(events: list[Any]) -> tuple[str, dict[str, Any]]:
    said = events[-1].custom_metadata["suffice"]
    return events[-1].content.parts[0].text, said


class TestGoogleADK(Calling):
    heading = "Google ADK"
    example = ("google_adk_agent.py", "URL", "scripted")
    has_tokens = False

    def agent(
        self, server: AgentServer, watch: Any, *, search: Search = found, probe: bool = False
    ) -> Any:
        def tool(query: str) -> list[dict[str, str]]:
            """Search the notes."""
            return search(query)

        tool.__name__ = "search"
        return runner(server, adapter.SufficePlugin(watch, probe=probe), tool)

    def run(self, agent: Any, question: str = QUESTION) -> Asked:
        return asyncio.run(self.arun(agent, question))

    async def arun(self, agent: Any, question: str) -> Asked:
        events = await ask(agent, question)
        answer, said = answer_of(events)
        assert said["question_id"] == events[0].invocation_id
        return Asked(answer, said)

    def streamed(self, agent: Any, question: str = QUESTION) -> Asked:
        asked = ask(agent, question, streaming_mode=StreamingMode.SSE)
        return Asked(*answer_of(asyncio.run(asked)))

    def said_by(self, names: Any) -> Any:
        return names["events"][-1].custom_metadata["suffice"]


def test_streamed_the_next_call_has_no_tools(server: AgentServer) -> None:
    plugin = adapter.SufficePlugin(suffice.Watch(NEWS, mode="live"))
    asked = ask(runner(server, plugin), streaming_mode=StreamingMode.SSE)
    answer, said = answer_of(asyncio.run(asked))
    assert (answer, said["stopped_by"]) == ("Oslo", "policy")
    assert server.with_tools == [True] * 4 + [False]


def test_each_agent_of_an_invocation_is_asked_once_after_the_stop(server: AgentServer) -> None:
    server.stubborn, server.searches, server.beside = True, 99, "So far."
    model = LiteLlm(model="openai/scripted", api_base=server.url, api_key="none")
    for build, calls in ((SequentialAgent, 3), (LoopAgent, 3)):
        server.bodies.clear()
        asked = [LlmAgent(name=name, model=model, tools=[search]) for name in ("asker", "writer")]
        more = {"max_iterations": 4} if build is LoopAgent else {}
        root = build(name="both", sub_agents=asked, **more)
        plugin = adapter.SufficePlugin(suffice.Watch("fixed-1", mode="live"))
        running = InMemoryRunner(app=App(name="asking", root_agent=root, plugins=[plugin]))
        answer, said = answer_of(asyncio.run(ask(running)))
        assert (answer, said["rounds"], len(server.bodies)) == ("So far.", 1, calls)


def test_tools_that_do_not_retrieve_and_invocations_that_fail(
    server: AgentServer, tmp_path: Path
) -> None:
    def broken(query: str) -> str:
        raise OSError("the index is closed")

    async def cut_short(running: InMemoryRunner) -> None:
        await asyncio.wait_for(ask(running, "Slow?"), 0.5)

    async def slow(query: str) -> list[str]:
        if "(2)" in query:
            await asyncio.sleep(5)
        return [query]

    with suffice.Watch(record=tmp_path) as watch:
        quiet = adapter.SufficePlugin(watch, tools=["search"])
        assert answer_of(asyncio.run(ask(runner(server, quiet, other))))[1]["rounds"] == 0
        plugin = adapter.SufficePlugin(watch)
        with pytest.raises(OSError, match="the index is closed"):
            asyncio.run(ask(runner(server, plugin, broken), "Broken?"))
        with pytest.raises(Exception, match="llm calls limit"):
            asyncio.run(ask(runner(server, plugin), "Limited?", max_llm_calls=2))
        with pytest.raises(TimeoutError):
            asyncio.run(cut_short(runner(server, plugin, slow)))
    kept = records(tmp_path)
    assert {name: (len(held.rounds), held.stopped_by) for name, held in kept.items()} == {
        "Limited?": (2, "error"),
        "Slow?": (1, "error"),
    }


def test_a_tool_that_tells_an_error_brings_nothing(server: AgentServer, tmp_path: Path) -> None:
    """As ADK itself does of a call without an argument that must be given."""

    def told(query: str) -> dict[str, str]:
        return {"status": "error", "error_message": "the index is closed"}

    with suffice.Watch(record=tmp_path) as watch:
        plugin = adapter.SufficePlugin(watch)
        asyncio.run(ask(runner(server, plugin, told), "Told?"))
        server.arguments = "{}"
        asyncio.run(ask(runner(server, plugin, told), "Empty?"))
    kept = records(tmp_path)
    for name in ("Told?", "Empty?"):
        assert {(held.passages, held.action) for held in kept[name].rounds} == {((), "told")}


def test_logprobs_and_usage_of_google_are_read() -> None:
    candidate = types.LogprobsResultCandidate(token="Oslo", log_probability=-0.2)
    other_one = types.LogprobsResultCandidate(token="Bergen", log_probability=-1.8)
    response = LlmResponse(
        content=types.Content(
            parts=[types.Part(text="Hm.", thought=True), types.Part(text="Oslo")]
        ),
        logprobs_result=types.LogprobsResult(
            chosen_candidates=[candidate],
            top_candidates=[types.LogprobsResultTopCandidates(candidates=[candidate, other_one])],
        ),
        usage_metadata=types.GenerateContentResponseUsageMetadata(
            prompt_token_count=7, candidates_token_count=1, thoughts_token_count=3
        ),
    )
    reply = adapter._reply(response, "")
    assert reply.text == "Oslo"
    assert reply.logprobs == (
        Token("Oslo", -0.2, (TopToken("Oslo", -0.2), TopToken("Bergen", -1.8))),
    )
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (7, 4)
