"""The controller inside a LlamaIndex workflow: a step asks it whether to go on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import suffice

workflows = pytest.importorskip(
    "workflows", reason="runs in its own environment: make test-integrations"
)
events = pytest.importorskip("workflows.events")

ANSWERS = ["Bergen", "Oslo", "Oslo.", "Rome"]


class NextRound(events.Event):  # type: ignore[name-defined,misc]
    number: int


class Loop(workflows.Workflow):  # type: ignore[name-defined,misc]
    controller: suffice.Controller

    @workflows.step  # type: ignore[untyped-decorator]
    async def round(self, event: events.StartEvent | NextRound) -> NextRound | events.StopEvent:  # type: ignore[name-defined]
        number = getattr(event, "number", 1)
        decision = self.controller.observe(suffice.Round(answer=ANSWERS[number - 1]))
        if decision.stop:
            return events.StopEvent(result=(number, decision.stopped_by))
        return NextRound(number=number + 1)


@pytest.mark.parametrize(
    ("rule", "ended"), [("answer_stable", (3, "policy")), ("overlap > 0.5", (4, "budget"))]
)
def test_the_loop_ends_where_the_policy_stops(rule: str, ended: tuple[int, str]) -> None:
    async def run() -> Any:
        loop = Loop(timeout=10)
        loop.controller = suffice.Controller(suffice.RulePolicy(rule=rule), max_rounds=4)
        return await loop.run()

    assert asyncio.run(run()) == ended
