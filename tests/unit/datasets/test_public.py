"""Data sets by name: HotpotQA, 2WikiMultiHopQA and MuSiQue, from files small and real."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from suffice.datasets.files import Example
from suffice.datasets.known_datasets import DATASETS, load
from suffice.errors import DataError, SufficeWarning, UsageError
from suffice.trace.rounds.records import Gold, Passage, Question


def test_an_unknown_name_lists_the_allowed_ones() -> None:
    with pytest.raises(UsageError, match="wikimultihopqa"):
        load("squad")
    assert DATASETS == ("generated", "hotpotqa", "2wikimultihopqa", "musique")


def test_paths_are_needed_or_refused_and_a_limit_is_positive(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--data PATH"):
        load("hotpotqa")
    with pytest.raises(UsageError, match="drop the path"):
        load("generated", tmp_path)
    with pytest.raises(UsageError, match="at least 1"):
        load("generated", limit=0)


HOTPOT: dict[str, Any] = {
    "_id": "q1",
    "question": "Who wrote it?",
    "answer": "Ama",
    "type": "bridge",
    "level": "hard",
    "supporting_facts": [["B", 1], ["A", 0], ["B", 0], ["Elsewhere", 0]],
    "context": [["A", ["One.", " Two. "]], ["B", ["Three."]], ["A", ["Four."]]],
}
MUSIQUE: dict[str, Any] = {
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


def content(name: str, *rows: object) -> bytes:
    if name == "musique":
        return "\n".join(json.dumps(row) for row in rows).encode()
    return json.dumps(list(rows)).encode()


def sample(name: str, **changes: Any) -> dict[str, Any]:
    return (MUSIQUE if name == "musique" else HOTPOT) | changes


def read(name: str, folder: Path, *rows: object) -> tuple[Example, ...]:
    path = folder / "questions"
    path.write_bytes(content(name, *rows))
    return tuple(load(name, path))


def refused(name: str, folder: Path, data: bytes) -> DataError:
    path = folder / "questions"
    path.write_bytes(data)
    with pytest.raises(DataError) as caught:
        load(name, path)
    assert caught.value.file == str(path)
    return caught.value


# --- what every format refuses and reads --------------------------------------------------------------
NO_PARAGRAPHS: list[object] = ["text", [1], [["A"]], [["A", "text"]], [["A", [1]]], [{}]]


@pytest.mark.parametrize("name", ["hotpotqa", "2wikimultihopqa", "musique"])
class TestEveryFormat:
    @pytest.mark.parametrize(
        "data", [b"", b"  \n", b"not json", b"\xff\xfe", b'"text"', b"[1]", b"{", b"[" * 100_000]
    )
    def test_files_that_are_none(self, tmp_path: Path, name: str, data: bytes) -> None:
        refused(name, tmp_path, data)

    def test_a_truncated_gzip_and_an_empty_list(self, tmp_path: Path, name: str) -> None:
        data = gzip.compress(content(name, sample(name)))
        assert "gzip" in str(refused(name, tmp_path, data[:-6]))
        assert "gzip" in str(refused(name, tmp_path, data[:30] + b"\xff" + data[31:]))
        refused(name, tmp_path, content(name))

    def test_missing_files_and_folders(self, tmp_path: Path, name: str) -> None:
        for place in (tmp_path / "nowhere.json", tmp_path):
            with pytest.raises(DataError, match=r"does not exist|directory"):
                load(name, place)

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            *(("question", value) for value in (None, "", 3)),
            *(("answer", value) for value in (5, ["Ama"])),
            ("answer_aliases", "Ama"),
            *(("id", value) for value in (None, "", 4, True)),
            *(("paragraphs", value) for value in NO_PARAGRAPHS),
        ],
    )
    def test_wrong_fields_name_row_and_column(
        self, tmp_path: Path, name: str, column: str, value: object
    ) -> None:
        if name != "musique":
            column = {"id": "_id", "paragraphs": "context"}.get(column, column)
        first = sample(name, **{"id" if name == "musique" else "_id": "q0"})
        bad = content(name, first, sample(name, **{column: value}))
        error = refused(name, tmp_path, bad)
        assert (error.row, error.column) == (1, column)

    def test_duplicate_ids(self, tmp_path: Path, name: str) -> None:
        error = refused(name, tmp_path, content(name, sample(name), sample(name)))
        assert error.row == 1
        assert "row 0" in str(error)

    def test_empty_gold_answers_are_dropped_with_a_warning(self, tmp_path: Path, name: str) -> None:
        row = sample(name, answer=" ", answer_aliases=["Ama", "Ama"])
        with pytest.warns(SufficeWarning, match="dropped"):
            (example,) = read(name, tmp_path, row)
        assert example.gold.answers == ("Ama",)

    def test_no_answer_and_no_passages_are_read(self, tmp_path: Path, name: str) -> None:
        row = sample(name)
        if name != "musique":
            del row["answer"]
        del row["paragraphs" if name == "musique" else "context"]
        (example,) = read(name, tmp_path, row)
        assert (example.passages, example.gold.passage_ids) == ((), ())
        assert example.gold.answers == (("G. Hall", "Hall") if name == "musique" else ())

    def test_limit_and_compression(self, tmp_path: Path, name: str) -> None:
        own = "id" if name == "musique" else "_id"
        rows = [sample(name, **{own: f"q{i}"}) for i in range(5)]
        path = tmp_path / "questions.gz"
        path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + content(name, *rows)))
        assert [e.question.id for e in load(name, path, limit=2)] == ["q0", "q1"]
        assert len(load(name, path)) == 5


# --- HotpotQA and 2WikiMultiHopQA ---------------------------------------------------------------------
def test_a_small_file_of_hotpotqa(tmp_path: Path) -> None:
    (example,) = read("hotpotqa", tmp_path, HOTPOT)
    assert example.question == Question(id="q1", text="Who wrote it?", type="bridge")
    assert example.passages == (
        Passage(id="A", title="A", text="One. Two."),
        Passage(id="B", title="B", text="Three."),
        Passage(id="A#2", title="A", text="Four."),
    )
    assert example.gold == Gold(answers=("Ama",), passage_ids=("B", "A", "A#2"))


@pytest.mark.parametrize("facts", ["A", [1], [[]], [[1, 0]]])
def test_wrong_supporting_facts(tmp_path: Path, facts: object) -> None:
    error = refused("hotpotqa", tmp_path, content("hotpotqa", HOTPOT | {"supporting_facts": facts}))
    assert (error.row, error.column) == (0, "supporting_facts")


def test_the_real_hotpotqa(data_folder: Path) -> None:
    examples = load("hotpotqa", data_folder / "data/hotpotqa_500.json.gz")
    types = Counter(example.question.type for example in examples)
    assert types == {"bridge": 396, "comparison": 104}
    assert all(len(example.gold.passage_ids) == 2 for example in examples)
    assert all(len(example.gold.answers) == 1 for example in examples)
    first = examples[0]
    assert first.question.id == "5ac07327554299012d1db5f2"
    assert first.gold.passage_ids == ("Kaep (disambiguation)", "Colin Kaepernick")
    assert {p.id for p in first.passages} >= set(first.gold.passage_ids)


def test_the_real_2wikimultihopqa(data_folder: Path) -> None:
    examples = load("2wikimultihopqa", data_folder / "data/2wikimultihopqa_500.json.gz")
    assert len(examples) == 500
    assert {len(example.passages) for example in examples} == {10}
    repeated = [e for e in examples if any(p.id != p.title for p in e.passages)]
    assert len(repeated) == 18
    for example in examples:
        assert len({p.id for p in example.passages}) == 10
        assert {p.id for p in example.passages} >= set(example.gold.passage_ids) != set()


# --- MuSiQue ------------------------------------------------------------------------------------------
def test_a_small_file_of_musique(tmp_path: Path) -> None:
    (example,) = read("musique", tmp_path, MUSIQUE)
    assert example.question == Question(id="3hop1__7_8_9", text="Who?", type="3hop")
    assert [p.id for p in example.passages] == ["0:A", "1:A", "2:B"]
    assert example.gold == Gold(answers=("G. Hall", "Hall"), passage_ids=("1:A",))


def test_unanswerable_questions_are_left_out_and_counted(tmp_path: Path) -> None:
    # the full set holds an answerable and an unanswerable question under one id
    with pytest.warns(SufficeWarning, match="unanswerable"):
        (example,) = read("musique", tmp_path, MUSIQUE | {"answerable": False}, MUSIQUE)
    assert example.gold.answers == ("G. Hall", "Hall")


@pytest.mark.parametrize(
    "change", [{"idx": 0, "title": "A"}, {"is_supporting": "yes"}, {"idx": "0"}]
)
def test_wrong_paragraphs(tmp_path: Path, change: dict[str, Any]) -> None:
    row = MUSIQUE | {"paragraphs": [MUSIQUE["paragraphs"][0], MUSIQUE["paragraphs"][1] | change]}
    error = refused("musique", tmp_path, content("musique", row))
    assert (error.row, error.column) == (0, "paragraphs")


def test_the_real_musique(data_folder: Path) -> None:
    examples = load("musique", data_folder / "data/musique_100.jsonl.gz")
    types = Counter(example.question.type for example in examples)
    assert types == {"2hop": 68, "3hop": 27, "4hop": 5}
    assert examples[0].gold.answers == ("G. Stanley Hall", "Stanley Hall")
    for example in examples:
        assert len(example.passages) == 20
        assert example.question.type == f"{len(example.gold.passage_ids)}hop"
