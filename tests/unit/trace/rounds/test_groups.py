"""Questions that belong together say so, and what is made of a record keeps it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import suffice
from suffice.errors import DataError
from suffice.testing.traces import make_record
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.writer import write_traces

GROUPS = {"a": "doc1", "b": "doc1", "c": None, "d": "doc2"}


def grouped(name: str) -> QuestionRecord:
    made = make_record(name, ["Rome", "Oslo"], gold=["Oslo"])
    return replace(made, question=replace(made.question, group=GROUPS[name]))


def groups(path: Path | str) -> dict[str, str | None]:
    return {question.id: question.group for question in suffice.read(path).questions}


@pytest.fixture
def record(tmp_path: Path) -> Path:
    path = tmp_path / "record.parquet"
    write_traces(map(grouped, GROUPS), path)
    return path


def test_a_group_is_read_as_it_was_written(record: Path) -> None:
    assert groups(record) == GROUPS
    assert any("2 groups" in note for note in suffice.traces.info(record).notes)


@pytest.mark.parametrize("lazily_above", [0, 1 << 30])
def test_rounds_of_one_question_are_of_one_group(record: Path, lazily_above: int) -> None:
    table = pq.read_table(record)
    cells = pa.array([*table.column("group").to_pylist()[:-1], "doc3"])
    pq.write_table(table.set_column(table.column_names.index("group"), "group", cells), record)
    with pytest.raises(DataError) as caught:
        read_traces(record, lazily_above=lazily_above)
    assert (caught.value.column, caught.value.row) == ("group", 7)


def test_what_is_made_of_a_record_keeps_groups(tmp_path: Path, record: Path) -> None:
    suffice.traces.filter(record, tmp_path / "one", suffice.traces.TraceFilter(group=("doc1",)))
    assert groups(tmp_path / "one") == {"a": "doc1", "b": "doc1"}
    suffice.traces.filter(record, tmp_path / "two", suffice.traces.TraceFilter(ids=["c", "d"]))
    suffice.traces.merge([tmp_path / "one", tmp_path / "two"], tmp_path / "both")
    suffice.traces.split(tmp_path / "both", tmp_path / "split", {"tune": 0.5, "eval": 0.5})
    assert groups(tmp_path / "both") == groups(tmp_path / "split") == GROUPS


def test_a_label_says_what_a_question_belongs_to(tmp_path: Path, record: Path) -> None:
    labels = tmp_path / "labels.csv"
    labels.write_text("question_id,group\nc,doc3\n")
    suffice.traces.label(record, labels, tmp_path / "out")
    assert groups(tmp_path / "out") == {**GROUPS, "c": "doc3"}
    labels.write_text("question_id,group\na,doc3\n")
    with pytest.raises(DataError) as caught:
        suffice.traces.label(record, labels, tmp_path / "again")
    assert caught.value.column == "group"
    suffice.traces.label(record, labels, tmp_path / "again", replace=True)
    assert groups(tmp_path / "again")["a"] == "doc3"


@pytest.mark.parametrize("texts", ["hashes", "no-texts"])
def test_a_redacted_record_tells_groups_apart_without_their_names(
    tmp_path: Path, record: Path, texts: str
) -> None:
    suffice.traces.redact(record, tmp_path / "out", texts=texts)  # type: ignore[arg-type]
    named = groups(tmp_path / "out")
    assert named["a"] == named["b"] != named["d"]
    assert named["c"] is None
    assert not {"doc1", "doc2"} & set(named.values())
