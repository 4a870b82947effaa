"""pydantic-ai agents, watched."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pydantic_ai = pytest.importorskip(
    "pydantic_ai", reason="runs in its own environment: make test-integrations"
)

from pydantic_ai import Agent, UsageLimits  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402
from tests.integrations.agent_server import AgentServer, agent_server, in_order  # noqa: E402
from tests.integrations.watching import (  # noqa: E402
    ANSWERS,
    NEWS,
    QUESTION,
    Asked,
    InLoop,
    Search,
    found,
    records,
)

import suffice  # noqa: E402
from suffice.integrations.pydantic_ai import suffice_capability  # noqa: E402


@dataclass
class Found:
    answer: str


def search(query: str) -> list[dict[str, str]]:
    """Search the notes."""
    return found(query)


def agent(server: AgentServer, watch: suffice.Watch, **settings: Any) -> Agent[None, Any]:
    provider = OpenAIProvider(base_url=server.url, api_key="none")
    capability = suffice_capability(watch, **settings.pop("watched", {}))
    return Agent(
        OpenAIChatModel("scripted", provider=provider),
        tools=settings.pop("tools", [search]),
        capabilities=[capability],
        model_settings={"openai_logprobs": True, "openai_top_logprobs": 2},
        **settings,
    )


class TestPydanticAI(InLoop):
    heading = "pydantic-ai agents"
    example = ("pydantic_ai_agent.py", "URL", "scripted")
    refused_ids = ("call_0",)

    def agent(
        self, server: AgentServer, watch: Any, *, search: Search = found, probe: Any = False
    ) -> Any:
        def tool(query: str) -> list[dict[str, str]]:
            """Search the notes."""
            return search(query)

        tool.__name__ = "search"
        return agent(server, watch, tools=[tool], watched={"probe": probe})

    def run(self, agent: Any, question: str = QUESTION) -> Asked:
        return asyncio.run(self.arun(agent, question))

    async def arun(self, agent: Any, question: str) -> Asked:
        result = await agent.run(question)
        said = result.response.metadata["suffice"]
        assert said["question_id"] == result.run_id
        return Asked(result.output, said)

    def streamed(self, agent: Any, question: str = QUESTION) -> Asked:
        """As events: ``run_stream`` takes the first text for the answer, whatever is called beside it."""

        async def ask() -> Any:
            async with agent.run_stream_events(question) as events:
                return [event async for event in events][-1].result

        result = asyncio.run(ask())
        return Asked(result.output, result.response.metadata["suffice"])

    def said_by(self, names: Any) -> Any:
        return names["result"].response.metadata["suffice"]


def test_streamed(server: AgentServer, tmp_path: Path) -> None:
    async def ask(asked: Agent[None, Any]) -> tuple[str, Any]:
        async with asked.run_stream(QUESTION) as stream:
            texts = [text async for text in stream.stream_text()]
        return texts[-1], stream.all_messages()[-2].metadata

    with suffice.Watch(NEWS, record=tmp_path, mode="live") as watch:
        text, metadata = asyncio.run(ask(agent(server, watch)))
        assert (text, metadata["suffice"]["stopped_by"]) == ("Oslo", "policy")
        text, metadata = asyncio.run(ask(agent(server, watch, watched={"probe": True})))
        assert (text, metadata["suffice"]["stopped_by"]) == ("Oslo", "policy")
    assert server.with_tools == [True, True, True, True, False] * 2
    for record in records(tmp_path).values():
        assert record.rounds[-1].answer == "Oslo"
        assert record.rounds[-1].tokens is not None


@pytest.mark.parametrize("strategy", ["early", "graceful", "exhaustive"])
def test_streamed_text_beside_calls_after_the_stop_is_the_answer_and_runs_none(
    server: AgentServer, strategy: Any
) -> None:
    server.stubborn, server.searches, searches = True, 99, server.answer
    ran: list[str] = []

    def answer(body: Any) -> Any:
        server.beside = "So far." if len(server.bodies) > 1 else ""
        return searches(body)

    def search(query: str) -> str:
        ran.append(query)
        return query

    async def ask(asked: Agent[None, Any]) -> str:
        async with asked.run_stream(QUESTION) as stream:
            return str(await stream.get_output())

    server.answer = answer
    watch = suffice.Watch("fixed-1", mode="live")
    asked = agent(server, watch, tools=[search], end_strategy=strategy)
    assert (asyncio.run(ask(asked)), len(ran), len(server.bodies)) == ("So far.", 1, 2)


@pytest.mark.parametrize(
    ("called", "output"),
    [
        (["search", "final_result"], Found("Oslo")),
        (["final_result"], Found("Oslo")),
        (["search"], None),
    ],
)
def test_after_the_stop_the_tools_of_the_output_type_count_alone(
    called: list[str], output: Found | None
) -> None:
    arguments = {"final_result": '{"answer": "Oslo"}', "search": '{"query": "(4)"}'}
    with agent_server(in_order(*ANSWERS), searches=99, final_tool="final_result") as server:
        searches = server.answer

        def answer(body: Any) -> Any:
            status, headers, reply = searches(body)
            assert isinstance(reply, dict)
            if len(server.bodies) > 1:
                calls = [
                    {
                        "id": name,
                        "type": "function",
                        "function": {"name": name, "arguments": arguments[name]},
                    }
                    for name in called
                ]
                reply["choices"][0]["message"] = {"role": "assistant", "tool_calls": calls}
            return status, headers, reply

        server.answer = answer
        asked = agent(server, suffice.Watch("fixed-1", mode="live"), output_type=Found)
        if output is None:  # nothing of its type is known
            with pytest.raises(pydantic_ai.UnexpectedModelBehavior):
                asked.run_sync(QUESTION)
        else:
            result = asked.run_sync(QUESTION)
            assert result.output == output
            assert result.response.metadata["suffice"]["dropped_calls"] == len(called) - 1
        assert len(server.bodies) == 2


def test_tools_that_do_not_retrieve_failures_and_structured_answers(tmp_path: Path) -> None:
    def note(query: str) -> str:
        return f"noted: {query}"

    def broken(query: str) -> str:
        raise pydantic_ai.ModelRetry("the index is closed")

    with agent_server(
        in_order(*ANSWERS), searches=2, tool="note", final_tool="final_result"
    ) as server:
        watch = suffice.Watch(record=tmp_path)
        quiet = agent(server, watch, tools=[note, search], watched={"tools": ["search"]})
        assert quiet.run_sync(QUESTION).response.metadata["suffice"]["rounds"] == 0
        server.tool = "broken"
        asked = agent(
            server, watch, tools=[broken], output_type=Found, watched={"probe": True}, retries=3
        )
        result = asked.run_sync(QUESTION)
        watch.close()
    assert result.output == Found(answer="Oslo")
    (record,) = records(tmp_path).values()
    assert [held.answer for held in record.rounds] == ["Bergen", "Oslo"]
    assert [held.passages for held in record.rounds] == [(), ()]


def test_a_run_that_fails_is_kept(server: AgentServer, tmp_path: Path) -> None:
    limits = UsageLimits(request_limit=3)
    with (
        suffice.Watch(NEWS, record=tmp_path) as watch,
        pytest.raises(pydantic_ai.UsageLimitExceeded),
    ):
        agent(server, watch).run_sync(QUESTION, usage_limits=limits)
    (record,) = records(tmp_path).values()
    assert (len(record.rounds), record.stopped_by) == (3, "error")


def test_the_system_prompt_is_recorded(server: AgentServer, tmp_path: Path) -> None:
    with suffice.Watch(record=tmp_path) as watch:
        agent(server, watch, system_prompt="Be brief.", instructions="Say no more.").run_sync(
            QUESTION
        )
    assert suffice.read(tmp_path).origin.run["prompt"] == "Be brief.\nSay no more."
