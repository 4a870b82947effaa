from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from suffice.contracts import GenerationRequest, Verdict
from suffice.errors import BackendError, UsageError
from suffice.loops.planning.agent import (
    AGENTS,
    PlanJob,
    PlanningAgent,
    PlanningSettings,
    PlanRecorderSettings,
    record_plans,
)
from suffice.testing.models import ScriptedModel
from suffice.trace.plans.file import read_plans
from suffice.trace.plans.records import PlanGold, PlanTask

RUN = {"made": "in a test"}


def reply(request: GenerationRequest, index: int) -> str:
    return '{"constraints": [], "decisions": [], "plan": "1) Do it"}'


def jobs(model: ScriptedModel, count: int = 4, *, gold: PlanGold | None = None) -> list[PlanJob]:
    agent = PlanningAgent(model, AGENTS["vanilla"], settings=PlanningSettings(retries=0))
    return [
        PlanJob(
            task=PlanTask(id=f"task {at}", goal=f"Goal {at}.", context="", total_steps=2),
            agent=agent,
            retriever=None,
            seed=42,
            gold=gold,
        )
        for at in range(count)
    ]


def test_runs_are_recorded_once(tmp_path: Path) -> None:
    model = ScriptedModel(reply, api="chat")
    first = record_plans(jobs(model, 2), tmp_path / "plans", PlanRecorderSettings(run=RUN))
    assert (first.recorded, first.before, first.failed) == (2, 0, 0)
    started: list[int] = []
    settings = PlanRecorderSettings(run=RUN, on_start=started.append)
    second = record_plans(jobs(model, 4), tmp_path / "plans", settings)
    assert (second.recorded, second.before, started) == (2, 2, [2])
    plans = read_plans(tmp_path / "plans")
    assert [each.task.id for each in plans.records] == [f"task {at}" for at in range(4)]
    assert plans.run == RUN
    assert plans.records[0].outcome.semantic is None


def test_a_failed_run_is_kept_and_tried_again_last(tmp_path: Path) -> None:
    broken = True

    def at_first(request: GenerationRequest, index: int) -> str:
        if broken and "Goal 1" in str(request.prompt):
            raise BackendError("the first attempt fails")
        return reply(request, index)

    failing = ScriptedModel(at_first, api="chat")
    found = record_plans(jobs(failing), tmp_path / "plans", PlanRecorderSettings(run=RUN))
    assert (found.recorded, found.failed) == (3, 1)
    assert read_plans(tmp_path / "plans").failures == 1
    broken = False
    again = record_plans(jobs(failing), tmp_path / "plans", PlanRecorderSettings(run=RUN))
    assert (again.recorded, again.before, again.failed) == (1, 3, 0)
    assert read_plans(tmp_path / "plans").failures == 0


class Picky:
    """Satisfied with one constraint alone."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    def judge(self, constraint: str, plan: str) -> Verdict:
        self.asked.append((constraint, plan))
        if constraint == "odd":
            return Verdict(ok=False, reason="said neither")
        return Verdict(ok=constraint == "good", reason="so it is", parsed="json")


@pytest.mark.parametrize(
    ("constraints", "semantic", "said"),
    [
        (("good",), True, "json: so it is"),
        (("good", "bad"), False, "json: so it is; json: so it is"),
        (("odd",), False, "unreadable: said neither"),
    ],
)
def test_a_plan_is_judged_by_every_hidden_constraint(
    tmp_path: Path, constraints: Sequence[str], semantic: bool, said: str
) -> None:
    judge, model = Picky(), ScriptedModel(reply, api="chat")
    gold = PlanGold(constraints=tuple(constraints), passage_ids=("d",))
    settings = PlanRecorderSettings(run=RUN, judge=judge)
    record_plans(jobs(model, 1, gold=gold), tmp_path / "plans", settings)
    [record] = read_plans(tmp_path / "plans").records
    assert (record.outcome.semantic, record.outcome.verdict) == (semantic, said)
    assert judge.asked[0] == (constraints[0], "1) Do it")
    assert record.gold == gold
    # the agent never saw what it is judged by
    assert not any("good" in str(each.prompt) for each in model.requests)


def test_the_same_run_twice_is_refused(tmp_path: Path) -> None:
    model = ScriptedModel(reply, api="chat")
    twice = jobs(model, 1) * 2
    with pytest.raises(UsageError, match="two jobs are the run"):
        record_plans(twice, tmp_path / "plans", PlanRecorderSettings(run=RUN))
