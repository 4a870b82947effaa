"""``suffice bench stop-rag``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="the extra 'learn' is missing")

from tests.builders import written_traces
from tests.studies.stop_rag import study_records

from suffice.cli.main import main

QUICK = ["--variants", "signals", "--min-steps", "20", "--epochs", "0.1", "--bootstrap", "50"]


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(written_traces(tmp_path_factory.mktemp("record"), study_records()))


def test_json_is_the_contract(record: str, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["bench", "stop-rag", record, *QUICK, "--seeds", "2", "--seed", "5", "--f1", "squad"]
    assert main([*asked, "--preset", "published", "--json"]) == 0
    printed = capsys.readouterr()
    document = json.loads(printed.out)
    assert document["seeds"] == [5, 6]
    assert document["variants"] == ["signals"]
    assert (document["preset"], document["f1_kind"], document["bootstrap"]) == (
        "published",
        "squad",
        50,
    )
    assert (document["split"], document["questions"], document["fitted_on"]) == (
        "eval",
        24,
        {"tune": 30},
    )
    names = [each["name"] for each in document["policies"]]
    assert names[:3] == ["signals", "llm-stop", "fixed-1"]
    assert document["policies"][0]["fits"][0]["steps"] == 20
    assert "only 24 questions to score" in printed.err
    assert "signals, seed 6 (2 of 2): trained" in printed.err


def test_tables_and_files_and_the_second_run(
    record: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "new" / "folder"
    asked = ["bench", "stop-rag", record, *QUICK, "--seeds", "1", "--out", str(out)]
    assert main(asked) == 0
    first = capsys.readouterr()
    for part in ("What each policy earns", "Differences of F1", "Every training", "llm-stop"):
        assert part in first.out
    assert "signals, seed 42 (1 of 1): steps trained 20/20" in first.err
    assert f"wrote {out / 'stop_rag.json'} and {out / 'stop_rag.html'}" in first.err
    before = json.loads((out / "stop_rag.json").read_text())
    assert (out / "stop_rag.html").read_text().startswith("<!DOCTYPE html>")
    assert sorted(each.name for each in (out / "signals-42").iterdir()) == [
        "policy.json",
        "policy.safetensors",
    ]
    assert main(asked) == 0
    second = capsys.readouterr()
    assert "signals, seed 42 (1 of 1): found" in second.err
    assert "steps trained" not in second.err
    after = json.loads((out / "stop_rag.json").read_text())
    assert after["contrasts"] == before["contrasts"]
    assert after["policies"][0]["runs"] == before["policies"][0]["runs"]
    replayed = ["replay", record, "--policy", str(out / "signals-42"), "--json"]
    assert main(replayed) == 0
    policy = json.loads(capsys.readouterr().out)["policies"][0]
    assert policy["f1"] == pytest.approx(after["policies"][0]["runs"][0]["f1"])


def test_what_was_kept_is_not_mixed_up(
    record: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["bench", "stop-rag", record, *QUICK, "--seeds", "1", "--out", str(tmp_path)]
    assert main(asked) == 0
    capsys.readouterr()
    assert main([*asked, "--f1", "hotpotqa"]) == 2
    said = capsys.readouterr().err
    assert 'reward was "f1", now "f1-hotpotqa"' in said
    assert "remove signals-42 to fit it again" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--variants", "best"], "variants must be of q-lambda, mc, q0, binary, signals"),
        (["--split", "test"], "no question lies in split 'test'; splits found: eval, tune"),
        (["--split", "tune"], "split 'tune' is fitted on"),
        (["--epochs", "0"], "epochs must be above 0"),
        (
            ["--variants", "mc", "--encoder", "/no/such/folder"],
            "/no/such/folder",
        ),
    ],
)
def test_wrong_usage_is_one_line(
    record: str, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main(["bench", "stop-rag", record, *QUICK, *options]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert said in printed.err
    assert len(printed.err.strip().splitlines()) == 1
