"""Plan records refuse what no plan trace may hold, and count what a run read and cost."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from tests.plan_records import make_plan

from suffice.errors import DataError
from suffice.trace.plan_traces import Candidate, ConstraintDecision, PlanGold, PlanStep
from suffice.trace.rounds.records import Passage, Usage

RECORD = make_plan("t")
STEP = PlanStep(number=1, action="EXECUTE")


@pytest.mark.parametrize(
    ("made", "changes", "column"),
    [
        (RECORD.task, {"id": ""}, "task_id"),
        (RECORD.task, {"total_steps": 0}, "total_steps"),
        (STEP, {"number": 0}, "step"),
        (STEP, {"values": {"risk": math.nan}}, "signals"),
        (STEP, {"values": {"risk": "0.5"}}, "signals"),
        (STEP, {"sampled_again": True}, "sampled_again"),
        (STEP, {"candidates": ("a",)}, "candidates"),
        (STEP, {"usage": None}, "usage"),
        (Candidate("a"), {"text": None}, "candidates.text"),
        (PlanGold(), {"constraints": "limit_001"}, "gold_constraints"),
        (RECORD.outcome, {"parsed": "regex"}, "parsed"),
        (RECORD.outcome, {"semantic": 1}, "semantic"),
        (
            ConstraintDecision(constraint="a", enforced=True),
            {"enforced": "YES"},
            "decisions.enforced",
        ),
        (RECORD, {"agent": ""}, "agent"),
        (RECORD, {"gold": ("a",)}, "gold"),
        (RECORD, {"steps": (replace(STEP, number=2),)}, "step"),
    ],
)
def test_what_no_trace_may_hold_is_refused(made: Any, changes: dict[str, Any], column: str) -> None:
    with pytest.raises(DataError) as caught:
        replace(made, **changes)
    assert caught.value.column == column


def test_a_retrieval_is_known_from_its_cost_or_its_query() -> None:
    asked = replace(STEP, query="what?")
    assert asked.retrievals == 1
    assert replace(asked, blocked="budget").retrievals == 0
    assert replace(asked, usage=Usage(retrievals=3)).retrievals == 3
    assert replace(STEP, passages=(Passage(id="a"),)).retrievals == 0
