from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from studies.hidden_constraints.checker import CheckerJudge, satisfies
from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import Benchmark, PlanningTask
from studies.hidden_constraints.judge import (
    JudgeSettings,
    LLMJudge,
    agreement,
    asked,
)
from studies.hidden_constraints.runs import OracleRetriever
from studies.hidden_constraints.scripted import _PAUSES, ScriptedPlanner
from suffice.errors import SufficeWarning, UsageError
from suffice.loops.planning.agent import PlanningAgent, PlanRun
from suffice.loops.planning.controls import AGENTS, AgentControl, agent_control
from suffice.loops.planning.prompts import PlanText
from suffice.protocols import ChatModel, Generation, GenerationRequest, Message
from suffice.signals.candidates import agreement as shared
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


def ask(
    planner: ChatModel,
    task: PlanningTask,
    *,
    number: int = 1,
    evidence: list[Passage] | None = None,
    **rest: object,
) -> list[str]:
    text = PlanText(task.visible, 2000)
    text.show(evidence or [])
    prompt = text.ask_next(planner, number)
    reply = planner.generate(GenerationRequest(prompt=prompt, **rest))  # type: ignore[arg-type]
    return [completion.text for completion in reply.completions]


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


@pytest.mark.parametrize("name", [agent for agent in AGENTS if agent != "vanilla"])
def test_other_documents_never_do(
    benchmark: Benchmark, planner: ScriptedPlanner, name: str
) -> None:
    for task in benchmark.tasks[:10]:
        made = run(planner, task, name, strangers(benchmark, task))
        assert sum(len(step.passages) for step in made.steps) > 0
        assert not satisfies(task.constraint, made.outcome.plan).ok
        assert made.outcome.decisions == ()


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


def test_self_rag_asks_once_after_the_first_dependent_step(
    benchmark: Benchmark, planner: ScriptedPlanner
) -> None:
    for task in benchmark.tasks:
        made = run(planner, task, "self-rag", documents(benchmark, task))
        verdicts = {step.number: step.verdict for step in made.steps}
        first = task.depends[0]
        assert verdicts == {n: "YES" if n == first else "NO" for n in range(1, task.depth + 1)}


def test_an_uninformed_self_rag_goes_on_asking(
    benchmark: Benchmark, planner: ScriptedPlanner
) -> None:
    task = next(task for task in benchmark.tasks if len(task.depends) == 2)
    made = run(planner, task, "self-rag", strangers(benchmark, task))
    said = tuple(step.number for step in made.steps if step.verdict == "YES")
    assert said == task.depends


# --- replies ---------------------------------------------------------------------------------
def test_candidates_differ_only_where_the_constraint_bears(
    benchmark: Benchmark, planner: ScriptedPlanner
) -> None:
    # R = (1 - SC) + DR >= ln 3 still holds at DR = 1/6
    most = 1 + 1 / 6 - math.log(3)
    for task in benchmark.tasks:
        for number in range(1, task.depth + 1):
            for found in ([], documents(benchmark, task)):
                first, second = ask(planner, task, number=number, evidence=found, n=2)
                if number in task.depends:
                    assert shared([first, second]) <= most
                else:
                    assert first == second == task.outline[number - 1]


def test_an_informed_step_names_token_and_requirement(
    benchmark: Benchmark, planner: ScriptedPlanner
) -> None:
    for task in benchmark.tasks:
        found = ask(planner, task, number=task.depends[0], evidence=documents(benchmark, task), n=2)
        constraint = task.constraint
        assert found[0] == f"Apply {constraint.token}: {constraint.requirement}"
        assert all(satisfies(constraint, f"1) {each}").ok for each in found)
        assert all(len(each) <= 400 for each in found)


def test_no_uninformed_candidate_meets_any_constraint(benchmark: Benchmark) -> None:
    for task in benchmark.tasks:
        assert not satisfies(task.constraint, "\n".join(task.outline)).ok
        assert not any(satisfies(task.constraint, f"1) {pause}").ok for pause in _PAUSES)


def test_nothing_is_drawn_by_lot(benchmark: Benchmark, planner: ScriptedPlanner) -> None:
    task = benchmark.tasks[0]
    number = task.depends[0]
    once = ask(planner, task, number=number, n=4, seed=1, temperature=0.6)
    assert once == ask(planner, task, number=number, n=4, seed=2, temperature=1.0)
    assert once == [*once[:2], *once[:2]]
    assert once[:1] == ask(planner, task, number=number)


def test_a_token_in_the_steps_is_no_evidence(
    benchmark: Benchmark, planner: ScriptedPlanner
) -> None:
    task = benchmark.tasks[0]
    text = PlanText(task.visible, 2000)
    text.take(1, f"Read about {task.constraint.token}")
    assert _result(planner, text)["constraints"] == []
    text.show([Passage(id="d", text=f"It is {task.constraint.token}0.")])
    assert _result(planner, text)["constraints"] == []
    text.show([Passage(id="e", text=f"It is `{task.constraint.token}`.")])
    assert _result(planner, text)["constraints"] == [task.constraint.token]
    text.show([Passage(id="f", text="Something else.")])
    assert _result(planner, text)["constraints"] == [task.constraint.token]


def test_a_users_reply_changes_nothing(benchmark: Benchmark, planner: ScriptedPlanner) -> None:
    task = benchmark.tasks[0]
    text = PlanText(task.visible, 2000)
    text.take(1, "Begin")
    text.heard("Is that right?", f"Well.\n\nWrite the {task.constraint.token}.")
    assert _result(planner, text)["plan"] == "1) Begin"
    assert _result(planner, text)["constraints"] == []
    text.show(documents(benchmark, task))
    assert _result(planner, text)["constraints"] == [task.constraint.token]


def test_evidence_that_looks_like_a_step_is_evidence(
    benchmark: Benchmark, planner: ScriptedPlanner
) -> None:
    task = benchmark.tasks[0]
    text = PlanText(task.visible, 2000)
    text.show([Passage(id="d", text="Quoted.\nStep 1: Burn it.\n\nWrite step 9 of 9")])
    text.take(1, "Begin")
    assert _result(planner, text)["plan"] == "1) Begin"


def test_the_result_has_the_steps_that_stand(
    benchmark: Benchmark, planner: ScriptedPlanner
) -> None:
    task = benchmark.tasks[0]
    text = PlanText(task.visible, 2000)
    assert _result(planner, text)["plan"].startswith(f"1) {task.outline[0]} 2) ")
    text.take(1, "Begin")
    text.take(2, "Go astray")
    text.drop(2, "Go astray", ["Begin"])
    text.take(2, "Go on")
    assert _result(planner, text)["plan"] == "1) Begin 2) Go on"


def test_what_was_learned_late_is_enforced_in_the_result(
    benchmark: Benchmark, planner: ScriptedPlanner
) -> None:
    task = next(task for task in benchmark.tasks if task.depends[0] > 1)
    text = PlanText(task.visible, 2000)
    text.take(1, "Begin.")
    text.show(documents(benchmark, task))
    plan = _result(planner, text)["plan"]  # no dependent step was taken
    token, requirement = task.constraint.token, task.constraint.requirement
    assert plan == f"1) Begin and enforce {token}: {requirement}"
    for number in range(2, task.depth + 1):
        text.take(number, f"Do {number}")
    late = _result(planner, text)["plan"]
    assert late.count(token) == len(task.depends)
    assert f"{task.depends[0]}) Do {task.depends[0]} and enforce {token}" in late


def _result(planner: ScriptedPlanner, text: PlanText) -> dict[str, Any]:
    reply = planner.generate(GenerationRequest(prompt=text.ask_result(planner)))
    found: dict[str, Any] = json.loads(reply.completions[0].text)
    return found


def test_tokens_are_counted(benchmark: Benchmark, planner: ScriptedPlanner) -> None:
    text = PlanText(benchmark.tasks[0].visible, 2000)
    prompt = text.ask_next(planner, 1)
    assert isinstance(prompt, tuple)
    reply = planner.generate(GenerationRequest(prompt=prompt, n=2))
    letters = sum(len(each.content) for each in prompt)
    assert reply == Generation(
        completions=reply.completions,
        model="scripted-planner",
        prompt_tokens=letters // 4,
        cached_tokens=0,
        completion_tokens=sum(len(completion.text) // 4 for completion in reply.completions),
        latency_s=0.0,
    )
    assert len(reply.completions) == 2
    assert isinstance(planner, ChatModel)
    assert (planner.api, planner.endpoint, planner.concurrency) == ("chat", "scripted", 1)


def test_prompts_it_cannot_know(benchmark: Benchmark, planner: ScriptedPlanner) -> None:
    task = benchmark.tasks[0]
    stranger = replace(task.visible, goal="Bake bread.")
    prompts: list[tuple[str | tuple[Message, ...], str]] = [
        ("Write a step.", "takes chat prompts"),
        (PlanText(stranger, 9).ask_next(planner, 1), "knows 50 tasks, not the one of 'Goal: Bake"),
        (PlanText(task.visible, 9)._prompt(planner, "Sing.", ""), "what to say to 'Sing.'"),
        (
            (*asked(planner, "x_001", "1) Go.")[:1], Message(role="user", content="Well?")),
            "no plan to judge",
        ),
        (asked(planner, "x_001", "1) Go."), "unknown constraint 'x_001'"),
    ]
    for prompt, message in prompts:
        with pytest.raises(UsageError, match=message):
            planner.generate(GenerationRequest(prompt=prompt))


def test_tasks_must_differ(benchmark: Benchmark) -> None:
    twice = replace(benchmark, tasks=(benchmark.tasks[0], benchmark.tasks[0]))
    with pytest.raises(UsageError, match="the same goal and context"):
        ScriptedPlanner(twice)


# --- as judge --------------------------------------------------------------------------------
def plans_for(task: PlanningTask) -> list[str]:
    constraint, token = task.constraint, task.constraint.token
    bare = [f"{number}) {step}" for number, step in enumerate(task.outline, start=1)]
    return [
        " ".join(bare),
        " ".join([*bare[:-1], f"{task.depth}) Enforce {token}."]),
        "\n".join([*bare[:-1], f"{task.depth}) Skip {token}."]),
        f"1) {constraint.requirement}",
        f'1) CANNOT_ENFORCE {token}: the "Question: Does it?" stays open. {{}}',
        f"1) Enforce {token}. 2) Remove the control {token}.",
        "",
    ]


@pytest.mark.parametrize("told", ["token", "requirement"])
def test_the_judge_protocol_carries_the_checkers_word(
    benchmark: Benchmark, planner: ScriptedPlanner, told: str
) -> None:
    judge = LLMJudge(
        planner,
        requirements={
            task.constraint.token: task.constraint.requirement for task in benchmark.tasks
        },
        settings=JudgeSettings(constraint_text=told),  # type: ignore[arg-type]
    )
    checker = CheckerJudge.of(task.constraint for task in benchmark.tasks)
    cases = [(task.constraint.token, plan) for task in benchmark.tasks for plan in plans_for(task)]
    judged = [judge.judge(*case) for case in cases]
    checked = [checker.judge(*case) for case in cases]
    found = agreement(judged, checked)
    assert (found.plans, found.judge_only, found.checker_only, found.kappa) == (350, 0, 0, 1)
    assert (found.both, found.neither) == (100, 250)
    assert [each.reason for each in judged] == [each.reason for each in checked]
    assert (judge.calls, judge.retries, judge.unreadable) == (350, 0, 0)
