"""``suffice serve --check``: what would be served, or what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from suffice.cli.main import main

pytest.importorskip("bm25s")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes").mkdir()
    Path("notes/a.txt").write_text("Skien is a town.\n\nOslo is a city.", encoding="utf-8")


def check(*words: str) -> int:
    return main(["serve", "--llm", "scripted", "--check", *words])


def test_what_would_be_served(capsys: pytest.CaptureFixture[str]) -> None:
    Path("serve.toml").write_text(
        "port = 9001\n[policies]\nquick = 'fixed-2'\n[retrieval]\ncorpus = 'notes'\n", "utf-8"
    )
    assert check("--config", "serve.toml", "--host", "localhost", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["address"] == "http://localhost:9001/v1"
    assert told["policies"]["quick"]["max_rounds"] == 2
    assert check("--corpus", "notes", "--policy", "answer_stable", "--policy", "b=fixed-1") == 0
    said = capsys.readouterr().out
    assert "answer_stable" in said
    assert "suffice/b: policy always 1 round" in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--corpus PATH"),
        (("--policy", "fixed-2"), "--policy"),
        (("--corpus", "notes", "--policy", "fixedd-2"), "did you mean"),
        (("--corpus", "notes", "--policy", "a=fixed-2", "--policy", "a=fixed-3"), "a=fixed-3"),
        (("--corpus", "notes", "--policy", "x=tasr"), "fitted"),
        (("--corpus", "notes", "--config", "none.toml"), "none.toml"),
    ],
)
def test_what_is_wrong(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(*words) == 2
    assert said in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    record = ("--record", "notes/a.txt/r")
    assert check("--corpus", "notes", *record) == 1
    assert main(["serve", "--policy", "answer_stable", "--port", "0", *record]) == 1
    for line in capsys.readouterr().err.strip().splitlines():
        assert "notes/a.txt/r" in line
        assert "Not a directory" in line
