"""The controller inside a LangGraph loop: a conditional edge asks it whether to go on."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest

import suffice

graph = pytest.importorskip(
    "langgraph.graph", reason="runs in its own environment: make test-integrations"
)

ANSWERS = ["Bergen", "Oslo", "Oslo.", "Rome"]


class State(TypedDict):
    answers: list[str]
    decision: suffice.Decision | None


def test_the_loop_ends_where_the_policy_stops() -> None:
    controller = suffice.Controller(suffice.RulePolicy(rule="answer_stable"), max_rounds=4)

    def retrieve_and_answer(state: State) -> dict[str, Any]:
        answer = ANSWERS[len(state["answers"])]
        decision = controller.observe(suffice.Round(answer=answer))
        return {"answers": [*state["answers"], answer], "decision": decision}

    def route(state: State) -> str:
        decision = state["decision"]
        return str(graph.END) if decision is not None and decision.stop else "round"

    builder = graph.StateGraph(State)
    builder.add_node("round", retrieve_and_answer)
    builder.add_edge(graph.START, "round")
    builder.add_conditional_edges("round", route, ["round", graph.END])
    final = builder.compile().invoke({"answers": [], "decision": None})
    assert final["answers"] == ["Bergen", "Oslo", "Oslo."]
    assert final["decision"].stopped_by == "policy"


class Checkpointed(TypedDict):
    controller: dict[str, Any]
    stop: bool


def test_the_state_holds_the_controller_and_a_later_process_goes_on() -> None:
    """Every step makes its own controller from the state, so graphs may run side by side."""
    memory = pytest.importorskip("langgraph.checkpoint.memory").MemorySaver()

    def step(state: Checkpointed) -> Checkpointed:
        controller = suffice.Controller.from_dict(state["controller"])
        decision = controller.observe(suffice.Round(answer=ANSWERS[len(controller.rounds)]))
        return {"controller": controller.to_dict(), "stop": decision.stop}

    builder = graph.StateGraph(Checkpointed)
    builder.add_node("round", step)
    builder.add_edge(graph.START, "round")
    builder.add_conditional_edges(
        "round", lambda state: graph.END if state["stop"] else "round", ["round", graph.END]
    )
    loop = builder.compile(checkpointer=memory, interrupt_before=["round"])
    config = {"configurable": {"thread_id": "q1"}}
    policy = suffice.RulePolicy(rule="answer_stable")
    given: Any = {"controller": suffice.Controller(policy).start("Where?").to_dict(), "stop": False}
    for _ in range(4):  # interrupted before every round, and gone on with
        loop.invoke(given, config)
        given = None
    last = suffice.Controller.from_dict(loop.get_state(config).values["controller"])
    assert [finished.answer for finished in last.rounds] == ["Bergen", "Oslo", "Oslo."]
