"""Graphs of one's own, with the node that watches."""

from __future__ import annotations

import asyncio
import gc
import json
import operator
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest

import suffice
from suffice.integrations.langgraph import StopNode

graph = pytest.importorskip(
    "langgraph.graph", reason="runs in its own environment: make test-integrations"
)


# --- the node ------------------------------------------------------------------------------------
NEWS = suffice.Rule(rule="new_passages < 0.5")


class Search(TypedDict):
    question: str
    rounds: Annotated[list[dict[str, Any]], operator.add]
    answer: str
    suffice: dict[str, Any]


def retrieve(state: Search) -> dict[str, Any]:
    number = len(state.get("rounds", ())) + 1
    if state["question"] == "broken" and number == 3:
        raise OSError("lost")
    found = {"id": f"d{min(number, 3)}", "text": f"{state['question']} {min(number, 3)}"}
    return {"rounds": [{"passages": [found], "query": f"query {number}"}]}


def write(state: Search) -> dict[str, Any]:
    return {"answer": f"after {len(state['rounds'])}"}


async def awrite(state: Search) -> dict[str, Any]:
    return write(state)


def built(node: StopNode, *, writes: Any = write, **changed: Any) -> Any:
    builder = graph.StateGraph(Search)
    builder.add_node("retrieve", retrieve)
    after = ("retrieve", "write" if writes else graph.END)
    builder.add_node("enough", node, destinations=after)
    builder.add_edge(graph.START, "retrieve")
    builder.add_edge("retrieve", "enough")
    if writes:
        builder.add_node("write", node.answering(writes))
        builder.add_edge("write", graph.END)
    return builder.compile(**changed)


def node_of(watch: suffice.Watch, **changed: Any) -> StopNode:
    settings: dict[str, Any] = {
        "question": "question",
        "rounds": lambda state: state["rounds"],
        "go_on": "retrieve",
        "stop": "write",
    }
    return StopNode(watch, **{**settings, **changed})


def records(folder: Path) -> dict[str, Any]:
    return {held.question.text: held for held in suffice.read(folder).records()}


def test_the_node_sends_the_graph_to_its_answer(tmp_path: Path) -> None:
    with suffice.Watch(NEWS, record=tmp_path, mode="live") as watch:
        final = built(node_of(watch)).invoke({"question": "Where?"})
    assert final["answer"] == "after 4"
    assert (final["suffice"]["rounds"], final["suffice"]["stopped_by"]) == (4, "policy")
    record = records(tmp_path)["Where?"]
    assert final["suffice"]["question_id"] == record.question.id
    assert (record.stopped_by, record.rounds[-1].answer) == ("policy", "after 4")


def test_in_shadow_the_graph_chooses_and_every_round_has_its_draft(tmp_path: Path) -> None:
    def own_choice(state: Search) -> str:
        return "retrieve" if len(state["rounds"]) < 6 else "write"

    def draft(state: Search) -> str:
        return f"draft {min(len(state['rounds']), 2)}"

    with suffice.Watch(NEWS, record=tmp_path) as watch:
        node = node_of(watch, otherwise=own_choice, probe=draft)
        final = built(node).invoke({"question": "Where?"})
    assert (final["suffice"]["stopped_by"], final["suffice"]["would_stop"]) == ("end", 4)
    record = records(tmp_path)["Where?"]
    drafts = ["draft 1", *["draft 2"] * 4, "after 6"]
    assert [held.answer for held in record.rounds] == drafts
    replayed = suffice.replay(tmp_path, "fixed-6", rules=[NEWS.rule, "answer_stable"]).policies
    assert {held.label: held.mean_rounds for held in replayed}["answer_stable"] == 3


def test_runs_beside_each_other_and_runs_that_fail(tmp_path: Path) -> None:
    with suffice.Watch(NEWS, record=tmp_path, mode="live") as watch:
        loop = built(node_of(watch))
        tasks = built(node_of(watch), writes=awrite)
        with pytest.raises(OSError, match="lost"):
            loop.invoke({"question": "broken"})
        gc.collect()

        async def many() -> list[Any]:
            return await asyncio.gather(*(tasks.ainvoke({"question": f"q{n}"}) for n in range(20)))

        assert {final["answer"] for final in asyncio.run(many())} == {"after 4"}
    kept = records(tmp_path)
    assert len(kept) == 21
    assert (kept.pop("broken").stopped_by, {len(held.rounds) for held in kept.values()}) == (
        "error",
        {4},
    )


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_thread_goes_on_with_all_its_rounds(tmp_path: Path, *, elsewhere: bool) -> None:
    """In another process, too, of a state that keeps its rounds."""
    memory = pytest.importorskip("langgraph.checkpoint.memory").MemorySaver()
    changed = {"checkpointer": memory, "interrupt_before": ["enough"]}
    config = {"configurable": {"thread_id": "t1"}}
    stable = suffice.Rule(rule="answer_stable")

    def draft(state: Search) -> str:
        return f"draft {min(len(state['rounds']), 2)}"

    with suffice.Watch(stable, record=tmp_path, mode="live") as watch:
        loop = built(node_of(watch, probe=draft), **changed)
        given: Any = {"question": "Where?"}
        for number in range(4):
            if elsewhere and number == 2:
                loop = built(node_of(watch, rounds=with_drafts), **changed)
            final = loop.invoke(given, config)
            given = None
    assert (final["answer"], final["suffice"]["stopped_by"]) == ("after 3", "policy")


ELSEWHERE = """
import json, sys
from langgraph.checkpoint.sqlite import SqliteSaver
from tests.integrations.test_langgraph import *

folder, asks, pause = sys.argv[1:]
with (
    SqliteSaver.from_conn_string(f"{folder}/threads.db") as saver,
    suffice.Watch(NEWS, record=folder, mode="live", max_rounds=8) as watch,
):
    loop = built(node_of(watch), checkpointer=saver, interrupt_before=[pause])
    given = {"question": asks} if asks else None
    final = loop.invoke(given, {"configurable": {"thread_id": "t1"}})
    print(json.dumps({**final.get("suffice", {}), "answer": final.get("answer")}))
"""


def elsewhere(folder: Path, asks: str = "", pause: str = "enough") -> dict[str, Any]:
    words = [sys.executable, "-c", ELSEWHERE, str(folder), asks, pause]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def test_a_thread_resumed_in_other_processes_is_one_question(tmp_path: Path) -> None:
    """Also where it was left between its stop and its answer."""
    elsewhere(tmp_path, "Where?")
    for number in (1, 2, 3):
        assert elsewhere(tmp_path)["rounds"] == number
    (record,) = suffice.read(tmp_path).records()
    assert (len(record.rounds), record.stopped_by) == (3, "error")  # nobody goes on with it now
    told = elsewhere(tmp_path, pause="write")
    assert (told["stopped_by"], told["answer"]) == ("policy", None)
    assert elsewhere(tmp_path)["answer"] == "after 4"
    (record,) = suffice.read(tmp_path).records()
    assert record.question.id == told["question_id"]
    assert [held.query for held in record.rounds] == [f"query {n}" for n in (1, 2, 3, 4)]
    assert (record.rounds[-1].answer, record.stopped_by) == ("after 4", "policy")


def test_two_processes_may_take_a_thread_in_turns(tmp_path: Path) -> None:
    """The first one still has its loop in memory when it comes back."""
    sqlite = pytest.importorskip("langgraph.checkpoint.sqlite")
    config = {"configurable": {"thread_id": "t1"}}
    with (
        sqlite.SqliteSaver.from_conn_string(str(tmp_path / "threads.db")) as saver,
        suffice.Watch(NEWS, record=tmp_path, mode="live", max_rounds=8) as watch,
    ):
        loop = built(node_of(watch), checkpointer=saver, interrupt_before=["enough"])
        loop.invoke({"question": "Where?"}, config)
        loop.invoke(None, config)
        assert elsewhere(tmp_path)["rounds"] == 2
        final = loop.invoke(None, config)
        assert final["suffice"]["rounds"] == 3
        assert elsewhere(tmp_path)["answer"] == "after 4"
        loop.invoke(
            {"question": "And who?", "rounds": []}, config
        )  # ends what it holds of the first
    first, *_ = suffice.read(tmp_path).records()
    assert [held.query for held in first.rounds] == [f"query {n}" for n in (1, 2, 3, 4)]
    assert (watch.counts.lost_rounds, watch.counts.lost_questions) == (0, 0)


def test_another_question_on_a_thread_ends_the_one_that_failed_there(tmp_path: Path) -> None:
    memory = pytest.importorskip("langgraph.checkpoint.memory").MemorySaver()
    config = {"configurable": {"thread_id": "t1"}}
    with suffice.Watch(NEWS, record=tmp_path, mode="live") as watch:
        loop = built(node_of(watch), checkpointer=memory)
        with pytest.raises(OSError, match="lost"):
            loop.invoke({"question": "broken"}, config)
        final = loop.invoke({"question": "Where?"}, config)
        kept = records(tmp_path)
        assert (kept["broken"].stopped_by, len(kept["broken"].rounds)) == ("error", 2)
        assert final["suffice"]["question_id"] == kept["Where?"].question.id


def test_a_graph_inside_another_has_a_question_of_its_own(tmp_path: Path) -> None:
    """Though it is handed what the outer state was told."""
    with suffice.Watch("fixed-2", record=tmp_path, mode="live", max_rounds=4) as watch:
        inner = built(node_of(watch))

        def look(state: Search) -> dict[str, Any]:
            number = len(state.get("rounds", ()))
            asked = {**state, "question": f"inner {number}", "rounds": []}
            answer = inner.invoke(asked)["answer"]
            return {"rounds": [{"passages": [f"{answer} {number}"]}]}

        node = node_of(watch)
        builder = graph.StateGraph(Search)
        builder.add_node("retrieve", look)
        builder.add_node("enough", node, destinations=("retrieve", "write"))
        builder.add_node("write", node.answering(write))
        builder.add_edge(graph.START, "retrieve")
        builder.add_edge("retrieve", "enough")
        builder.add_edge("write", graph.END)
        final = builder.compile().invoke({"question": "outer"})
    kept = records(tmp_path)
    assert {text: len(held.rounds) for text, held in kept.items()} == {
        "outer": 2, "inner 0": 2, "inner 1": 2,
    }  # fmt: skip
    assert final["suffice"]["question_id"] == kept["outer"].question.id
    assert {held.stopped_by for held in kept.values()} == {"policy"}


def with_drafts(state: Search) -> list[dict[str, Any]]:
    return [
        {**held, "answer": f"draft {min(number, 2)}"}
        for number, held in enumerate(state["rounds"], start=1)
    ]


def test_a_graph_that_comes_back_after_its_stop_ends(tmp_path: Path) -> None:
    """An answer that calls tools again leads to the node once more; no other question begins there."""
    builder = graph.StateGraph(Search)
    with suffice.Watch("fixed-1", record=tmp_path, mode="live", max_rounds=3) as watch:
        for is_told in (True, False):
            node = node_of(watch)
            builder = graph.StateGraph(Search)
            builder.add_node("retrieve", retrieve)
            builder.add_node("enough", node, destinations=("retrieve", "write"))
            builder.add_node("write", node.answering(write) if is_told else write)
            builder.add_edge(graph.START, "retrieve")
            builder.add_edge("retrieve", "enough")
            builder.add_edge("write", "retrieve")
            loop = builder.compile()
            for asked in (f"Once {is_told}?", f"Again {is_told}?"):
                final = loop.invoke({"question": asked}, {"recursion_limit": 30})
                assert (len(final["rounds"]), final["answer"]) == (2, "after 1")
                assert (final["suffice"]["rounds"], final["suffice"]["stopped_by"]) == (1, "policy")
    kept = records(tmp_path)
    assert len(kept) == 4
    assert {len(held.rounds) for held in kept.values()} == {1}


def test_a_graph_may_end_with_the_answer_of_its_last_round() -> None:
    def latest(state: Search) -> dict[str, Any]:
        return with_drafts(state)[-1]

    watch = suffice.Watch(suffice.Rule(rule="answer_stable"), mode="live")
    node = node_of(watch, rounds=latest, stop=None)
    shown = list(built(node, writes=None).stream({"question": "Where?"}))
    assert [next(iter(step)) for step in shown] == ["retrieve", "enough"] * 3
    assert shown[-1]["enough"]["suffice"]["stopped_by"] == "policy"


def test_the_snippet_of_the_docs_runs(run_snippet: Callable[..., dict[str, Any]]) -> None:
    made = run_snippet("LangGraph graphs")
    assert made["final"]["suffice"]["stopped_by"] == "policy"
    assert made["final"]["answer"] == "from 2 rounds"
