"""Parquet files as other programs write them: read, or refused with row and column."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.commands import refused, run

import suffice
from suffice.datasets.files import open_table
from suffice.datasets.known_datasets import read_questions
from suffice.errors import DataError

NS = 1_790_000_000_123_456_789
MOMENT = datetime(2026, 9, 21, 14, 13, 20, 123456)
UUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"


def bad_text() -> pa.Array:
    offsets = pa.py_buffer(np.array([0, 2, 4], np.int32))
    return pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"AdB\xe9")])


def written(path: Path, column: pa.Array, **options: Any) -> Path:
    pq.write_table(pa.table({"x": column}), path, **options)
    return path


READ: dict[str, tuple[pa.Array, Any]] = {
    "pandas ns": (pa.array([NS], pa.timestamp("ns")), MOMENT),
    "ns of a zone": (
        pa.array([NS], pa.timestamp("ns", "Europe/Berlin")),
        MOMENT.replace(tzinfo=UTC),
    ),
    "us": (pa.array([NS // 1000], pa.timestamp("us")), MOMENT),
    "last day": (pa.array([datetime(9999, 12, 31)], pa.timestamp("us")), datetime(9999, 12, 31)),
    "first day": (pa.array([datetime(1, 1, 1)], pa.timestamp("us")), datetime(1, 1, 1)),
    "date": (pa.array([date(2026, 1, 2)]), "2026-01-02"),
    "time": (pa.array([time(1, 2)], pa.time64("ns")), "01:02:00"),
    "whole decimal": (pa.array([Decimal(10)], pa.decimal128(38, 0)), 10),
    "wide decimal": (pa.array([Decimal("0.5")], pa.decimal256(60, 2)), "0.5"),
    "long decimal": (pa.array([Decimal("3." + "1" * 37)], pa.decimal128(38, 37)), "3." + "1" * 37),
    "before 1970": (pa.array([-1], pa.timestamp("ns")), datetime(1969, 12, 31, 23, 59, 59, 999999)),
    "duration": (pa.array([90_000_000_000], pa.duration("ns")), "00:01:30"),
    "time in seconds": (pa.array([time(13, 2)], pa.time32("s")), "13:02:00"),
    "null in a list": (pa.array([[None, b"a"], None][:1]), [None, "a"]),
    "list of uuids": (
        pa.ListArray.from_arrays(
            [0, 1], pa.array([bytes.fromhex(UUID.replace("-", ""))], pa.uuid())
        ),
        [UUID],
    ),
    "decimals in a dictionary": (pa.array([Decimal("1.50")]).dictionary_encode(), "1.5"),
    "uuid": (pa.array([bytes.fromhex(UUID.replace("-", ""))], pa.uuid()), UUID),
    "binary text": (pa.array(["é".encode()]), "é"),
    "dictionary": (pa.array(["a"]).dictionary_encode(), "a"),
    "large text": (pa.array(["a"], pa.large_string()), "a"),
    "text view": (pa.array(["a"], pa.string_view()), "a"),
    "large list": (pa.array([["a"]], pa.large_list(pa.string())), ["a"]),
    "fixed list": (pa.array([[1, 2]], pa.list_(pa.int64(), 2)), [1, 2]),
    "list of ns": (pa.array([[NS]], pa.list_(pa.timestamp("ns"))), [MOMENT]),
    "map": (pa.array([[("a", Decimal(1))]], pa.map_(pa.string(), pa.decimal128(9, 0))), [("a", 1)]),
    "struct": (pa.array([{"a": b"b", "c": None}]), {"a": "b", "c": None}),
    "nothing": (pa.nulls(1), None),
    "half": (pa.array(np.array([0.5], np.float16)), 0.5),
    "unsigned": (pa.array([2**64 - 1], pa.uint64()), 2**64 - 1),
}


@pytest.mark.parametrize("name", READ)
def test_reads_the_types_that_others_write(name: str, tmp_path: Path) -> None:
    column, expected = READ[name]
    table = open_table(written(tmp_path / "x.parquet", column))
    assert [row.values["x"] for row in table.rows(["x"])] == [expected]


@pytest.mark.parametrize("moment", [MOMENT, datetime(1, 1, 1), datetime(9999, 12, 31)])
def test_reads_the_old_times_of_spark(moment: datetime, tmp_path: Path) -> None:
    column = pa.array([moment], pa.timestamp("us"))
    path = written(tmp_path / "x.parquet", column, use_deprecated_int96_timestamps=True)
    assert [row.values["x"] for row in open_table(path).rows(["x"])] == [moment]


REFUSED: dict[str, pa.Array] = {
    "a far time": pa.array([0, 400_000_000_000], pa.timestamp("s")),
    "text in LATIN1": bad_text(),
    "bytes": pa.array([b"a", b"\xff\x00"]),
    "an interval": pa.array([b"a" * 12, b"\x01" + b"\x00" * 11], pa.binary(12)),
    "a far time in a list": pa.array([[], [400_000_000_000]], pa.list_(pa.timestamp("s"))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_what_is_no_text_and_no_time(name: str, tmp_path: Path) -> None:
    table = open_table(written(tmp_path / "x.parquet", REFUSED[name]))
    with pytest.raises(DataError) as caught:
        [row.get("x") for row in table.rows(["x"])]
    assert (caught.value.row, caught.value.column) == (1, "x")


def test_rows_count_through_groups_that_may_be_empty(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    column = pa.table({"x": REFUSED["a far time"]})
    with pq.ParquetWriter(path, column.schema) as writer:
        for part in (column.slice(0, 1), column.slice(0, 0), column.slice(1)):
            writer.write_table(part)
    with pytest.raises(DataError) as caught:
        [row.get("x") for row in open_table(path).rows(["x"])]
    assert caught.value.row == 1


@pytest.mark.parametrize(
    ("table", "column"),
    [
        (pa.table([["a"], ["b"]], names=["x", "x"]), "x"),
        (pa.table({"s": pa.StructArray.from_arrays([pa.array(["a"])] * 2, ["x", "x"])}), "s"),
    ],
)
def test_refuses_a_doubled_column(table: pa.Table, column: str, tmp_path: Path) -> None:
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(DataError) as caught:
        [row.get("s") for row in open_table(tmp_path / "x.parquet").rows(["s"])]
    assert caught.value.column == column


def test_names_that_differ_by_case_and_names_with_dots_are_columns(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1], "X": [2], "x.y": [3]}), tmp_path / "x.parquet")
    table = open_table(tmp_path / "x.parquet")
    assert [row.values for row in table.rows(["x", "X", "x.y"])] == [{"x": 1, "X": 2, "x.y": 3}]


def test_questions_and_labels_are_read_the_same(tmp_path: Path) -> None:
    pq.write_table(
        pa.table(
            {
                "id": pa.array([Decimal(7)], pa.decimal128(38, 0)),
                "question": pa.array([b"Who?"]),
                "answers": pa.array([[b"Ada"]]),
            }
        ),
        tmp_path / "q.parquet",
    )
    (example,) = read_questions(tmp_path / "q.parquet")
    assert (example.question.id, example.gold.answers) == ("7", ("Ada",))


@pytest.mark.parametrize(
    "text", ['[{"question": "w?", "answer": "a"}]\n', '{\n "question": "w?"\n}\n', "a,b\n1,2\n"]
)
@pytest.mark.parametrize("skip", [False, True])
def test_a_file_of_broken_lines_says_its_first(text: str, skip: bool, tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(text)
    with pytest.raises(DataError) as caught:
        suffice.traces.import_(
            tmp_path / "log.jsonl", format="columns", out=tmp_path / "o.parquet", skip_invalid=skip
        )
    assert caught.value.row == 0


FOLDERS = sorted((Path(__file__).parents[3] / "world/tables").iterdir())


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_reads_the_tables_of_the_world(folder: Path, tmp_path: Path) -> None:
    expected = json.loads((folder / "expect.json").read_text())
    out = tmp_path / "out.parquet"

    def imported() -> None:
        suffice.traces.import_(
            folder / expected.get("file", "log.parquet"),
            format="columns",
            out=out,
            columns=expected.get("columns"),
            skip_invalid=expected.get("skip_invalid", False),
        )

    if "error" in expected:
        with pytest.raises(DataError) as caught:
            imported()
        assert (caught.value.row, caught.value.column) == (expected["row"], expected["column"])
        assert expected["error"] in str(caught.value)
        assert "\n" not in str(caught.value)
        return
    imported()
    rows = json.loads(json.dumps(pq.read_table(out).to_pylist(), default=datetime.isoformat))
    assert [
        {name: row[name] for name in of} for row, of in zip(rows, expected["rows"], strict=True)
    ] == expected["rows"]


@pytest.mark.parametrize("column", ["question", "answers", "id"])
def test_a_bad_cell_of_questions_or_labels_is_refused_with_its_place(
    column: str, tmp_path: Path
) -> None:
    cells = {"question": ["Who?", "What?"], "answers": ["Ada", "Bo"], "id": ["q1", "q2"]}
    cells[column] = pa.array([b"a", b"\xff"])
    pq.write_table(pa.table(cells), tmp_path / "q.parquet")
    (tmp_path / "corpus.txt").write_text("Ada wrote notes.")
    out = tmp_path / "o.parquet"
    options = ("--corpus", tmp_path / "corpus.txt", "--llm", "scripted", "--out", out)
    done = run("record", "--dataset", tmp_path / "q.parquet", *options)
    refused(done, f"row 1, column {column}: ")
    if column == "question":
        return
    named = {"id": "question_id", "answers": "gold_answers"}
    labels = pa.table({named[name]: cells[name] for name in named})
    pq.write_table(labels, tmp_path / "l.parquet")
    done = run("traces", "label", "example", tmp_path / "l.parquet", "--out", out)
    refused(done, f"row 1, column {named[column]}: ")
