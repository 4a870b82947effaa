"""The middleware in LangChain's agents, in LangGraph's threads and in deepagents."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.agent_server import AgentServer, agent_server, in_order
from tests.integrations.watching import NEWS, QUESTION, STABLE, Asked, InLoop, Search, found

import suffice
from suffice.integrations.langchain import SufficeMiddleware
from suffice.trace.rounds.records import QuestionRecord

agents = pytest.importorskip(
    "langchain.agents", reason="runs in its own environment: make test-integrations"
)
core = pytest.importorskip("langchain_core.tools")
documents = pytest.importorskip("langchain_core.documents")
openai = pytest.importorskip("langchain_openai")
memory = pytest.importorskip("langgraph.checkpoint.memory")

ANSWERS = ("none", "Oslo", "Skien", "Skien", "Skien", "Skien", "Skien")


@dataclass
class City:
    name: str


@pytest.fixture
def server() -> Iterator[AgentServer]:
    with agent_server(in_order(*ANSWERS), searches=6) as made:
        yield made


def search_tool(notes: Search = found) -> Any:
    def search(query: str) -> Any:
        """Search the notes."""
        passages = notes(query)
        return "\n".join(one["text"] for one in passages), [
            documents.Document(page_content=one["text"], id=one["id"]) for one in passages
        ]

    return core.tool(response_format="content_and_artifact")(search)


def agent_of(server: AgentServer, *middleware: Any, **changed: Any) -> Any:
    model = openai.ChatOpenAI(
        base_url=server.url, api_key="none", model="scripted", logprobs=True, max_retries=0
    )
    settings = {"tools": [search_tool()], "middleware": middleware, **changed}
    return agents.create_agent(model, **settings)


def said(result: Any) -> dict[str, Any]:
    held: dict[str, Any] = result["messages"][-1].response_metadata["suffice"]
    return held


def records(folder: Path) -> list[QuestionRecord]:
    return list(suffice.read(folder).records())


class TestLangChain(InLoop):
    heading = "LangChain agents"
    example = ("langchain_agent.py", "URL")

    def agent(
        self, server: AgentServer, watch: Any, *, search: Search = found, probe: Any = False
    ) -> Any:
        return agent_of(server, SufficeMiddleware(watch, probe=probe), tools=[search_tool(search)])

    def run(self, agent: Any, question: str = QUESTION) -> Asked:
        result = agent.invoke({"messages": question})
        return Asked(result["messages"][-1].text, said(result))

    async def arun(self, agent: Any, question: str) -> Asked:
        result = await agent.ainvoke({"messages": question})
        return Asked(result["messages"][-1].text, said(result))

    def said_by(self, names: Any) -> Any:
        return names["said"]


def test_a_structured_answer_is_kept_as_json_and_its_tool_makes_no_round(tmp_path: Path) -> None:
    strategy = pytest.importorskip("langchain.agents.structured_output").ToolStrategy(City)
    answers = in_order("none", "Oslo", "Skien")
    with (
        suffice.Watch(NEWS, record=tmp_path) as watch,
        agent_server(answers, searches=2, final_tool="City") as server,
    ):
        middleware = SufficeMiddleware(watch, probe=True)
        result = agent_of(server, middleware, response_format=strategy).invoke(
            {"messages": "Where?"}
        )
    assert result["structured_response"].name == "Skien"
    (record,) = records(tmp_path)
    assert [json.loads(held.answer or "") for held in record.rounds] == [
        {"name": "Oslo"}, {"name": "Skien"},
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["updates", "messages"])
def test_streams_show_the_answer_and_no_draft(server: AgentServer, mode: str) -> None:
    watch = suffice.Watch(STABLE)
    agent = agent_of(server, SufficeMiddleware(watch, probe=True))
    shown = list(agent.stream({"messages": "Where?"}, stream_mode=mode))
    if mode == "messages":
        texts = [chunk.text for chunk, _ in shown if chunk.type.startswith("AI")]
        assert [text for text in texts if text] == ["Skien"]
    else:
        (last,) = [step["model"] for step in shown if "model" in step][-1:]
        assert said(last)["stopped_by"] == "end"
    assert server.with_tools == [True, False] * 6 + [True]


def test_only_the_tools_named_make_rounds_and_a_failed_call_brings_nothing(
    server: AgentServer, tmp_path: Path
) -> None:
    watch = suffice.Watch(None, record=tmp_path)
    agent_of(server, SufficeMiddleware(watch, tools=["browse"])).invoke({"messages": "Where?"})
    assert watch.counts.rounds == 0

    def broken(query: str) -> str:
        """Search."""
        raise core.ToolException("no such shelf")

    tool = core.tool("search")(broken)
    tool.handle_tool_error = True
    with watch:
        agent_of(server, SufficeMiddleware(watch), tools=[tool]).invoke({"messages": "Where?"})
    (record,) = records(tmp_path)
    assert {held.passages for held in record.rounds} == {()}


def test_a_run_that_fails_is_kept_as_failed(server: AgentServer, tmp_path: Path) -> None:
    """By its tool, or by LangGraph's limit of steps; a call of the model tried again is one round."""

    def broken(query: str) -> str:
        """Search."""
        raise OSError("lost")

    errors = pytest.importorskip("langgraph.errors")
    retry = agents.middleware.ModelRetryMiddleware(max_retries=2, initial_delay=0, jitter=False)
    with suffice.Watch(NEWS, record=tmp_path) as watch:
        middleware = SufficeMiddleware(watch)
        agent = agent_of(server, middleware)
        with pytest.raises(errors.GraphRecursionError):
            agent.invoke({"messages": "limit"}, {"recursion_limit": 5})
        failing = agent_of(server, middleware, tools=[core.tool("search")(broken)])
        with pytest.raises(OSError, match="lost"):
            failing.invoke({"messages": "tool"})
        gc.collect()
        answer = server.answer
        failed: list[bool] = []

        def sometimes(body: Any) -> Any:
            failed.append(len(failed) % 2 == 0)
            return (500, {}, {"error": {"message": "busy"}}) if failed[-1] else answer(body)

        server.answer = sometimes
        retried = agent_of(server, retry, middleware)
        outcome = said(retried.invoke({"messages": "retried"}))
    assert outcome["rounds"] == 6
    kept = {record.question.text: record for record in records(tmp_path)}
    assert {text: (record.stopped_by, len(record.rounds)) for text, record in kept.items()} == {
        "limit": ("error", 2),
        "retried": ("end", 6),
    }


def test_a_thread_goes_on_where_it_was_left_here_and_in_another_process(
    server: AgentServer, tmp_path: Path
) -> None:
    saver = memory.MemorySaver()
    config = {"configurable": {"thread_id": "t1"}}
    changed = {"checkpointer": saver, "interrupt_before": ["tools"]}
    with suffice.Watch(NEWS, record=tmp_path, mode="live") as watch:
        agent = agent_of(server, SufficeMiddleware(watch), **changed)
        given: Any = {"messages": "Where?"}
        for _ in range(2):
            agent.invoke(given, config)
            given = None
        elsewhere = agent_of(server, SufficeMiddleware(watch), **changed)  # it has no loops
        for _ in range(3):
            result = elsewhere.invoke(None, config)
        assert said(result)["rounds"] == 4
        assert said(result)["stopped_by"] == "policy"
        again = elsewhere.invoke({"messages": "And who?"}, config)
        assert said(again)["question_id"] != said(result)["question_id"]
    kept = {record.question.id: record for record in records(tmp_path)}
    assert len(kept[said(result)["question_id"]].rounds) == 4


def test_deepagents_are_stopped_alike(server: AgentServer) -> None:
    deep = pytest.importorskip("deepagents")
    watch = suffice.Watch(NEWS, mode="live")
    model = openai.ChatOpenAI(base_url=server.url, api_key="none", model="scripted")
    agent = deep.create_deep_agent(
        model=model, tools=[search_tool()], middleware=[SufficeMiddleware(watch, tools=["search"])]
    )
    result = agent.invoke({"messages": "Where?"})
    assert result["messages"][-1].text == "Skien"
    assert (said(result)["rounds"], said(result)["stopped_by"]) == (4, "policy")
    assert server.with_tools == [True] * 4 + [False]


def test_a_provider_may_be_asked_in_another_way(server: AgentServer) -> None:
    watch = suffice.Watch(NEWS, mode="live")
    middleware = SufficeMiddleware(
        watch, without_tools=lambda request: request.override(tool_choice="none")
    )
    agent_of(server, middleware).invoke({"messages": "Where?"})
    assert server.bodies[-1]["tool_choice"] == "none"
    assert server.bodies[-1]["tools"]


def test_the_system_prompt_is_recorded(server: AgentServer, tmp_path: Path) -> None:
    with suffice.Watch(record=tmp_path) as watch:
        asked = agent_of(server, SufficeMiddleware(watch), system_prompt="Be brief.")
        asked.invoke({"messages": [{"role": "user", "content": QUESTION}]})
    assert suffice.read(tmp_path).origin.run["prompt"] == "Be brief."
