"""DSPy's ReAct, watched."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

dspy = pytest.importorskip("dspy", reason="runs in its own environment: make test-integrations")

from tests.integrations.agent_server import AgentServer, Seen, Writer, agent_server, in_order  # noqa: E402
from tests.integrations.watching import (  # noqa: E402
    ANSWERS,
    NEWS,
    QUESTION,
    Asked,
    Search,
    Watching,
    found,
    records,
)

import suffice  # noqa: E402
from suffice.errors import SufficeWarning  # noqa: E402
from suffice.integrations.dspy import watched  # noqa: E402


def played(write: Writer, searches: int = 5) -> Writer:
    """Plays ReAct's texts: steps that search, then ``finish``; extractions are written by ``write``."""

    def fields(**texts: str) -> str:
        parts = [f"[[ ## {name} ## ]] {text}\n\n" for name, text in texts.items()]
        return "".join(parts) + "[[ ## completed ## ]]"

    def answer(seen: Seen) -> str:
        asked = seen.question
        passages = re.findall(r"^\[\[ ## observation_\d+ ## \]\]\n(.*?)\n\n", asked, re.S | re.M)
        question = asked.partition("[[ ## question ## ]]\n")[2].partition("\n")[0]
        if "starting with the field `[[ ## next_thought ## ]]`" not in asked:
            now = replace(seen, question=question, rounds=len(passages), passages=tuple(passages))
            return fields(reasoning="So it says.", answer=write(now))
        on = len(passages) < searches
        arguments = {"query": f"{question} ({len(passages) + 1})"} if on else {}
        return fields(
            next_thought="Go on.",
            next_tool_name="search" if on else "finish",
            next_tool_args=json.dumps(arguments),
        )

    return answer


@pytest.fixture
def server() -> Iterator[AgentServer]:
    with agent_server(played(in_order(*ANSWERS))) as running:
        yield running


def search(query: str) -> list[dict[str, str]]:
    """Search the notes."""
    return found(query)


def react(server: AgentServer, tool: Any = search, **settings: Any) -> Any:
    module = dspy.ReAct("question -> answer", tools=[tool], **settings)
    model = dspy.LM(
        "openai/scripted", api_base=server.url, api_key="none", cache=False, num_retries=0,
        logprobs=True, top_logprobs=2,
    )  # fmt: skip
    module.set_lm(model)
    return module


class TestDSPy(Watching):
    """It stops with its own extraction; offered tools are a text of its prompts."""

    heading = "DSPy"
    example = ("dspy_agent.py", "URL", "--record", "FOLDER")
    stops_softly = False

    def served(self, write: Writer, searches: int = 5) -> AbstractContextManager[AgentServer]:
        return agent_server(played(write, searches))

    def agent(
        self, server: AgentServer, watch: Any, *, search: Search = found, probe: bool = False
    ) -> Any:
        tool = dspy.Tool(search, name="search")
        return watched(react(server, tool), watch, probe=probe)

    def run(self, agent: Any, question: str = QUESTION) -> Asked:
        prediction = agent(question=question)
        return Asked(prediction.answer, prediction.suffice)

    async def arun(self, agent: Any, question: str) -> Asked:
        prediction = await agent.acall(question=question)
        return Asked(prediction.answer, prediction.suffice)

    def said_by(self, names: Any) -> Any:
        return names["prediction"].suffice


def test_what_it_predicts_in_shadow_is_what_it_predicts_alone(
    server: AgentServer, tmp_path: Path
) -> None:
    plain = react(server)(question=QUESTION)
    with suffice.Watch(NEWS, record=tmp_path) as watch:
        prediction = watched(react(server), watch)(question=QUESTION)
    assert (prediction.answer, prediction.trajectory) == (plain.answer, plain.trajectory)
    rounds = records(tmp_path)[QUESTION].rounds
    assert [held.probed for held in rounds] == [True] * 4 + [False]
    for held in rounds:
        assert held.tokens is not None
        assert held.answer_starts is not None
        assert held.tokens[held.answer_starts].token.split()[0] == held.answer


def test_streamed(server: AgentServer) -> None:
    agent = watched(react(server), suffice.Watch(NEWS, mode="live"))
    listener = dspy.streaming.StreamListener(signature_field_name="answer")
    stream = dspy.streamify(agent, stream_listeners=[listener], is_async_program=True)

    async def ask() -> list[Any]:
        return [held async for held in stream(question=QUESTION)]

    *chunks, prediction = asyncio.run(ask())
    assert "".join(chunk.chunk for chunk in chunks if hasattr(chunk, "chunk")).strip() == "Oslo"
    assert (prediction.answer, prediction.suffice["stopped_by"]) == ("Oslo", "policy")


def test_a_failing_tool_finds_nothing_and_a_failing_run_gives_the_earlier_answer(
    server: AgentServer, tmp_path: Path
) -> None:
    def broken(query: str) -> str:
        raise OSError("the index is closed")

    def closing(query: str) -> Any:
        if "(2)" in query:
            server.answer = lambda body: (500, {}, {"error": {"message": "down"}})
        return search(query)

    broken.__name__ = closing.__name__ = "search"
    with suffice.Watch(record=tmp_path) as watch:
        watched(react(server, broken, max_iters=2), watch)(question="Broken?")
        with pytest.warns(SufficeWarning, match=r"failed after round 2|the probe failed"):
            prediction = watched(react(server, closing), watch)(question=QUESTION)
        with pytest.raises(Exception, match="down"):
            watched(react(server, closing), watch)(question="Down at once?")
    assert (prediction.answer, prediction.suffice["stopped_by"]) == ("Bergen", "error")
    kept = records(tmp_path)
    assert [held.passages for held in kept["Broken?"].rounds] == [(), ()]
    assert (len(kept[QUESTION].rounds), kept[QUESTION].stopped_by) == (2, "error")


@pytest.mark.parametrize("probe", [True, False])
def test_a_model_that_only_writes_steps_is_stopped(probe: bool, tmp_path: Path) -> None:
    """DSPy asks for an extraction twice, in two formats; where none can be read there is no answer."""
    step = {
        "next_thought": "Go on.",
        "next_tool_name": "search",
        "next_tool_args": '{"query": "(1)"}',
    }
    written = "".join(f"[[ ## {name} ## ]] {text}\n\n" for name, text in step.items())
    ran: list[str] = []

    def search(query: str) -> list[dict[str, str]]:
        ran.append(query)
        return found(query)

    with (
        agent_server(lambda _: written) as server,
        suffice.Watch("fixed-2", record=tmp_path, mode="live", max_rounds=4) as watch,
    ):
        module = watched(react(server, search), watch, probe=probe)
        predictions = [module(question="Where?"), asyncio.run(module.acall(question="Who?"))]
    for prediction in predictions:
        assert (prediction.answer, prediction.suffice["stopped_by"]) == ("", "policy")
    assert (len(ran), len(server.bodies)) == (4, 8)
    assert {held.rounds[-1].answer for held in records(tmp_path).values()} == {""}


def test_it_can_be_copied_and_its_state_saved(server: AgentServer, tmp_path: Path) -> None:
    agent = watched(react(server), suffice.Watch(NEWS, mode="live"))
    agent.save(tmp_path / "agent.json")
    copied = agent.deepcopy()
    copied.load(tmp_path / "agent.json")
    copied.set_lm(agent.get_lm())
    assert copied(question=QUESTION).suffice["stopped_by"] == "policy"
