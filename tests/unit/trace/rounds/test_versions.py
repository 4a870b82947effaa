"""Version 1 and 2 of the schema: what is read of either, both in one folder, what version 2 allows."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.builders import keep

from suffice.errors import DataError
from suffice.testing.traces import make_record, to_trace_set
from suffice.trace.rounds.derive import merge_traces
from suffice.trace.rounds.reader import inspect_traces, read_traces
from suffice.trace.rounds.records import Round, as_document, round_of_document
from suffice.trace.rounds.schema import SCHEMA_KEY
from suffice.trace.rounds.writer import question_writer, write_traces

HERE = Path(__file__).parent
V1, V2 = HERE / "traces_v1.parquet", HERE / "traces_v2.parquet"
LATE = datetime(2026, 11, 22, 10, tzinfo=UTC)
BERLIN = timezone(timedelta(hours=1))


def restated(source: Path, target: Path, version: str | None, **columns: Any) -> Path:
    """The file under another version, with columns added or replaced."""
    table = pq.read_table(source)
    for name, values in columns.items():
        cells = values if isinstance(values, pa.Array) else pa.array(values)
        if name in table.column_names:
            table = table.drop_columns([name])
        table = table.append_column(name, cells)
    metadata = {} if version is None else {SCHEMA_KEY: version.encode()}
    pq.write_table(table.replace_schema_metadata(metadata), target)
    return target


# --- the samples ------------------------------------------------------------------------------
def test_a_file_of_version_1_reads_as_ever() -> None:
    one, other = read_traces(V1).records()
    assert one == make_record(
        "a",
        ["Oslo", "Rome", "Oslo"],
        gold=["Oslo"],
        split="tune",
        margins=[0.5, 1.0, 1.5],
        closed_book=Round(answer="Rome", passages=()),
    )
    assert [finished.answer for finished in other.rounds] == ["", "Rome"]


def test_a_file_of_version_2_says_what_version_1_could_not() -> None:
    cut, whole = read_traces(V2).records()
    assert [finished.answer for finished in cut.rounds] == [None, "Rome", "Oslo"]
    assert [finished.probed for finished in cut.rounds] == [None, True, False]
    assert cut.rounds[1].time == datetime(2026, 11, 22, 9, 0, 1, 250_000, UTC)
    assert cut.closed_book is not None
    assert cut.closed_book.answer is None
    assert cut.scores == {0: 0.0, 2: 0.25, 3: 1.0}
    assert cut.propensity == pytest.approx(0.05)
    assert (cut.stopped_by, cut.policy_hash) == ("policy", "0123456789ab")
    assert (whole.scores, whole.propensity, whole.stopped_by) == ({}, None, None)
    assert [finished.answer for finished in whole.rounds] == [None, None, None, ""]
    for record in (cut, whole):
        assert list(to_trace_set([record]).records()) == [record]
        for finished in record.rounds:
            assert round_of_document(as_document(finished)) == finished


# --- both in one folder -----------------------------------------------------------------------
def test_both_versions_in_one_folder(tmp_path: Path) -> None:
    shutil.copy(V1, tmp_path / "1.parquet")
    other = [
        replace(record, question=replace(record.question, id=f"2{record.question.id}"))
        for record in read_traces(V2).records()
    ]
    write_traces(other, tmp_path / "2.parquet")
    traces = read_traces(tmp_path)
    assert traces.question_ids == ("2a", "2b", "a", "b")
    assert list(traces.records()) == [*other, *read_traces(V1).records()]
    merge_traces([V1, tmp_path / "2.parquet"], tmp_path / "joint")
    assert list(read_traces(tmp_path / "joint").records()) == list(traces.records())


def test_a_recorder_leaves_a_single_file_of_version_1_as_it_is(tmp_path: Path) -> None:
    file = Path(shutil.copy(V1, tmp_path / "old.parquet"))
    before = file.read_bytes()
    with (
        pytest.raises(DataError, match="choose another --out"),
        question_writer(file, run=read_traces(V1).origin.run) as writer,
    ):
        keep(writer, [make_record("c", ["x"])])
    assert file.read_bytes() == before


# --- what is allowed --------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("columns", "row", "column"),
    [
        ({"propensity": [0.0] * 8}, 0, "propensity"),
        ({"propensity": [1.0] * 3 + [1e-38] * 5}, 3, "propensity"),
        ({"propensity": [1.0, 1.0, 1.5] + [1.0] * 5}, 2, "propensity"),
        ({"propensity": [float("nan")] * 8}, 0, "propensity"),
        ({"propensity": [0.5] * 3 + [None] * 5}, 3, "propensity"),
        ({"policy_hash": ["x"] * 3 + [None] * 5}, 3, "policy_hash"),
        ({"score": [0.5] * 7 + [-0.1]}, 7, "score"),
        ({"score": [85.0] + [None] * 7}, 0, "score"),
        ({"stopped_by": [None] * 2 + ["stop"] + [None] * 5}, 2, "stopped_by"),
        ({"stopped_by": [None] + ["end"] + [None] * 6}, 1, "stopped_by"),
        ({"time": pa.array([LATE.replace(tzinfo=None)] * 8)}, None, "time"),
        ({"time": pa.array([LATE] * 8, pa.timestamp("us", "Europe/Berlin"))}, None, "time"),
        ({"time": pa.array([1.5] * 8)}, None, "time"),
        ({"probed": pa.array([1] * 8)}, None, "probed"),
    ],
)
def test_a_bad_value_of_version_2_is_named(
    tmp_path: Path, columns: dict[str, Any], row: int | None, column: str
) -> None:
    file = restated(V2, tmp_path / "bad.parquet", "2", **columns)
    (error, *_) = inspect_traces(file).errors
    assert (error.file, error.row, error.column) == (str(file), row, column)


def test_times_of_other_widths_are_read(tmp_path: Path) -> None:
    """Nanoseconds, as data frames write them, are cut to microseconds."""
    nanoseconds = pa.array([1_795_338_000_123_456_789] * 8, pa.timestamp("ns", "+00:00"))
    file = restated(V2, tmp_path / "ns.parquet", "2", time=nanoseconds)
    first = next(iter(read_traces(file).records())).rounds[0]
    assert first.time is not None
    assert first.time.microsecond == 123_456


@pytest.mark.parametrize(
    ("fields", "column"),
    [
        *(({"propensity": share}, "propensity") for share in (0.0, 1e-38, 9e-7, 1e-60)),
        ({"stopped_by": "done"}, "stopped_by"),
        ({"policy_hash": 7}, "policy_hash"),
        *(({"scores": scores}, "score") for scores in ({1: 1.5}, {2: 0.5}, {0: 0.5})),
    ],
)
def test_a_record_refuses_what_a_file_would(fields: dict[str, Any], column: str) -> None:
    with pytest.raises(DataError) as caught:
        replace(make_record("a", ["x"]), **fields)
    assert caught.value.column == column


@pytest.mark.parametrize("moment", [LATE.replace(tzinfo=None), LATE.astimezone(BERLIN), "noon"])
def test_a_round_ends_at_a_time_in_utc(moment: Any) -> None:
    with pytest.raises(DataError, match="UTC") as caught:
        Round(answer="x", time=moment)
    assert caught.value.column == "time"
