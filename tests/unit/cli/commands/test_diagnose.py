"""``suffice diagnose``: one document or tables, and one line of error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.builders import written_traces
from tests.commands import refused, run, run_json

from suffice.cli.main import main
from suffice.testing.traces import random_records


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_traces(tmp_path_factory.mktemp("traces"), random_records(24, seed=0))


def test_json_is_one_document(traces: Path) -> None:
    signals = "answer_stable, answer_token_margin"
    asked = ("--signals", signals, "--policy", "tasr", "--bootstrap", "20")
    found = run_json("diagnose", traces, *asked)
    assert [each["name"] for each in found["signals"]] == ["answer_stable", "answer_token_margin"]
    assert set(found["parts"]) == {"tune", "eval"}
    assert found["bootstrap"] == 20
    assert found["seed"] == 42
    signal = found["signals"][1]
    assert set(signal["parts"]["eval"]["auroc"]) == {"estimate", "low", "high"}
    assert len(signal["parts"]["eval"]["rounds"]) == 3
    assert [each["policy"] for each in found["selective"]] == ["tasr"]
    assert found["replay"] == {
        "split": "eval",
        "questions": 12,
        "labelled": 12,
        "baseline": "fixed-3",
        "f1_kind": "hotpotqa",
    }


def test_options_reach_the_diagnosis(traces: Path) -> None:
    found = run_json(
        "diagnose", traces, "--tune-split", "eval", "--eval-split", "tune", "--seed", "7",
        "--stop-when", "answer_stable", "--confidence", "answer_token_margin",
        "--threshold", "0.5", "--f1", "squad", "--signals", "answer_stable", "--bootstrap", "20"
    )  # fmt: skip
    assert list(found["parts"]) == ["eval", "tune"]
    assert found["seed"] == 7
    assert found["replay"]["split"] == "tune"
    assert found["replay"]["f1_kind"] == "squad"
    assert [each["policy"] for each in found["selective"]] == ["answer_stable", "fixed-3"]
    assert {each["threshold"] for each in found["selective"]} == {0.5}
    assert {each["confidence"] for each in found["selective"]} == {"answer_token_margin"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--signals", "nothing"], "unknown signal 'nothing'"),
        (["--signals", "self_consistency"], "needs column samples"),
        (["--policy", "fixed-0"], "fixed"),
        (["--confidence", "nothing"], "unknown signal 'nothing'"),
        (["--eval-split", "tune"], "different"),
    ],
)
def test_wrong_usage_is_one_line(traces: Path, arguments: list[str], said: str) -> None:
    refused(run("diagnose", str(traces), *arguments, "--json"), said)


@pytest.mark.parametrize(
    "command",
    [
        ["replay", "--policy", "fixed-2", "--json"],
        ["diagnose", "--signals", "answer_stable", "--json"],
        ["search", "--signals", "answer_stable", "--json"],
        ["sweep", "--json"],
    ],
)
def test_a_sample_is_the_same_for_every_command(
    traces: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    name, *options = command
    asked = [name, str(traces), "--sample", "16", "--seed", "3", "--bootstrap", "20", *options]
    assert main(asked) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["traces"] == f"{traces} (a sample of 16 of 24 questions, seed 3)"
