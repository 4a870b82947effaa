"""TriviaQA as its authors and as the Hub write it, with the documents found for each question."""

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
            "SearchResults": [
                {"Title": "T", "Filename": "3/3_9.txt", "Description": "On Sunset  Blvd."}
            ],
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
    with pytest.warns(UserWarning, match="dropped"):
        first, second = load("triviaqa", path)
    assert (first.question.id, first.question.text) == ("tc_33", "Which street?")
    assert first.gold.answers == ANSWERS
    assert (second.question.id, second.gold.answers) == ("tc_40", ())
    assert [(one.id, one.title, one.text) for one in first.passages] == [
        ("T", "T", "On Sunset Blvd.")
    ]
    assert first.gold.passage_ids == ("T",)
    assert not second.passages


def test_the_authors_folder_of_evidence(tmp_path: Path) -> None:
    """Documents stand in files beside the one of the questions, and nowhere else on the machine."""
    found = {"Title": "T", "Description": "short"}
    rows = [
        {"Question": "A?", "QuestionId": "1", "SearchResults": [{**found, "Filename": "a.txt"}]},
        {"Question": "B?", "QuestionId": "2", "EntityPages": [{**found, "Filename": "b.txt"}]},
        {"Question": "C?", "QuestionId": "3", "EntityPages": [{**found, "Filename": "../../s"}]},
        {"Question": "D?", "QuestionId": "4", "EntityPages": [{**found, "Filename": "none.txt"}]},
    ]
    for name, text in {
        "evidence/web/a.txt": " ".join(map(str, range(250))),
        "evidence/wikipedia/b.txt": "of the web",
        "s": "a secret",
        "qa/web-dev.json": json.dumps({"Data": rows}),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    cut, other, outside, missing = load("triviaqa", tmp_path / "qa" / "web-dev.json")
    assert [one.id for one in cut.passages] == ["T", "T#2", "T#3"]
    assert [len((one.text or "").split()) for one in cut.passages] == [100, 100, 50]
    assert [one.text for one in other.passages] == ["of the web"]
    assert [one.text for one in (*outside.passages, *missing.passages)] == ["short", "short"]


def test_a_passage_is_gold_that_holds_an_answer_as_words(tmp_path: Path) -> None:
    """ "no" is not in "know", and a blank answer is in nothing."""
    texts = ["I know.", "No, never.", ""]
    row = {
        "Question": "A?",
        "QuestionId": "1",
        "Answer": {"Value": "no", "Aliases": ["the"]},
        "SearchResults": [{"Title": f"T{n}", "Description": text} for n, text in enumerate(texts)],
    }
    path = tmp_path / "t.json"
    path.write_text(json.dumps([row]), encoding="utf-8")
    (example,) = load("triviaqa", path)
    assert [one.id for one in example.passages] == ["T0", "T1"]
    assert example.gold.passage_ids == ("T1",)


def test_the_hubs_rows(tmp_path: Path) -> None:
    row = {
        "question": "Which street?",
        "question_id": "tc_33",
        "search_results": {"title": ["T", "U"], "search_context": ["Sunset Blvd it is", ""]},
        "entity_pages": {"title": [], "wiki_context": []},
        "answer": {"value": ANSWERS[0], "aliases": list(ANSWERS[1:]), "normalized_value": "x"},
    }
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "t.parquet")
    (tmp_path / "t.jsonl").write_text(json.dumps(row), encoding="utf-8")
    for name in ("t.parquet", "t.jsonl"):
        (example,) = load("triviaqa", tmp_path / name)
        assert example.gold.answers == ANSWERS
        assert [one.title for one in example.passages] == ["T"]
        assert example.gold.passage_ids == ("T",)


@pytest.mark.parametrize(
    ("document", "part"),
    [
        ({"Rows": []}, "must hold one list of questions"),
        ([{"Question": "A?"}], "row 0, column questionid"),
        ([{"Question": "A?", "QuestionId": "1", "Answer": {"Value": {}}}], r"column answer\.value"),
        ([{"Question": "A?", "QuestionId": "1", "SearchResults": ["T"]}], "column searchresults"),
    ],
)
def test_what_is_none(document: object, part: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(DataError, match=part):
        load("triviaqa", path)
