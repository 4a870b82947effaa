"""What the experiment runs, and what of it the paper states."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import pytest
from studies.hidden_constraints.checker import CheckerJudge
from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import Benchmark, BenchmarkSettings
from studies.hidden_constraints.results import arrangement
from studies.hidden_constraints.runs import (
    Experimenters,
    HiddenConstraintsSettings,
    OracleRetriever,
    as_published,
    jobs_of,
    run_document,
)
from studies.hidden_constraints.scripted import ScriptedPlanner

from suffice.errors import SufficeWarning
from suffice.loops.planning.agent import AGENTS, PlanJob, PlanningAgent, agent_control
from suffice.policies.gate.gate_settings import GateSettings
from suffice.retrieval.bm25 import BM25Index

SMALL = BenchmarkSettings(tasks=4, hard_small=2, documents=24)


@pytest.fixture(scope="module")
def made() -> Benchmark:
    return generate(SMALL)


def who(made: Benchmark, judge_name: str = "checker") -> Experimenters:
    judge = CheckerJudge(task.constraint for task in made.tasks)
    return Experimenters(model=ScriptedPlanner(made), judge=judge, judge_name=judge_name)


def jobs(made: Benchmark, wanted: HiddenConstraintsSettings) -> list[PlanJob]:
    pytest.importorskip("bm25s", reason="the extra 'bm25' is missing")
    index = BM25Index.build(made.documents)
    retrievers = {name: None if name == "oracle" else index for name in wanted.retrievers}
    return jobs_of(wanted, made, who(made), retrievers)


def settings(**changes: Any) -> HiddenConstraintsSettings:
    given: dict[str, Any] = {"benchmark": SMALL, "retrievers": ("tfidf", "oracle"), "seeds": 2}
    return HiddenConstraintsSettings(**(given | changes))


def gate(**changes: Any) -> GateSettings:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SufficeWarning)
        return GateSettings.published(**changes)


def test_every_agent_meets_every_retriever_in_every_seed(made: Benchmark) -> None:
    every = jobs(made, settings())
    assert len({job.key for job in every}) == len(every)
    main = Counter(
        (job.agent.control.name, job.retriever) for job in every if ":" not in job.key[1]
    )
    retrieving = [name for name in AGENTS if name != "vanilla"]
    expected: dict[tuple[str, str | None], int] = {("vanilla", None): 8}
    expected |= {(name, entry): 8 for name in retrieving for entry in ("tfidf", "oracle")}
    assert main == expected


def test_the_oracle_of_a_task_has_its_documents(made: Benchmark) -> None:
    [job] = [
        job
        for job in jobs(made, settings())
        if job.key == (made.tasks[1].id, "fixed-top-k", "oracle", 42)
    ]
    assert isinstance(job.agent.retriever, OracleRetriever)
    found = job.agent.retriever.retrieve("anything", 9)
    assert {entry.id for entry in found} == set(made.tasks[1].document_ids)


def test_a_deep_regime_asks_for_more(made: Benchmark) -> None:
    wanted = settings(retrievers=("tfidf", "dense-30"), experiments=("main",), limit=1)
    depth = {
        (job.agent.control.name, job.retriever): job.agent.control.gate.k_max
        if job.agent.control.gate
        else job.agent.control.k
        for job in jobs(made, wanted)
    }
    assert depth["fixed-top-k", "tfidf"] == 6
    assert depth["fixed-top-k", "dense-30"] == 30
    assert depth["confidence-gated", "tfidf"] == 6
    assert depth["confidence-gated", "dense-30"] == 30


def test_the_run_document_tells_what_a_resumed_run_must_share(made: Benchmark) -> None:
    checked = who(made)
    first = run_document(settings(), made, checked)
    # more agents, retrievers, seeds and experiments may join later
    grown = settings(seeds=5, retrievers=("oracle",), experiments=("main",), subset="hard-small")
    assert run_document(grown, made, checked) == first
    assert run_document(settings(), made, who(made, "another")) != first
    assert run_document(settings(gates={"mine": gate(budget=1)}), made, checked) == first
    assert run_document(settings(encoder="another"), made, checked) != first


def test_the_published_gate_fires_at_the_dependent_steps_of_the_scripted_planner() -> None:
    benchmark = generate()
    planner = ScriptedPlanner(benchmark)
    with pytest.warns(SufficeWarning):
        control = agent_control("confidence-gated")
    for task in benchmark.tasks[:20]:
        strangers = [one for one in benchmark.documents if one.id not in task.document_ids][:6]
        agent = PlanningAgent(planner, control, OracleRetriever(strangers))
        steps = agent.run(task.visible, seed=7).steps
        assert tuple(step.number for step in steps if step.action == "RETRIEVE") == task.depends
        for step in steps:
            free = step.number not in task.depends
            assert (step.values["candidate_agreement"] == 1) == free


# --- the arrangement of the paper -----------------------------------------------------------------
def test_all_that_the_paper_states_is_set_and_the_rest_stays() -> None:
    asked = HiddenConstraintsSettings(limit=3, encoder="other", failure_loss=20.0)
    found = as_published(asked)
    assert (found.subset, found.seed, found.seeds) == ("hard-small", 42, 3)
    assert found.retrievers == ("tfidf", "dense", "dense-30", "oracle")
    assert (found.limit, found.encoder, found.failure_loss) == (3, "other", 20.0)


def test_the_table_shows_what_is_run_and_names_what_is_open() -> None:
    settings = as_published(HiddenConstraintsSettings(limit=2, retrieval_cost=3.0))
    table = arrangement(settings, 2, "judge")
    rows = {str(name): (str(value), str(where)) for name, value, where in table.rows}
    assert rows["tasks"][0] == "2"
    assert rows["seeds"][0] == "42, 43, 44"
    assert rows["c_r, L_f"][0] == "3.0, 2.0"
    assert {rows[name][1] for name in ("budget B", "cool-down", "kappa")} == {"open; ours"}
    assert rows["judge"][0] == "judge"
    assert len(arrangement(settings, 20, "checker").rows) == len(rows) - 1  # it reads no tokens
