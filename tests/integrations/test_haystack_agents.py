"""Haystack's agents as loops that are watched, over HTTP."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.agent_server import AgentServer, agent_server
from tests.integrations.watching import NEWS, QUESTION, Asked, Calling, Search, found

import suffice
from suffice.errors import UsageError
from suffice.integrations.haystack import SufficeHook
from suffice.policies.policy_file import save_policy
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

SCHEMA: dict[str, Any] = {"documents": {"type": list[haystack.Document]}}  # type: ignore[name-defined]


def documents(passages: list[dict[str, str]]) -> list[Any]:
    return [haystack.Document(id=one["id"], content=one["text"]) for one in passages]


@tools.tool  # type: ignore[untyped-decorator]
def search(query: str) -> list[Any]:
    """Search the notes."""
    return documents(found(query))


def shown(documents: list[Any]) -> str:
    return "\n".join(document.content for document in documents)


@tools.tool(  # type: ignore[untyped-decorator]
    outputs_to_state={"documents": {"source": "documents"}},
    outputs_to_string={"source": "documents", "handler": shown},
)
def stored(query: str) -> dict[str, Any]:
    """Search the notes."""
    return {"documents": documents(found(query))}


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


def records(folder: Path) -> list[QuestionRecord]:
    return list(suffice.read(folder).records())


def only(folder: Path) -> QuestionRecord:
    (record,) = records(folder)
    return record


class TestHaystack(Calling):
    heading = "Haystack agents"
    example = ("haystack_agent.py", "URL", "scripted", "FOLDER")
    example_says = ""  # one run in twenty explores
    probe_ends = True

    def agent(
        self, server: AgentServer, watch: Any, *, search: Search = found, probe: bool = False
    ) -> Any:
        def tool(query: str) -> list[Any]:
            """Search the notes."""
            return documents(search(query))

        tool.__name__ = "search"
        return agent_at(server, watch, watched={"probe": probe}, tools=[tools.tool(tool)])

    def run(self, agent: Any, question: str = QUESTION) -> Asked:
        return self.told(ask(agent, question))

    async def arun(self, agent: Any, question: str) -> Asked:
        messages = [dataclasses.ChatMessage.from_user(question)]
        return self.told(await agent.run_async(messages=messages))

    def streamed(self, agent: Any, question: str = QUESTION) -> Asked:
        shown: list[Any] = []
        hook = {"streaming_callback": shown.append}
        return self.told(ask(agent, question, streaming_callback=shown.append, hook_context=hook))

    def told(self, result: Any) -> Asked:
        last = result["last_message"]
        by = last.meta["suffice"]["stopped_by"]
        assert result["exit_reason"] == ("text" if by == "end" else f"suffice_{by}")
        return Asked(last.text, last.meta["suffice"])

    def said_by(self, names: Any) -> Any:
        return names["result"]["last_message"].meta["suffice"]


def test_streams_end_with_the_answer(server: AgentServer) -> None:
    shown: list[str] = []

    def callback(chunk: Any) -> None:
        shown.append(chunk.content)

    agent = agent_at(server, suffice.Watch(NEWS, mode="live"))
    result = ask(agent, streaming_callback=callback, hook_context={"streaming_callback": callback})
    assert result["last_message"].text == "".join(shown) == "Oslo"


def test_documents_are_those_that_a_round_put_into_the_state(
    server: AgentServer, tmp_path: Path
) -> None:
    with suffice.Watch(NEWS, mode="live", record=tmp_path) as watch:
        result = ask(agent_at(server, watch, tools=[stored], state_schema=SCHEMA))
    assert (result["last_message"].text, len(result["documents"])) == ("Oslo", 4)
    passages = [[one.id for one in held.passages or ()] for held in only(tmp_path).rounds]
    assert passages == [["d1"], ["d2"], ["d3"], []]


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


def test_a_stop_at_the_agents_last_step_and_another_generator(server: AgentServer) -> None:
    """Of a generator that may know no tool choice the last request has no tools."""

    @haystack.component
    class Other:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        @haystack.component.output_types(replies=list)  # type: ignore[untyped-decorator]
        def run(self, messages: list[Any], tools: list[Any] | None = None) -> Any:
            return self.inner.run(messages=messages, tools=tools)

    server.stubborn, server.searches, server.beside = True, 99, "So far."
    watch = suffice.Watch("fixed-1", mode="live")
    other = Other(generator_at(server))
    agent = agents.Agent(
        chat_generator=other, tools=[search], hooks=SufficeHook(watch, other).points,
        max_agent_steps=1,
    )  # fmt: skip
    result = ask(agent)
    assert (result["last_message"].text, len(server.bodies)) == ("So far.", 2)
    assert result["last_message"].meta["suffice"]["dropped_calls"] == 1
    assert "tools" not in server.bodies[-1]


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
    assert only(tmp_path / "traces").rounds[-1].answer == "Oslo"
    with pytest.raises(UsageError, match=r"the watch is given as its arguments"):
        SufficeHook(suffice.Watch(NEWS), None).to_dict()


def test_the_system_prompt_is_recorded(server: AgentServer, tmp_path: Path) -> None:
    with suffice.Watch(record=tmp_path) as watch:
        ask(agent_at(server, watch, system_prompt="Be brief."))
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
            ask(agent_at(server, watch, tools=[tools.tool(broken)]))
        rounds = only(folder).rounds
        assert [(held.passages, held.action) for held in rounds] == [((), name)]
