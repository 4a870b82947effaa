from __future__ import annotations

import pytest
from studies.hidden_constraints.checker import satisfies
from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import Benchmark, PlanningTask
from studies.hidden_constraints.runs import OracleRetriever
from studies.hidden_constraints.scripted import ScriptedPlanner

from suffice.contracts import ChatModel
from suffice.errors import SufficeWarning
from suffice.loops.planning.agent import AGENTS, AgentControl, PlanningAgent, PlanRun, agent_control
from suffice.trace.rounds.records import Passage


@pytest.fixture(scope="module")
def benchmark() -> Benchmark:
    return generate()


@pytest.fixture(scope="module")
def planner(benchmark: Benchmark) -> ScriptedPlanner:
    return ScriptedPlanner(benchmark)


def control_of(name: str) -> AgentControl:
    if name != "confidence-gated":
        return agent_control(name)
    with pytest.warns(SufficeWarning):
        return agent_control(name)


def documents(benchmark: Benchmark, task: PlanningTask) -> list[Passage]:
    return [document for document in benchmark.documents if document.id in task.document_ids]


def strangers(benchmark: Benchmark, task: PlanningTask) -> list[Passage]:
    """Documents of other tasks' constraints."""
    others = {document_id for other in benchmark.tasks for document_id in other.document_ids}
    wanted = others - set(task.document_ids)
    return [document for document in benchmark.documents if document.id in wanted][:6]


def run(planner: ChatModel, task: PlanningTask, name: str, found: list[Passage]) -> PlanRun:
    agent = PlanningAgent(planner, control_of(name), OracleRetriever(found))
    return agent.run(task.visible, seed=7)


# --- through an agent ------------------------------------------------------------------------
def test_vanilla_never_satisfies(benchmark: Benchmark, planner: ScriptedPlanner) -> None:
    for task in benchmark.tasks:
        made = run(planner, task, "vanilla", strangers(benchmark, task))
        assert made.outcome.parsed == "json"
        assert (made.outcome.constraints, made.outcome.decisions) == ((), ())
        assert not satisfies(task.constraint, made.outcome.plan).ok
        assert tuple(step.chosen for step in made.steps) == task.outline


@pytest.mark.parametrize("name", [agent for agent in AGENTS if agent != "vanilla"])
def test_the_right_documents_always_satisfy(
    benchmark: Benchmark, planner: ScriptedPlanner, name: str
) -> None:
    for task in benchmark.tasks:
        made = run(planner, task, name, documents(benchmark, task))
        token = task.constraint.token
        assert satisfies(task.constraint, made.outcome.plan).ok
        assert made.outcome.constraints == (token,)
        assert [
            (decision.constraint, decision.enforced) for decision in made.outcome.decisions
        ] == [(token, True)]


def test_the_published_gate_fires_at_the_dependent_steps_alone(
    benchmark: Benchmark, planner: ScriptedPlanner
) -> None:
    for task in benchmark.tasks:
        made = run(planner, task, "confidence-gated", strangers(benchmark, task))
        fired = [step.number for step in made.steps if step.action == "RETRIEVE"]
        assert tuple(fired) == task.depends
        for step in made.steps:
            free = step.number not in task.depends
            assert (step.values["candidate_agreement"] == 1) == free
