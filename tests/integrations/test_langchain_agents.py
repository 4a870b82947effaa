"""The middleware in LangChain's agents, in LangGraph's threads and in deepagents."""

from __future__ import annotations

import asyncio
import gc
import json
import runpy
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.agent_server import AgentServer, agent_server, in_order, writer_of

import suffice
from suffice.errors import UsageError
from suffice.integrations.langchain import SufficeMiddleware
from suffice.policies.file import policy_hash
from suffice.trace.rounds.records import QuestionRecord

agents = pytest.importorskip(
    "langchain.agents", reason="runs in its own environment: make test-integrations"
)
core = pytest.importorskip("langchain_core.tools")
documents = pytest.importorskip("langchain_core.documents")
openai = pytest.importorskip("langchain_openai")
memory = pytest.importorskip("langgraph.checkpoint.memory")

NEWS = suffice.RulePolicy(rule="new_passages < 0.5")
STABLE = suffice.RulePolicy(rule="answer_stable")
ANSWERS = ("none", "Oslo", "Skien", "Skien", "Skien", "Skien", "Skien")


@dataclass
class City:
    """A city."""

    name: str


@pytest.fixture
def server() -> Iterator[AgentServer]:
    with agent_server(in_order(*ANSWERS), searches=6) as made:
        yield made


def search_tool(**changed: Any) -> Any:
    def search(query: str) -> Any:
        """Search the notes."""
        number = min(int(query.rpartition("(")[2][:-1]), 3)
        found = [documents.Document(page_content=f"note {number}", id=f"n{number}")]
        return "as told", found

    return core.tool(response_format="content_and_artifact", **changed)(search)


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
    return list(suffice.read_traces(folder).records())


def test_shadow_records_every_round_with_its_draft_and_the_record_replays(
    server: AgentServer, tmp_path: Path
) -> None:
    with suffice.Watch(NEWS, record=tmp_path) as watch:
        result = agent_of(server, SufficeMiddleware(watch, probe=True)).invoke(
            {"messages": "Where?"}
        )
    outcome = said(result)
    assert result["messages"][-1].text == "Skien"
    assert json.loads(json.dumps(outcome)) == outcome
    assert (outcome["rounds"], outcome["would_stop"], outcome["stopped_by"]) == (6, 4, "end")
    assert outcome["policy_hash"] == policy_hash(NEWS)
    (record,) = records(tmp_path)
    assert (record.question.id, record.question.text) == (outcome["question_id"], "Where?")
    assert [held.answer for held in record.rounds] == list(ANSWERS[1:])
    assert [held.probed for held in record.rounds] == [True] * 5 + [False]
    first, fourth = record.rounds[0], record.rounds[3]
    assert (first.query, first.action) == ("Where? (1)", "search")
    assert first.passages is not None
    assert [(held.id, held.text) for held in first.passages] == [("n1", "note 1")]
    assert fourth.refound is not None
    assert [held.id for held in fourth.refound] == ["n3"]
    assert first.tokens is not None
    assert first.tokens[0].logprob == pytest.approx(-0.1)
    usage = first.usage
    assert (usage.llm_calls, usage.answer_calls) == (2, 1)
    assert usage.prompt_tokens is not None
    assert 0 < (usage.answer_prompt_tokens or 0) < usage.prompt_tokens
    assert server.with_tools == [True, False] * 6 + [True]
    settings = suffice.ComparisonSettings(policies=("fixed-6",), rules=(NEWS.rule, STABLE.rule))
    replayed = suffice.compare(suffice.read_traces(tmp_path), settings).result
    assert {held.label: held.mean_rounds for held in replayed.policies} == {
        "fixed-6": 6, "fixed-3": 3, NEWS.rule: 4, STABLE.rule: 3,
    }  # fmt: skip


def test_live_the_model_answers_without_tools_from_what_it_has(
    server: AgentServer, tmp_path: Path
) -> None:
    with suffice.Watch(NEWS, record=tmp_path, mode="live") as watch:
        result = agent_of(server, SufficeMiddleware(watch)).invoke({"messages": "Where?"})
    assert result["messages"][-1].text == "Skien"
    assert server.with_tools == [True] * 4 + [False]
    outcome = said(result)
    assert (outcome["rounds"], outcome["stopped_by"]) == (4, "policy")
    assert outcome["reason"] == "new_passages < 0.5 holds at round 4: new_passages = 0"
    (record,) = records(tmp_path)
    assert record.stopped_by == "policy"
    assert [held.answer for held in record.rounds] == [None, None, None, "Skien"]
    assert record.rounds[-1].tokens is not None


def test_an_agent_that_goes_on_after_the_stop_is_told_and_recorded_as_it_went(
    tmp_path: Path,
) -> None:
    with (
        suffice.Watch(suffice.FixedPolicy(1), record=tmp_path, mode="live") as watch,
        agent_server(in_order("none", "Oslo", "Skien"), searches=4, stubborn=True) as server,
    ):
        agent = agent_of(server, SufficeMiddleware(watch))
        with pytest.warns(suffice.SufficeWarning, match="went on"):
            result = agent.invoke({"messages": "Where?"})
    assert server.with_tools == [True] + [False] * 4
    assert (said(result)["rounds"], said(result)["would_stop"]) == (4, 1)
    assert watch.counts.rounds == 4
    (record,) = records(tmp_path)
    assert [held.query for held in record.rounds] == [f"Where? ({n})" for n in (1, 2, 3, 4)]
    assert [held.answer for held in record.rounds] == [None, None, None, "Skien"]
    assert record.stopped_by == "policy"
    assert record.rounds[0].signals["policy_stop"] == 1.0


def test_a_policy_that_reads_answers_stops_with_the_draft_it_read(server: AgentServer) -> None:
    watch = suffice.Watch(STABLE, mode="live")
    result = agent_of(server, SufficeMiddleware(watch, probe=True)).invoke({"messages": "Where?"})
    assert result["messages"][-1].text == "Skien"
    assert said(result)["rounds"] == 3
    assert server.with_tools == [True, False] * 3  # the third draft is the answer


def test_the_answer_returned_is_the_one_that_the_watch_chooses() -> None:
    policy = suffice.RulePolicy(rule="new_passages < 0.5 and answer_repeats")
    watch = suffice.Watch(policy, mode="live", answer="highest:new_passages")
    with agent_server(in_order("none", "Oslo", "Skien", "Skien", "Skien."), searches=6) as server:
        agent = agent_of(server, SufficeMiddleware(watch, probe=True))
        result = agent.invoke({"messages": "Where?"})
    assert result["messages"][-1].text == "Skien"
    assert (said(result)["rounds"], said(result)["answer_round"]) == (4, 3)


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


def test_many_runs_at_once_do_not_mix(server: AgentServer, tmp_path: Path) -> None:
    """In tasks of asyncio, streamed too, and in threads, with one middleware."""
    with suffice.Watch(NEWS, record=tmp_path, mode="live") as watch:
        agent = agent_of(server, SufficeMiddleware(watch))

        async def one(name: str) -> dict[str, Any]:
            if name.endswith("0"):
                return said(await agent.ainvoke({"messages": name}))
            async for values in agent.astream({"messages": name}, stream_mode="values"):
                last = values
            return said(last)

        async def many() -> list[dict[str, Any]]:
            return list(await asyncio.gather(*(one(f"a{number}") for number in range(12))))

        outcomes = asyncio.run(many())
        threads = [
            threading.Thread(target=lambda: outcomes.append(said(agent.invoke({"messages": "t"}))))
            for _ in range(6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {(outcome["rounds"], outcome["stopped_by"]) for outcome in outcomes} == {(4, "policy")}
    assert len({outcome["question_id"] for outcome in outcomes}) == len(outcomes) == 18
    kept = records(tmp_path)
    assert len(kept) == 18
    for record in kept:
        assert [held.query for held in record.rounds] == [
            f"{record.question.text} ({number})" for number in (1, 2, 3, 4)
        ]


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


def test_another_question_on_a_thread_ends_the_one_that_failed_there(
    server: AgentServer, tmp_path: Path
) -> None:
    calls: list[str] = []

    def search(query: str) -> str:
        """Search the notes."""
        calls.append(query)
        if len(calls) == 3:
            raise OSError("lost")
        return query

    config = {"configurable": {"thread_id": "t1"}}
    with suffice.Watch(NEWS, record=tmp_path) as watch:
        saver, tool = memory.MemorySaver(), core.tool("search")(search)
        agent = agent_of(server, SufficeMiddleware(watch), tools=[tool], checkpointer=saver)
        with pytest.raises(OSError, match="lost"):
            agent.invoke({"messages": "first"}, config)
        agent.invoke({"messages": "second"}, config)
    kept = {record.question.text: record for record in records(tmp_path)}
    assert {text: record.stopped_by for text, record in kept.items()} == {
        "first": "error",
        "second": "end",
    }
    assert len(kept["first"].rounds) == 2


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


def test_the_embedded_model_writes_the_answers(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="pip install 'suffice[embedded]'")
    from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings

    def search(query: str) -> Any:
        """Search the notes."""
        note = "Henrik Ibsen was born in Skien."
        return note, [documents.Document(page_content=note, id="n1")]

    tool = core.tool(response_format="content_and_artifact")(search)
    with (
        EmbeddedModel.load(settings=EmbeddedSettings(replicas=1, threads=1)) as model,
        agent_server(writer_of(model), searches=3) as server,
    ):
        question = {"messages": "Where was Henrik Ibsen born?"}
        with suffice.Watch(NEWS, record=tmp_path) as watch:
            agent = agent_of(server, SufficeMiddleware(watch, probe=True), tools=[tool])
            agent.invoke(question)
        (record,) = records(tmp_path)
        assert len(record.rounds) == 3
        assert all("Skien" in (held.answer or "") and held.tokens for held in record.rounds)
        live = agent_of(server, SufficeMiddleware(suffice.Watch(NEWS, mode="live")), tools=[tool])
        result = live.invoke(question)
    assert "Skien" in result["messages"][-1].text
    assert (said(result)["rounds"], said(result)["stopped_by"]) == (2, "policy")


def test_the_example_and_the_snippet_run(
    server: AgentServer,
    run_snippet: Callable[..., dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    example = Path(__file__).parents[2] / "examples" / "agents" / "langchain_agent.py"
    runpy.run_path(str(example))["main"](server.url)
    first, answers, last = capsys.readouterr().out.splitlines()
    assert "6 rounds, stopped by end: in shadow" in first
    assert answers == str(list(ANSWERS[1:]))
    assert "2 rounds, stopped by policy" in last
    made = run_snippet(
        "LangChain agents", **{"http://localhost:8000/v1": server.url, "traces/": str(tmp_path)}
    )
    assert made["said"]["stopped_by"] == "policy"


def test_a_version_without_middleware_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("langchain.agents.middleware.AgentMiddleware")
    with pytest.raises(
        UsageError, match=r"no langchain\.agents\.middleware\.AgentMiddleware, by which"
    ):
        SufficeMiddleware(suffice.Watch(NEWS))
