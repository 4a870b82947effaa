"""The middleware in LangChain's agents, in LangGraph's threads and in deepagents."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.agent_server import AgentServer, agent_server, in_order
from tests.integrations.watching import NEWS, QUESTION, STABLE, Asked, InLoop, Search, found
from tests.server import Server

import suffice
from suffice.integrations.langchain import SufficeMiddleware
from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings
from suffice.trace.rounds.records import QuestionRecord

agents = pytest.importorskip(
    "langchain.agents", reason="runs in its own environment: make test-integrations"
)
core = pytest.importorskip("langchain_core.tools")
documents = pytest.importorskip("langchain_core.documents")
openai = pytest.importorskip("langchain_openai")
memory = pytest.importorskip("langgraph.checkpoint.memory")
sqlite = pytest.importorskip("langgraph.checkpoint.sqlite")

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

    def streamed(self, agent: Any, question: str = QUESTION) -> Asked:
        *_, last = agent.stream({"messages": question}, stream_mode="values")
        return Asked(last["messages"][-1].text, said(last))

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


@pytest.mark.parametrize(("called", "city"), [(["City", "search"], "Oslo"), (["search"], None)])
def test_after_the_stop_only_the_tool_of_a_structured_answer_counts(
    called: list[str], city: str | None
) -> None:
    strategy = pytest.importorskip("langchain.agents.structured_output").ToolStrategy(City)
    arguments = {"City": '{"name": "Oslo"}', "search": '{"query": "(4)"}'}
    with agent_server(in_order(*ANSWERS), searches=99, final_tool="City") as server:
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
        middleware = SufficeMiddleware(suffice.Watch("fixed-1", mode="live"))
        result = agent_of(server, middleware, response_format=strategy).invoke(
            {"messages": "Where?"}
        )
    given = result.get("structured_response")
    assert given == (None if city is None else City(city))
    *_, own = (message for message in result["messages"] if message.type == "ai")
    assert own.response_metadata["suffice"]["dropped_calls"] == 1
    assert [call["name"] for call in own.tool_calls] == ([] if city is None else ["City"])


def test_a_thread_goes_on_after_a_run_whose_calls_were_dropped(server: AgentServer) -> None:
    server.stubborn, server.beside, server.searches = True, "So far.", 99
    watch = suffice.Watch("fixed-1", mode="live")
    agent = agent_of(server, SufficeMiddleware(watch), checkpointer=memory.MemorySaver())
    for question in ("Where?", "And who?"):
        result = agent.invoke({"messages": question}, {"configurable": {"thread_id": "t1"}})
        assert (said(result)["rounds"], said(result)["dropped_calls"]) == (1, 1)
    roles = [message["role"] for message in server.bodies[-1]["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant", "tool"]


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


def test_a_call_of_an_unknown_tool_counts_and_brings_nothing(tmp_path: Path) -> None:
    """As one whose arguments do not fit its tool."""
    for name, arguments in (("browse", None), ("search", '{"words": 3}')):
        with (
            agent_server(searches=1) as server,
            suffice.Watch(None, record=tmp_path / name) as watch,
        ):
            server.named, server.arguments = name, arguments
            agent_of(server, SufficeMiddleware(watch)).invoke({"messages": "Where?"})
        (record,) = records(tmp_path / name)
        assert [(held.passages, held.action) for held in record.rounds] == [((), name)]


def test_llama_cpps_own_server_is_asked_and_its_tokens_are_known(tmp_path: Path) -> None:
    """Its model calls no tools, so calls are put beside what it writes, whether asked for or not."""
    pytest.importorskip("xllamacpp")
    call = {"name": "search", "args": {"query": "Where? (1)"}, "id": "", "type": "tool_call"}

    class Calling(openai.ChatOpenAI):  # type: ignore[misc, name-defined]
        def _generate(self, *held: Any, **named: Any) -> Any:
            made = super()._generate(*held, **named)
            made.generations[0].message.tool_calls = [call]
            return made

    with (
        EmbeddedModel.load(settings=EmbeddedSettings(replicas=1)) as served,
        suffice.Watch("fixed-2", record=tmp_path, mode="live", max_rounds=4) as watch,
    ):
        model = Calling(base_url=served.base_url, api_key="none", model="any", max_tokens=6)
        agent = agents.create_agent(model, [search_tool()], middleware=[SufficeMiddleware(watch)])
        last = agent.invoke({"messages": "Where?"})
    assert (said(last)["rounds"], said(last)["dropped_calls"]) == (2, 1)
    (record,) = records(tmp_path)
    for held in record.rounds:
        assert 0 < (held.usage.completion_tokens or 0) <= 6 * (held.usage.llm_calls or 0)
        assert 0 <= (held.usage.cached_tokens or 0) < (held.usage.prompt_tokens or 0)


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


ELSEWHERE = """
import sys
from tests.integrations.test_langchain_agents import *

url, folder, asks = sys.argv[1:]
server = type("There", (), {"url": url})
with (
    sqlite.SqliteSaver.from_conn_string(f"{folder}/threads.db") as saver,
    suffice.Watch(STABLE, record=folder, mode="live", max_rounds=8) as watch,
):
    pauses = {"checkpointer": saver, "interrupt_before": ["tools"]}
    agent = agent_of(server, SufficeMiddleware(watch, probe=True), **pauses)
    given = {"messages": asks} if asks else None
    result = agent.invoke(given, {"configurable": {"thread_id": "t1"}})
    print(json.dumps(said(result) | {"answer": result["messages"][-1].text}))
"""


def test_a_thread_resumed_in_other_processes_is_one_question(tmp_path: Path) -> None:
    """With the drafts of its rounds, which the thread's messages do not hold."""
    with agent_server(in_order(*ANSWERS), searches=6) as server:
        for asks in (QUESTION, "", "", ""):
            words = [sys.executable, "-c", ELSEWHERE, server.url, str(tmp_path), asks]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
            told = json.loads(done.stdout)
    (record,) = records(tmp_path)
    assert record.question.id == told["question_id"]
    assert (told["rounds"], told["stopped_by"], told["answer"]) == (3, "policy", "Skien")
    assert record.stopped_by == "policy"
    assert [held.query for held in record.rounds] == [f"{QUESTION} ({n})" for n in (1, 2, 3)]
    assert [held.answer for held in record.rounds] == ["Oslo", "Skien", "Skien"]
    assert [held.usage.llm_calls for held in record.rounds] == [2, 2, 2]


def test_a_run_that_fails_between_its_stop_and_its_answer_is_resumed(
    server: AgentServer, tmp_path: Path
) -> None:
    """By another watch, as in another process; the stop is not asked for again."""
    saver, config = memory.MemorySaver(), {"configurable": {"thread_id": "t1"}}
    searches, given = server.answer, {"messages": QUESTION}
    server.answer = lambda body: (500, {}, {}) if len(server.bodies) == 2 else searches(body)
    with suffice.Watch("fixed-1", record=tmp_path, mode="live") as watch:
        agent = agent_of(server, SufficeMiddleware(watch), checkpointer=saver)
        with pytest.raises(Exception, match="500"):
            agent.invoke(given, config)
    with suffice.Watch("fixed-1", record=tmp_path, mode="live") as watch:
        agent = agent_of(server, SufficeMiddleware(watch), checkpointer=saver)
        result = agent.invoke(None, config)
    assert (said(result)["rounds"], said(result)["stopped_by"]) == (1, "policy")
    (record,) = records(tmp_path)
    assert (len(record.rounds), record.rounds[0].answer) == (1, "Oslo")
    assert len(server.bodies) == 3


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


def test_anthropic_keeps_its_tools_and_is_told_to_call_none() -> None:
    anthropic = pytest.importorskip("langchain_anthropic")

    def answer(body: Any) -> Any:
        called = {"type": "tool_use", "name": "search", "input": {"query": "(1)"}}
        content = [
            {"type": "text", "text": "So far."},
            {"id": f"c{len(body['messages'])}", **called},
        ]
        reply = {"id": "m", "type": "message", "role": "assistant", "model": "scripted"}
        usage = {"input_tokens": 3, "output_tokens": 2}
        return 200, {}, {**reply, "content": content, "stop_reason": "tool_use", "usage": usage}

    server, watch = Server(answer), suffice.Watch("fixed-1", mode="live")
    try:
        model = anthropic.ChatAnthropic(
            model="scripted", api_key="none", base_url=server.url, max_retries=0
        )
        agent = agents.create_agent(
            model,
            tools=[search_tool()],
            middleware=[SufficeMiddleware(watch)],
            checkpointer=memory.MemorySaver(),
        )
        for question in ("Where?", "And who?"):
            result = agent.invoke({"messages": question}, {"configurable": {"thread_id": "t1"}})
            assert result["messages"][-1].text == "So far."
            assert said(result)["dropped_calls"] == 1
    finally:
        server.close()
    first, last = server.bodies[:2]
    assert (last["tools"], last["tool_choice"]) == (first["tools"], {"type": "none"})
    assert len(server.bodies) == 4


def test_a_provider_may_be_asked_in_another_way(server: AgentServer) -> None:
    watch = suffice.Watch(NEWS, mode="live")
    middleware = SufficeMiddleware(watch, without_tools=lambda request: request.override(tools=[]))
    agent_of(server, middleware).invoke({"messages": "Where?"})
    assert "tools" not in server.bodies[-1]


def test_the_system_prompt_is_recorded(server: AgentServer, tmp_path: Path) -> None:
    with suffice.Watch(record=tmp_path) as watch:
        asked = agent_of(server, SufficeMiddleware(watch), system_prompt="Be brief.")
        asked.invoke({"messages": [{"role": "user", "content": QUESTION}]})
    assert suffice.read(tmp_path).origin.run["prompt"] == "Be brief."
