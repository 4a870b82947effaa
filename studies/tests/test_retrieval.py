"""``python -m studies.retrieval`` on TriviaQA, in its authors' form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from studies.retrieval.__main__ import main as retrieval

from suffice.cli.main import main
from suffice.datasets.generated import generate

QUICK = ("--limit", "20", "--encoder", "none", "--bootstrap", "20")


def written_triviaqa(path: Path, *, count: int = 20) -> Path:
    """The authors' JSON with a search result a paragraph; half of the texts stand in their own files."""
    rows: list[dict[str, Any]] = []
    for number, example in enumerate(generate(count, seed=7)):
        found = []
        for at, passage in enumerate(example.passages):
            name = f"{number}/{at}.txt"
            result: dict[str, Any] = {"Title": passage.title, "Rank": at, "Filename": name}
            if at % 2:
                result["Description"] = passage.text
            else:
                file = path.parent / "evidence" / "web" / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(passage.text or "", encoding="utf-8")
            found.append(result)
        rows.append(
            {
                "Question": example.question.text,
                "QuestionId": f"tc_{number}",
                "Answer": {"Value": example.gold.answers[0], "Aliases": [*example.gold.answers]},
                "EntityPages": [],
                "SearchResults": found,
            }
        )
    document = {"Data": rows, "Domain": "unfiltered-web", "Version": 1.0}
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def triviaqa(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written_triviaqa(tmp_path_factory.mktemp("triviaqa") / "unfiltered-web-dev.json")


def test_triviaqas_passages_are_searched(
    triviaqa: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its texts hold its answers, so the passages are found; the pool is that of all its questions."""
    asked = ["--dataset", "triviaqa", "--data", str(triviaqa), *QUICK]
    assert retrieval([*asked, "--out", str(tmp_path), "--json"]) == 0
    trivia: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert 0 < trivia["questions"] <= 20
    assert trivia["passages"] > 20
    first = trivia["results"][0]
    assert first["retriever"] == "bm25"
    assert 0 < first["recall@5"] <= first["recall@50"] <= 1
    assert json.loads((tmp_path / "retrieval.json").read_text("utf-8")) == trivia


def test_triviaqa_is_recorded_over_its_own_passages(
    triviaqa: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "record")
    words = ["--dataset", "triviaqa", "--data", str(triviaqa), "--llm", "scripted", "--limit", "3"]
    assert main(["record", *words, "--rounds", "2", "--out", out]) == 0
    capsys.readouterr()
    assert main(["traces", "info", out, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["questions"] == 3
