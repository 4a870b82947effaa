"""What is written is read back bit for bit, and nothing finished is lost."""

from __future__ import annotations

import dataclasses
import struct
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from tests.properties import examples
from tests.question_records import question_records

import suffice
from suffice.errors import DataError, UsageError
from suffice.testing.traces import make_record
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord, Round
from suffice.trace.rounds.schema import SCHEMA
from suffice.trace.rounds.writer import write_trace_set, write_traces


def bits(value: Any) -> Any:
    """A value with every float as its bits, so that NaN equals NaN and 0.0 is not -0.0."""
    if isinstance(value, float):
        return struct.pack("<d", value)
    if isinstance(value, tuple):
        return tuple(bits(each) for each in value)
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return tuple((each.name, bits(getattr(value, each.name))) for each in fields)
    if hasattr(value, "items"):
        return tuple(sorted((name, bits(each)) for name, each in value.items()))
    return value


@settings(deadline=None, max_examples=examples(80), suppress_health_check=list(HealthCheck))
@given(records=question_records(max_questions=4))
def test_records_come_back_bit_for_bit(records: list[QuestionRecord], tmp_path: Path) -> None:
    write_traces(records, tmp_path / "t.parquet")
    found = list(read_traces(tmp_path / "t.parquet").records())
    assert [bits(each) for each in found] == [bits(each) for each in records]


# --- our files in other libraries -----------------------------------------------------------------
@pytest.fixture
def rich(tmp_path: Path) -> Path:
    signals = [{"x": 0.5}, {"x": 0.5}]
    record = make_record("q", ["Oslo", "Rome"], gold=["Oslo"], margins=[1.0, 2.0], signals=signals)
    write_traces([record], tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


@pytest.mark.parametrize("library", ["polars", "pandas"])
def test_data_frames_read_our_files(rich: Path, library: str) -> None:
    frame = pytest.importorskip(library).read_parquet(rich)
    assert list(frame.columns) == SCHEMA.names
    assert list(frame["answer"]) == ["Oslo", "Rome"]
    assert frame["passages"][0][0]["title"] == "Page 0"
    assert frame["tokens"][1][2]["top"][1]["token"] == " other"


def test_duckdb_reads_our_files(rich: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        found = connection.sql(
            "select round, answer, gold_answers[1], tokens[3].logprob, signals['x'], llm_calls "
            f"from read_parquet('{rich}') order by round"
        ).fetchall()
        columns = connection.sql(f"describe select * from read_parquet('{rich}')").fetchall()
    margin = pytest.approx(-0.2)
    assert found == [(1, "Oslo", "Oslo", margin, 0.5, 1), (2, "Rome", "Oslo", margin, 0.5, 1)]
    assert [each[0] for each in columns] == SCHEMA.names


def record_of(number: int) -> QuestionRecord:
    return make_record(f"q{number:03d}", ["Oslo", "Rome"])


# --- into a folder with traces ----------------------------------------------------------------------
def test_a_second_set_is_added_and_nothing_is_overwritten(tmp_path: Path) -> None:
    write_traces([record_of(0), record_of(1)], tmp_path)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    with pytest.raises(UsageError, match="holds 1 of these questions already, the first 'q001'"):
        write_traces([record_of(1), record_of(2)], tmp_path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
    write_traces([record_of(2)], tmp_path)
    assert (tmp_path / "part-00000.parquet").read_bytes() == before["part-00000.parquet"]
    assert read_traces(tmp_path).question_ids == ("q000", "q001", "q002")


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "no question to write"),
        ([record_of(0), record_of(0)], "'q000' has round 1 twice"),
        ([dataclasses.replace(record_of(0), rounds=())], "'q000' has no rounds"),
        ([make_record("", ["Oslo"])], "empty question_id"),
    ],
)
def test_what_reading_would_refuse_is_not_written(
    tmp_path: Path, records: list[QuestionRecord], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        write_traces(records, tmp_path / "t.parquet")
    assert not any(tmp_path.iterdir())


# --- whole sets -----------------------------------------------------------------------------------
def test_a_set_keeps_all_its_columns(tmp_path: Path) -> None:
    record = dataclasses.replace(record_of(0), closed_book=Round(answer="closed"))
    write_traces([record, record_of(1)], tmp_path / "t.parquet", run={"m": 1})
    file = tmp_path / "t.parquet"
    table = pq.read_table(file)
    mine = table.append_column("mine", [list(range(table.num_rows))])
    pq.write_table(mine.replace_schema_metadata(table.schema.metadata), file)
    traces = read_traces(file, keep_unknown=True)
    written = write_trace_set(traces, tmp_path / "copy")
    assert written == tmp_path / "copy" / "part-00000.parquet"
    copy = read_traces(tmp_path / "copy", keep_unknown=True)
    assert copy.table.equals(traces.table)
    assert copy.closed_book.equals(traces.closed_book)
    assert copy.origin.run == {"m": 1}
    with pytest.raises(UsageError, match="holds trace files already"):
        write_trace_set(traces, tmp_path / "copy")


def test_a_part_of_what_was_read_can_be_written(tmp_path: Path) -> None:
    read = suffice.read("example")
    part = read.only_questions(read.question_ids[:3])
    for place in ("part.parquet", "folder"):
        suffice.write(part, tmp_path / place)
        again = suffice.read(tmp_path / place)
        assert again.table.to_pylist() == part.table.to_pylist()
        assert again.origin.run == read.origin.run
    with pytest.raises(UsageError, match="3 of these questions"):
        suffice.write(part, tmp_path / "folder")
