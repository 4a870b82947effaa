"""TriviaQA as its authors and as the Hub write it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice.datasets.registry import load
from suffice.errors import DataError

OFFICIAL: dict[str, Any] = {
    "Domain": "unfiltered-web",
    "Data": [
        {
            "Answer": {
                "Aliases": ["Park Grove", "Sunset Blvd", ""],
                "HumanAnswers": ["the boulevard"],
                "NormalizedAliases": ["park grove", "sunset blvd"],
                "NormalizedValue": "sunset blvd",
                "Type": "WikipediaEntity",
                "Value": "Sunset Blvd",
            },
            "Question": "Which street?",
            "QuestionId": "tc_33",
            "QuestionSource": "http://www.triviacountry.com/",
            "SearchResults": [{"Title": "T"}],
        },
        {"Question": "Untold?", "QuestionId": "tc_40", "QuestionSource": "s"},
    ],
    "VerifiedEval": False,
    "Version": 1.0,
}
ANSWERS = ("Sunset Blvd", "Park Grove", "the boulevard")


def test_the_authors_json(tmp_path: Path) -> None:
    path = tmp_path / "unfiltered-web-dev.json"
    path.write_text(json.dumps(OFFICIAL), encoding="utf-8")
    with pytest.warns(UserWarning, match="an empty gold answer was dropped, 3 left"):
        first, second = load("triviaqa", path)
    assert (first.question.id, first.question.text) == ("tc_33", "Which street?")
    assert first.gold.answers == ANSWERS
    assert (second.question.id, second.gold.answers) == ("tc_40", ())
    assert not first.passages


def test_the_hubs_rows(tmp_path: Path) -> None:
    row = {
        "question": "Which street?",
        "question_id": "tc_33",
        "search_results": {"title": ["T"]},
        "answer": {"value": ANSWERS[0], "aliases": list(ANSWERS[1:]), "normalized_value": "x"},
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "t.parquet")
    (tmp_path / "t.jsonl").write_text(json.dumps(row), encoding="utf-8")
    for name in ("t.parquet", "t.jsonl"):
        (example,) = load("triviaqa", tmp_path / name)
        assert example.gold.answers == ANSWERS


@pytest.mark.parametrize(
    ("document", "part"),
    [
        ({"Rows": []}, "must hold one list of questions"),
        ([{"Question": "A?"}], "row 0, column questionid"),
        ([{"Question": "A?", "QuestionId": "1", "Answer": {"Value": {}}}], r"column answer\.value"),
    ],
)
def test_what_is_none(document: object, part: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(DataError, match=part):
        load("triviaqa", path)
