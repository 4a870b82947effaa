"""Columns read when they are asked for, and of structs the fields alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice.errors import DataError
from suffice.signals.registry import SIGNALS
from suffice.signals.table import signal_columns
from suffice.testing.traces import make_record
from suffice.trace import lazy
from suffice.trace.lazy import LazyTable
from suffice.trace.parquet import check_pages
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.writer import records_to_table, write_traces

GENERATED = Path(__file__).parents[3] / "examples" / "traces" / "generated.parquet"
_NARROW = {
    "answer_token_margin": [("tokens", "top.logprob"), ("tokens", "token")],
    "token_probability": [("tokens", "logprob")],
    "answer_stable": [("passages", "id")],
}


@pytest.mark.parametrize("name", _NARROW)
def test_only_the_fields_that_a_signal_needs_are_read(name: str) -> None:
    traces = read_traces(GENERATED, lazily_above=0)
    (values,) = signal_columns(traces, [SIGNALS[name]])
    (whole,) = signal_columns(read_traces(GENERATED), [SIGNALS[name]])
    assert np.array_equal(values, whole, equal_nan=True)
    assert isinstance(traces.table, LazyTable)
    read = {(column, *fields) for column, fields in traces.table._columns}
    assert {*_NARROW[name]} <= read
    assert not {("tokens",), ("tokens", "top"), ("passages",), ("passages", "text")} & read


def test_lists_of_other_writers_read_alike(tmp_path: Path) -> None:
    table = pq.read_table(GENERATED)
    passages = table.column("passages").combine_chunks()
    titles = pa.StructArray.from_arrays([passages.values.field("title")], ["title"])
    short = pa.ListArray.from_arrays(passages.offsets, titles)  # without the ids
    place = table.column_names.index("passages")
    file = tmp_path / "other.parquet"
    pq.write_table(
        table.set_column(place, "passages", short), file, use_compliant_nested_type=False
    )
    names = [*_NARROW, "new_passages"]
    lazily = signal_columns(read_traces(file, lazily_above=0), [SIGNALS[name] for name in names])
    whole = signal_columns(read_traces(file), [SIGNALS[name] for name in names])
    for one, other in zip(lazily, whole, strict=True):
        assert np.array_equal(one, other, equal_nan=True)
    assert not np.isnan(lazily[0]).any()


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("checksums", [False, True])
def test_a_page_that_says_fewer_values_shifts_no_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str, *, checksums: bool
) -> None:
    """Its header, which no checksum covers, says how many it has; rows are let go of before the last page."""
    monkeypatch.setattr(lazy, "_BATCH", 16)
    monkeypatch.setattr(lazy, "_PIECE", 40)
    file = tmp_path / "t.parquet"
    table = records_to_table([make_record(f"q{n:03d}", [f"a{n}"]) for n in range(400)])
    pages = {"data_page_size": 300, "write_batch_size": 32, "data_page_version": version}
    plain = {"compression": "none", "use_dictionary": False, "write_statistics": False}
    pq.write_table(table, file, write_page_checksum=checksums, **pages, **plain)
    rows = np.array([70, 300])
    assert _answers(file, rows) == ["a70", "a300"]
    content = bytearray(file.read_bytes())
    with pq.ParquetFile(file) as parquet:
        paths = [parquet.schema.column(i).path for i in range(len(parquet.schema))]
        column = parquet.metadata.row_group(0).column(paths.index("answer"))
    # a struct of values follows, whose first number is 64 (two bytes): field 5 or 8 after 3, or after 4
    field = {"1.0": 5, "2.0": 8}[version] - (4 if checksums else 3)
    at = content.index(bytes([field << 4 | 0x0C, 0x15, 0x80, 0x01]), column.data_page_offset)
    content[at + 2 : at + 4] = b"\xe0\x00"  # 48
    file.write_bytes(content)
    with pytest.raises(
        DataError, match="pages of answer with 384 values where the footer says 400"
    ):
        _answers(file, rows)


def _answers(file: Path, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> list[str]:
    traces = read_traces(file, lazily_above=0)
    assert isinstance(traces.table, LazyTable)
    source, there = traces.table.in_files(rows)
    answers: list[str] = source.at("answer", there, ()).to_pylist()
    return answers


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "zstd"])
def test_pages_of_every_kind_are_counted(tmp_path: Path, version: str, compression: str) -> None:
    file = tmp_path / "t.parquet"
    pq.write_table(
        pq.read_table(GENERATED),
        file,
        compression=compression,
        data_page_version=version,
        data_page_size=4000,
        row_group_size=70,
        write_page_checksum=compression == "zstd",
        use_dictionary=["question_id", "answer"],
    )
    with pq.ParquetFile(file) as parquet, file.open("rb") as stream:
        for group in range(parquet.num_row_groups):
            for leaf in range(parquet.metadata.num_columns):
                check_pages(stream, parquet.metadata.row_group(group).column(leaf))


def test_a_file_that_grew_since_it_was_opened_is_not_read_on(tmp_path: Path) -> None:
    """Rows of one state would stand beside those of another."""
    records = [make_record(f"q{n}", ["Oslo"]) for n in range(3)]
    write_traces(records[:2], tmp_path / "t.parquet")
    traces = read_traces(tmp_path / "t.parquet", lazily_above=0)
    assert traces.table.column("question_id").to_pylist() == ["q0", "q1"]
    write_traces(records, tmp_path / "t.parquet")
    with pytest.raises(DataError, match="written anew since it was opened; read the record again"):
        traces.table.column("answer")
