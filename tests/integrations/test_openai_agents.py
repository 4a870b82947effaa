"""Agents of the OpenAI Agents SDK, watched."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

agents = pytest.importorskip("agents", reason="runs in its own environment: make test-integrations")

from openai import AsyncOpenAI  # noqa: E402
from tests.integrations.agent_server import AgentServer, agent_server  # noqa: E402
from tests.integrations.watching import (  # noqa: E402
    NEWS,
    QUESTION,
    STABLE,
    Asked,
    InLoop,
    Search,
    found,
    records,
)

import suffice  # noqa: E402
from agents import Agent, MaxTurnsExceeded, ModelSettings, RunHooks, function_tool  # noqa: E402
from suffice.integrations.openai_agents import SufficeRunner  # noqa: E402

agents.set_tracing_disabled(True)


@dataclass
class Found:
    answer: str


@function_tool  # type: ignore[untyped-decorator]
def search(query: str) -> list[dict[str, str]]:
    """Search the notes."""
    return found(query)


def agent(server: AgentServer, **settings: Any) -> Any:
    client = AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0)
    return Agent(
        "asked",
        model=agents.OpenAIChatCompletionsModel("scripted", client),
        tools=settings.pop("tools", [search]),
        model_settings=ModelSettings(top_logprobs=2, include_usage=True),
        **settings,
    )


class TestOpenAIAgents(InLoop):
    heading = "OpenAI Agents SDK"
    example = ("openai_agent.py", "URL", "scripted")
    refused_ids = ("", "call_0")

    def agent(
        self, server: AgentServer, watch: Any, *, search: Search = found, probe: Any = False
    ) -> Any:
        @function_tool(name_override="search")  # type: ignore[untyped-decorator]
        def tool(query: str) -> list[dict[str, str]]:
            """Search the notes."""
            return search(query)

        return SufficeRunner(watch, probe=probe), agent(server, tools=[tool])

    def run(self, agent: Any, question: str = QUESTION) -> Asked:
        runner, asked = agent
        result = runner.run_sync(asked, question)
        return Asked(result.final_output, result.suffice)

    async def arun(self, agent: Any, question: str) -> Asked:
        runner, asked = agent
        result = await runner.run(asked, question)
        return Asked(result.final_output, result.suffice)

    def streamed(self, agent: Any, question: str = QUESTION) -> Asked:
        async def ask() -> Any:
            runner, asked = agent
            result = runner.run_streamed(asked, question)
            async for _ in result.stream_events():
                pass
            return result

        result = asyncio.run(ask())
        return Asked(result.final_output, result.suffice)

    def said_by(self, names: Any) -> Any:
        return names["result"].suffice


def test_the_runs_own_hooks_are_heard(server: AgentServer) -> None:
    class Hooks(RunHooks):  # type: ignore[misc]
        def __init__(self) -> None:
            self.heard: list[str] = []

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            self.heard.append(tool.name)

        async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
            self.heard.append(output)

    hooks = Hooks()
    watch = suffice.Watch(NEWS, mode="live")
    SufficeRunner(watch).run_sync(agent(server), QUESTION, hooks=hooks)
    assert hooks.heard == [*["search"] * 4, "Oslo"]


def test_streamed_by_answers_the_last_draft_is_the_answer(
    server: AgentServer, tmp_path: Path
) -> None:
    async def ask(runner: SufficeRunner) -> tuple[Any, str]:
        result = runner.run_streamed(agent(server), QUESTION)
        texts = [
            event.data.delta
            async for event in result.stream_events()
            if event.type == "raw_response_event"
            and event.data.type == "response.output_text.delta"
        ]
        return result, "".join(texts)

    for policy, asked in ((NEWS, [True, True, True, True, False]), (STABLE, [True, False] * 3)):
        del server.bodies[:]
        with suffice.Watch(policy, record=tmp_path / policy.rule[:3], mode="live") as watch:
            result, text = asyncio.run(ask(SufficeRunner(watch, probe=policy is STABLE)))
        assert (result.final_output, text) == ("Oslo", "Oslo")
        assert server.with_tools == asked
        assert result.suffice["stopped_by"] == "policy"
        (record,) = records(tmp_path / policy.rule[:3]).values()
        assert record.rounds[-1].answer == "Oslo"
        assert record.rounds[-1].tokens is not None
        assert record.rounds[-1].usage.prompt_tokens is not None


def test_a_run_that_fails_is_kept(server: AgentServer, tmp_path: Path) -> None:
    """At ``max_turns`` an answer at hand is returned; without one the SDK raises as before."""
    with suffice.Watch(NEWS, record=tmp_path) as watch:
        with pytest.raises(MaxTurnsExceeded):
            SufficeRunner(watch).run_sync(agent(server), "One?", max_turns=3)
        with pytest.warns(suffice.SufficeWarning, match="the answer of round 2 is kept"):
            result = SufficeRunner(watch, probe=True).run_sync(agent(server), "Two?", max_turns=3)
        assert result.final_output == "Oslo"
        with pytest.raises(suffice.UsageError, match=r"Runner\.run"):
            SufficeRunner(watch).run_sync(agent(server), result.to_state())
    kept = records(tmp_path)
    assert len(kept) == 2
    ends = {(len(record.rounds), record.stopped_by) for record in kept.values()}
    assert ends == {(3, "error")}


def failing(query: str) -> str:
    """Search the notes."""
    raise OSError("the index is closed")


async def late(query: str) -> str:
    """Search the notes."""
    await asyncio.sleep(30)
    return query


@pytest.mark.parametrize(
    ("tool", "settings", "arguments"),
    [
        (failing, {}, None),
        (failing, {"failure_error_function": lambda _, error: f"It failed: {error}"}, None),
        (late, {"timeout": 0.01}, None),
        (late, {"timeout": 0.01, "timeout_error_function": lambda *_: "Too late."}, None),
        (failing, {}, '{"query": "fou'),
        (failing, {}, "[1]"),
    ],
)
def test_a_call_that_failed_counts_and_its_message_is_no_passage(
    tool: Any, settings: Any, arguments: str | None, server: AgentServer, tmp_path: Path
) -> None:
    server.arguments, server.searches = arguments, 2
    made = function_tool(name_override="search", **settings)(tool)
    with suffice.Watch(record=tmp_path) as watch:
        SufficeRunner(watch).run_sync(agent(server, tools=[made]), QUESTION)
    (record,) = records(tmp_path).values()
    assert [(held.passages, held.action) for held in record.rounds] == [((), "search")] * 2


def test_a_call_of_an_unknown_tool_counts_and_the_runs_own_words_are_heard(
    server: AgentServer, tmp_path: Path
) -> None:
    server.stubborn, server.searches = True, 1
    config = agents.RunConfig(
        tool_not_found_behavior="return_error_to_model",
        tool_error_formatter=lambda told: f"There is no {told.tool_name}.",
    )
    with suffice.Watch(record=tmp_path) as watch:
        SufficeRunner(watch).run_sync(agent(server, tools=[]), QUESTION, run_config=config)
    (record,) = records(tmp_path).values()
    assert [(held.passages, held.action) for held in record.rounds] == [((), "search")]
    assert server.bodies[-1]["messages"][-1]["content"] == "There is no search."


@pytest.mark.parametrize("how", ["run", "streamed"])
def test_an_agent_that_was_handed_to_is_stopped_as_well(server: AgentServer, how: str) -> None:
    """Each has a model of its own; after the stop nothing is handed over either."""
    server.stubborn, server.searches, searches = True, 99, server.answer

    def answer(body: Any) -> Any:
        server.tool = "search" if len(server.bodies) == 2 else "transfer_to_second"
        return searches(body)

    server.answer = answer
    second = agent(server)
    second.name = "second"
    first = agent(server, handoffs=[second])
    second.handoffs = [agents.handoff(first)]
    tested, watch = TestOpenAIAgents(), suffice.Watch("fixed-1", mode="live")
    asked = SufficeRunner(watch), first
    said = (tested.run(asked) if how == "run" else tested.streamed(asked)).said
    assert (said["rounds"], said["dropped_calls"], len(server.bodies)) == (1, 1, 3)


@pytest.mark.parametrize("how", ["run", "streamed"])
def test_a_request_that_fails_after_the_stop_leaves_the_answer_that_is_known(
    server: AgentServer, how: str
) -> None:
    searches = server.answer
    server.answer = lambda body: (500, {}, {}) if len(server.bodies) > 1 else searches(body)
    tested, watch = TestOpenAIAgents(), suffice.Watch("fixed-1", mode="live")
    asked = SufficeRunner(watch, probe=lambda _: "Bergen"), agent(server)
    with pytest.warns(suffice.SufficeWarning, match="the answer of round 1 is kept"):
        ended = tested.run(asked) if how == "run" else tested.streamed(asked)
    assert (ended.answer, ended.said["stopped_by"]) == ("Bergen", "policy")


def test_runs_inside_tools_other_tools_and_structured_answers(tmp_path: Path) -> None:
    """The tool is an agent of its own, whose model calls are no rounds of the outer run."""
    with (
        agent_server(
            lambda seen: '{"response": {"answer": "Oslo"}}', searches=2, tool="expert"
        ) as server,
        suffice.Watch(NEWS, record=tmp_path) as watch,
    ):
        expert = agent(server, tools=[]).as_tool("expert", "Asks an expert.")
        asked = agent(server, tools=[expert, search], output_type=Found)
        result = SufficeRunner(watch, probe=True).run_sync(asked, QUESTION)
        assert result.final_output == Found(answer="Oslo")
        assert result.suffice["rounds"] == 2
        quiet = SufficeRunner(watch, tools=["search"]).run_sync(asked, QUESTION)
        assert quiet.suffice["rounds"] == 0
    (record,) = records(tmp_path).values()
    assert [held.action for held in record.rounds] == ["expert", "expert"]
    assert [held.usage.llm_calls for held in record.rounds] == [2, 3]  # its own answer, too


def test_the_system_prompt_is_recorded(server: AgentServer, tmp_path: Path) -> None:
    with suffice.Watch(record=tmp_path) as watch:
        SufficeRunner(watch).run_sync(agent(server, instructions="Be brief."), QUESTION)
    assert suffice.read(tmp_path).origin.run["prompt"] == "Be brief."
