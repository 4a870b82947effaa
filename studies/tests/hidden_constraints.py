"""An evaluation of hidden constraints whose figures are made up."""

from __future__ import annotations

from dataclasses import replace

from studies.hidden_constraints.judge import Agreement
from studies.hidden_constraints.results import (
    MEASURES,
    AgentFigures,
    ExampleRun,
    ExampleStep,
    GateVariant,
    HiddenConstraintsStudy,
    PairedDifference,
    Recall,
    StepTrace,
    TaskMean,
)
from studies.hidden_constraints.runs import (
    REGIMES,
    HiddenConstraintsSettings,
)

from suffice.loops.planning.controls import AGENTS
from suffice.numbers.intervals.bootstrap import Interval
from suffice.policies.gate.risk import RiskModel
from suffice.policies.gate.settings import GateCosts, GateSettings

GATED = "confidence-gated"
_RECALL = {"tfidf": 0.0, "dense": 0.02, "dense-30": 0.02, "hybrid": 0.18, "oracle": 1.0}
_DOCUMENTS = {
    "vanilla": 0.0,
    "fixed-top-k": 6.0,
    "always-retrieve": 24.0,
    "self-rag": 14.5,
    GATED: 11.75,
    "corrected": 7.25,
}
_TAUS = ((0.1, 0.3), (0.2, 0.4), (0.3, 0.5), (0.4, 0.6), (0.5, 0.7), (0.7, 0.9))


def about(mean: float, half: float | None = 0.043, *, most: float = 1e9) -> TaskMean:
    """A mean with intervals around it."""
    reach = 0.08 if most == 1.0 else mean / 5
    low, high = max(0.0, mean - reach), min(most, mean + reach)
    interval = Interval(estimate=mean, low=low, high=high)
    return TaskMean(mean=mean, clustered=interval, seed_half_width=half)


def made_cell(
    agent: str, retriever: str | None, *, semantic: float, documents: float
) -> AgentFigures:
    """A cell with every measure."""
    covered = 0.0 if retriever is None else min(1.0, _RECALL[retriever] + 0.1)
    shares = {
        "semantic": semantic,
        "proxy": min(1.0, semantic + 0.1),
        "grounded_proxy": semantic,
        "checked": semantic,
        "covered": covered,
        "token_in_document": covered,
        "malformed": 0.01,
    }
    amounts = {
        "documents_read": documents,
        "documents_distinct": documents * 0.7,
        "retrievals": documents / 6,
        "steps": 4.5,
        "llm_calls": 9.5,
        "prompt_tokens": 12345.0,
        "completion_tokens": 678.0,
        "seconds": 3.21,
        "trajectory_cost": documents / 6 + 2 * (1 - semantic),
    }
    measures = {name: about(value, most=1.0) for name, value in shares.items()}
    measures |= {name: about(value) for name, value in amounts.items()}
    assert sorted(measures) == sorted(MEASURES)
    return AgentFigures(
        agent=agent,
        retriever=retriever,
        runs=149,
        failed=int(agent == "self-rag"),
        measures=measures,
        oracle_rank=4.0 if covered else None,
        satisfied_covered=0.6 if covered else None,
        satisfied_uncovered=0.04,
    )


def made_study() -> HiddenConstraintsStudy:
    """A study whose figures are made up, with every retriever, agent and experiment."""
    gate = GateSettings.corrected(
        RiskModel(intercept=2.0), GateCosts(retrieval=1, failure=2, ask=0.5)
    )
    retrievers = tuple(REGIMES)
    agents = [agent_name for agent_name in (*AGENTS, "corrected") if agent_name != "vanilla"]
    cells = [made_cell("vanilla", None, semantic=0.02, documents=0.0)]
    for agent in agents:
        cells += [
            made_cell(
                agent,
                retriever,
                semantic=min(1.0, 0.02 + 0.45 * _RECALL[retriever] + 0.02 * agents.index(agent)),
                documents=_DOCUMENTS[agent] / (3 if retriever == "oracle" else 1),
            )
            for retriever in retrievers
        ]
    return HiddenConstraintsStudy(
        settings=HiddenConstraintsSettings(retrievers=retrievers, gates={"corrected": gate}),
        model="planner",
        judge="planner",
        tasks=50,
        hard_small=20,
        documents=450,
        cells=tuple(cells),
        recalls=tuple(made_recall(retriever) for retriever in retrievers),
        contrasts=made_contrasts(agents, retrievers),
        critical=3.25,
        variants=made_variants(),
        steps=tuple(
            made_steps(agent, retriever)
            for agent in (GATED, "corrected")
            for retriever in retrievers
        ),
        examples=tuple(made_example(agent) for agent in (GATED, "corrected")),
        agreement=Agreement(both=30, judge_only=5, checker_only=10, neither=155, unreadable=2),
        notes=("the published gate: EXECUTE can never be chosen", "one more"),
    )


def made_recall(name: str) -> Recall:
    share = _RECALL[name]
    return Recall(
        retriever=name,
        recall={1: share / 2, 5: share * 0.8, 10: share},
        rank=None if name == "tfidf" else 7.0,
        ranked=50,
        in_ten=round(50 * share),
        rank_in_ten=4.0 if share else None,
    )


def made_contrasts(agents: list[str], retrievers: tuple[str, ...]) -> tuple[PairedDifference, ...]:
    alone = Interval(estimate=0.02, low=-0.01, high=0.05)
    at_once = Interval(estimate=0.02, low=-0.06, high=0.1)
    return tuple(
        PairedDifference(
            retriever=retriever,
            measure=measure,
            agent=GATED,
            against=agent,
            difference=at_once,
            alone=alone,
        )
        for retriever in retrievers
        for agent in agents
        if agent != GATED
        for measure in ("semantic", "documents_read")
    )


def made_variants() -> tuple[GateVariant, ...]:
    never = (
        "EXECUTE can never be chosen: in a run of at most 6 steps confidence is at most 0.458, below "
        "tau_high 0.75",
    )
    named = [("ablations", name, 0.5) for name in ("full", "no SC (w1 = 0)", "no DR (w3 = 0)")]
    named += [("sweep", f"tau {low:g}, {high:g}", low) for low, high in _TAUS]
    return tuple(
        GateVariant(
            experiment=experiment,
            name=name,
            cell=made_cell(GATED, "tfidf", semantic=0.1 + at / 5, documents=18 * at),
            unreachable=never,
            taus=(at, round(at + 0.2, 1)) if experiment == "sweep" else None,
        )
        for experiment, name, at in named
    )


def made_steps(agent: str, retriever: str) -> StepTrace:
    means = (0.18, 0.22, 0.26, 0.31, 0.36, 0.4)
    return StepTrace(
        agent=agent,
        retriever=retriever,
        count=(50, 50, 48, 40, 25, 10),
        confidence=means,
        error=(0.01, 0.012, 0.015, 0.02, 0.025, 0.04),
        median=tuple(mean + 0.01 for mean in means),
        low=tuple(mean - 0.12 for mean in means),
        high=tuple(mean + 0.1 for mean in means),
        contradiction=(0.0, 0.05, 0.1, 0.12, 0.16, 0.2),
        actions=({"RETRIEVE": 50}, *({"RETRIEVE": 20, "ASK": 5},) * 5),
    )


def made_example(agent: str) -> ExampleRun:
    retrieving = ExampleStep(
        confidence=0.18,
        contradiction=0.0,
        action="RETRIEVE",
        blocked=None,
        documents=3,
        chosen="Create the bucket",
    )
    replanning = replace(
        retrieving,
        confidence=0.1,
        contradiction=1.0,
        action="REPLAN",
        blocked="cool-down",
        documents=0,
        chosen="Do not open port 443",
    )
    asking = replace(retrieving, confidence=0.4, action="ASK", documents=0, chosen=None)
    return ExampleRun(
        agent=agent,
        retriever="tfidf",
        task="t1",
        goal="Create a bucket for invoices",
        seed=42,
        tau_low=0.25,
        tau_high=0.75,
        steps=(retrieving, replanning, asking),
        proxy=True,
        semantic=False,
        covered=False,
    )
