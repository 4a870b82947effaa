"""What every adapter of agents keeps, whatever the framework: a test of one subclasses :class:`Watching`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.integrations.agent_server import (
    AgentServer,
    Writer,
    agent_server,
    as_llama_cpp,
    as_ollama,
    as_silent,
    as_vllm,
    in_order,
)

import suffice
from suffice.loops.prompts import ANSWER_NOW
from suffice.trace.rounds.records import Draft, QuestionRecord

EXAMPLES = Path(__file__).parents[2] / "examples" / "agents"
ANSWERS = ("Unknown", "Bergen", "Oslo", "Oslo", "Oslo", "Oslo")
QUESTION = "Where was it signed?"
NEWS = suffice.Rule(rule="new_passages < 0.5")
STABLE = suffice.Rule(rule="answer_stable")
LABELLED = in_order(*(f"Answer: {answer}" for answer in ANSWERS))


def guessed(view: Any) -> Draft:
    """A probe of one's own, which asks no model."""
    return Draft("Bergen" if view.rounds else "", usage=suffice.Usage(llm_calls=0))


ENDS = [
    ("", False, ""),
    ("I look on.", False, "I look on."),
    ("", True, ""),
    ("", guessed, "Bergen"),
]
"""What a model that only calls tools writes beside them, the probe, and the answer of its run."""

Search = Callable[[str], list[dict[str, str]]]


class Asked(NamedTuple):
    """The answer of a run, and what was said of its loop."""

    answer: str
    said: Mapping[str, Any]


def found(query: str) -> list[dict[str, str]]:
    """Three searches bring something new, further ones what is known."""
    number = min(int(query.rpartition("(")[2].rstrip(")")), 3)
    return [{"id": f"d{number}", "text": f"Passage {number}."}]


def records(folder: Path) -> dict[str, QuestionRecord]:
    return {record.question.text: record for record in suffice.read(folder).records()}


class Watching:
    """The tests; the methods above them say how a framework is asked."""

    heading: str
    """Of its snippet in docs/integrations/."""
    example: tuple[str, ...]
    """Its file among the examples, and what is typed behind it; ``URL`` and ``FOLDER`` stand for those."""
    example_says = "new_passages < 0.5 holds"
    stops_softly = True
    """A run that is stopped asks the model once more, and offers no tools."""
    has_tokens = True
    needs_usage = False
    refused_ids: tuple[str, ...] = ()
    """Of calls in one message, where the framework runs none of those."""

    def served(self, write: Writer, searches: int = 5) -> AbstractContextManager[AgentServer]:
        return agent_server(write, searches=searches)

    def agent(
        self, server: AgentServer, watch: Any, *, search: Search = found, probe: Any = False
    ) -> Any:
        raise NotImplementedError

    def run(self, agent: Any, question: str = QUESTION) -> Asked:
        raise NotImplementedError

    async def arun(self, agent: Any, question: str) -> Asked:
        return await asyncio.to_thread(self.run, agent, question)

    def said_by(self, names: Mapping[str, Any]) -> Mapping[str, Any]:
        """What was said of the snippet's loop, which left these names."""
        raise NotImplementedError

    def test_a_run_recorded_in_shadow_is_replayed(self, tmp_path: Path) -> None:
        with (
            self.served(in_order(*ANSWERS)) as server,
            suffice.Watch(NEWS, record=tmp_path, max_rounds=8) as watch,
        ):
            answer, said = self.run(self.agent(server, watch, probe=True))
            watch.label(said["question_id"], gold_answers=["Oslo"])
        assert (answer, said["rounds"], said["would_stop"], said["stopped_by"]) == (
            "Oslo", 5, 4, "end",
        )  # fmt: skip
        record = records(tmp_path)[QUESTION]
        assert str(suffice.read(tmp_path).origin.run["model"]).endswith("scripted")
        assert record.question.id == said["question_id"]
        assert [held.answer for held in record.rounds] == list(ANSWERS[1:])
        for number, held in enumerate(record.rounds, start=1):
            assert QUESTION in (held.query or "")
            assert (held.query or "").endswith(f"({number})")
        assert [len(held.passages or ()) for held in record.rounds] == [1, 1, 1, 0, 0]
        costs = [(held.usage.llm_calls, held.usage.answer_calls) for held in record.rounds]
        assert costs[:4] == [(2, 1)] * 4
        assert all(held.usage.prompt_tokens for held in record.rounds)
        assert record.rounds[0].tokens or not self.has_tokens
        compared = suffice.replay(tmp_path, rules=[NEWS.rule, STABLE.rule]).policies
        rounds = {policy.name: (policy.mean_rounds, policy.em) for policy in compared}
        assert (rounds[NEWS.rule], rounds[STABLE.rule]) == ((4, 1.0), (3, 1.0))

    @pytest.mark.parametrize(("policy", "calls"), [(NEWS, 5), (STABLE, 6)])
    def test_live_it_stops_and_answers(
        self, policy: suffice.Rule, calls: int, tmp_path: Path
    ) -> None:
        """From what it has, without tools; by answers with the draft that was read."""
        probe = policy is STABLE
        with (
            self.served(in_order(*ANSWERS)) as server,
            suffice.Watch(policy, record=tmp_path, mode="live") as watch,
        ):
            answer, said = self.run(self.agent(server, watch, probe=probe))
        assert (answer, said["stopped_by"], len(server.bodies)) == ("Oslo", "policy", calls)
        assert policy.rule.split()[0] in said["reason"]
        if self.stops_softly:
            assert server.with_tools == ([True, False] * 3 if probe else [True] * 4 + [False])
        record = records(tmp_path)[QUESTION]
        drafts = ["Bergen", "Oslo", "Oslo"] if probe else [None, None, None, "Oslo"]
        assert [held.answer for held in record.rounds] == drafts
        assert record.stopped_by == "policy"

    def test_many_at_once_do_not_mix(self, tmp_path: Path) -> None:
        questions = [f"Q{number}?" for number in range(6)]

        async def ask(agent: Any) -> list[Asked]:
            return await asyncio.gather(*(self.arun(agent, question) for question in questions))

        with (
            self.served(in_order(*ANSWERS)) as server,
            suffice.Watch(NEWS, record=tmp_path) as watch,
        ):
            runs = asyncio.run(ask(self.agent(server, watch)))
        kept = records(tmp_path)
        assert len(kept) == 6
        for question, (_, said) in zip(questions, runs, strict=True):
            assert kept[question].question.id == said["question_id"]
            assert len(kept[question].rounds) == 5
            assert all(question in (held.query or "") for held in kept[question].rounds)

    def test_the_snippet_of_the_page(
        self, run_snippet: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        suffice.save_policy(NEWS, "policy.json", max_rounds=6)
        with self.served(in_order(*ANSWERS)) as server:
            ports = (f"http://localhost:{port}/v1" for port in (8000, 8080))
            names = run_snippet(self.heading, **dict.fromkeys(ports, server.url))
        assert self.said_by(names)["stopped_by"] == "policy"

    def test_the_example_runs(self, tmp_path: Path) -> None:
        with self.served(in_order(*ANSWERS)) as server:
            places = {"URL": server.url, "FOLDER": str(tmp_path)}
            file, *words = [places.get(word, word) for word in self.example]
            done = subprocess.run(
                [sys.executable, EXAMPLES / file, *words],
                capture_output=True,
                text=True,
                check=False,
            )
        assert done.returncode == 0, done.stderr
        assert self.example_says in done.stdout


class Calling(Watching):
    """The tests of an adapter whose model calls tools by itself, also where none is to be called."""

    keeps_tools = True
    """The request after the stop has the tools of those before, and may call none."""
    probe_ends = False
    """A probe of one's own ends the run without asking the model."""

    def streamed(self, agent: Any, question: str = QUESTION) -> Asked:
        raise NotImplementedError

    def asked(self, how: str, agent: Any) -> Asked:
        if how == "arun":
            return asyncio.run(self.arun(agent, QUESTION))
        return self.run(agent) if how == "run" else self.streamed(agent)

    @contextmanager
    def stubborn(self, beside: str = "") -> Iterator[AgentServer]:
        """A model that calls two tools at once whatever it is offered."""
        with self.served(in_order(*ANSWERS), searches=99) as server:
            server.stubborn, server.beside, server.at_once = True, beside, 2
            yield server

    @pytest.mark.parametrize("how", ["run", "streamed"])
    @pytest.mark.parametrize("shape", [as_vllm, as_ollama, as_llama_cpp, as_silent])
    def test_a_run_is_stopped_whatever_shape_its_server_gives(
        self, shape: Any, how: str, tmp_path: Path
    ) -> None:
        """The server's model goes on to call tools; what it says of tokens is taken, or unknown."""
        if shape is as_silent and self.needs_usage:
            pytest.skip("the framework itself fails without a usage")
        with (
            self.stubborn("So far.") as server,
            suffice.Watch("fixed-2", record=tmp_path, mode="live", max_rounds=4) as watch,
        ):
            server.shape = shape
            answer, said = self.asked(how, self.agent(server, watch))
        assert (answer, said["rounds"], said["stopped_by"]) == ("So far.", 2, "policy")
        first = records(tmp_path)[QUESTION].rounds[0]
        assert len(first.passages or ()) == 2
        if shape is not as_silent and how == "run":
            assert (first.usage.prompt_tokens or 0) > 0
            assert (first.usage.completion_tokens or 0) > 0

    @pytest.mark.parametrize("one_id", ["", "call_0", None])
    def test_calls_at_once_are_one_round_whatever_their_ids(
        self, one_id: str | None, tmp_path: Path
    ) -> None:
        """Some compatible servers give none, or every call the same one."""
        if one_id in self.refused_ids:
            pytest.skip("the framework itself refuses such calls, or runs one of them")
        with (
            self.served(in_order("Unknown", "Oslo"), searches=1) as server,
            suffice.Watch("fixed-2", record=tmp_path) as watch,
        ):
            server.one_id, server.at_once = one_id, 3
            assert self.run(self.agent(server, watch)).answer == "Oslo"
        (held,) = records(tmp_path)[QUESTION].rounds
        found_by = [
            f"d{query[-2]}" for query in (held.query or "").splitlines() if query[-1] == ")"
        ]
        assert [passage.id for passage in held.passages or ()] == found_by
        assert sorted(found_by) == ["d1", "d2", "d3"]  # some frameworks tell them as they are done

    @pytest.mark.parametrize("how", ["run", "arun", "streamed"])
    @pytest.mark.parametrize(("beside", "probe", "answer"), ENDS)
    def test_a_model_that_only_calls_tools_is_stopped(
        self, how: str, beside: str, probe: Any, answer: str, tmp_path: Path
    ) -> None:
        """It is asked once more at most; what it calls then is not run, and said in the record."""
        ran: list[str] = []

        def search(query: str) -> list[dict[str, str]]:
            ran.append(query)
            return found(query)

        with (
            self.stubborn(beside) as server,
            suffice.Watch("fixed-1", record=tmp_path, mode="live", max_rounds=3) as watch,
        ):
            agent = self.agent(server, watch, search=search, probe=probe)
            asked, said = self.asked(how, agent)
        assert (said["rounds"], said["stopped_by"], asked, len(ran)) == (1, "policy", answer, 2)
        if probe is guessed and self.probe_ends:
            assert len(server.bodies) == 1
            return
        assert len(server.bodies) == 2
        assert said["dropped_calls"] == 2
        assert said["reason"].endswith("called 2 tools after the stop; dropped")
        (only,) = records(tmp_path)[QUESTION].rounds
        assert (only.answer, only.signals["dropped_calls"]) == (answer, 2)
        assert only.usage.llm_calls == 2
        if self.keeps_tools:
            first, last = server.bodies
            assert (last["tools"], last["tool_choice"]) == (first["tools"], "none")
            assert last["messages"][: len(first["messages"])] == first["messages"]

    @pytest.mark.parametrize("how", ["run", "arun", "streamed"])
    def test_the_budget_of_rounds_holds_in_shadow_too(self, how: str, tmp_path: Path) -> None:
        """Before it nothing is dropped."""
        with (
            self.stubborn() as server,
            suffice.Watch("fixed-1", record=tmp_path, max_rounds=3) as watch,
        ):
            _, said = self.asked(how, self.agent(server, watch))
        assert (said["rounds"], said["stopped_by"], len(server.bodies)) == (3, "budget", 4)
        (record,) = records(tmp_path).values()
        dropped = [held.signals.get("dropped_calls") for held in record.rounds]
        assert dropped == [None, None, 2]

    def test_it_may_call_many_and_unknown_tools_in_many_runs_at_once(self, tmp_path: Path) -> None:
        questions, ran = [f"Q{number}?" for number in range(6)], list[str]()

        def search(query: str) -> list[dict[str, str]]:
            ran.append(query)
            return found(query)

        async def ask(agent: Any) -> list[Asked]:
            return await asyncio.gather(*(self.arun(agent, question) for question in questions))

        with (
            self.stubborn("So far.") as server,
            suffice.Watch("fixed-2", record=tmp_path, mode="live", max_rounds=3) as watch,
        ):
            server.at_once, server.last_tool = 20, "no_such_tool"
            runs = asyncio.run(ask(self.agent(server, watch, search=search)))
        assert {(run.answer, run.said["rounds"], run.said["dropped_calls"]) for run in runs} == {
            ("So far.", 2, 20)
        }
        assert (len(server.bodies), len(ran)) == (18, 240)
        assert {len(record.rounds) for record in records(tmp_path).values()} == {2}


class InLoop(Calling):
    """The tests of an adapter that asks for answers in the loop's own conversation."""

    def test_an_answer_in_the_loop_is_that_of_a_run_that_only_calls_tools(
        self, tmp_path: Path
    ) -> None:
        with (
            self.served(LABELLED, searches=99) as server,
            suffice.Watch(STABLE, record=tmp_path, mode="live") as watch,
        ):
            server.stubborn = True
            answer, said = self.run(self.agent(server, watch, probe="in-loop"))
        assert (answer, said["rounds"], said["dropped_calls"]) == ("Oslo", 3, 1)
        assert len(server.bodies) == 7
        (record,) = records(tmp_path).values()
        assert [held.answer for held in record.rounds] == ["Bergen", "Oslo", "Oslo"]
        assert [held.usage.llm_calls for held in record.rounds] == [2, 2, 3]

    def test_an_answer_in_the_loop_is_one_more_turn_of_its_conversation(
        self, tmp_path: Path
    ) -> None:
        """The next turn goes on from the same messages with the same tools, as if nothing had been asked."""
        with (
            self.served(LABELLED) as server,
            suffice.Watch(NEWS, record=tmp_path, max_rounds=8) as watch,
        ):
            answer, said = self.run(self.agent(server, watch, probe="in-loop"))
        assert (answer, said["rounds"], said["stopped_by"]) == ("Answer: Oslo", 5, "end")
        turns, probes = server.bodies[::2], server.bodies[1::2]
        assert (len(turns), len(probes)) == (6, 5)
        for probe, turn in zip(probes, turns[1:], strict=True):
            *before, asked = probe["messages"]
            assert asked == {"role": "user", "content": ANSWER_NOW}
            assert probe["tool_choice"] == "none" != turn.get("tool_choice")
            choice = {"tool_choice": turn["tool_choice"]} if "tool_choice" in turn else {}
            assert turn == {**_without(probe, "tool_choice"), "messages": before, **choice}
        (record,) = records(tmp_path).values()
        assert [(held.answer, held.response) for held in record.rounds] == [
            (answer, f"Answer: {answer}") for answer in ANSWERS[1:]
        ]
        assert [held.probed for held in record.rounds] == [True] * 4 + [False]
        assert record.rounds[0].tokens or not self.has_tokens
        spent = [held.usage for held in record.rounds]
        calls = [(held.llm_calls, held.answer_calls, held.draft_calls) for held in spent]
        assert calls == [(2, 1, None)] * 4 + [(3, 1, 1)]
        for probe, held in zip(probes[1:4], spent[1:4], strict=True):
            size = sum(
                len(str(message.get("content") or "").split()) for message in probe["messages"]
            )
            assert held.answer_prompt_tokens == size
            assert 0 < (held.answer_cached_tokens or 0) < size

    def test_a_stopped_run_still_writes_its_answer_and_pays_for_both(self, tmp_path: Path) -> None:
        with (
            self.served(LABELLED) as server,
            suffice.Watch(STABLE, record=tmp_path, mode="live") as watch,
        ):
            answer, said = self.run(self.agent(server, watch, probe="in-loop"))
        assert (answer, said["rounds"], said["stopped_by"]) == ("Answer: Oslo", 3, "policy")
        assert server.with_tools == [True, False] * 3 + [False]
        (record,) = records(tmp_path).values()
        assert [held.answer for held in record.rounds] == ["Bergen", "Oslo", "Oslo"]
        assert [held.usage.llm_calls for held in record.rounds] == [2, 2, 3]
        assert [held.usage.answer_calls for held in record.rounds] == [1, 1, 2]

    def test_another_word_is_refused_when_it_is_built(self, server: AgentServer) -> None:
        with pytest.raises(suffice.UsageError, match="in-loop"):
            self.agent(server, suffice.Watch(), probe="in_loop")


def _without(body: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != name}
