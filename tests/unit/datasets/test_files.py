from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from suffice.datasets.registry import load
from suffice.errors import DataError, SufficeWarning

HOTPOT: dict[str, Any] = {
    "_id": "q1",
    "question": "Who?",
    "answer": "Ama",
    "type": "bridge",
    "supporting_facts": [["A", 0]],
    "context": [["A", ["One. ", "Two."]], ["B", []]],
}
MUSIQUE: dict[str, Any] = {
    "id": "2hop__1_2",
    "question": "Who?",
    "answer": "Ama",
    "answerable": True,
    "paragraphs": [{"idx": 0, "title": "A", "paragraph_text": "One.", "is_supporting": True}],
}


def content(name: str, *rows: object) -> bytes:
    if name == "musique":
        return "\n".join(json.dumps(row) for row in rows).encode()
    return json.dumps(list(rows)).encode()


def sample(name: str, **changes: Any) -> dict[str, Any]:
    return (MUSIQUE if name == "musique" else HOTPOT) | changes


FILE_NAMES = ("hotpotqa", "2wikimultihopqa", "musique")


@pytest.mark.parametrize("name", FILE_NAMES)
class TestEveryFormat:
    def read(self, tmp_path: Path, name: str, data: bytes) -> DataError:
        path = tmp_path / "questions"
        path.write_bytes(data)
        with pytest.raises(DataError) as caught:
            load(name, path)
        assert caught.value.file == str(path)
        return caught.value

    @pytest.mark.parametrize(
        "data", [b"", b"  \n", b"not json", b"\xff\xfe", b'"text"', b"[1]", b"{", b"[" * 100_000]
    )
    def test_files_that_are_none(self, tmp_path: Path, name: str, data: bytes) -> None:
        self.read(tmp_path, name, data)

    def test_a_truncated_gzip(self, tmp_path: Path, name: str) -> None:
        data = gzip.compress(content(name, sample(name)))
        assert "gzip" in str(self.read(tmp_path, name, data[:-6]))
        assert "gzip" in str(self.read(tmp_path, name, data[:30] + b"\xff" + data[31:]))

    def test_an_empty_list(self, tmp_path: Path, name: str) -> None:
        self.read(tmp_path, name, content(name))

    def test_missing_files_and_folders(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(DataError, match="does not exist"):
            load(name, tmp_path / "nowhere.json")
        with pytest.raises(DataError, match="directory"):
            load(name, tmp_path)

    @pytest.mark.parametrize(
        ("column", "value"),
        [
            ("question", None),
            ("question", ""),
            ("question", 3),
            ("answer", 5),
            ("answer", ["Ama"]),
            ("answer_aliases", "Ama"),
        ],
    )
    def test_wrong_fields_name_row_and_column(
        self, tmp_path: Path, name: str, column: str, value: object
    ) -> None:
        own = "id" if name == "musique" else "_id"
        bad = sample(name, **{column: value, own: "q2"})
        error = self.read(tmp_path, name, content(name, sample(name), bad))
        assert (error.row, error.column) == (1, column)

    @pytest.mark.parametrize("value", [None, "", 4, True])
    def test_wrong_ids(self, tmp_path: Path, name: str, value: object) -> None:
        own = "id" if name == "musique" else "_id"
        error = self.read(tmp_path, name, content(name, sample(name, **{own: value})))
        assert (error.row, error.column) == (0, own)

    @pytest.mark.parametrize("value", ["text", [1], [["A"]], [["A", "text"]], [["A", [1]]], [{}]])
    def test_wrong_paragraphs(self, tmp_path: Path, name: str, value: object) -> None:
        column = "paragraphs" if name == "musique" else "context"
        error = self.read(tmp_path, name, content(name, sample(name, **{column: value})))
        assert (error.row, error.column) == (0, column)

    def test_duplicate_ids(self, tmp_path: Path, name: str) -> None:
        error = self.read(tmp_path, name, content(name, sample(name), sample(name)))
        assert error.row == 1
        assert "row 0" in str(error)

    def test_empty_gold_answers_are_dropped_with_a_warning(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / "questions"
        path.write_bytes(content(name, sample(name, answer=" ", answer_aliases=["Ama", "Ama"])))
        with pytest.warns(SufficeWarning, match="dropped"):
            (example,) = load(name, path)
        assert example.gold.answers == ("Ama",)

    def test_no_answer_and_no_passages_are_read(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / "questions"
        row = sample(name)
        if name != "musique":
            del row["answer"]
        del row["paragraphs" if name == "musique" else "context"]
        path.write_bytes(content(name, row))
        (example,) = load(name, path)
        assert example.passages == ()
        assert example.gold.passage_ids == ()
        assert example.gold.answers == (("Ama",) if name == "musique" else ())

    def test_limit_and_compression(self, tmp_path: Path, name: str) -> None:
        own = "id" if name == "musique" else "_id"
        rows = [sample(name, **{own: f"q{i}"}) for i in range(5)]
        path = tmp_path / "questions.gz"
        path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + content(name, *rows)))
        assert [e.question.id for e in load(name, path, limit=2)] == ["q0", "q1"]
        assert len(load(name, path)) == 5
