"""What every study's command does alike."""

from __future__ import annotations

import csv
import importlib
import io

import pytest
from studies.retrieval.__main__ import main as retrieval

NAMES = ("ab_rag", "hidden_constraints", "micp", "retrieval", "stop_rag", "tasr", "training")
FEW = ("--dataset", "generated", "--limit", "4", "--encoder", "none", "--bootstrap", "5")


@pytest.mark.parametrize("name", NAMES)
def test_every_study_tells_its_options(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert importlib.import_module(f"studies.{name}.__main__").main(["--help"]) == 0
    assert f"Usage: python -m studies.{name}" in capsys.readouterr().out


def test_a_table_is_printed_as_data(capsys: pytest.CaptureFixture[str]) -> None:
    assert retrieval([*FEW, "--format", "csv"]) == 0
    first = capsys.readouterr().out.split("\n\n")[0]
    rows = list(csv.DictReader(io.StringIO(first)))
    assert [row["retriever"] for row in rows] == ["bm25", "tfidf"]


@pytest.mark.parametrize(
    "words",
    [
        ["--dataset", "hotpotqa"],
        ["--dataset", "generated", "--reranker", "nowhere"],
        ["--dataset", "generated", "--pool", "3", "--retrievers", "bm25"],
        [],
    ],
)
def test_wrong_usage_is_one_line(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert retrieval(words) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1
