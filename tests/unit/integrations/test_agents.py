"""What the adapters of agents share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

import suffice
from suffice.errors import MissingExtra, SufficeWarning, UsageError
from suffice.integrations.agents import (
    AgentRun,
    Framework,
    Reply,
    ToolResult,
    outcome,
    round_of_tools,
    tool_passages,
)
from suffice.signals.signal_table import given_signals
from suffice.trace.rounds.records import QuestionRecord

NUMPY = Framework(name="arrays", package="numpy", tested="1.0.3")


@dataclass
class Document:
    page_content: str
    id: str


def test_another_version_is_said_with_the_tested_one() -> None:
    with pytest.warns(SufficeWarning, match="numpy"):
        NUMPY.point("numpy", "array")
    with pytest.raises(UsageError, match="agents"):
        NUMPY.point("numpy", "agents")
    with pytest.raises(UsageError, match="agents"):
        NUMPY.point("numpy.agents")
    with pytest.raises(UsageError, match="ndarray"):
        NUMPY.point("numpy", "ndarray.agents")
    absent = Framework(name="it", package="absent-package", tested="1")
    with pytest.raises(MissingExtra, match="package"):
        absent.point("absent_package")


@pytest.mark.parametrize(
    ("output", "texts"),
    [
        ("one text", ["one text"]),
        (["a", "b"], ["a", "b"]),
        ([Document("a", "1"), Document("b", "2")], ["a", "b"]),
        ({"documents": [{"text": "a"}]}, ["a"]),
        ({"error": "the index is closed"}, []),
        ({"status": "error", "error_message": "no such shelf"}, []),
        ({"content": [{"type": "text", "text": "closed"}], "isError": True}, []),
        ({"status": "success", "documents": [{"text": "a"}], "error": None}, ["a"]),
        ({"text": "a"}, ["a"]),
        ([3, 4], ["3", "4"]),
        (7, ["7"]),
        ("  ", []),
        (None, []),
    ],
)
def test_outputs_become_passages(output: object, texts: list[str]) -> None:
    assert [passage.text for passage in tool_passages(output)] == texts


def test_the_calls_of_a_step_are_one_round() -> None:
    results = [
        ToolResult(tool="search", output=[Document("a", "1")], arguments={"query": "boats"}),
        ToolResult(tool="todo", output="noted", arguments={"text": "search boats"}),
        ToolResult(tool="search", output=[Document("b", "2")], arguments={"q": "trees", "k": 3}),
    ]
    made = round_of_tools(results, {"search"})
    assert made is not None
    assert [passage.id for passage in made["passages"]] == ["1", "2"]
    assert (made["query"], made["action"]) == ("boats\ntrees", "search")
    assert round_of_tools(results[1:2], {"search"}) is None
    with suffice.Watch(suffice.Rule(rule="new_passages < 0.5")).question("Where?") as loop:
        loop.observe(**made)
    with pytest.raises(UsageError, match="in-loop"):  # of an adapter that cannot ask there
        AgentRun(loop, tools=None, probe="in-loop")
    said = outcome(loop)
    assert said["policy_hash"] == loop.policy_hash is not None
    assert (said["rounds"], said["stopped_by"]) == (1, "end")


@dataclass
class Model:
    model_name: str


@pytest.mark.parametrize("texts", ["all", "no-texts"])
def test_what_a_framework_tells_of_the_loop_stands_in_the_run_document(
    texts: Literal["all", "no-texts"], tmp_path: Path
) -> None:
    secret, place = "Bearer abcdef123456", tmp_path / "live.db"

    def described(watch: suffice.Watch, model: str, prompt: object) -> Any:
        with watch.question(
            "Where?", question_id="q"
        ) as loop:  # the run is written before its rounds
            loop.describe(Model(model), prompt)
            loop.observe(answer="Oslo")
        return suffice.read(place).origin.run

    run = {"model": "mine"}
    with suffice.Watch(record=place, texts=texts, run=run) as watch:
        told = described(watch, "gpt-5", f"Be brief. Authorization: {secret}")
    assert told["model"] == "mine"
    assert secret not in json.dumps(told)
    assert ("Be brief" in told["prompt"]) is (texts == "all")
    with suffice.Watch(record=tmp_path / "two.db", texts=texts) as watch:
        place = tmp_path / "two.db"
        first, second, third = (
            described(watch, *parts)
            for parts in (("gpt-5", "Be brief."), ("gpt-5", None), ("mini", "Be long."))
        )
    assert first["model"] == second["model"] == "gpt-5"
    assert first["prompt"] == second["prompt"] != third["prompt"]
    assert third["model"] == "several"
    if texts == "all":
        suffice.traces.redact(tmp_path / "live.db", tmp_path / "none")
        assert "brief" not in json.dumps(suffice.read(tmp_path / "none").origin.run)


# --- runs that are stopped ------------------------------------------------------------------------
@dataclass
class Message:
    """A model's message: what it writes, the tools it calls, and whether one of them gives the answer."""

    text: str = ""
    calls: tuple[str, ...] = ()
    final: bool = False


Script = Callable[[int, str], Message]
SEARCH = Message(calls=("search",))


@dataclass
class Agent:
    """A loop of tools as every framework has one: it goes on until a message calls none."""

    watch: suffice.Watch
    script: Script
    probe: Any = False
    asked: list[str] = field(default_factory=list)
    ran: list[str] = field(default_factory=list)

    async def run(self, question: str = "Where?") -> tuple[str, dict[str, Any]]:
        loop = self.watch.question(question).begin()
        run = AgentRun(loop, tools=None, probe=self.probe, write=self.written)

        async def ask(how: str) -> Reply:
            self.asked.append(how)
            await asyncio.sleep(0)
            raw = self.script(len(self.asked), how)
            calls = len(raw.calls) - raw.final
            spent = suffice.Usage(llm_calls=1, prompt_tokens=5, completion_tokens=5)
            return Reply(raw=raw, text=raw.text, usage=spent, calls=calls, final=raw.final)

        results: list[ToolResult] = []
        for _ in range(30):
            message: Message = await run.turn(results, ask)
            if not message.calls or message.final:
                break
            self.ran += message.calls
            found = [
                [f"Passage {len(self.ran)}."] if name == "search" else None
                for name in message.calls
            ]
            results = [
                ToolResult(tool=name, output=one)
                for name, one in zip(message.calls, found, strict=True)
            ]
        else:
            raise RecursionError
        again = await run.turn([], ask)
        assert again == message or not loop.done
        if not loop.done:
            run.answered()
        loop.end()
        return message.text, outcome(loop)

    @staticmethod
    def written(raw: Message | None, text: str) -> Message:
        return Message(raw.text, ("final",), final=True) if raw and raw.final else Message(text)


def asked(watch: suffice.Watch, script: Script, **own: Any) -> tuple[Agent, str, dict[str, Any]]:
    agent = Agent(watch, script, **own)
    return agent, *asyncio.run(agent.run())


def only(folder: Path) -> QuestionRecord:
    (record,) = suffice.read(folder).records()
    return record


BUDGETS: list[tuple[dict[str, Any], str]] = [
    ({"policy": "fixed-2", "mode": "live"}, "policy"),
    ({"policy": "fixed-2", "mode": "live", "max_rounds": 2}, "policy"),
    ({"max_rounds": 2}, "budget"),
    ({"budgets": suffice.Budgets(tokens=20)}, "budget"),
]
SCRIPTS: dict[str, tuple[Script, str, int]] = {
    "only calls": (lambda *_: SEARCH, "", 1),
    "twenty at once": (lambda *_: Message(calls=("search",) * 20), "", 20),
    "writes and calls": (lambda number, _: Message(f"Text {number}", ("search",)), "Text 3", 1),
    "wrote before": (lambda n, _: Message("" if n > 1 else "Oslo?", ("search",)), "Oslo?", 1),
    "unknown tools": (lambda *_: Message(calls=("search", "no_such")), "", 2),
    "answers with a tool": (
        lambda _, how: Message("Oslo", ("search", "final"), final=True) if how == "last" else SEARCH,
        "Oslo", 1,
    ),
    "answers": (lambda _, how: Message("Oslo") if how == "last" else SEARCH, "Oslo", 0),
}  # fmt: skip


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize(("budget", "stopped_by"), BUDGETS)
def test_a_stop_is_enforced(
    name: str, budget: dict[str, Any], stopped_by: str, tmp_path: Path
) -> None:
    """The model is asked once more, what it calls then is not run, and the record says so."""
    script, answer, dropped = SCRIPTS[name]
    with suffice.Watch(**budget, record=tmp_path) as watch:
        agent, text, said = asked(watch, script)
    assert (text, agent.asked) == (answer, ["on", "on", "last"])
    assert len(agent.ran) == 2 * len(script(2, "on").calls)
    assert (said["rounds"], said["stopped_by"], said["dropped_calls"]) == (2, stopped_by, dropped)
    if dropped:
        tools = "1 tool" if dropped == 1 else f"{dropped} tools"
        assert said["reason"].endswith(f"called {tools} after the stop; dropped")
    record = only(tmp_path)
    assert record.rounds[-1].answer == answer
    assert record.rounds[-1].signals.get("dropped_calls") == (dropped or None)
    assert sum(held.usage.llm_calls or 0 for held in record.rounds) == len(agent.asked)


@pytest.mark.parametrize(
    ("choice", "answer"), [("latest", "B"), ("highest:trust", "A"), ("majority", "A")]
)
def test_the_answer_of_a_stopped_run_that_calls_tools_is_the_watchs(
    choice: str, answer: str, tmp_path: Path
) -> None:
    """The last round has no answer."""
    watch = suffice.Watch("fixed-4", record=tmp_path, mode="live", answer=choice)
    loop = watch.question("Where?").begin()
    run = AgentRun(loop, tools=None, probe=False, write=Agent.written)
    for held, trust in (("A", 0.9), ("A", 0.8), ("B", 0.1), (None, 0.95)):
        loop.observe(passages=(), answer=held, signals={"trust": trust})

    async def ask() -> Reply:
        return Reply(raw=SEARCH, text="", calls=1)

    message = asyncio.run(run.finish(ask))
    loop.end()
    watch.close()
    assert message.text == loop.answer == only(tmp_path).rounds[-1].answer == answer


def test_a_draft_that_calls_tools_is_no_answer_and_runs_none(tmp_path: Path) -> None:
    """Neither before the stop nor at it, where it is the one request more."""
    with suffice.Watch("fixed-2", record=tmp_path, mode="live") as watch:
        agent, text, said = asked(watch, lambda *_: SEARCH, probe=True)
    assert (agent.asked, agent.ran) == (["on", "on", "draft"], ["search"] * 2)
    assert (text, said["rounds"], said["dropped_calls"]) == ("", 2, 1)
    stable = suffice.Rule(rule="answer_stable")
    with suffice.Watch(stable, record=tmp_path / "drafts", mode="live", max_rounds=3) as watch:

        def drafts(number: int, how: str) -> Message:
            return Message("Oslo") if how == "draft" and number < 6 else SEARCH

        agent, text, said = asked(watch, drafts, probe=True)
    assert (text, said["rounds"], said["dropped_calls"]) == ("Oslo", 2, 0)
    assert agent.asked == ["on", "draft"] * 2


def test_a_request_that_fails_after_the_stop_leaves_the_answer_that_is_known() -> None:
    def down(_: int, how: str) -> Message:
        if how == "last":
            raise ConnectionError("down")
        return SEARCH

    watch = suffice.Watch("fixed-2", mode="live")
    with pytest.warns(SufficeWarning, match="the answer of round 2 is kept"):
        agent, text, said = asked(watch, down, probe=lambda _: "Bergen")
    assert (text, said["stopped_by"], agent.asked) == ("Bergen", "policy", ["on", "on", "last"])
    with pytest.raises(ConnectionError):
        asked(watch, down)


def test_in_shadow_and_exploring_nothing_is_enforced(tmp_path: Path) -> None:
    shadow_or_exploring: list[dict[str, Any]] = [{}, {"mode": "live", "explore": 0.999999}]
    for settings in shadow_or_exploring:
        with suffice.Watch("fixed-1", record=tmp_path / str(len(settings)), **settings) as watch:
            agent = Agent(watch, lambda *_: SEARCH)
            with pytest.raises(RecursionError):
                asyncio.run(agent.run())
        record = only(tmp_path / str(len(settings)))
        assert (len(agent.ran), len(record.rounds)) == (30, 29)
        assert all("dropped_calls" not in held.signals for held in record.rounds)


def test_many_stopped_runs_share_a_watch(tmp_path: Path) -> None:
    async def many(agent: Agent) -> list[tuple[str, dict[str, Any]]]:
        return await asyncio.gather(*(agent.run(f"Q{number}?") for number in range(20)))

    with suffice.Watch("fixed-2", record=tmp_path, mode="live") as watch:
        agent = Agent(watch, lambda *_: Message("So far", ("search",)))
        ended = asyncio.run(many(agent))
    assert {(text, said["rounds"], said["dropped_calls"]) for text, said in ended} == {
        ("So far", 2, 1)
    }
    assert (len(agent.asked), len(agent.ran)) == (60, 40)
    assert len(list(suffice.read(tmp_path).records())) == 20


def test_dropped_calls_are_no_signal_that_a_policy_reads(tmp_path: Path) -> None:
    with suffice.Watch("fixed-2", record=tmp_path, mode="live") as watch:
        asked(watch, lambda *_: SEARCH)
    assert "dropped_calls" not in given_signals(suffice.read(tmp_path))
