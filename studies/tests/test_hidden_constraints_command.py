"""``python -m studies.hidden_constraints``."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from studies.command import Found
from studies.hidden_constraints import study as study_module
from studies.hidden_constraints.__main__ import main
from studies.hidden_constraints.corpus.generate import generate
from studies.hidden_constraints.corpus.tasks import Benchmark, BenchmarkSettings
from studies.hidden_constraints.scripted import ScriptedPlanner

from suffice.policies.gate.gate_settings import GateCosts, GateSettings, RiskModel
from suffice.policies.gate.policy import GatePolicy
from suffice.policies.policy_file import save_policy
from suffice.trace.plan_traces import read_plans

BENCH = ["--llm", "scripted", "--subset", "hard-small"]
QUICK = [*BENCH, "--experiments", "main", "--seeds", "1", "--bootstrap", "50"]
NARROW = [*QUICK, "--retrievers", "oracle", "--agents", "vanilla,confidence-gated"]


def made_small(settings: BenchmarkSettings | None = None) -> Benchmark:
    """A benchmark of 4 tasks in place of 50."""
    wanted = BenchmarkSettings() if settings is None else settings
    return generate(replace(wanted, tasks=4, hard_small=4, documents=24))


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_module, "generate", made_small)


@pytest.mark.usefixtures("few")
def test_json_is_the_contract(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("sklearn", reason="the extra 'cluster' is missing")
    assert main([*QUICK, "--retrievers", "tfidf,oracle", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["benchmark"] == {"tasks": 4, "hard_small": 4, "documents": 24}
    named = [(each["agent"], each["retriever"]) for each in document["results"]]
    agents = ("fixed-top-k", "always-retrieve", "self-rag", "confidence-gated")
    assert sorted(named, key=str) == sorted(
        [("vanilla", None), *((a, r) for a in agents for r in ("tfidf", "oracle"))], key=str
    )
    for each in document["results"]:
        for name in ("semantic", "proxy", "grounded_proxy"):
            assert 0.0 <= each[name] <= 1.0
        for name in ("documents_read", "retrievals", "steps"):
            assert each[name] >= 0.0
        assert (each["runs"], each["failed"]) == (4, 0)
    found = dict(zip(named, document["results"], strict=True))
    assert found["vanilla", None]["semantic"] == 0.0
    assert found["vanilla", None]["retrievals"] == 0.0
    assert found["fixed-top-k", "tfidf"]["documents_read"] == 6.0
    assert found["confidence-gated", "oracle"]["semantic"] == 1.0
    assert [each["retriever"] for each in document["recall"]] == ["tfidf", "oracle"]
    assert set(document["recall"][0]) >= {"recall@1", "recall@5", "recall@10", "mean_rank"}
    assert document["judge"] == "checker"
    assert "without --out nothing is kept" in printed.err
    assert "runs finished 36/36" in printed.err


@pytest.mark.usefixtures("few")
def test_tables_and_files_and_the_second_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "folder"
    asked = [*NARROW, "--experiments", "main,sweep", "--out", str(out)]
    assert main(asked) == 0
    first = capsys.readouterr()
    for part in ("Success, in percent", "What retrieval allows", "other thresholds", "Costs"):
        assert part in first.out
    assert f"wrote {out / 'hidden_constraints.json'}" in first.err
    assert len((out / "tasks.jsonl").read_text().splitlines()) == 4
    assert len((out / "documents.jsonl").read_text().splitlines()) == 24
    assert len(read_plans(out / "plans").records) == 4 * (1 + 1 + 6)
    before = json.loads((out / "hidden_constraints.json").read_text())
    assert main(asked) == 0
    assert "runs finished" not in capsys.readouterr().err
    after = json.loads((out / "hidden_constraints.json").read_text())
    assert after["results"] == before["results"]
    assert main([*asked, "--seeds", "2"]) == 0
    assert "runs finished 8/8" in capsys.readouterr().err
    assert main([*asked, "--gap", "0.5"]) == 2
    assert "other settings" in capsys.readouterr().err


def saved_gate(path: Path) -> str:
    costs = GateCosts(retrieval=1, failure=2, ask=0.5)
    settings = GateSettings.corrected(RiskModel(intercept=2.0), costs)
    return str(save_policy(GatePolicy(settings=settings), path))


@pytest.mark.usefixtures("few")
def test_a_gate_is_one_more_agent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gates = [saved_gate(tmp_path / "mine.json"), saved_gate(tmp_path / "self-rag.json")]
    asked = [*NARROW, "--gate", gates[0], "--gate", gates[1], "--json"]
    assert main(asked) == 0
    document = json.loads(capsys.readouterr().out)
    agents = [each["agent"] for each in document["results"]]
    assert [each.partition("@")[0] for each in agents] == [
        "vanilla",
        "confidence-gated",
        "mine",
        "self-rag",
    ]
    assert len(set(agents)) == 4
    assert document["results"][2]["documents_read"] == document["results"][3]["documents_read"]


@pytest.mark.usefixtures("few")
def test_who_judges(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def connected(llm: str, model: str | None, **rest: Any) -> ScriptedPlanner:
        assert (llm, model, rest["cache"]) == ("http://judge/v1", "strict", cache)
        return ScriptedPlanner(made_small())

    cache = str(tmp_path / "replies.sqlite")
    monkeypatch.setattr("suffice.llm.connect.connect", connected)
    judge = ["--judge", "http://judge/v1", "--judge-model", "strict", "--cache", cache]
    assert main([*NARROW, *judge, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["judge"] == "scripted-planner"
    assert [each["semantic"] for each in document["results"]] == [0.0, 1.0]


def test_failed_runs_are_a_failure_of_the_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for failed in (1, 0):
        found = Found(document={"results": [{"failed": failed}], "variants": []}, shown=())
        monkeypatch.setattr(
            study_module, "hidden_constraints_study", lambda *_, found=found, **__: found
        )
        assert main([*NARROW, "--out", str(tmp_path)]) == failed
        assert ("run again to retry" in capsys.readouterr().err) == bool(failed)
