"""Haystack's agents as loops that are watched, over HTTP."""

from __future__ import annotations

import asyncio
import gc
import os
import runpy
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
from suffice.integrations.haystack import SufficeHook
from suffice.policies.file import save_policy
from suffice.trace.rounds.records import QuestionRecord

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
haystack = pytest.importorskip(
    "haystack", reason="runs in its own environment: make test-integrations"
)
agents = pytest.importorskip("haystack.components.agents")
generators = pytest.importorskip("haystack.components.generators.chat")
dataclasses = pytest.importorskip("haystack.dataclasses")
tools = pytest.importorskip("haystack.tools")
utils = pytest.importorskip("haystack.utils")

NEWS = suffice.RulePolicy(rule="new_passages < 0.5")
STABLE = suffice.RulePolicy(rule="answer_stable")
QUESTION = "Where was Ibsen born?"
ANSWERS = ("unknown", "Oslo", "Skien", "Skien", "Skien", "Bergen")
TEXTS = ("Ibsen wrote plays.", "Ibsen was born in Skien.", "Oslo is big.", "Skien is old.")
SCHEMA: dict[str, Any] = {"documents": {"type": list[haystack.Document]}}  # type: ignore[name-defined]
EXAMPLE = Path(__file__).parents[2] / "examples" / "agents" / "haystack_agent.py"


@pytest.fixture
def server() -> Iterator[AgentServer]:
    with agent_server(in_order(*ANSWERS), searches=5) as made:
        yield made


def found(query: str) -> list[Any]:
    number = min(int(query.rpartition("(")[2][:-1]), 3)
    return [haystack.Document(id=f"n{at}", content=TEXTS[at]) for at in (number - 1, number)]


@tools.tool  # type: ignore[untyped-decorator]
def search(query: str) -> list[Any]:
    """Search the notes."""
    return found(query)


def shown(documents: list[Any]) -> str:
    return "\n".join(document.content for document in documents)


@tools.tool(  # type: ignore[untyped-decorator]
    outputs_to_state={"documents": {"source": "documents"}},
    outputs_to_string={"source": "documents", "handler": shown},
)
def stored(query: str) -> dict[str, Any]:
    """Search the notes."""
    return {"documents": found(query)}


def generator_at(server: AgentServer) -> Any:
    return generators.OpenAIChatGenerator(
        api_key=utils.Secret.from_token("none"),
        model="scripted",
        api_base_url=server.url,
        generation_kwargs={"logprobs": True},
        max_retries=0,
    )


def agent_at(server: AgentServer, watch: Any, *, watched: Any = None, **own: Any) -> Any:
    generator = generator_at(server)
    hook = SufficeHook(watch, generator, **(watched or {}))
    settings = {"tools": [search], "hooks": hook.points, **own}
    return agents.Agent(chat_generator=generator, **settings)


def ask(agent: Any, question: str = QUESTION, **own: Any) -> Any:
    return agent.run(messages=[dataclasses.ChatMessage.from_user(question)], **own)


def aask(agent: Any, question: str = QUESTION, **own: Any) -> Any:
    messages = [dataclasses.ChatMessage.from_user(question)]
    return asyncio.run(agent.run_async(messages=messages, **own))


def records(folder: Path) -> list[QuestionRecord]:
    return list(suffice.read_traces(folder).records())


def only(folder: Path) -> QuestionRecord:
    (record,) = records(folder)
    return record


@pytest.mark.parametrize("run", [ask, aask])
def test_a_shadow_record_replays_and_live_stops_there(
    server: AgentServer, tmp_path: Path, run: Any
) -> None:
    with suffice.Watch(NEWS, record=tmp_path) as watch:
        result = run(agent_at(server, watch, watched={"probe": True}))
        said = result["last_message"].meta["suffice"]
        watch.label(said["question_id"], gold_answers=["Skien"])
    assert (result["last_message"].text, result["exit_reason"]) == ("Bergen", "text")
    assert (said["stopped_by"], said["would_stop"]) == ("end", 4)
    record = only(tmp_path)
    assert record.question.text == QUESTION
    assert [held.answer for held in record.rounds] == list(ANSWERS[1:])
    assert [held.probed for held in record.rounds] == [True] * 4 + [False]
    assert [[one.id for one in held.passages or ()] for held in record.rounds] == [
        ["n0", "n1"], ["n2"], ["n3"], [], [],
    ]  # fmt: skip
    first = record.rounds[0]
    assert (first.query, first.action) == (f"{QUESTION} (1)", "search")
    assert (first.usage.llm_calls, first.usage.answer_calls) == (2, 1)
    assert [token.token for token in record.rounds[-1].tokens or ()] == ["Bergen"]
    settings = suffice.ComparisonSettings(rules=("new_passages < 0.5", "answer_stable"))
    compared = suffice.compare(suffice.read_traces(tmp_path), settings).result.policies
    rounds = {policy.name: (policy.mean_rounds, policy.em) for policy in compared}
    assert (rounds["new_passages < 0.5"], rounds["answer_stable"]) == ((4, 1.0), (3, 1.0))

    server.bodies.clear()
    live = run(agent_at(server, suffice.Watch(NEWS, mode="live")))
    assert (live["last_message"].text, live["exit_reason"]) == ("Skien", "suffice_policy")
    assert "new_passages < 0.5 holds at round 4" in live["last_message"].meta["suffice"]["reason"]
    assert server.with_tools == [True] * 4 + [False]


@pytest.mark.parametrize("run", [ask, aask])
def test_a_probed_answer_is_returned_without_a_further_call(server: AgentServer, run: Any) -> None:
    watch = suffice.Watch(STABLE, mode="live")
    result = run(agent_at(server, watch, watched={"probe": True}))
    assert (result["last_message"].text, result["exit_reason"]) == ("Skien", "suffice_policy")
    assert server.with_tools == [True, False] * 3


def test_streams_end_with_the_answer(server: AgentServer) -> None:
    shown: list[str] = []

    def callback(chunk: Any) -> None:
        shown.append(chunk.content)

    agent = agent_at(server, suffice.Watch(NEWS, mode="live"))
    result = ask(agent, streaming_callback=callback, hook_context={"streaming_callback": callback})
    assert result["last_message"].text == "".join(shown) == "Skien"


def test_documents_are_those_that_a_round_put_into_the_state(
    server: AgentServer, tmp_path: Path
) -> None:
    with suffice.Watch(NEWS, mode="live", record=tmp_path) as watch:
        result = ask(agent_at(server, watch, tools=[stored], state_schema=SCHEMA))
    assert (result["last_message"].text, len(result["documents"])) == ("Skien", 8)
    assert [[one.id for one in held.passages or ()] for held in only(tmp_path).rounds] == [
        ["n0", "n1"], ["n2"], ["n3"], [],
    ]  # fmt: skip


def test_many_runs_at_once_do_not_mix(tmp_path: Path) -> None:
    questions = [f"Where {number}?" for number in range(6)]
    with (
        agent_server(newest_passage, searches=2, at_once=2) as server,
        suffice.Watch(NEWS, record=tmp_path) as watch,
        ThreadPoolExecutor(3) as pool,
    ):
        agent = agent_at(server, watch)
        results = list(pool.map(lambda question: ask(agent, question), questions))
    kept = {record.question.id: record for record in records(tmp_path)}
    assert len(kept) == 6
    for question, result in zip(questions, results, strict=True):
        record = kept[result["last_message"].meta["suffice"]["question_id"]]
        assert (record.question.text, len(record.rounds)) == (question, 2)
        assert (record.rounds[1].query or "").split("\n") == [f"{question} (3)", f"{question} (4)"]


def test_runs_that_fail_or_meet_their_limit_keep_their_rounds(
    server: AgentServer, tmp_path: Path
) -> None:
    with suffice.Watch(NEWS, record=tmp_path) as watch:
        limited = ask(agent_at(server, watch, max_agent_steps=2))
        assert limited["last_message"].meta["suffice"]["stopped_by"] == "error"
        lost = agent_at(server, watch)
        server.answer = lambda body: (
            (500, {}, {}) if len(body["messages"]) > 3 else server._answer(body)
        )
        with pytest.raises(Exception, match="500"):
            ask(lost)
        server.answer = server._answer
        gc.collect()
        ask(agent_at(server, watch))
    ends = [(record.stopped_by, len(record.rounds)) for record in records(tmp_path)]
    assert sorted(ends) == [("end", 5), ("error", 2), ("error", 2)]


def test_answers_without_a_search_and_tools_that_end_the_run(
    server: AgentServer, tmp_path: Path
) -> None:
    with suffice.Watch(NEWS, record=tmp_path) as watch:
        plain = ask(agent_at(server, watch, watched={"tools": ["other"]}))
        ended = ask(agent_at(server, watch, exit_conditions=["search"]))
    assert plain["last_message"].meta["suffice"]["rounds"] == 1
    assert ended["exit_reason"] == "search"
    by_id = {record.question.id: record for record in records(tmp_path)}
    said = ended["last_message"].meta["suffice"]
    assert said["stopped_by"] == "end"
    assert "Ibsen was born in Skien" in str(by_id[said["question_id"]].rounds[0].answer)


def test_a_written_agent_is_read_back_and_watched(
    server: AgentServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    security = pytest.importorskip("haystack.core.serialization_security")
    for module in ("suffice.*", "tests.*"):
        security.allow_deserialization_module(module)
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    save_policy(NEWS, tmp_path / "policy.json")
    generator = generators.OpenAIChatGenerator(model="scripted", api_base_url=server.url)
    arguments = {
        "policy": str(tmp_path / "policy.json"),
        "record": str(tmp_path / "traces"),
        "mode": "live",
    }
    hook = SufficeHook(arguments, generator, tools=["search"])
    agent = agents.Agent(chat_generator=generator, tools=[search], hooks=hook.points)
    again = agents.Agent.from_dict(agent.to_dict())
    assert ask(again)["exit_reason"] == "suffice_policy"
    hook.watch.close()  # the hooks that were read share it
    assert only(tmp_path / "traces").rounds[-1].answer == "Skien"
    with pytest.raises(UsageError, match=r"the watch is given as its arguments"):
        SufficeHook(suffice.Watch(NEWS), None).to_dict()


@pytest.mark.filterwarnings("default")
def test_the_embedded_model_writes_the_answers(tmp_path: Path) -> None:
    """Tool calls are scripted, answers are the model's own."""
    pytest.importorskip("xllamacpp")
    from suffice.llm.embedded import EmbeddedModel

    with (
        EmbeddedModel.load() as model,
        agent_server(writer_of(model), searches=5) as server,
        suffice.Watch(NEWS, mode="live", record=tmp_path) as watch,
    ):
        result = ask(agent_at(server, watch, tools=[stored], state_schema=SCHEMA))
    assert "Skien" in result["last_message"].text
    record = only(tmp_path)
    assert (record.stopped_by, len(record.rounds)) == ("policy", 4)
    assert record.rounds[-1].tokens


def test_the_example_runs(tmp_path: Path) -> None:
    main = runpy.run_path(str(EXAMPLE))["main"]
    with agent_server(newest_passage, searches=4) as server:
        result = main(server.url, "scripted", str(tmp_path))
    assert "founded in 1904 by Ada Marsh" in result["last_message"].text
    assert result["exit_reason"] in {"suffice_policy", "text"}  # "text": the run explored


def test_the_snippet_of_the_docs_runs(
    run_snippet: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    with agent_server(newest_passage, searches=4) as server:
        names = run_snippet(
            "Haystack agents",
            **{"http://localhost:8000/v1": server.url, '"traces/"': repr(str(tmp_path))},
        )
    assert names["result"]["exit_reason"] == "suffice_policy"
    assert only(tmp_path).rounds[-1].answer == names["result"]["last_message"].text
