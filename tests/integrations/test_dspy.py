"""DSPy's ReAct, watched: recorded in shadow, replayed, stopped with its own extraction, streamed."""

from __future__ import annotations

import asyncio
import json
import re
import runpy
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

dspy = pytest.importorskip("dspy", reason="runs in its own environment: make test-integrations")

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
from suffice.integrations import dspy as adapter  # noqa: E402
from suffice.integrations.dspy import watched  # noqa: E402
from suffice.trace.rounds.records import QuestionRecord  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "agents" / "dspy_agent.py"
ANSWERS = ("Unknown", "Bergen", "Oslo", "Oslo", "Oslo", "Oslo")
QUESTION = "Where was it signed?"
NEWS = suffice.RulePolicy(rule="new_passages < 0.5")
STABLE = suffice.RulePolicy(rule="answer_stable")


def played(write: Writer, searches: int = 4) -> Writer:
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
            written = write(now)
            text = written if isinstance(written, str) else written.text.strip()
            return fields(reasoning="So it says.", answer=text)
        on = len(passages) < searches
        arguments = {"query": f"{question} ({len(passages) + 1})"} if on else {}
        return fields(
            next_thought="Go on.",
            next_tool_name="search" if on else "finish",
            next_tool_args=json.dumps(arguments),
        )

    return answer


def search(query: str) -> list[dict[str, str]]:
    """Two searches bring something new, further ones what is known."""
    number = int(query.rpartition("(")[2].rstrip(")"))
    return [{"id": f"d{min(number, 2)}", "text": f"Passage {min(number, 2)}."}]


def other(query: str) -> str:
    """A text, another one each time."""
    return f"Passage of {query}"


@pytest.fixture
def server() -> Iterator[AgentServer]:
    with agent_server(played(in_order(*ANSWERS))) as running:
        yield running


def react(server: AgentServer, tool: Any = search, **settings: Any) -> Any:
    module = dspy.ReAct("question -> answer", tools=[tool], **settings)
    model = dspy.LM(
        "openai/scripted", api_base=server.url, api_key="none", cache=False, num_retries=0,
        logprobs=True, top_logprobs=2,
    )  # fmt: skip
    module.set_lm(model)
    return module


def records(folder: Path) -> list[QuestionRecord]:
    return list(suffice.read_traces(folder).records())


def test_a_run_recorded_in_shadow_is_replayed(server: AgentServer, tmp_path: Path) -> None:
    plain = react(server)(question=QUESTION)
    with suffice.Watch(NEWS, record=tmp_path, max_rounds=8) as watch:
        prediction = watched(react(server), watch)(question=QUESTION)
        watch.label(prediction.suffice["question_id"], gold_answers=["Oslo"])
    assert (prediction.answer, prediction.trajectory) == (plain.answer, plain.trajectory)
    said = prediction.suffice
    assert (said["rounds"], said["would_stop"], said["stopped_by"]) == (4, 3, "end")
    (record,) = records(tmp_path)
    assert [held.answer for held in record.rounds] == ["Bergen", "Oslo", "Oslo", "Oslo"]
    assert [held.query for held in record.rounds[:2]] == [f"{QUESTION} (1)", f"{QUESTION} (2)"]
    assert [len(held.passages or ()) for held in record.rounds] == [1, 1, 0, 0]
    costs = [(held.usage.llm_calls, held.usage.answer_calls) for held in record.rounds]
    assert costs == [(2, 1)] * 4
    assert [held.probed for held in record.rounds] == [True, True, True, False]
    for held in record.rounds:
        assert held.tokens is not None
        assert held.answer_starts is not None
        assert held.tokens[held.answer_starts].token.split()[0] == held.answer
    settings = suffice.ComparisonSettings(rules=("new_passages < 0.5", "answer_stable"))
    replayed = suffice.compare(suffice.read_traces(tmp_path), settings).result.policies
    assert {policy.name: policy.mean_rounds for policy in replayed}["new_passages < 0.5"] == 3


@pytest.mark.parametrize("way", ["call", "acall"])
@pytest.mark.parametrize(("policy", "tool", "calls"), [(NEWS, search, 4), (STABLE, other, 6)])
def test_live_it_stops_with_its_own_extraction(
    server: AgentServer, tmp_path: Path, way: str, policy: Any, tool: Any, calls: int
) -> None:
    with suffice.Watch(policy, record=tmp_path, mode="live") as watch:
        agent = watched(react(server, dspy.Tool(tool, name="search")), watch)
        asked = {"question": QUESTION}
        prediction = agent(**asked) if way == "call" else asyncio.run(agent.acall(**asked))
    assert prediction.answer == "Oslo"
    assert (prediction.suffice["stopped_by"], len(server.bodies)) == ("policy", calls)
    assert list(prediction.trajectory)[-1] == "observation_2"
    (record,) = records(tmp_path)
    assert (record.rounds[-1].answer, record.stopped_by) == ("Oslo", "policy")


def test_streamed(server: AgentServer) -> None:
    agent = watched(react(server), suffice.Watch(NEWS, mode="live"))
    listener = dspy.streaming.StreamListener(signature_field_name="answer")
    stream = dspy.streamify(agent, stream_listeners=[listener], is_async_program=True)

    async def ask() -> list[Any]:
        return [held async for held in stream(question=QUESTION)]

    *chunks, prediction = asyncio.run(ask())
    assert "".join(chunk.chunk for chunk in chunks if hasattr(chunk, "chunk")).strip() == "Oslo"
    assert (prediction.answer, prediction.suffice["stopped_by"]) == ("Oslo", "policy")


def test_many_at_once_do_not_mix(server: AgentServer, tmp_path: Path) -> None:
    with suffice.Watch(NEWS, record=tmp_path) as watch:
        agent = watched(react(server), watch, probe=False)
        examples = [dspy.Example(question=f"Q{n}?").with_inputs("question") for n in range(8)]
        agent.batch(examples, num_threads=8, disable_progress_bar=True)
    kept = records(tmp_path)
    assert {record.question.text for record in kept} == {f"Q{n}?" for n in range(8)}
    for record in kept:
        queries = [f"{record.question.text} ({n})" for n in range(1, 5)]
        assert [held.query for held in record.rounds] == queries
        assert [held.answer for held in record.rounds] == [None, None, None, "Oslo"]


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
    kept = {record.question.text: record for record in records(tmp_path)}
    assert [held.passages for held in kept["Broken?"].rounds] == [(), ()]
    assert (len(kept[QUESTION].rounds), kept[QUESTION].stopped_by) == (2, "error")


def test_other_versions_modules_and_fields_are_refused(
    server: AgentServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch = suffice.Watch()
    with pytest.raises(UsageError, match=r"wanted a dspy.ReAct, found Predict"):
        watched(dspy.Predict("question -> answer"), watch)
    with pytest.raises(UsageError, match="no output field 'reply'; allowed: answer"):
        watched(react(server), watch, answer="reply")
    monkeypatch.delattr(dspy.ReAct, adapter._STEP)
    with pytest.raises(UsageError, match=r"'dspy==3.4.1' is what was tested"):
        watched(react(server), watch)


def test_it_can_be_copied_and_its_state_saved(server: AgentServer, tmp_path: Path) -> None:
    agent = watched(react(server), suffice.Watch(NEWS, mode="live"))
    agent.save(tmp_path / "agent.json")
    copied = agent.deepcopy()
    copied.load(tmp_path / "agent.json")
    copied.set_lm(agent.get_lm())
    assert copied(question=QUESTION).suffice["stopped_by"] == "policy"


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
    names = run_snippet("DSPy", **replaced)
    assert names["prediction"].suffice["stopped_by"] == "policy"
    monkeypatch.setattr(sys, "argv", [str(EXAMPLE), server.url, "--record", str(tmp_path / "run")])
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert "policy" in capsys.readouterr().out


def test_with_answers_of_the_embedded_model(tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp")
    from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings

    def passage(query: str) -> str:
        return "Henrik Ibsen was born in Skien in 1828." if "(1)" in query else "Skien is a town."

    passage.__name__ = "search"
    with (
        EmbeddedModel.load(settings=EmbeddedSettings(replicas=1, threads=1)) as model,
        agent_server(played(writer_of(model))) as server,
    ):
        with suffice.Watch(STABLE, record=tmp_path) as watch:
            shadow = watched(react(server, passage), watch)(question="Where was Ibsen born?")
        live = suffice.Watch(NEWS, mode="live", max_rounds=4)
        stopped = watched(react(server, passage), live)(question="Where was Ibsen born?")
    assert len(records(tmp_path)[0].rounds) == shadow.suffice["rounds"] == 4
    assert stopped.suffice["rounds"] == 3
    assert stopped.suffice["stopped_by"] == "policy"
    assert stopped.answer.strip()
