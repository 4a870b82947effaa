"""``suffice bench micp``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.builders import written_traces
from tests.studies.micp import sampled_records

from suffice.cli.main import main

QUICK = ["--steps", "2", "--alphas", "0.1,0.3"]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(written_traces(tmp_path_factory.mktemp("record"), sampled_records(60)))


def test_json_is_the_contract(record: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["bench", "micp", record, record, *QUICK, "--seeds", "2", "--seed", "5"]
    shares = ["--shares", "test=0.5,optimize=0.2,calibrate=0.3"]
    assert main([*asked, *shares, "--rounds", "2", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["seeds"] == [5, 6]
    assert document["shares"] == {"optimize": 0.2, "calibrate": 0.3, "test": 0.5}
    assert [each["rounds"] for each in document["trace_sets"]] == [2, 2]
    assert document["trace_sets"][0]["test"] == 30


def test_tables_and_files(record: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "folder"
    assert main(["bench", "micp", record, *QUICK, "--at", "0.3", "--out", str(out)]) == 0
    printed = capsys.readouterr()
    for part in ("Published, alpha 0.3", "coverage against target", "passage filter", "exact"):
        assert part in printed.out
    assert "wrote" in printed.err
    document = json.loads((out / "micp.json").read_text())
    assert document["alphas"] == [0.1, 0.3]
    assert (out / "micp.html").read_text().startswith("<!DOCTYPE html>")


def test_one_preset(record: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "micp", record, *QUICK, "--presets", "corrected"]) == 0
    printed = capsys.readouterr().out
    assert "Corrected" in printed
    assert "Published" not in printed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--alphas", "0.1,1"], "alpha"),
        (["--at", "0.2"], "--at 0.2 is not among --alphas 0.1, 0.3"),
        (["--presets", "best"], "presets must be of published, corrected"),
        (["--rounds", "9"], "9 rounds asked for"),
        (["--clusters", "embedding"], "are not clustered by meaning"),
        (["--match-f1", "2"], "F1"),
        (["--shares", "1/2,1/2,1/2"], "sum to at most 1"),
    ],
)
def test_wrong_usage_is_one_line(
    record: str, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main(["bench", "micp", record, *QUICK, *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err


@pytest.mark.parametrize(
    "shares", ["1/3,1/3", "a,b,c", "0,0.5,0.5", "test=1,test=1,test=1", "1/0,1,1"]
)
def test_shares_are_three_numbers(
    record: str, capsys: pytest.CaptureFixture[str], shares: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "micp", record, "--shares", shares])
    assert stopped.value.code == 2
    assert "three shares above 0" in capsys.readouterr().err
