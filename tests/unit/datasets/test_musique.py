from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from suffice.datasets.registry import load
from suffice.errors import DataError, SufficeWarning
from suffice.trace.rounds.records import Gold, Question

ROW: dict[str, Any] = {
    "id": "3hop1__7_8_9",
    "question": "Who?",
    "question_decomposition": [{}, {}, {}],
    "answer": "G. Hall",
    "answer_aliases": ["Hall", "G. Hall"],
    "answerable": True,
    "paragraphs": [
        {"idx": 0, "title": "A", "paragraph_text": "One.", "is_supporting": False},
        {"idx": 1, "title": "A", "paragraph_text": "Two.", "is_supporting": True},
        {"idx": 2, "title": "B", "paragraph_text": "Three."},
    ],
}


def write(path: Path, *rows: dict[str, Any]) -> Path:
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    return path


def test_a_small_file(tmp_path: Path) -> None:
    (example,) = load("musique", write(tmp_path / "m.jsonl", ROW))
    assert example.question == Question(id="3hop1__7_8_9", text="Who?", type="3hop")
    assert [p.id for p in example.passages] == ["0:A", "1:A", "2:B"]
    assert example.gold == Gold(answers=("G. Hall", "Hall"), passage_ids=("1:A",))


def test_the_type_comes_from_the_id_without_a_decomposition(tmp_path: Path) -> None:
    bare = {key: value for key, value in ROW.items() if key != "question_decomposition"}
    rows = [bare, bare | {"id": "other"}]
    examples = load("musique", write(tmp_path / "m.jsonl", *rows))
    assert [example.question.type for example in examples] == ["3hop", None]


def test_unanswerable_questions_are_left_out_and_counted(tmp_path: Path) -> None:
    # the full set holds an answerable and an unanswerable question under one id
    path = write(tmp_path / "m.jsonl", ROW | {"answerable": False}, ROW)
    with pytest.warns(SufficeWarning, match="unanswerable"):
        (example,) = load("musique", path)
    assert example.gold.answers == ("G. Hall", "Hall")


@pytest.mark.parametrize(
    "change", [{"idx": 0, "title": "A"}, {"is_supporting": "yes"}, {"idx": "0"}]
)
def test_wrong_paragraphs(tmp_path: Path, change: dict[str, Any]) -> None:
    row = ROW | {"paragraphs": [ROW["paragraphs"][0], ROW["paragraphs"][1] | change]}
    with pytest.raises(DataError) as caught:
        load("musique", write(tmp_path / "m.jsonl", row))
    assert (caught.value.row, caught.value.column) == (0, "paragraphs")


def test_the_real_musique() -> None:
    root = os.environ.get("SUFFICE_DATA")
    if not root:
        pytest.skip("needs real questions: set SUFFICE_DATA to the folder that holds data/")
    examples = load("musique", Path(root) / "data" / "musique_100.jsonl.gz")
    types = Counter(example.question.type for example in examples)
    assert types == {"2hop": 68, "3hop": 27, "4hop": 5}
    assert examples[0].gold.answers == ("G. Stanley Hall", "Stanley Hall")
    for example in examples:
        assert len(example.passages) == 20
        assert example.question.type == f"{len(example.gold.passage_ids)}hop"
