"""``suffice report`` and ``diagnose``: parts, documents, tables, and what is said of what is left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders import written_traces
from tests.commands import run_json

from suffice.cli.main import main
from suffice.testing.traces import random_records


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_traces(tmp_path_factory.mktemp("traces"), random_records(30, seed=1))


def report(capsys: Any, traces: Path, out: Path, *options: str) -> tuple[Any, str, str]:
    arguments = ["report", str(traces), "--out", str(out), "--bootstrap", "20", "--json", *options]
    assert main(arguments) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out, parse_constant=pytest.fail)
    return document, out.read_text(encoding="utf-8"), printed.err


def test_all_parts_in_the_page_and_in_json(capsys: Any, traces: Path, tmp_path: Path) -> None:
    document, page, err = report(
        capsys, traces, tmp_path / "r.html", "--search", "answer_stable,answer_token_margin",
        "--form", "dnf",
    )  # fmt: skip
    for name in ("search", "calibration", "selective", "signals", "costs"):
        assert f'<section id="{name}" class="more"><details class="fold">' in page
    for name in ("comparison", "charts", "questions", "reading"):
        assert f'<section id="{name}"><details class="fold" open>' in page
    parts = document["parts"]
    assert parts["search"]["form"] == "dnf"
    assert len(parts["calibrators"]["kinds"]) == 5
    assert set(parts["left_out"]) == {"guarantees", "question types"}
    assert document["replay"]["bootstrap"] == 20
    assert document["bytes"] == len(page.encode())
    assert err == ""


def test_parts_can_be_chosen(capsys: Any, traces: Path, tmp_path: Path) -> None:
    _, page, _ = report(capsys, traces, tmp_path / "r.html", "--parts", "costs")
    assert 'id="costs"' in page
    assert 'id="signals"' not in page
    document, page, _ = report(capsys, traces, tmp_path / "r.html", "--parts", "none")
    assert 'class="more"' not in page
    assert document["parts"]["left_out"] == {}


def test_a_search_that_cannot_be_does_not_fail_the_report(
    capsys: Any, traces: Path, tmp_path: Path
) -> None:
    document, _, err = report(capsys, traces, tmp_path / "r.html", "--search", "nonsense")
    assert document["parts"]["search"] is None
    assert "nonsense" in document["parts"]["left_out"]["search"]
    assert err.startswith("no search: unknown signal 'nonsense'")


@pytest.fixture(scope="module")
def diagnosed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_traces(tmp_path_factory.mktemp("diagnosed"), random_records(24, seed=0))


def test_json_is_one_document(diagnosed: Path) -> None:
    signals = "answer_stable, answer_token_margin"
    asked = ("--signals", signals, "--policy", "tasr", "--bootstrap", "20")
    found = run_json("diagnose", diagnosed, *asked)
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


def test_options_reach_the_diagnosis(diagnosed: Path) -> None:
    found = run_json(
        "diagnose", diagnosed, "--tune-split", "eval", "--split", "tune", "--seed", "7",
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
    "command",
    [
        ["replay", "--policy", "fixed-2", "--json"],
        ["diagnose", "--signals", "answer_stable", "--json"],
        ["search", "--signals", "answer_stable", "--json"],
    ],
)
def test_a_sample_is_the_same_for_every_command(
    diagnosed: Path, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    name, *options = command
    asked = [name, str(diagnosed), "--sample", "16", "--seed", "3", "--bootstrap", "20", *options]
    assert main(asked) == 0
    printed = capsys.readouterr()
    found = json.loads(printed.out)
    assert found["traces"] == f"{diagnosed} (a sample of 16 of 24 questions, seed 3)"


EXAMPLE_TRACES = str(Path(__file__).parents[4] / "examples" / "traces")
RULE = "answer_stable and not abstained and overlap > 0.3 or calibrated(answer_token_margin) > 0.25"
SIGNALS = "answer_stable,overlap,margin_mean"
COMMANDS = (
    ["replay", EXAMPLE_TRACES, "--policy", "tasr", "--stop-when", RULE, "--cost", "usd",
     "--prices", "input=0.15,output=0.6"],
    ["search", EXAMPLE_TRACES, "--signals", SIGNALS, "--form", "dnf", "--top", "4", "--report-naive"],
    ["diagnose", EXAMPLE_TRACES, "--signals", SIGNALS, "--policy", "tasr", "--stop-when", RULE],
)  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_no_line_is_longer_than_80(
    command: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    more = ["--out", str(tmp_path / "p.json")] if command[0] == "fit" else []
    assert main([*command, "--bootstrap", "10", *more]) == 0
    # but for the path written
    lines = [line for line in capsys.readouterr().out.splitlines() if str(tmp_path) not in line]
    assert [line for line in lines if len(line) > 80] == []
    assert len(lines) > 20
