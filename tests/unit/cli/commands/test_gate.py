"""``fit gate`` on question traces and on plan traces, and its replay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from studies.tests.ab_rag import study_traces
from tests.builders import written_traces
from tests.commands import refused, run, run_json
from tests.gates import informative, judged

from suffice.cli.main import main
from suffice.policies.gate.policy import GatePolicy
from suffice.policies.policy_file import load_policy
from suffice.testing.traces import sampled_records
from suffice.trace.parquet import write_table
from suffice.trace.plan_traces import PLAN_ROWS


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    made = {
        "ab-rag": study_traces().records(),
        "gate": informative().records(),
        "micp": sampled_records(300),
    }
    folder = tmp_path_factory.mktemp("records")
    for name in made:
        (folder / name).mkdir()
    return {name: str(written_traces(folder / name, held)) for name, held in made.items()}


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("plans") / "plans.parquet"
    write_table(PLAN_ROWS.table(judged().records, {}), path)
    return str(path)


class TestPlans:
    def test_it_fits_a_planning_agents_gate(
        self, plans: str, records: dict[str, str], tmp_path: Path
    ) -> None:
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
        refused(run("replay", records["gate"], "--policy", out), "guides a planning agent")
        refused(
            run("ask", "Where?", "--corpus", str(tmp_path), "--policy", out),
            "guides a planning agent",
        )

    def test_another_method_refuses_plan_traces(self, plans: str, tmp_path: Path) -> None:
        refused(run("fit", "tasr", plans, "--out", str(tmp_path / "p.json")), "plan trace")


def test_live_it_draws_two_samples_a_round_and_reads_them(
    records: dict[str, str], corpus: Path, tmp_path: Path
) -> None:
    out = str(tmp_path / "policy.json")
    run_json("fit", "gate", records["gate"], "--out", out)
    asked = ["--corpus", str(corpus), "--policy", out, "--llm", "scripted"]
    found = run_json("ask", "Who founded Cadel Tower?", *asked)
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


@pytest.mark.parametrize("name", ["ab-rag", "gate", "micp"])
def test_the_file_and_the_name_are_one_policy(
    name: str, records: dict[str, str], tmp_path: Path
) -> None:
    out = str(tmp_path / "policy.json")
    fitted = run_json("fit", name, records[name], "--out", out)
    assert (fitted["policy"]["kind"], fitted["policy"]["preset"]) == (name, "corrected")
    asked = ("--policy", out, "--policy", f"{name}-corrected", "--policy", name)
    given, corrected, published = run_json("replay", records[name], *asked)["policies"][:3]
    assert given["hash"] == corrected["hash"] == fitted["hash"] != published["hash"]
    assert given["stop_rounds"] == corrected["stop_rounds"]


pytest.importorskip("bm25s")


def generated(out: Path, *more: str) -> list[str]:
    return [
        "record", "--dataset", "generated", "--llm", "scripted", "--out", str(out), "--rounds", "3",
        "--samples", "5", "--splits", "optimize=0.4,calibrate=0.4,eval=0.2", *more,
    ]  # fmt: skip


def test_the_filter_is_fitted_used_and_handed_on(corpus: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    assert main(generated(first, "--limit", "30")) == 0
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    options = ("--alpha", "0.3", "--alpha-retrieval", "0.3")
    fitted = run_json("fit", "micp", first, "--out", one, *options)["policy"]
    assert not fitted["filtered"]
    assert len(fitted["filter"]["question_ids"]) == 12
    assert main(generated(second, "--limit", "30", "--filter", str(one))) == 0
    then = run_json("fit", "micp", second, "--out", two, *options)["policy"]
    assert then["filtered"]
    assert then["filter"]["threshold"] == fitted["filter"]["threshold"]
    # that policy cannot tell whose passages set its filter
    assert main(generated(tmp_path / "third", "--limit", "5", "--filter", str(two))) == 0
    # a question's every shown passage passes the filter
    import pyarrow.parquet as pq

    shards = [pq.read_table(each) for each in second.glob("*.parquet")]
    scores = [
        passage["score"]
        for table in shards
        for passages in table.column("passages").to_pylist()
        for passage in passages
    ]
    assert min(scores) >= fitted["filter"]["threshold"]
    # the same recording under another filter is another recording
    assert main(generated(second, "--limit", "31")) == 2
    asked = run_json(
        "ask", "Who founded Cadel Tower?", "--corpus", corpus, "--llm", "scripted",
        "--policy", two,
    )  # fmt: skip
    assert all(each["score"] >= fitted["filter"]["threshold"] for each in asked["passages"])
    bare = run_json(
        "ask", "Who founded Cadel Tower?", "--corpus", corpus, "--llm", "scripted",
        "--policy", one,
    )  # fmt: skip
    assert len(bare["passages"]) >= len(asked["passages"])


def test_ask_gives_the_set_or_cannot_answer(
    records: dict[str, str], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "policy.json"
    run_json("fit", "micp", records["micp"], "--out", out, "--alpha", "0.2")
    arguments = ["ask", "Who founded Cadel Tower?", "--corpus", str(corpus), "--llm", "scripted"]
    found = run_json(*arguments, "--policy", out)
    held = found["answer_set"]
    assert isinstance(held["cannot_answer"], bool)
    assert all(0 < each["confidence"] <= 1 for each in held["answers"])
    assert held["cannot_answer"] == (found["rounds"] == 3 or found["stopped_by"] != "policy")
    assert found["usage"]["sample_calls"] == 5 * found["rounds"]
    # nothing is confident enough: it cannot answer
    document = json.loads(out.read_text())
    document["answer_set"]["confidence"] = 1.5
    out.write_text(json.dumps(document))
    none = run_json(*arguments, "--policy", out)
    assert (none["answer"], none["declined"]) == ("cannot answer", True)
    assert main([*arguments, "--policy", str(out), "--samples", "2"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("cannot answer")
