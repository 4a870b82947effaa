"""LlamaIndex's agents and workflows as loops that are watched, over HTTP."""

from __future__ import annotations

import asyncio
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.agent_server import (
    AgentServer,
    agent_server,
    in_order,
    newest_passage,
    writer_of,
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

NEWS = suffice.RulePolicy(rule="new_passages < 0.5")
STABLE = suffice.RulePolicy(rule="answer_stable")
QUESTION = "Where was Ibsen born?"
ANSWERS = ("unknown", "Oslo", "Skien", "Skien", "Skien", "Bergen")
TEXTS = ("Ibsen wrote plays.", "Ibsen was born in Skien.", "Oslo is big.", "Skien is old.")
EXAMPLE = Path(__file__).parents[2] / "examples" / "agents" / "llamaindex_agent.py"


def search(query: str) -> list[Any]:
    """Search the notes."""
    number = min(int(query.rpartition("(")[2][:-1]), 3)
    return [
        schema.NodeWithScore(node=schema.TextNode(id_=f"n{at}", text=TEXTS[at]), score=1.0)
        for at in (number - 1, number)
    ]


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


def agent_at(server: AgentServer, **own: Any) -> Any:
    return agents.FunctionAgent(tools=[search], llm=model_at(server), **own)


def ask(agent: Any, question: str = QUESTION, **own: Any) -> Any:
    async def run() -> Any:
        return await agent.run(question, **own)

    return asyncio.run(run())


def records(folder: Path) -> list[QuestionRecord]:
    return list(suffice.read_traces(folder).records())


def only(folder: Path) -> QuestionRecord:
    (record,) = records(folder)
    return record


@pytest.mark.parametrize("streaming", [True, False])
def test_a_shadow_record_replays_and_live_stops_there(tmp_path: Path, streaming: bool) -> None:
    with agent_server(in_order(*ANSWERS), searches=5) as server:
        with suffice.Watch(NEWS, record=tmp_path) as watch:
            agent = watched(agent_at(server, streaming=streaming), watch, probe=True)
            plain = ask(agent)
            said = plain["suffice"]
            watch.label(said["question_id"], gold_answers=["Skien"])
        assert (str(plain), said["stopped_by"], said["would_stop"]) == ("Bergen", "end", 4)
        record = only(tmp_path)
        assert [held.answer for held in record.rounds] == list(ANSWERS[1:])
        assert [held.probed for held in record.rounds] == [True] * 4 + [False]
        assert [[one.id for one in held.passages or ()] for held in record.rounds] == [
            ["n0", "n1"], ["n2"], ["n3"], [], [],
        ]  # fmt: skip
        first = record.rounds[0]
        assert (first.query, first.action) == (f"{QUESTION} (1)", "search")
        assert (first.usage.llm_calls, first.usage.answer_calls) == (2, 1)
        assert first.usage.prompt_tokens is not None
        assert first.usage.answer_prompt_tokens is not None
        assert [token.token for token in record.rounds[-1].tokens or ()] == ["Bergen"]
        assert (record.question.id, record.question.text) == (said["question_id"], QUESTION)
        settings = suffice.ComparisonSettings(rules=("new_passages < 0.5", "answer_stable"))
        compared = suffice.compare(suffice.read_traces(tmp_path), settings).result.policies
        rounds = {policy.name: (policy.mean_rounds, policy.em) for policy in compared}
        assert (rounds["new_passages < 0.5"], rounds["answer_stable"]) == ((4, 1.0), (3, 1.0))

        server.bodies.clear()
        live = watched(
            agent_at(server, streaming=streaming), suffice.Watch(NEWS, mode="live", max_rounds=9)
        )
        result = ask(live)
    assert (str(result), result["suffice"]["stopped_by"]) == ("Skien", "policy")
    assert "new_passages < 0.5 holds at round 4" in result["suffice"]["reason"]
    assert server.with_tools == [True] * 4 + [False]


def test_a_probed_answer_is_returned_without_a_further_call(tmp_path: Path) -> None:
    with agent_server(in_order(*ANSWERS), searches=5) as server:
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
    assert str(result) == "Skien"
    assert server.with_tools == [True, False] * 3
    assert only(tmp_path).question.id == run_id
    assert [event.delta for event in streamed if isinstance(event, agents.AgentStream)][-1] == (
        "Skien"
    )
    roles = [message.role.value for message in messages]
    assert roles == ["user", *["assistant", "tool"] * 3, "assistant"]
    assert messages[-1].content == "Skien"


def test_many_runs_of_one_agent_do_not_mix(tmp_path: Path) -> None:
    with (
        agent_server(newest_passage, searches=2, at_once=2) as server,
        suffice.Watch(NEWS, record=tmp_path) as watch,
    ):
        agent = watched(agent_at(server), watch)

        async def run() -> Any:
            return await asyncio.gather(*(agent.run(f"Where {n}?") for n in range(6)))

        results = asyncio.run(run())
    kept = {record.question.id: record for record in records(tmp_path)}
    assert len(kept) == 6
    for number, result in enumerate(results):
        record = kept[result["suffice"]["question_id"]]
        assert (record.question.text, len(record.rounds)) == (f"Where {number}?", 2)
        queries = [f"Where {number}? (1)", f"Where {number}? (2)"]
        assert (record.rounds[0].query or "").split("\n") == queries


def test_agents_that_hand_over_are_one_loop(tmp_path: Path) -> None:
    """The first message hands over, which neither ends the question nor is a round of it."""
    with agent_server(in_order(*ANSWERS), searches=5, tool="search") as server:
        handing = agents.FunctionAgent(
            name="asker", description="asks", llm=model_at(server), can_handoff_to=["searcher"]
        )
        searching = agents.FunctionAgent(
            name="searcher", description="searches", tools=[search], llm=model_at(server),
            can_handoff_to=[],
        )  # fmt: skip
        first = server._message

        def message(body: Any) -> Any:
            reply, logprobs = first(body)
            for call in reply.get("tool_calls", ()):
                if call["function"]["name"] == "handoff":
                    call["function"]["arguments"] = '{"to_agent": "searcher", "reason": "x"}'
            return reply, logprobs

        server._message = message  # type: ignore[method-assign]
        flow = agents.AgentWorkflow(agents=[handing, searching], root_agent="asker")
        with suffice.Watch(NEWS, mode="live", record=tmp_path, max_rounds=9) as watch:
            result = ask(watched(flow, watch))
    assert result["suffice"]["stopped_by"] == "policy"
    assert result.current_agent_name == "searcher"
    record = only(tmp_path)
    assert {held.action for held in record.rounds} == {"search"}
    assert record.rounds[-1].answer == str(result)


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
        assert ask_flow(watched(Flow(), watch)) == "Skien"
    record = only(tmp_path)
    ended = (record.stopped_by, len(record.rounds), record.rounds[-1].answer)
    assert ended == ("policy", 4, "Skien")
    with suffice.Watch(record=tmp_path / "failed") as watch, pytest.raises(ConnectionError):
        ask_flow(watched(Flow(), watch))
    assert only(tmp_path / "failed").stopped_by == "error"
    with pytest.raises(UsageError, match="no watched run is under way"):
        watched_loop(QUESTION)


def ask_flow(flow: Any) -> Any:
    async def run() -> Any:
        return await flow.run()

    return asyncio.run(run())


def test_what_cannot_be_watched_is_said() -> None:
    watch = suffice.Watch(NEWS)
    with pytest.raises(UsageError, match="wanted a LlamaIndex agent or workflow, found str"):
        watched("agent", watch)
    with pytest.raises(UsageError, match="is watched already"):
        watched(watched(Flow(), watch), watch)


@pytest.mark.filterwarnings("default")
def test_the_embedded_model_writes_the_answers(tmp_path: Path) -> None:
    """Tool calls are scripted, answers are the model's own."""
    pytest.importorskip("xllamacpp")
    from suffice.llm.embedded import EmbeddedModel

    with (
        EmbeddedModel.load() as model,
        agent_server(writer_of(model), searches=5) as server,
        suffice.Watch(NEWS, mode="live", record=tmp_path, max_rounds=9) as watch,
    ):
        result = ask(watched(agent_at(server), watch))
    assert "Skien" in str(result)
    record = only(tmp_path)
    assert (record.stopped_by, len(record.rounds)) == ("policy", 4)
    assert record.rounds[-1].tokens


def test_the_example_runs(tmp_path: Path) -> None:
    main = runpy.run_path(str(EXAMPLE))["main"]
    with agent_server(newest_passage, searches=4) as server:
        result = asyncio.run(main(server.url, "scripted", str(tmp_path)))
    assert "founded in 1904 by Ada Marsh" in str(result)
    assert result["suffice"]["stopped_by"] in {"policy", "end"}  # "end": the run explored
    assert only(tmp_path).question.text == "Who founded the observatory?"


def test_the_snippet_of_the_docs_runs(
    run_snippet: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    with agent_server(newest_passage, searches=4) as server:
        names = run_snippet(
            "LlamaIndex agents",
            **{"http://localhost:8000/v1": server.url, '"traces/"': repr(str(tmp_path))},
        )
    assert names["result"]["suffice"]["stopped_by"] == "policy"
    assert only(tmp_path).rounds[-1].answer == str(names["result"])


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
            assert (str(result), result["suffice"]["stopped_by"]) == ("Skien", "policy")
            assert only(tmp_path / str(probe)).rounds[-1].answer == "Skien"
            shown = ["Tool Name: search" in str(body["messages"]) for body in server.bodies]
            assert shown == calls
            server.bodies.clear()
