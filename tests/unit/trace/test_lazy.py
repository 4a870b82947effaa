"""Columns read when they are asked for, and of structs the fields alone."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice.errors import DataError
from suffice.measures.seen import record_banners
from suffice.signals.known_signals import SIGNALS
from suffice.signals.signal_table import signal_columns
from suffice.testing.traces import make_record
from suffice.trace.lazy import LazyTable, in_memory
from suffice.trace.parquet import readable
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.writer import write_traces

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
    read = {(column, field) if field else (column,) for column, field in traces.table._columns}
    assert {*_NARROW[name]} <= read
    assert not {("tokens",), ("tokens", "top"), ("passages",), ("passages", "text")} & read


def test_lists_of_other_writers_read_alike(tmp_path: Path) -> None:
    table = pq.read_table(GENERATED)
    passages = table.column("passages").combine_chunks()
    titles = pa.StructArray.from_arrays([passages.values.field("title")], ["title"])
    short = pa.ListArray.from_arrays(passages.offsets, titles)  # without the ids
    table = table.set_column(table.column_names.index("passages"), "passages", short)
    file = tmp_path / "other.parquet"
    pq.write_table(table, file, use_compliant_nested_type=False)
    specs = [SIGNALS[name] for name in (*_NARROW, "new_passages")]
    lazily = signal_columns(read_traces(file, lazily_above=0), specs)
    for one, other in zip(lazily, signal_columns(read_traces(file), specs), strict=True):
        assert np.array_equal(one, other, equal_nan=True)
    assert not np.isnan(lazily[0]).any()


def test_a_file_that_grew_since_it_was_opened_is_not_read_on(tmp_path: Path) -> None:
    """Rows of one state would stand beside those of another."""
    records = [make_record(f"q{n}", ["Oslo"]) for n in range(3)]
    write_traces(records[:2], tmp_path / "t.parquet")
    traces = read_traces(tmp_path / "t.parquet", lazily_above=0)
    assert traces.table.column("question_id").to_pylist() == ["q0", "q1"]
    write_traces(records, tmp_path / "t.parquet")
    with pytest.raises(DataError, match="written anew since it was opened; read the record again"):
        traces.table.column("answer")


_READS = """
import sys
from suffice.errors import DataError
from suffice.measures.contents import traces_info
from suffice.trace.rounds.reader import read_traces
def lazily(path):
    traces = read_traces(path, lazily_above=0)
    return [traces.has(name) for name in traces.table.column_names]
refused = 0
for read in (traces_info, lazily):
    try:
        read(sys.argv[1])
    except DataError:
        refused += 1
sys.exit(refused)
"""


def test_a_footer_with_sizes_that_differ_is_refused(tmp_path: Path) -> None:
    """Arrow ends the process where it is asked what such a footer says of a column."""
    whole, file = GENERATED.read_bytes(), tmp_path / "damaged.parquet"
    begin = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
    draw = random.Random(1)
    while True:
        damaged = bytearray(whole)
        damaged[draw.randrange(begin, len(whole) - 8)] ^= 1 << draw.randrange(8)
        try:
            pq.ParquetFile(pa.BufferReader(bytes(damaged))).read(use_threads=False)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            if "histogram" in str(error):
                break
    file.write_bytes(damaged)
    ended = subprocess.run([sys.executable, "-c", _READS, str(file)], check=False)
    assert ended.returncode == 2


# --- parquet files carry checksums of their pages, which are verified -----------------------------
@pytest.mark.parametrize("lazily_above", [0, 1 << 30])
def test_a_page_that_was_changed_is_refused(tmp_path: Path, lazily_above: int) -> None:
    file = tmp_path / "t.parquet"
    write_traces([make_record(f"q{n}", ["Oslo", "Bergen"]) for n in range(50)], file)
    footer = pq.ParquetFile(file).metadata
    column = next(
        column
        for leaf in range(footer.num_columns)
        if (column := footer.row_group(0).column(leaf)).path_in_schema == "answer"
    )
    content = bytearray(file.read_bytes())
    content[column.data_page_offset + column.total_compressed_size // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(DataError, match="damaged"):
        in_memory(read_traces(file, lazily_above=lazily_above).table)


def test_too_little_memory_for_a_thread_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(MemoryError), readable(tmp_path / "a.parquet"):
        raise OSError(
            "Unknown error: Failed to launch worker thread: Resource temporarily unavailable"
        )


# --- files of different loops are told apart by what they state and by their budgets --------------
def file(folder: Path, name: str, rounds: int = 2, first: int = 0, **run: object) -> None:
    records = [make_record(f"q{first + n}", ["Oslo"] * rounds, gold=["Oslo"]) for n in range(8)]
    write_traces(records, folder / f"{name}.parquet", run=run)


def test_what_files_state_of_their_loops(tmp_path: Path) -> None:
    file(tmp_path, "a", pipeline="react", step=1, dataset="x")
    file(tmp_path, "b", first=8, pipeline="react", step=1, dataset="y")
    assert read_traces(tmp_path).origin.loops == ()
    file(tmp_path, "c", first=16, pipeline="cumulative", step=3)
    file(tmp_path, "d", first=24)
    traces = read_traces(tmp_path)
    said = "pipeline react (a.parquet, b.parquet), cumulative (c.parquet); step 1 (a"
    assert said in record_banners(traces)[0]
    assert read_traces(tmp_path, lazily_above=0).origin.loops == traces.origin.loops
