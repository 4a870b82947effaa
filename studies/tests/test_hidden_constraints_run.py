"""The experiment as a whole, under a scripted planner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from studies.command import Found
from studies.hidden_constraints.checker import CheckerJudge
from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import Benchmark, BenchmarkSettings
from studies.hidden_constraints.judge import LLMJudge
from studies.hidden_constraints.runs import Experimenters, HiddenConstraintsSettings
from studies.hidden_constraints.scripted import ScriptedPlanner
from studies.hidden_constraints.study import hidden_constraints_study

from suffice.contracts import Generation, GenerationRequest
from suffice.trace.plan_traces import read_plans

SMALL = BenchmarkSettings(tasks=6, hard_small=3, documents=60, gap=0.5)


@pytest.fixture(scope="module")
def made() -> Benchmark:
    return generate(SMALL)


class Counting(ScriptedPlanner):
    """Counts what it is asked; raises at one question."""

    def __init__(self, made: Benchmark, *, interrupt_at: int | None = None) -> None:
        super().__init__(made)
        self.asked = 0
        self._interrupt_at = interrupt_at

    def generate(self, request: GenerationRequest) -> Generation:
        self.asked += 1
        if self.asked == self._interrupt_at:
            raise KeyboardInterrupt
        return super().generate(request)


def who(made: Benchmark, model: ScriptedPlanner | None = None) -> Experimenters:
    judge = CheckerJudge(task.constraint for task in made.tasks)
    model = ScriptedPlanner(made) if model is None else model
    return Experimenters(model=model, judge=judge, judge_name="checker")


def asked(**changes: Any) -> HiddenConstraintsSettings:
    given: dict[str, Any] = {
        "benchmark": SMALL,
        "retrievers": ("tfidf", "oracle"),
        "seeds": 2,
        "resamples": 50,
    }
    return HiddenConstraintsSettings(**(given | changes))


def studied(made: Benchmark, **changes: Any) -> Found:
    pytest.importorskip("sklearn", reason="the extra 'cluster' is missing")
    found = hidden_constraints_study(who(made), asked(**changes), made=made)
    assert found is not None
    return found


def cell(study: Found, agent: str, retriever: str | None) -> dict[str, Any]:
    cells: list[dict[str, Any]] = study.document["results"]
    [found] = [one for one in cells if (one["agent"], one["retriever"]) == (agent, retriever)]
    return found


@pytest.fixture(scope="module")
def study(made: Benchmark) -> Found:
    return studied(made)


def test_vanilla_scores_nothing_and_the_oracle_everything(study: Found) -> None:
    vanilla = cell(study, "vanilla", None)
    assert [vanilla[name] for name in ("semantic", "proxy", "documents_read")] == [0, 0, 0]
    for agent in ("fixed-top-k", "always-retrieve", "self-rag", "confidence-gated"):
        found = cell(study, agent, "oracle")
        scores = ("semantic", "proxy", "grounded_proxy", "covered", "satisfied_covered")
        assert [found[name] for name in scores] == [1] * 5
        assert (found["satisfied_uncovered"], found["runs"]) == (None, 12)


def test_under_the_scripted_planner_success_is_coverage(study: Found) -> None:
    for row in study.document["results"]:
        assert row["semantic"] == row["covered"] == row["checked"]
        assert row["malformed"] == 0.0


def test_the_gate_reads_less_than_always_retrieving(study: Found) -> None:
    wanted = {"retriever": "oracle", "measure": "documents_read", "against": "always-retrieve"}
    [saved] = [one for one in study.document["contrasts"] if wanted.items() <= one.items()]
    assert saved["difference"].high < 0.0
    always, gated = (
        cell(study, name, "oracle")["documents_read"]
        for name in ("always-retrieve", "confidence-gated")
    )
    assert saved["difference"].estimate == pytest.approx(gated - always)


@pytest.mark.slow
def test_a_judge_is_compared_with_the_checker(made: Benchmark) -> None:
    pytest.importorskip("sklearn", reason="the extra 'cluster' is missing")
    planner = ScriptedPlanner(made)
    judged = Experimenters(model=planner, judge=LLMJudge(planner), judge_name="planner")
    wanted = asked(experiments=("main",), seeds=1)
    found = hidden_constraints_study(judged, wanted, made=made)
    assert found is not None
    agreed = found.document["agreement"]
    assert (agreed["share"], agreed["both"] + agreed["neither"]) == (1.0, 54)


def test_a_subset_narrows(made: Benchmark) -> None:
    found = studied(made, subset="hard-small", experiments=("main",), seeds=1)
    assert cell(found, "vanilla", None)["runs"] == 3
    assert found.to_json()["benchmark"] == {"tasks": 6, "hard_small": 3, "documents": 60}
    assert "one seed: no interval over seeds" in found.notes
    first = studied(made, limit=2, experiments=("main",), seeds=1, agents=("vanilla",))
    assert cell(first, "vanilla", None)["runs"] == 2


def test_it_goes_on_where_it_was_interrupted(made: Benchmark, tmp_path: Path) -> None:
    pytest.importorskip("sklearn", reason="the extra 'cluster' is missing")
    wanted = asked(folder=tmp_path, experiments=("main",), seeds=1)
    cut = Counting(made, interrupt_at=100)
    assert hidden_constraints_study(who(made, cut), wanted, made=made) is None
    kept = len(read_plans(tmp_path / "plans").records)
    assert 0 < kept < 54
    rest = Counting(made)
    first = hidden_constraints_study(who(made, rest), wanted, made=made)
    assert first is not None
    assert rest.asked > 0
    again = Counting(made)
    second = hidden_constraints_study(who(made, again), wanted, made=made)
    assert again.asked == 0
    assert second is not None
    assert second.document["results"] == first.document["results"]
    assert "nothing was run anew: all runs were recorded before" in second.notes


def test_a_run_costs_its_retrievals_and_its_failure(study: Found) -> None:
    """J = c_r retrievals + L_f [fail] (paper 4, Eq. 5) with c_r 1 and L_f 2, run by run."""
    for row in study.document["results"]:
        cost = row["retrievals"] + 2.0 * (1.0 - row["semantic"])
        assert row["trajectory_cost"] == pytest.approx(cost)
    assert cell(study, "vanilla", None)["trajectory_cost"] == 2.0
    assert study.to_json()["settings"]["failure_loss"] == 2.0
