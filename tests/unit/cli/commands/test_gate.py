"""``fit gate`` on question traces and on plan traces, and its replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.builders import written_traces
from tests.commands import refused, run, run_json
from tests.gates import informative, judged

from suffice.policies.gate.policy import GatePolicy
from suffice.policies.policy_file import load_policy
from suffice.trace.parquet import write_table
from suffice.trace.plan_traces import PLAN_ROWS, PlanRecord


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(written_traces(tmp_path_factory.mktemp("record"), informative().records()))


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(judged().records, tmp_path_factory.mktemp("plans") / "plans.parquet")


def written(records: Sequence[PlanRecord], path: Path) -> str:
    write_table(PLAN_ROWS.table(records, {}), path)
    return str(path)


class TestPlans:
    def test_it_fits_a_planning_agents_gate(self, plans: str, record: str, tmp_path: Path) -> None:
        out = str(tmp_path / "gate.json")
        asked = ["--failure-loss", "3", "--ask-cost", "0.9", "--stop-cost", "2.2"]
        fitted = run_json("fit", "gate", plans, "--out", out, *asked)["policy"]
        assert (fitted["rounds"], fitted["preset"]) == (None, "corrected")
        assert fitted["settings"]["tau_high"] == pytest.approx(0.7)
        assert fitted["settings"]["tau_stop"] == pytest.approx(1 - 2.2 / 3)
        assert fitted["fitted_on"]["source"] == plans
        policy = load_policy(out).policy
        assert isinstance(policy, GatePolicy)
        assert policy.settings.risk.disagreement > 1.0
        refused(run("replay", record, "--policy", out), "guides a planning agent")
        refused(
            run("ask", "Where?", "--corpus", str(tmp_path), "--policy", out),
            "guides a planning agent",
        )

    def test_another_method_refuses_plan_traces(self, plans: str, tmp_path: Path) -> None:
        refused(run("fit", "tasr", plans, "--out", str(tmp_path / "p.json")), "plan trace")


def test_live_it_draws_two_samples_a_round_and_reads_them(record: str, tmp_path: Path) -> None:
    out = str(tmp_path / "policy.json")
    run_json("fit", "gate", record, "--out", out)
    corpus = tmp_path / "notes.jsonl"
    corpus.write_text('{"id": "a", "title": "Oslo", "text": "Oslo is a city."}\n')
    asked = ["--corpus", str(corpus), "--policy", out, "--llm", "scripted"]
    found = run_json("ask", "Where is Oslo?", *asked)
    assert (found["stopped_by"], found["rounds"], found["usage"]["sample_calls"]) == (
        "policy",
        1,
        2,
    )
    assert found["reason"].startswith("stops at round 1: confidence")
    policy = load_policy(out).policy
    assert isinstance(policy, GatePolicy)
    assert found["confidence"] == policy.settings.risk.confidence(
        policy.settings.risk.risk(agreement=1.0, contradiction=0.0, remaining=0.75)
    )
