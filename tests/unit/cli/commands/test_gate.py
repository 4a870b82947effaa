"""``fit gate`` on question traces and on plan traces, and its replay."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.builders import written_traces
from tests.commands import refused, run, run_json
from tests.gates import informative, judged

from suffice.policies.file import load_policy
from suffice.policies.gate.policy import GatePolicy
from suffice.trace.plans.file import write_plans
from suffice.trace.plans.records import PlanRecord


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(written_traces(tmp_path_factory.mktemp("record"), informative().records()))


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> str:
    return written(judged().records, tmp_path_factory.mktemp("plans") / "plans.parquet")


def written(records: Sequence[PlanRecord], path: Path) -> str:
    write_plans(list(records), path)
    return str(path)


class TestQuestions:
    def test_fit_replay_and_file_agree(self, record: str, tmp_path: Path) -> None:
        out = str(tmp_path / "policy.json")
        fitted = run_json("fit", "gate", record, "--out", out)["policy"]
        assert (fitted["kind"], fitted["preset"], fitted["rounds"]) == ("gate", "corrected", 4)
        assert fitted["settings"]["tau_low"] == 0.5
        asked = ["--policy", out, "--policy", "gate-corrected", "--policy", "gate"]
        found = run_json("replay", record, *asked)
        first, second, third = found["policies"][:3]
        names = [each["name"] for each in (first, second, third)]
        assert names == ["gate-corrected", "gate-corrected#2", "gate"]
        assert first["hash"] == second["hash"] != third["hash"]
        assert first["stop_rounds"] == second["stop_rounds"]
        assert first["auroc"] == second["auroc"] > 0.5
        assert 0.0 <= third["auroc"] <= 1.0
        assert 1 < first["mean_rounds"] < third["mean_rounds"] == 4.0

    def test_costs_set_the_thresholds(self, record: str, tmp_path: Path) -> None:
        out = str(tmp_path / "policy.json")
        costs = ["--retrieval-cost", "2", "--failure-loss", "5"]
        settings = run_json("fit", "gate", record, "--out", out, *costs)["policy"]["settings"]
        assert settings["tau_low"] == settings["tau_high"] == pytest.approx(0.6)
        published = run_json("fit", "gate", record, "--out", out, "--preset", "published", *costs)[
            "policy"
        ]
        assert published["settings"]["intercept"] == 0.0
        assert published["settings"]["tau_low"] == pytest.approx(0.6)

    @pytest.mark.parametrize(
        ("arguments", "expected"),
        [
            (["--ask-cost", "1"], "--ask-cost"),
            (["--failure-loss", "0"], "failure"),
            (["--alpha", "0.1"], "leave alpha out"),
        ],
    )
    def test_what_it_cannot_do_is_said(
        self, arguments: list[str], expected: str, record: str, tmp_path: Path
    ) -> None:
        out = tmp_path / "p.json"
        refused(run("fit", "gate", record, "--out", str(out), *arguments), expected)
        assert not out.exists()


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
