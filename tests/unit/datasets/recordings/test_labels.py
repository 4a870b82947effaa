"""Labels that came after the record: they fill it, and what cannot be is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import suffice
from suffice.errors import DataError, UsageError
from suffice.testing.traces import make_record
from suffice.trace.rounds.reader import inspect_traces, read_traces
from suffice.trace.rounds.records import QuestionRecord, Round
from suffice.trace.rounds.writer import write_traces


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two questions without gold, one with, in a folder with a column of one's own."""
    root = tmp_path / "traces"
    write_traces(
        [
            make_record("a", ["Rome", "Oslo"], closed_book=Round(answer="Bergen")),
            make_record("b", ["Rome"]),
            make_record("c", ["Rome", "Oslo", "Oslo"], gold=["Oslo"]),
        ],
        root,
        run={"model": "m"},
    )
    (file,) = root.glob("*.parquet")
    table = pq.read_table(file).drop_columns(["score"])
    own = table.append_column("mine", pa.array(range(table.num_rows)))
    pq.write_table(own.replace_schema_metadata({**table.schema.metadata, b"own": b"x"}), file)
    return root


def lines(path: Path, *labels: object) -> Path:
    path.write_text("".join(f"{json.dumps(label)}\n" for label in labels))
    return path


def labelled(path: Path) -> dict[str, QuestionRecord]:
    return {record.question.id: record for record in read_traces(path).records()}


COLUMNS = {
    "question_id": "id", "gold_answers": "gold", "score": "points", "question_type": "kind",
}  # fmt: skip
LABELS: list[dict[str, Any]] = [
    {"id": "a", "gold": ["Oslo", "Christiania"], "points": 0.25, "round": 1, "kind": "city"},
    {"id": "a", "gold": None, "points": 1.0, "round": None, "kind": None},
    {"id": "c", "gold": ["Oslo"], "points": None, "round": None, "kind": None},
    {"id": "b", "gold": None, "points": None, "round": None, "kind": None},
]


CSV = """id,gold,points,round,kind
a,"[""Oslo"", ""Christiania""]",0.25,1,city
a,,1,,
c,Oslo,,,
b,,,,
"""


@pytest.mark.parametrize("name", ["l.csv", "l.jsonl", "l.parquet"])
def test_a_file_of_labels_fills_the_record_and_all_else_stays(
    folder: Path, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    if name == "l.csv":
        path.write_text(CSV)
    elif name == "l.jsonl":
        lines(path, *LABELS)
    else:
        pq.write_table(pa.Table.from_pylist(LABELS), path)
    written = suffice.traces.label(folder, path, tmp_path / "new", columns=COLUMNS)
    assert written.notes[0] == "labeled 2 of 3 questions"
    assert "1 row of" in written.notes[1]
    records = labelled(tmp_path / "new")
    assert records["a"].gold.answers == ("Oslo", "Christiania")
    assert records["a"].question.type == "city"
    assert records["a"].scores == {1: 0.25, 2: 1.0}
    assert (records["b"].gold.answers, records["b"].scores) == ((), {})
    assert records["c"].gold.answers == ("Oslo",)
    before, after = (read_traces(each, keep_unknown=True) for each in (folder, tmp_path / "new"))
    for name_, cells in (("table", before.table), ("closed_book", before.closed_book)):
        kept = cells.drop_columns(["gold_answers", "question_type"])
        assert getattr(after, name_).select(kept.column_names).equals(kept)
    assert after.origin.run["derived"][-1]["by"] == "label"
    assert after.origin.run["model"] == "m"


def test_labels_by_the_text_of_a_question(folder: Path, tmp_path: Path) -> None:
    path = lines(tmp_path / "l.jsonl", {"question": "What is b?", "gold_answers": "Rome"})
    suffice.traces.label(folder, path, tmp_path / "new.parquet")
    assert labelled(tmp_path / "new.parquet")["b"].gold.answers == ("Rome",)


BAD: list[tuple[list[object], str]] = [
    ([{"question_id": "x", "gold_answers": "Y"}], "--skip-unknown"),
    (
        [{"question_id": "a", "gold_answers": ["X"]}, {"question_id": "a", "gold_answers": ["Y"]}],
        "'a'",
    ),
    ([{"question_id": "a", "score": 0.5}, {"question_id": "a", "score": 1, "round": 2}], "'a'"),
    ([{"question_id": "c", "gold_answers": ["Rome"]}], "--replace"),
    ([{"question_id": "b", "score": 1, "round": 2}], "'b'"),
    ([{"question_id": "b", "score": 7}], "column score"),
    ([{"question_id": "b", "gold_answers": "x", "round": 1}], "column round"),
    ([{"id": "b", "gold_answers": "x"}], "'question_id'"),
    ([{"question_id": "b", "gold": "x"}], "'gold_answers'"),
    ([{"question_id": "b", "gold_answers": " "}], "labels"),
]


@pytest.mark.parametrize(("labels", "message"), BAD)
def test_labels_that_cannot_be_are_refused(
    folder: Path, tmp_path: Path, labels: list[object], message: str
) -> None:
    path = lines(tmp_path / "l.jsonl", *labels)
    with pytest.raises(DataError, match=message) as error:
        suffice.traces.label(folder, path, tmp_path / "new")
    assert "l.jsonl" in str(error.value)
    assert not (tmp_path / "new").exists()


def test_unknown_questions_and_other_labels_pass_where_it_is_said(
    folder: Path, tmp_path: Path
) -> None:
    labels = [
        suffice.Label(question_id="x", gold_answers=("Y",)),
        suffice.Label(question_id="c", gold_answers=("Rome",)),
        suffice.Label(question_id="c", gold_answers=("Rome", "Rome")),
    ]
    written = suffice.traces.label(
        folder, labels, tmp_path / "new", replace=True, skip_unknown=True
    )
    assert "'x'" in written.notes[1]
    assert labelled(tmp_path / "new")["c"].gold.answers == ("Rome",)
    with pytest.raises(UsageError, match="exists already"):
        suffice.traces.label(folder, labels, tmp_path / "new")


# --- beside a record ------------------------------------------------------------------------------
def test_a_folder_is_read_with_the_labels_in_it(folder: Path, tmp_path: Path) -> None:
    lines(
        folder / "labels.jsonl",
        {"question_id": "a", "gold_answers": ["Oslo"], "score": 0.5, "time": "later"},
        {"question_id": "a", "gold_answers": ["Oslo"]},
        {"question_id": "z", "gold_answers": ["Oslo"]},
        {"question_id": "c", "gold_answers": ["Oslo"]},
    )
    with (folder / "labels.jsonl").open("a") as stream:
        stream.write('{"question_id": "b", "gold_an')
    inspection = inspect_traces(folder)
    assert [remark.partition("labels.jsonl: ")[2] for remark in inspection.remarks] == [
        "its last line is cut off and was left out",
        "1 label of questions that are not recorded, the first 'z'",
    ]
    with pytest.warns(suffice.SufficeWarning):
        records = labelled(folder)
    assert (records["a"].gold.answers, records["a"].scores) == (("Oslo",), {2: 0.5})
    with pytest.warns(suffice.SufficeWarning):
        suffice.traces.filter(folder, tmp_path / "l", suffice.traces.TraceFilter(labelled=True))
    assert labelled(tmp_path / "l") == {name: records[name] for name in "ac"}


def test_labels_in_a_folder_that_differ_from_it_are_errors(folder: Path) -> None:
    lines(
        folder / "labels.jsonl",
        {"question_id": "c", "gold_answers": ["Rome"]},
        {"question_id": "b", "gold_answers": ["X"]},
        {"question_id": "b", "gold_answers": ["Y"]},
        ["no label"],
    )
    inspection = inspect_traces(folder)
    told = " | ".join(map(str, inspection.errors))
    assert "is ['X'] in" in told
    assert "is ['Oslo'] in" in told
    assert "labels.jsonl" in told
    assert "row 3: a label is" in told
    assert inspection.traces.gold[2].answers == ("Oslo",)
    with pytest.raises(DataError, match="2 more"):
        read_traces(folder)
