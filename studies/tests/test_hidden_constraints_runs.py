from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

import pytest
from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import Benchmark, BenchmarkSettings
from studies.hidden_constraints.runs import (
    HiddenConstraintsSettings,
    OracleRetriever,
    Players,
    jobs_of,
    run_document,
)
from studies.hidden_constraints.scripted import ScriptedPlanner

from suffice.errors import SufficeWarning
from suffice.loops.planning.controls import AGENTS
from suffice.policies.gate.settings import GateSettings
from suffice.retrieval.lexical.bm25 import BM25Index

SMALL = BenchmarkSettings(tasks=4, hard_small=2, documents=24)


@pytest.fixture(scope="module")
def made() -> Benchmark:
    return generate(SMALL)


def players(made: Benchmark, *names: str) -> Players:
    pytest.importorskip("bm25s", reason="the extra 'bm25' is missing")
    index = BM25Index.build(made.documents)
    return Players(
        model=ScriptedPlanner(made),
        retrievers={name: None if name == "oracle" else index for name in names},
        documents={document.id: document for document in made.documents},
    )


def settings(**changes: Any) -> HiddenConstraintsSettings:
    given: dict[str, Any] = {"benchmark": SMALL, "retrievers": ("tfidf", "oracle"), "seeds": 2}
    return HiddenConstraintsSettings(**(given | changes))


def gate(**changes: Any) -> GateSettings:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SufficeWarning)
        return GateSettings.published(**changes)


def test_every_agent_meets_every_retriever_in_every_seed(made: Benchmark) -> None:
    jobs = jobs_of(settings(), made.tasks, players(made, "tfidf", "oracle"))
    assert len({job.key for job in jobs}) == len(jobs)
    main = Counter((job.agent.control.name, job.retriever) for job in jobs if ":" not in job.key[1])
    retrieving = [name for name in AGENTS if name != "vanilla"]
    expected: dict[tuple[str, str | None], int] = {("vanilla", None): 8}
    expected |= {(name, entry): 8 for name in retrieving for entry in ("tfidf", "oracle")}
    assert main == expected


def test_the_oracle_of_a_task_has_its_documents(made: Benchmark) -> None:
    jobs = jobs_of(settings(), made.tasks, players(made, "tfidf", "oracle"))
    [job] = [job for job in jobs if job.key == (made.tasks[1].id, "fixed-top-k", "oracle", 42)]
    assert isinstance(job.agent.retriever, OracleRetriever)
    found = job.agent.retriever.retrieve("anything", 9)
    assert {entry.id for entry in found} == set(made.tasks[1].document_ids)


def test_a_deep_regime_asks_for_more(made: Benchmark) -> None:
    wanted = settings(retrievers=("tfidf", "dense-30"), experiments=("main",))
    jobs = jobs_of(wanted, made.tasks[:1], players(made, "tfidf", "dense-30"))
    depth = {
        (job.agent.control.name, job.retriever): job.agent.control.gate.k_max
        if job.agent.control.gate
        else job.agent.control.k
        for job in jobs
    }
    assert depth["fixed-top-k", "tfidf"] == 6
    assert depth["fixed-top-k", "dense-30"] == 30
    assert depth["confidence-gated", "tfidf"] == 6
    assert depth["confidence-gated", "dense-30"] == 30


def test_the_run_document_tells_what_a_resumed_run_must_share(made: Benchmark) -> None:
    who = players(made, "tfidf", "oracle")
    first = run_document(settings(), made, who, "checker")
    # more agents, retrievers, seeds and experiments may join later
    grown = settings(seeds=5, retrievers=("oracle",), experiments=("main",), subset="hard-small")
    assert run_document(grown, made, who, "checker") == first
    assert run_document(settings(), made, who, "another") != first
    assert run_document(settings(gates={"mine": gate(budget=1)}), made, who, "checker") == first
    assert run_document(settings(encoder="another"), made, who, "checker") != first
