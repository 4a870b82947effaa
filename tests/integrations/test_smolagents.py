"""Agents of smolagents, watched: recorded in shadow, replayed, stopped with their answer, streamed."""

from __future__ import annotations

import asyncio
import runpy
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

smolagents = pytest.importorskip(
    "smolagents", reason="runs in its own environment: make test-integrations"
)

from examples.agents.smolagents_agent import watched  # noqa: E402
from tests.integrations.agent_server import (  # noqa: E402
    AgentServer,
    Seen,
    Writer,
    agent_server,
    in_order,
    writer_of,
)

import suffice  # noqa: E402
from suffice.errors import SufficeWarning, UsageError  # noqa: E402
from suffice.trace.rounds.records import QuestionRecord  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "agents" / "smolagents_agent.py"
ANSWERS = ("Unknown", "Bergen", "Oslo", "Oslo", "Oslo", "Oslo")
QUESTION = "Where was it signed?"
NEWS = suffice.RulePolicy(rule="new_passages < 0.5")
STABLE = suffice.RulePolicy(rule="answer_stable")


@smolagents.tool  # type: ignore[untyped-decorator]
def search(query: str) -> list:  # type: ignore[type-arg]
    """Two searches bring something new, further ones what is known.

    Args:
        query: What to look for.
    """
    number = min(int(query.rpartition("(")[2].rstrip(")")), 2)
    return [{"id": f"d{number}", "text": f"Passage {number}."}]


@smolagents.tool  # type: ignore[untyped-decorator]
def other(query: str) -> str:
    """A text, another one each time.

    Args:
        query: What to look for.
    """
    return f"Passage of {query}"


@smolagents.tool  # type: ignore[untyped-decorator]
def broken(query: str) -> str:
    """Never works.

    Args:
        query: What to look for.
    """
    raise OSError("the index is closed")


@smolagents.tool  # type: ignore[untyped-decorator]
def born(query: str) -> str:
    """Where Ibsen was born, at first.

    Args:
        query: What to look for.
    """
    return "Henrik Ibsen was born in Skien in 1828." if "(1)" in query else "Skien is a town."


@pytest.fixture
def server() -> Iterator[AgentServer]:
    with agent_server(in_order(*ANSWERS), searches=4, final_tool="final_answer") as running:
        yield running


def agent(server: AgentServer, tool: Any = search, **settings: Any) -> Any:
    model = smolagents.OpenAIServerModel(
        "scripted", api_base=server.url, api_key="none", logprobs=True, top_logprobs=2,
        client_kwargs={"max_retries": 0},
    )  # fmt: skip
    return smolagents.ToolCallingAgent(tools=[tool], model=model, verbosity_level=0, **settings)


def records(folder: Path) -> dict[str, QuestionRecord]:
    return {record.question.text: record for record in suffice.read_traces(folder).records()}


def test_a_run_recorded_in_shadow_is_replayed(server: AgentServer, tmp_path: Path) -> None:
    plain = agent(server).run(QUESTION)
    with suffice.Watch(NEWS, record=tmp_path) as watch:
        asker = watched(agent(server), watch, probe=True)
        assert asker.run(QUESTION) == plain == "Oslo"
        watch.label(asker.suffice["question_id"], gold_answers=["Oslo"])
    said = asker.suffice
    assert (said["rounds"], said["would_stop"], said["stopped_by"]) == (4, 3, "end")
    record = records(tmp_path)[QUESTION]
    assert [held.answer for held in record.rounds] == ["Bergen", "Oslo", "Oslo", "Oslo"]
    assert [len(held.passages or ()) for held in record.rounds] == [1, 1, 0, 0]
    costs = [(held.usage.llm_calls, held.usage.answer_calls) for held in record.rounds]
    assert costs[:3] == [(2, 1)] * 3
    assert all(held.usage.prompt_tokens for held in record.rounds)
    assert record.rounds[0].tokens is not None
    settings = suffice.ComparisonSettings(rules=("new_passages < 0.5", "answer_stable"))
    replayed = suffice.compare(suffice.read_traces(tmp_path), settings).result.policies
    assert {policy.name: policy.mean_rounds for policy in replayed}["new_passages < 0.5"] == 3


def test_live_no_further_step_is_taken(server: AgentServer, tmp_path: Path) -> None:
    with suffice.Watch(NEWS, record=tmp_path, mode="live") as watch:
        asker = watched(agent(server), watch)
        result = asker.run(QUESTION, return_full_result=True)
    assert (result.output, result.state, asker.suffice["stopped_by"]) == (
        "Oslo",
        "success",
        "policy",
    )
    assert "new_passages" in asker.suffice["reason"]
    assert server.with_tools == [True, True, True, False]
    assert result.token_usage.total_tokens > 0
    assert [held.answer for held in records(tmp_path)[QUESTION].rounds] == [None, None, "Oslo"]


def test_live_by_answers_the_last_draft_is_the_answer(server: AgentServer) -> None:
    asker = watched(agent(server, other), suffice.Watch(STABLE, mode="live"), probe=True)
    assert asker.run(QUESTION) == "Oslo"
    assert asker.suffice["stopped_by"] == "policy"
    assert server.with_tools == [True, False, True, False, True, False]


def test_streamed_and_left(server: AgentServer, tmp_path: Path) -> None:
    with suffice.Watch(NEWS, record=tmp_path, mode="live") as watch:
        asker = watched(agent(server, stream_outputs=True), watch)
        *steps, final = asker.run(QUESTION, stream=True)
        assert (final.output, asker.suffice["stopped_by"]) == ("Oslo", "policy")
        assert sum(isinstance(step, smolagents.ActionStep) for step in steps) == 4
        stream = asker.run("Left?", stream=True)
        next(step for step in stream if isinstance(step, smolagents.ActionStep))
        stream.close()
    assert asker.suffice["stopped_by"] == records(tmp_path)["Left?"].stopped_by == "user"


def test_many_at_once_do_not_mix(server: AgentServer, tmp_path: Path) -> None:
    async def ask_all(watch: suffice.Watch) -> None:
        askers = [watched(agent(server), watch) for _ in range(6)]
        await asyncio.gather(
            *(asyncio.to_thread(asker.run, f"Q{n}?") for n, asker in enumerate(askers))
        )

    with suffice.Watch(NEWS, record=tmp_path) as watch:
        asyncio.run(ask_all(watch))
    kept = records(tmp_path)
    assert set(kept) == {f"Q{n}?" for n in range(6)}
    for question, record in kept.items():
        assert len(record.rounds) == 4
        assert all(question in (held.query or "") for held in record.rounds)


def test_tools_that_fail_and_runs_that_fail(server: AgentServer, tmp_path: Path) -> None:
    @smolagents.tool  # type: ignore[untyped-decorator]
    def closing(query: str) -> str:
        """Closes the model's server in the second call.

        Args:
            query: What to look for.
        """
        if "(2)" in query:
            server.answer = lambda body: (500, {}, {"error": {"message": "down"}})
        return query

    with suffice.Watch(record=tmp_path) as watch:
        watched(agent(server, broken, max_steps=2), watch).run("Broken?")
        asker = watched(agent(server, closing), watch, probe=True)
        with pytest.warns(SufficeWarning, match=r"failed after round 2|the probe failed"):
            assert asker.run(QUESTION) == "Bergen"
        with pytest.raises(smolagents.AgentGenerationError):
            watched(agent(server), watch).run("Down at once?")
    kept = records(tmp_path)
    assert [held.passages for held in kept["Broken?"].rounds] == [(), ()]
    assert (asker.suffice["stopped_by"], kept[QUESTION].stopped_by) == ("error", "error")


def test_an_agent_that_writes_code(tmp_path: Path) -> None:
    code = "Thought: look.\n<code>\nprint(search(query='boat (1)'))\n</code>"
    with (
        agent_server(lambda _: code, searches=0) as server,
        suffice.Watch(NEWS, record=tmp_path, mode="live", max_rounds=2) as watch,
    ):
        writer = smolagents.CodeAgent(tools=[search], model=agent(server).model, verbosity_level=0)
        asker = watched(writer, watch)
        asker.run(QUESTION)
    first, *_ = records(tmp_path)[QUESTION].rounds
    assert asker.suffice["stopped_by"] in {"policy", "budget"}
    assert first.action == "python_interpreter"
    assert first.passages is not None
    assert "Passage 1." in (first.passages[0].text or "")


def test_what_is_no_agent_is_refused() -> None:
    with pytest.raises(UsageError, match="wanted an agent of smolagents, found str"):
        watched("agent", suffice.Watch())


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
    names = run_snippet("smolagents", **replaced)
    assert names["agent"].suffice["stopped_by"] == "policy"
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), server.url, "scripted"])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "policy" in capsys.readouterr().out


def unwrapped(write: Writer) -> Writer:
    """Without what smolagents puts around questions and passages."""

    def answer(seen: Seen) -> Any:
        passages = (
            text.removeprefix("Observation:\n").partition("\n")[0] for text in seen.passages
        )
        question = seen.question.removeprefix("New task:\n")
        return write(replace(seen, question=question, passages=tuple(passages)))

    return answer


def test_with_answers_of_the_embedded_model(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings

    with (
        EmbeddedModel.load(settings=EmbeddedSettings(replicas=1, threads=1)) as model,
        agent_server(unwrapped(writer_of(model)), searches=4, final_tool="final_answer") as server,
    ):
        with suffice.Watch(STABLE, record=tmp_path) as watch:
            watched(agent(server, born), watch, probe=True).run("Where was Ibsen born?")
        live = watched(agent(server, born), suffice.Watch(NEWS, mode="live"))
        answer = live.run("Where was Ibsen born?")
    (record,) = records(tmp_path).values()
    assert all(held.answer for held in record.rounds)
    assert (live.suffice["rounds"], live.suffice["stopped_by"]) == (3, "policy")
    assert answer.strip()
