"""``suffice report``: its parts, and what is said of those left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.builders import written_traces

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
        "--form", "dnf", "--report-naive",
    )  # fmt: skip
    for name in ("search", "thresholds", "calibration", "selective", "signals", "costs"):
        assert f'<section id="{name}" class="more"><details class="fold">' in page
    for name in ("comparison", "charts", "questions", "reading"):
        assert f'<section id="{name}"><details class="fold" open>' in page
    parts = document["parts"]
    assert parts["search"]["form"] == "dnf"
    assert "naive_low" in parts["search"]["rules"][0]
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
