"""Agents of Google's ADK, watched: recorded in shadow, replayed, stopped softly, streamed."""

from __future__ import annotations

import asyncio
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk", reason="runs in its own environment: make test-integrations")

from examples.agents import google_adk_agent as adapter
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.apps import App
from google.adk.models.lite_llm import LiteLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types
from tests.integrations.agent_server import (
    AgentServer,
    agent_server,
    in_order,
    writer_of,
)

import suffice
from suffice.trace.rounds.records import QuestionRecord, Token, TopToken

EXAMPLE = Path(__file__).parents[2] / "examples" / "agents" / "google_adk_agent.py"
ANSWERS = ("Unknown", "Bergen", "Oslo", "Oslo", "Oslo", "Oslo")
QUESTION = "Where was it signed?"
NEWS = suffice.RulePolicy(rule="new_passages < 0.5")
STABLE = suffice.RulePolicy(rule="answer_stable")


def search(query: str) -> list[dict[str, str]]:
    """Two searches bring something new, further ones what is known."""
    number = int(query.rpartition("(")[2].rstrip(")"))
    return [{"id": f"d{min(number, 2)}", "text": f"Passage {min(number, 2)}."}]


def other(query: str) -> str:
    """A text, another one each time."""
    return f"Passage of {query}"


@pytest.fixture
def server() -> Iterator[AgentServer]:
    with agent_server(in_order(*ANSWERS), searches=4) as running:
        yield running


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


def records(folder: Path) -> dict[str, QuestionRecord]:
    return {record.question.text: record for record in suffice.read_traces(folder).records()}


def test_an_invocation_recorded_in_shadow_is_replayed(server: AgentServer, tmp_path: Path) -> None:
    with suffice.Watch(NEWS, record=tmp_path) as watch:
        events = asyncio.run(ask(runner(server, adapter.SufficePlugin(watch, probe=True))))
        watch.label(events[0].invocation_id, gold_answers=["Oslo"])
    answer, said = answer_of(events)
    assert (answer, said["rounds"], said["would_stop"], said["stopped_by"]) == ("Oslo", 4, 3, "end")
    record = records(tmp_path)[QUESTION]
    assert record.question.id == said["question_id"] == events[0].invocation_id
    assert [held.answer for held in record.rounds] == ["Bergen", "Oslo", "Oslo", "Oslo"]
    assert [held.query for held in record.rounds[:2]] == [f"{QUESTION} (1)", f"{QUESTION} (2)"]
    assert [len(held.passages or ()) for held in record.rounds] == [1, 1, 0, 0]
    costs = [(held.usage.llm_calls, held.usage.answer_calls) for held in record.rounds]
    assert costs == [(2, 1)] * 4
    assert all(held.usage.prompt_tokens for held in record.rounds)
    settings = suffice.ComparisonSettings(rules=("new_passages < 0.5", "answer_stable"))
    replayed = suffice.compare(suffice.read_traces(tmp_path), settings).result.policies
    assert {policy.name: policy.mean_rounds for policy in replayed}["new_passages < 0.5"] == 3


@pytest.mark.parametrize("streaming", [StreamingMode.NONE, StreamingMode.SSE])
def test_live_the_next_call_has_no_tools(
    server: AgentServer, tmp_path: Path, streaming: StreamingMode
) -> None:
    with suffice.Watch(NEWS, record=tmp_path, mode="live") as watch:
        events = asyncio.run(
            ask(runner(server, adapter.SufficePlugin(watch)), streaming_mode=streaming)
        )
    answer, said = answer_of(events)
    assert (answer, said["stopped_by"]) == ("Oslo", "policy")
    assert "new_passages" in said["reason"]
    assert server.with_tools == [True, True, True, False]
    assert [held.answer for held in records(tmp_path)[QUESTION].rounds] == [None, None, "Oslo"]


def test_live_by_answers_the_last_draft_is_the_answer(server: AgentServer) -> None:
    plugin = adapter.SufficePlugin(suffice.Watch(STABLE, mode="live"), probe=True)
    answer, said = answer_of(asyncio.run(ask(runner(server, plugin, other))))
    assert (answer, said["stopped_by"]) == ("Oslo", "policy")
    assert server.with_tools == [True, False, True, False, True, False]


def test_many_at_once_do_not_mix(server: AgentServer, tmp_path: Path) -> None:
    async def ask_all(running: InMemoryRunner) -> None:
        await asyncio.gather(*(ask(running, f"Q{n}?") for n in range(8)))

    with suffice.Watch(NEWS, record=tmp_path) as watch:
        asyncio.run(ask_all(runner(server, adapter.SufficePlugin(watch))))
    kept = records(tmp_path)
    assert set(kept) == {f"Q{n}?" for n in range(8)}
    for question, record in kept.items():
        assert [held.query for held in record.rounds] == [f"{question} ({n})" for n in range(1, 5)]


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
    reply = adapter._reply(response)
    assert reply.text == "Oslo"
    assert reply.logprobs == (
        Token("Oslo", -0.2, (TopToken("Oslo", -0.2), TopToken("Bergen", -1.8))),
    )
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens) == (7, 4)


def test_the_page_and_the_example(
    server: AgentServer,
    tmp_path: Path,
    run_snippet: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    suffice.save_policy(NEWS, tmp_path / "policy.json")
    replaced = {"http://localhost:8080/v1": server.url, "my-model": "scripted", "0.05": "0.0"}
    for name in ("policy.json", "traces/"):
        replaced[name] = str(tmp_path / name)
    names = run_snippet("Google ADK", **replaced)
    assert names["events"][-1].custom_metadata["suffice"]["stopped_by"] == "policy"
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), server.url, "scripted"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "policy" in capsys.readouterr().out


def test_with_answers_of_the_embedded_model(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings

    def passage(query: str) -> str:
        """Searches."""
        return "Henrik Ibsen was born in Skien in 1828." if "(1)" in query else "Skien is a town."

    with (
        EmbeddedModel.load(settings=EmbeddedSettings(replicas=1, threads=1)) as model,
        agent_server(writer_of(model), searches=4) as server,
    ):
        with suffice.Watch(STABLE, record=tmp_path) as watch:
            plugin = adapter.SufficePlugin(watch, probe=True)
            asyncio.run(ask(runner(server, plugin, passage), "Where was Ibsen born?"))
        live = adapter.SufficePlugin(suffice.Watch(NEWS, mode="live"))
        answer, said = answer_of(
            asyncio.run(ask(runner(server, live, passage), "Where was Ibsen born?"))
        )
    (record,) = records(tmp_path).values()
    assert all(held.answer for held in record.rounds)
    assert (said["rounds"], said["stopped_by"]) == (3, "policy")
    assert answer.strip()
