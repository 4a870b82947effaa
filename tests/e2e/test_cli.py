"""The commands as a user types them: exit codes, one JSON document on stdout, one line of error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.commands import refused, run, run_json, run_process

from suffice.trace.rounds.reader import read_traces


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("recorded") / "traces"
    document = run_json(
        "record", "--dataset", "generated", "--limit", "20", "--samples", "3",
        "--llm", "scripted", "--out", out,
    )  # fmt: skip
    assert document["recorded"] == 20
    return out


def test_record_resumes_and_validates(recorded: Path) -> None:
    again = run_json(
        "record", "--dataset", "generated", "--limit", "25", "--samples", "3",
        "--llm", "scripted", "--out", recorded,
    )  # fmt: skip
    assert (again["recorded"], again["before"]) == (5, 20)
    document = run_json("traces", "validate", recorded)
    assert document == {"questions": 25, "rounds": 125, "errors": [], "failures": 0}
    traces = read_traces(recorded)
    assert traces.splits == {"eval": 15, "tune": 10}
    first = next(traces.records())
    assert len(first.rounds) == 5
    assert all(each.tokens and len(each.samples or ()) == 3 for each in first.rounds)
    other = run("record", "--dataset", "generated", "--llm", "scripted", "--out", recorded)
    refused(other, "other settings", "samples was 3, now 0")


def test_a_process_prints_the_same(recorded: Path) -> None:
    arguments = ("replay", recorded, "--policy", "tasr", "--stop-when", "answer_stable")
    alone, here = run_process(*arguments), run(*arguments)
    assert (alone.returncode, alone.stdout) == (here.returncode, here.stdout)
    assert alone.stderr == here.stderr


def test_replay_fields_and_order(recorded: Path) -> None:
    document = run_json(
        "replay", recorded, "--policy", "fixed-1", "--policy", "tasr", "--policy", "tasr",
        "--policy", "oracle-em", "--stop-when", "answer_stable", "--per-question",
    )  # fmt: skip
    names = [each["name"] for each in document["policies"]]
    assert names == ["fixed-1", "tasr", "tasr#2", "oracle-em", "answer_stable", "fixed-5"]
    assert document["baseline"] == "fixed-5"
    assert document["split"] == "eval"
    for each in document["policies"]:
        fields = {
            "name", "kind", "preset", "hash", "em", "f1", "acc", "mean_rounds", "llm_calls",
            "prompt_tokens", "cached_tokens", "completion_tokens", "stop_rounds", "beyond_record",
            "delta_f1", "retained_f1", "rounds",
        }  # fmt: skip
        assert fields <= set(each)
        assert sum(each["stop_rounds"].values()) == document["questions"] == len(each["rounds"])
        # none of these reads samples, and fixed budgets read no answers but their last
        assert each["llm_calls"] == (1.0 if each["kind"] == "fixed" else each["mean_rounds"])
    assert document["policies"][0]["stop_rounds"] == {"1": document["questions"]}


def test_signals_are_stored_and_give_the_same_replay(recorded: Path, tmp_path: Path) -> None:
    document = run_json("signals", recorded, "--out", tmp_path / "with.parquet")
    assert "answer_token_margin" in document["computed"]
    assert document["skipped"]["judge_support"] == "needs --llm"
    assert document["skipped"]["rerank_top_score"] == "needs --reranker"
    policies = ["--policy", "tasr", "--policy", "tasr-corrected", "--stop-when", "overlap > 0.2"]
    before = run_json("replay", recorded, *policies)
    after = run_json("replay", tmp_path / "with.parquet", *policies)
    assert before["policies"] == after["policies"]


def test_a_truncated_part_is_named_and_the_rest_stays_readable(
    recorded: Path, tmp_path: Path
) -> None:
    broken = tmp_path / "traces"
    shutil.copytree(recorded, broken)
    (broken / "record.db").unlink()
    part = max(broken.glob("*.parquet"))
    table = pq.read_table(part)
    pq.write_table(table.slice(0, 50), broken / "whole.parquet")
    pq.write_table(table.slice(50), part)
    content = part.read_bytes()
    part.write_bytes(content[: len(content) // 2])
    refused(run("replay", broken, "--policy", "fixed-1"), part.name, "--skip-invalid")
    document = run_json(
        "replay", broken, "--policy", "fixed-1", "--skip-invalid", "--split", "tune"
    )
    assert document["questions"] > 0
    listed = run("traces", "validate", broken, "--json")
    assert listed.returncode == 2
    assert json.loads(listed.stdout)["errors"][0]["file"].endswith(part.name)


def test_every_policy_on_real_rounds(qwen_traces: Path) -> None:
    policies = ["fixed-1", "fixed-3", "fixed-5", "tasr", "tasr-corrected", "oracle-em", "oracle-f1"]
    document = run_json(
        "replay", qwen_traces, *(part for p in policies for part in ("--policy", p))
    )
    by_name = {each["name"]: each for each in document["policies"]}
    assert document["questions"] == 75
    # counted by hand from the file with the official scorer: 21, 20 and 21 of 75
    assert [round(by_name[f"fixed-{k}"]["em"] * 75) for k in (1, 3, 5)] == [21, 20, 21]
    assert by_name["oracle-em"]["em"] >= max(each["em"] for each in by_name.values())
    assert by_name["oracle-f1"]["f1"] >= by_name["oracle-em"]["f1"]
    assert by_name["tasr"]["stop_rounds"].get("1") is None
