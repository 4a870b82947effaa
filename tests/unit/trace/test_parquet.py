"""Parquet files carry checksums of their pages, which are verified."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from suffice.errors import DataError
from suffice.testing.traces import make_record
from suffice.trace.lazy import in_memory
from suffice.trace.parquet import readable
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.writer import write_traces


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
