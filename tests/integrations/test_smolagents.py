"""Agents of smolagents, watched."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

smolagents = pytest.importorskip(
    "smolagents", reason="runs in its own environment: make test-integrations"
)

from examples.agents.smolagents_agent import watched  # noqa: E402
from tests.integrations.agent_server import AgentServer, Seen, Writer, agent_server, in_order  # noqa: E402
from tests.integrations.watching import (  # noqa: E402
    ANSWERS,
    NEWS,
    QUESTION,
    Asked,
    Calling,
    Search,
    found,
    records,
)

import suffice  # noqa: E402
from suffice.errors import SufficeWarning  # noqa: E402


@smolagents.tool  # type: ignore[untyped-decorator]
def search(query: str) -> list:  # type: ignore[type-arg]
    """Searches the notes.

    Args:
        query: What to look for.
    """
    return found(query)


@smolagents.tool  # type: ignore[untyped-decorator]
def broken(query: str) -> str:
    """Never works.

    Args:
        query: What to look for.
    """
    raise OSError("the index is closed")


def agent(server: AgentServer, tool: Any = search, **settings: Any) -> Any:
    model = smolagents.OpenAIServerModel(
        "scripted", api_base=server.url, api_key="none", logprobs=True, top_logprobs=2,
        client_kwargs={"max_retries": 0},
    )  # fmt: skip
    return smolagents.ToolCallingAgent(tools=[tool], model=model, verbosity_level=0, **settings)


def unwrapped(write: Writer) -> Writer:
    """Without what smolagents puts around questions and passages."""

    def answer(seen: Seen) -> Any:
        passages = (
            text.removeprefix("Observation:\n").partition("\n")[0] for text in seen.passages
        )
        question = seen.question.removeprefix("New task:\n")
        return write(replace(seen, question=question, passages=tuple(passages)))

    return answer


class TestSmolagents(Calling):
    heading = "smolagents"
    example = ("smolagents_agent.py", "URL", "scripted")
    keeps_tools = False
    refused_ids, needs_usage = ("", "call_0"), True

    def served(self, write: Writer, searches: int = 5) -> AbstractContextManager[AgentServer]:
        return agent_server(unwrapped(write), searches=searches, final_tool="final_answer")

    def agent(
        self, server: AgentServer, watch: Any, *, search: Search = found, probe: bool = False
    ) -> Any:
        """Made for every run, since an agent keeps its steps."""

        def tool(query: str) -> list:  # type: ignore[type-arg]
            """Searches the notes.

            Args:
                query: What to look for.
            """
            return search(query)

        tool.__name__ = "search"
        kept = smolagents.tool(tool)
        return lambda: watched(agent(server, kept), watch, probe=probe)

    def run(self, agent: Any, question: str = QUESTION) -> Asked:
        asker = agent()
        return Asked(asker.run(question), asker.suffice)

    def streamed(self, agent: Any, question: str = QUESTION) -> Asked:
        asker = agent()
        *_, final = asker.run(question, stream=True)
        return Asked(final.output, asker.suffice)

    def said_by(self, names: Any) -> Any:
        return names["agent"].suffice


@pytest.fixture
def server() -> Iterator[AgentServer]:
    with TestSmolagents().served(in_order(*ANSWERS)) as running:
        yield running


def test_streamed_and_left(server: AgentServer, tmp_path: Path) -> None:
    with suffice.Watch(NEWS, record=tmp_path, mode="live") as watch:
        asker = watched(agent(server, stream_outputs=True), watch)
        *steps, final = asker.run(QUESTION, stream=True)
        assert (final.output, asker.suffice["stopped_by"]) == ("Oslo", "policy")
        assert sum(isinstance(step, smolagents.ActionStep) for step in steps) == 5
        stream = asker.run("Left?", stream=True)
        next(step for step in stream if isinstance(step, smolagents.ActionStep))
        stream.close()
    assert asker.suffice["stopped_by"] == records(tmp_path)["Left?"].stopped_by == "user"


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


def test_an_agent_that_only_writes_code_is_stopped(tmp_path: Path) -> None:
    code = "Thought: look.\n<code>\nprint(search(query='boat (1)'))\n</code>"
    with (
        agent_server(lambda _: code, searches=0) as server,
        suffice.Watch("fixed-2", record=tmp_path, mode="live", max_rounds=3) as watch,
    ):
        writer = smolagents.CodeAgent(tools=[search], model=agent(server).model, verbosity_level=0)
        asker = watched(writer, watch)
        assert asker.run(QUESTION) == ""
    assert len(server.bodies) == 3
    assert (asker.suffice["rounds"], asker.suffice["dropped_calls"]) == (2, 1)


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
