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
