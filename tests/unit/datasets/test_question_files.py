"""Questions of the user's own: formats, columns, and what is refused."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice.datasets.known_datasets import columns_of, load, read_questions
from suffice.errors import DataError, UsageError

CSV = 'qid,q,gold,kind\n007,"Who, ever?","[""Ann"", ""Bo""]",who\n008,What?,"a ""C""",\n\n009,When?,,\n'
MAP = {"question": "q", "answers": "gold", "id": "qid", "type": "kind"}
ROWS: list[dict[str, Any]] = [
    {"qid": "007", "q": "Who, ever?", "gold": ["Ann", "Bo"], "kind": "who"},
    {"qid": "008", "q": "What?", "gold": ['a "C"'], "kind": None},
    {"qid": "009", "q": "When?", "gold": None, "kind": None},
]


TSV = 'qid\tq\tgold\tkind\n007\tWho, ever?\t["Ann", "Bo"]\twho\n008\tWhat?\t"a ""C"""\t\n009\tWhen?\t\t\n'
TEXTS = {
    "csv": CSV,
    "tsv": TSV,
    "json": json.dumps(ROWS),
    "jsonl": "".join(f"{json.dumps(row)}\n" for row in ROWS),
}


def written(path: Path) -> Path:
    *_, kind = path.name.lower().removesuffix(".gz").split(".")
    if kind == "parquet":
        pq.write_table(pa.Table.from_pylist(ROWS), path)
        return path
    data = TEXTS[kind].encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize(
    "name", ["q.csv", "q.csv.gz", "q.tsv", "q.jsonl", "q.JSONL", "q.json", "q.parquet"]
)
def test_every_format_gives_the_same(tmp_path: Path, name: str) -> None:
    examples = read_questions(written(tmp_path / name), MAP)
    assert [each.question.id for each in examples] == ["007", "008", "009"]
    assert [each.question.text for each in examples] == ["Who, ever?", "What?", "When?"]
    assert [each.question.type for each in examples] == ["who", None, None]
    assert [each.gold.answers for each in examples] == [("Ann", "Bo"), ('a "C"',), ()]
    assert not any(each.passages for each in examples)
    assert load(str(tmp_path / name), columns=MAP, limit=2) == examples[:2]


def lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return path


def test_usual_names_are_found_and_ids_made_of_the_text(tmp_path: Path) -> None:
    path = lines(tmp_path / "q.jsonl", {"question": "A?", "golden_answers": [1912, 2.0]})
    (first,) = read_questions(path)
    assert first.gold.answers == ("1912", "2")
    assert columns_of(path) == {"question": "question", "answers": "golden_answers"}
    lines(path, {"question": "B?"}, {"question": "A?", "golden_answers": None})
    assert read_questions(path)[1].question.id == first.question.id  # wherever it stands
    lines(path, {"question": "A?", "id": 7, "question_id": "x"})
    assert read_questions(path)[0].question.id == "7"


def test_a_question_that_comes_twice_without_ids_is_asked_twice(tmp_path: Path) -> None:
    path = lines(tmp_path / "q.jsonl", {"question": "A?"}, {"question": "A?"})
    first, second = read_questions(path)
    assert second.question.id == f"{first.question.id}#2"


def test_nq_open(tmp_path: Path) -> None:
    path = lines(
        tmp_path / "NQ-open.dev.jsonl",
        {"question": "when was the last time anyone was on the moon", "answer": ["1972"]},
        {"question": "who wrote he ain't heavy he's my brother", "answer": ["Bobby Scott", "Bob"]},
    )
    examples = load(str(path))
    assert [each.gold.answers for each in examples] == [("1972",), ("Bobby Scott", "Bob")]


ROW = {"question": "A?", "id": "1", "answers": "x"}


@pytest.mark.parametrize(
    ("rows", "columns", "part"),
    [
        ([ROW], {"answers": "gold"}, "'question'"),
        ([{"query": "A?"}], None, "--dat"),
        ([ROW, {**ROW, "question": "B?"}], None, "column id"),
        ([ROW, {**ROW, "id": "2", "question": " "}], None, "column question"),
        ([{**ROW, "question": 3}], None, "column question"),
        ([{**ROW, "answers": {"a": 1}}], None, "column answers"),
        ([{**ROW, "answers": [[True]]}], None, "found .True"),
        ([{**ROW, "id": [1]}], None, "must be a text or a whole number"),
        ([], None, "holds no question"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be(
    rows: list[object], columns: dict[str, str] | None, part: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=part) as refused:
        read_questions(lines(tmp_path / "q.jsonl", *rows), columns)
    assert "q.jsonl" in str(refused.value)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        ("", "found nothing"),
        ("question,question\na,b\n", "found 'question' twice"),
        ("question,id\na,b,c\n", "quotes"),
        ('question,id\n"a"b,c\n', "not CSV"),
        ("question,answers\nA?,['a']\n", "begins"),
    ],
)  # fmt: skip
def test_csv_that_cannot_be(content: str, part: str, tmp_path: Path) -> None:
    path = tmp_path / "q.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=part):
        read_questions(path)


def test_files_that_cannot_be(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="jsonl"):
        read_questions(tmp_path / "q.xlsx")
    for name in ("q.csv", "q.parquet"):
        with pytest.raises(DataError, match="does not exist"):
            read_questions(tmp_path / name)
    (tmp_path / "q.parquet").write_bytes(b"PAR1 not at all")
    with pytest.raises(DataError, match="Parquet"):
        read_questions(tmp_path / "q.parquet")
    with pytest.raises(UsageError, match="drop --data x"):
        load("q.csv", "x")
    with pytest.raises(UsageError, match="musique"):
        load("musique", "x", columns={})
    with pytest.raises(UsageError, match="jsonl"):
        load("musik")
