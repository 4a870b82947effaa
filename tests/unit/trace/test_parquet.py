"""Parquet files carry checksums of their pages and of their footer, and both are verified."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice.errors import DataError
from suffice.measures.contents import traces_info
from suffice.testing.traces import make_record
from suffice.trace.parquet import Checksums, checksums_of, opened, readable, write_parquet
from suffice.trace.rounds.derive import merge_traces
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.writer import write_traces

TABLE = pa.table({"name": ["a", "b", "a"], "value": [1.0, 2.0, 3.0]})


@pytest.mark.parametrize("rows", [3, 0])
def test_a_file_says_which_checksums_it_has(tmp_path: Path, rows: int) -> None:
    """Those of other writers may have none, or those of pages only."""
    ours, foreign, half = (tmp_path / f"{name}.parquet" for name in ("ours", "foreign", "half"))
    table = TABLE.slice(0, rows)
    with ours.open("wb+") as stream:
        write_parquet(table, stream)
    pq.write_table(table, foreign)
    pq.write_table(table, half, write_page_checksum=True)
    assert checksums_of(ours) == Checksums(pages=True, footer=True)
    assert checksums_of(foreign) == Checksums(pages=False, footer=False)
    assert checksums_of(half) == Checksums(pages=True, footer=False)
    with opened(ours) as parquet:
        assert parquet.read().replace_schema_metadata() == table


def test_a_footer_that_was_changed_is_refused(tmp_path: Path) -> None:
    """A column by another name would be a column less."""
    file = tmp_path / "t.parquet"
    write_traces([make_record("q", ["Oslo"])], file)
    content = file.read_bytes()
    at = content.rindex(b"gold_answers")
    file.write_bytes(content[:at] + b"cold_answers" + content[at + 12 :])
    with pytest.raises(DataError, match="the footer's checksum does not match"):
        read_traces(file)


def test_info_says_how_many_files_have_checksums(tmp_path: Path) -> None:
    """And what writes the others anew; a file written of several parts has them too."""
    write_traces([make_record("a", ["Oslo"])], tmp_path / "both/a.parquet")
    write_traces([make_record("b", ["Oslo"])], tmp_path / "both/b.parquet")
    foreign = tmp_path / "both/b.parquet"
    pq.write_table(pq.read_table(foreign), foreign)
    contents = traces_info(tmp_path / "both")
    assert (contents.files, contents.with_checksums) == (2, 1)
    assert any("without checksums: 1 of 2 files" in note for note in contents.notes)
    merge_traces([tmp_path / "both/a.parquet", foreign], tmp_path / "one.parquet")
    contents = traces_info(tmp_path / "one.parquet")
    assert (contents.files, contents.with_checksums) == (1, 1)
    assert not any("without checksums" in note for note in contents.notes)


def test_too_little_memory_for_a_thread_is_no_damage(tmp_path: Path) -> None:
    with pytest.raises(MemoryError), readable(tmp_path / "a.parquet"):
        raise OSError(
            "Unknown error: Failed to launch worker thread: Resource temporarily unavailable"
        )
