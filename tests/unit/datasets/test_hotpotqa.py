from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from suffice.datasets.registry import load
from suffice.errors import DataError
from suffice.trace.rounds.records import Gold, Passage, Question

ROW = {
    "_id": "q1",
    "question": "Who wrote it?",
    "answer": "Ama",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": [["B", 1], ["A", 0], ["B", 0], ["Elsewhere", 0]],
    "context": [["A", ["One.", " Two. "]], ["B", ["Three."]], ["A", ["Four."]]],
}


def data_file(name: str) -> Path:
    root = os.environ.get("SUFFICE_DATA")
    if not root:
        pytest.skip("needs real questions: set SUFFICE_DATA to the folder that holds data/")
    return Path(root) / "data" / name


def test_a_small_file(tmp_path: Path) -> None:
    path = tmp_path / "h.json"
    path.write_text(json.dumps([ROW]))
    (example,) = load("hotpotqa", path)
    assert example.question == Question(id="q1", text="Who wrote it?", type="bridge")
    assert example.passages == (
        Passage(id="A", title="A", text="One. Two."),
        Passage(id="B", title="B", text="Three."),
        Passage(id="A#2", title="A", text="Four."),
    )
    assert example.gold == Gold(answers=("Ama",), passage_ids=("B", "A", "A#2"))
    assert load("hotpotqa", path) == (example,)


@pytest.mark.parametrize("facts", ["A", [1], [[]], [[1, 0]]])
def test_wrong_supporting_facts(tmp_path: Path, facts: object) -> None:
    path = tmp_path / "h.json"
    path.write_text(json.dumps([ROW | {"supporting_facts": facts}]))
    with pytest.raises(DataError) as caught:
        load("hotpotqa", path)
    assert (caught.value.row, caught.value.column) == (0, "supporting_facts")


def test_the_real_hotpotqa() -> None:
    examples = load("hotpotqa", data_file("hotpotqa_500.json.gz"))
    types = Counter(example.question.type for example in examples)
    assert types == {"bridge": 396, "comparison": 104}
    assert all(len(example.gold.passage_ids) == 2 for example in examples)
    assert all(len(example.gold.answers) == 1 for example in examples)
    first = examples[0]
    assert first.question.id == "5ac07327554299012d1db5f2"
    assert first.gold.passage_ids == ("Kaep (disambiguation)", "Colin Kaepernick")
    assert {p.id for p in first.passages} >= set(first.gold.passage_ids)


def test_the_real_2wikimultihopqa() -> None:
    examples = load("2wikimultihopqa", data_file("2wikimultihopqa_500.json.gz"))
    assert len(examples) == 500
    assert {len(example.passages) for example in examples} == {10}
    repeated = [e for e in examples if any(p.id != p.title for p in e.passages)]
    assert len(repeated) == 18
    for example in examples:
        assert len({p.id for p in example.passages}) == 10
        assert {p.id for p in example.passages} >= set(example.gold.passage_ids) != set()
