"""Plan records refuse what no plan trace may hold, and count what a run read and cost."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from functools import partial
from typing import Any

import numpy as np
import pytest

from suffice.errors import DataError
from suffice.trace.plans.records import (
    Candidate,
    ConstraintDecision,
    PlanGold,
    PlanOutcome,
    PlanRecord,
    PlanStep,
    PlanTask,
)
from suffice.trace.rounds.records import Passage, Usage


def task(**changes: Any) -> PlanTask:
    usual: dict[str, Any] = {"id": "t", "goal": "a goal", "context": "", "total_steps": 5}
    return PlanTask(**usual | changes)


def step(**changes: Any) -> PlanStep:
    usual: dict[str, Any] = {"number": 1, "action": "EXECUTE"}
    return PlanStep(**usual | changes)


def outcome(**changes: Any) -> PlanOutcome:
    usual: dict[str, Any] = {"plan": "", "ended": "complete"}
    return PlanOutcome(**usual | changes)


def plan_record(**changes: Any) -> PlanRecord:
    usual: dict[str, Any] = {
        "task": task(),
        "agent": "gate",
        "retriever": None,
        "seed": 0,
        "steps": (),
        "outcome": outcome(),
    }
    return PlanRecord(**usual | changes)


@pytest.mark.parametrize(
    ("make", "changes", "column", "found"),
    [
        (task, {"id": ""}, "task_id", "must not be empty"),
        (task, {"total_steps": 0}, "total_steps", "from 1"),
        (step, {"number": 0}, "step", "from 1"),
        (step, {"values": {"risk": math.nan}}, "signals", "risk must be a finite number"),
        (step, {"values": {"risk": "0.5"}}, "signals", "found '0.5'"),
        (step, {"sampled_again": True}, "sampled_again", "found True"),
        (step, {"candidates": ("a",)}, "candidates", "sequence of Candidate"),
        (step, {"usage": None}, "usage", "must be a Usage"),
        (Candidate, {"text": None}, "candidates.text", "must be text"),
        (PlanGold, {"constraints": "limit_001"}, "gold_constraints", "sequence of str"),
        (outcome, {"parsed": "regex"}, "parsed", "none, json, repaired, salvaged"),
        (outcome, {"semantic": 1}, "semantic", "must be a bool"),
        (
            partial(ConstraintDecision, constraint="a"),
            {"enforced": "YES"},
            "decisions.enforced",
            "bool",
        ),
        (plan_record, {"agent": ""}, "agent", "must not be empty"),
        (plan_record, {"gold": ("a",)}, "gold", "must be a PlanGold"),
        (plan_record, {"steps": (step(number=2),)}, "step", "found step 2 where step 1 belongs"),
    ],
)
def test_what_no_trace_may_hold_is_refused(
    make: Callable[..., Any], changes: dict[str, Any], column: str, found: str
) -> None:
    with pytest.raises(DataError) as caught:
        make(**changes)
    assert caught.value.column == column
    assert found in caught.value.message


def test_numbers_are_those_of_the_columns() -> None:
    made = step(number=np.int64(1), k=np.int16(3), values={"risk": np.float32(0.1), "other": 1})
    assert (type(made.number), type(made.k)) == (int, int)
    assert made.values == {"risk": float(np.float32(0.1)), "other": 1.0}
    assert {type(value) for value in made.values.values()} == {float}


def test_values_do_not_change_with_the_mapping_given() -> None:
    given = {"risk": 0.5}
    made = step(values=given)
    given["risk"] = 0.75
    assert made.values == {"risk": 0.5}
    with pytest.raises(FrozenInstanceError):
        made.k = 3  # type: ignore[misc]


def test_a_retrieval_is_known_from_its_cost_or_its_query() -> None:
    assert step(query="what?").retrievals == 1
    assert step(query="what?", blocked="budget").retrievals == 0
    assert step(query="what?", usage=Usage(retrievals=3)).retrievals == 3
    assert step(passages=(Passage(id="a"),)).retrievals == 0


def test_records_load_without_pyarrow() -> None:
    code = "import sys, suffice.trace.plans.records; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
