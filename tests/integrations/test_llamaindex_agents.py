"""LlamaIndex's agents and workflows as loops that are watched, over HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.agent_server import AgentServer, agent_server, newest_passage
from tests.integrations.watching import (
    ANSWERS,
    NEWS,
    QUESTION,
    STABLE,
    Asked,
    Calling,
    Search,
    found,
)

import suffice
from suffice.errors import UsageError
from suffice.integrations.llamaindex import watched, watched_loop
from suffice.trace.rounds.records import QuestionRecord

agents = pytest.importorskip(
    "llama_index.core.agent.workflow", reason="runs in its own environment: make test-integrations"
)
openai_like = pytest.importorskip("llama_index.llms.openai_like")
schema = pytest.importorskip("llama_index.core.schema")
workflows = pytest.importorskip("workflows")
events = pytest.importorskip("workflows.events")


def nodes(passages: list[dict[str, str]]) -> list[Any]:
    return [
        schema.NodeWithScore(node=schema.TextNode(id_=one["id"], text=one["text"]), score=1.0)
        for one in passages
    ]


def search(query: str) -> list[Any]:
    """Search the notes."""
    return nodes(found(query))


def model_at(server: AgentServer, **own: Any) -> Any:
    return openai_like.OpenAILike(
        model="scripted",
        api_base=server.url,
        api_key="none",
        is_chat_model=True,
        is_function_calling_model=True,
        max_retries=0,
        additional_kwargs={"logprobs": True, "stream_options": {"include_usage": True}},
        **own,
    )


def agent_at(server: AgentServer, tool: Any = search, **own: Any) -> Any:
    return agents.FunctionAgent(tools=[tool], llm=model_at(server), **own)


def ask(agent: Any, question: str = QUESTION, **own: Any) -> Any:
    async def run() -> Any:
        return await agent.run(question, **own)

    return asyncio.run(run())


def records(folder: Path) -> list[QuestionRecord]:
    return list(suffice.read(folder).records())


def only(folder: Path) -> QuestionRecord:
    (record,) = records(folder)
    return record


class TestLlamaIndex(Calling):
    heading = "LlamaIndex agents"
    example = ("llamaindex_agent.py", "URL", "scripted", "FOLDER")
    example_says = ""  # one run in twenty explores

    def agent(
        self, server: AgentServer, watch: Any, *, search: Search = found, probe: bool = False
    ) -> Any:
        def tool(query: str) -> list[Any]:
            """Search the notes."""
            return nodes(search(query))

        tool.__name__ = "search"
        return watched(agent_at(server, tool), watch, probe=probe)

    def run(self, agent: Any, question: str = QUESTION) -> Asked:
        return asyncio.run(self.arun(agent, question))

    async def arun(self, agent: Any, question: str) -> Asked:
        result = await agent.run(question)
        return Asked(str(result), result["suffice"])

    def streamed(self, agent: Any, question: str = QUESTION) -> Asked:
        async def ask() -> Any:
            handler = agent.run(question)
            async for _ in handler.stream_events():
                pass
            return await handler

        result = asyncio.run(ask())
        return Asked(str(result), result["suffice"])

    def said_by(self, names: Any) -> Any:
        return names["result"]["suffice"]


def test_streams_and_memory_end_with_the_probed_answer(server: AgentServer, tmp_path: Path) -> None:
    watch = suffice.Watch(STABLE, mode="live", record=tmp_path, max_rounds=9)
    agent = watched(agent_at(server), watch, probe=True)

    async def run() -> Any:
        memory = pytest.importorskip("llama_index.core.memory").ChatMemoryBuffer.from_defaults(
            token_limit=9000
        )
        handler = agent.run(QUESTION, memory=memory)
        streamed = [event async for event in handler.stream_events()]
        return handler.run_id, await handler, streamed, await memory.aget()

    run_id, result, streamed, messages = asyncio.run(run())
    watch.close()
    assert str(result) == "Oslo"
    assert only(tmp_path).question.id == run_id
    assert [one.delta for one in streamed if isinstance(one, agents.AgentStream)][-1] == "Oslo"
    roles = [message.role.value for message in messages]
    assert roles == ["user", *["assistant", "tool"] * 3, "assistant"]
    assert messages[-1].content == "Oslo"


def test_a_memory_goes_on_after_a_run_whose_calls_were_dropped(server: AgentServer) -> None:
    server.stubborn, server.searches = True, 99
    watch = suffice.Watch("fixed-1", mode="live")
    agent = watched(agent_at(server), watch)

    async def run() -> Any:
        memory = pytest.importorskip("llama_index.core.memory").ChatMemoryBuffer.from_defaults(
            token_limit=9000
        )
        for question in ("Where?", "And who?"):
            result = await agent.run(question, memory=memory)
            assert result["suffice"]["dropped_calls"] == 1
        return await memory.aget()

    roles = [message.role.value for message in asyncio.run(run())]
    assert roles == ["user", "assistant", "tool", "assistant"] * 2


def test_an_agent_that_only_writes_calls_is_stopped(tmp_path: Path) -> None:
    """ReAct's calls are texts, so its tools leave the prompt; what it writes of them is no answer."""
    act = 'Thought: I search.\nAction: search\nAction Input: {"query": "(1)"}'
    for last, answer, dropped in ((act, "", 1), ("Oslo it is.", "Oslo it is.", 0), ("", "", 0)):
        written = iter((act, act, last))
        with (
            agent_server(lambda _, written=written: next(written)) as server,  # type: ignore[misc]
            suffice.Watch("fixed-2", mode="live", record=tmp_path / str(len(last))) as watch,
        ):
            agent = watched(agents.ReActAgent(tools=[search], llm=model_at(server)), watch)
            result = ask(agent)
        assert (str(result), len(server.bodies)) == (answer, 3)
        assert (result["suffice"]["rounds"], result["suffice"]["dropped_calls"]) == (2, dropped)
        assert only(tmp_path / str(len(last))).rounds[-1].answer == answer


def test_runs_that_fail_keep_their_rounds(tmp_path: Path) -> None:
    with (
        agent_server(newest_passage, searches=9) as server,
        suffice.Watch(NEWS, record=tmp_path) as watch,
    ):
        agent = watched(agent_at(server), watch)
        with pytest.raises(Exception, match="Max iterations of 3 reached"):
            ask(agent, max_iterations=3)
        early = ask(agent, max_iterations=3, early_stopping_method="generate")
    assert early["suffice"]["stopped_by"] == "end"
    ended, failed = sorted(records(tmp_path), key=lambda record: record.stopped_by or "")
    assert (failed.stopped_by, len(failed.rounds), failed.rounds[-1].answer) == ("error", 2, None)
    assert (ended.stopped_by, ended.rounds[-1].answer) == ("end", str(early))


def test_only_tools_that_retrieve_are_rounds(tmp_path: Path) -> None:
    with (
        agent_server(newest_passage, searches=2) as server,
        suffice.Watch(NEWS, record=tmp_path) as watch,
    ):
        result = ask(watched(agent_at(server), watch, tools=["other"]))
    assert result["suffice"]["rounds"] == 1
    (single,) = only(tmp_path).rounds
    assert (single.passages, single.answer) == ((), str(result))


class NextRound(events.Event):  # type: ignore[name-defined,misc]
    number: int


class Flow(workflows.Workflow):  # type: ignore[name-defined,misc]
    @workflows.step  # type: ignore[untyped-decorator]
    async def round(self, event: events.StartEvent | NextRound) -> NextRound | events.StopEvent:  # type: ignore[name-defined]
        number = event.get("number", 1) if isinstance(event, events.StartEvent) else event.number
        loop = watched_loop(QUESTION)
        if number == 5:
            raise ConnectionError("lost")
        await loop.aobserve(passages=search(f"({number})"))
        if loop.done:
            return events.StopEvent(result=ANSWERS[number])
        return NextRound(number=number + 1)


def test_a_workflow_of_ones_own_asks_for_its_loop(tmp_path: Path) -> None:
    with suffice.Watch(NEWS, mode="live", record=tmp_path) as watch:
        assert ask_flow(watched(Flow(), watch)) == "Oslo"
    record = only(tmp_path)
    ended = (record.stopped_by, len(record.rounds), record.rounds[-1].answer)
    assert ended == ("policy", 4, "Oslo")
    with suffice.Watch(record=tmp_path / "failed") as watch, pytest.raises(ConnectionError):
        ask_flow(watched(Flow(), watch))
    assert only(tmp_path / "failed").stopped_by == "error"
    with pytest.raises(UsageError, match="no watched run is under way"):
        watched_loop(QUESTION)


def ask_flow(flow: Any) -> Any:
    async def run() -> Any:
        return await flow.run()

    return asyncio.run(run())


def test_an_agent_that_writes_its_thoughts_stops_with_the_answer_in_them(tmp_path: Path) -> None:
    """ReAct calls tools in its text; drafts and the answer are without thoughts."""

    def write(seen: Any) -> str:
        del seen
        body = server.bodies[-1]
        rounds = sum("Observation:" in str(held["content"]) for held in body["messages"][1:])
        if "> Tool Name: search" in str(body["messages"][0]["content"]):
            query = f'{{"query": "({rounds + 1})"}}'
            return f"Thought: I search.\nAction: search\nAction Input: {query}"
        return f"Thought: I can answer.\nAnswer: {ANSWERS[rounds]}"

    with agent_server(write) as server:
        for probe, calls in ((True, [True, False] * 3), (False, [True] * 4 + [False])):
            rule = STABLE if probe else NEWS
            with suffice.Watch(rule, mode="live", record=tmp_path / str(probe)) as watch:
                agent = agents.ReActAgent(tools=[search], llm=model_at(server))
                result = ask(watched(agent, watch, probe=probe))
            assert (str(result), result["suffice"]["stopped_by"]) == ("Oslo", "policy")
            assert only(tmp_path / str(probe)).rounds[-1].answer == "Oslo"
            shown = ["Tool Name: search" in str(body["messages"]) for body in server.bodies]
            assert shown == calls
            server.bodies.clear()


def test_the_system_prompt_is_recorded(server: AgentServer, tmp_path: Path) -> None:
    with suffice.Watch(record=tmp_path) as watch:
        ask(watched(agent_at(server, system_prompt="Be brief."), watch))
    assert suffice.read(tmp_path).origin.run["prompt"] == "Be brief."


def test_a_tool_that_failed_counts_and_brings_nothing(tmp_path: Path) -> None:
    """It raises, its arguments do not fit, or it is unknown."""

    def broken(query: str) -> str:
        """Search the notes."""
        raise OSError("the index is closed")

    for name, arguments in (("broken", None), ("broken", '{"words": 3}'), ("browse", None)):
        folder = tmp_path / f"{name}{arguments is None}"
        with agent_server(searches=1) as server, suffice.Watch(record=folder) as watch:
            server.named, server.arguments = name, arguments
            ask(watched(agent_at(server, broken), watch))
        rounds = only(folder).rounds
        assert [(held.passages, held.action) for held in rounds] == [((), name)]
