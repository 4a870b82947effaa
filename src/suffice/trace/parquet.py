"""Parquet files with checksums: every page has one, and the footer, which says what the pages are, one more.

Both lie in the file itself, so they hold wherever it is copied to. Files of other writers may have neither.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from suffice.errors import DataError, first_line

FOOTER_KEY = b"suffice.footer.sha256"
"""Where a footer states its SHA-256, which is taken with zeros in the place of its digits."""
_ZEROS = b"0" * 64
# a key and a value of 64 bytes as Thrift's compact protocol has them: kind of field, length, bytes
_BEFORE = b"\x18" + bytes([len(FOOTER_KEY)]) + FOOTER_KEY + b"\x18\x40"
_TAIL = 8  # bytes after the footer: its length and the name of the format
_HEADER = 64  # bytes of a page's header that hold its checksum


@dataclass(frozen=True, slots=True)
class Checksums:
    """Which checksums a file has."""

    pages: bool
    footer: bool


def write_parquet(table: pa.Table, sink: BinaryIO, *, group_rows: int | None = None) -> None:
    """The table as a file with checksums, in row groups of ``group_rows``."""
    with ParquetSink(sink, table.schema) as writer:
        writer.write(table, group_rows)


class ParquetSink:
    """Tables written one after the other to a file with checksums; ``sink`` is open for reading too."""

    def __init__(self, sink: BinaryIO, schema: pa.Schema) -> None:
        self._sink = sink
        self._writer = pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True)

    def write(self, table: pa.Table, group_rows: int | None = None) -> None:
        """Add rows."""
        self._writer.write_table(table, row_group_size=group_rows)

    def __enter__(self) -> ParquetSink:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._writer.add_key_value_metadata({FOOTER_KEY.decode(): _ZEROS.decode()})
        self._writer.close()
        if kind is not None:
            return
        footer = _footer_bytes(self._sink)
        at = len(footer) - footer.index(_BEFORE + _ZEROS) - len(_BEFORE)
        self._sink.seek(-_TAIL - at, 2)
        self._sink.write(hashlib.sha256(footer).hexdigest().encode())


def _footer_bytes(stream: BinaryIO) -> bytes:
    """The footer of a Parquet file; empty where there can be none."""
    size = stream.seek(0, 2)
    stream.seek(max(0, size - _TAIL))
    length = int.from_bytes(stream.read(_TAIL)[:4], "little")
    if length + _TAIL > size:
        return b""
    stream.seek(size - _TAIL - length)
    return stream.read(length)


def opened(file: Path) -> pq.ParquetFile:
    """A Parquet file, whose checksums are verified where it has any: the footer's now, a page's when read."""
    source = pa.OSFile(str(file))
    _check_footer(source)
    return pq.ParquetFile(source, page_checksum_verification=True)


def complete(parquet: pq.ParquetFile, names: Sequence[str]) -> pa.Table:
    """Columns of all rows.

    Raises
    ------
    pyarrow.ArrowInvalid
        Where there are fewer, or more, rows than the footer says.
    """
    table, stated = parquet.read(columns=names), parquet.metadata.num_rows
    if names and table.num_rows != stated:
        raise pa.ArrowInvalid(f"{table.num_rows} rows where the footer says {stated}")
    return table


def footer_of(file: Path) -> pq.FileMetaData:
    """What a Parquet file says of itself, read once."""
    known = file.stat()
    return _footer(file, known.st_mtime_ns, known.st_size)


@lru_cache(maxsize=64)
def _footer(file: Path, _changed: int, _size: int) -> pq.FileMetaData:
    """Of many row groups it takes longer to read than some of their columns."""
    with opened(file) as parquet:
        return parquet.metadata


_NO_THREAD = "Failed to launch worker thread"  # Arrow's own words


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """Names the file where it cannot be read."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if _NO_THREAD in str(error):  # with too little memory; the file may be whole
            raise MemoryError(first_line(error)) from error
        hint = "; a policy file is named with --policy" if file.suffix == ".json" else ""
        raise DataError(
            f"not a readable Parquet file, truncated or damaged: {first_line(error)}{hint}",
            file=str(file),
        ) from error


def footer_digest(stream: BinaryIO) -> str | None:
    """What tells a file's footer from others: the SHA-256 that it states, else its own; ``None``: none."""
    footer = _footer_bytes(stream)
    at = footer.find(_BEFORE) + len(_BEFORE)
    if at < len(_BEFORE):
        return hashlib.sha256(footer).hexdigest() if footer else None
    return footer[at : at + len(_ZEROS)].decode("ascii", "replace")


def _check_footer(stream: BinaryIO) -> None:
    """Compare the footer with the checksum that it states, if it does.

    Raises
    ------
    pyarrow.ArrowInvalid
        Where it is that of another footer.
    """
    footer = _footer_bytes(stream)
    at = footer.find(_BEFORE) + len(_BEFORE)
    if at < len(_BEFORE):
        return
    taken = hashlib.sha256(footer[:at] + _ZEROS + footer[at + len(_ZEROS) :]).hexdigest()
    if taken.encode() != footer[at : at + len(_ZEROS)]:
        raise pa.ArrowInvalid("the footer's checksum does not match")


def checksums_of(file: Path) -> Checksums:
    """What a file has, told by its footer and the header of its first page."""
    with readable(file):
        metadata = footer_of(file)
    footer = FOOTER_KEY in (metadata.metadata or {})
    if not metadata.num_row_groups or not metadata.num_columns:
        return Checksums(pages=footer, footer=footer)
    column = metadata.row_group(0).column(0)
    begin = column.dictionary_page_offset if column.has_dictionary_page else column.data_page_offset
    with file.open("rb") as stream:
        stream.seek(max(0, begin))
        return Checksums(pages=_states_a_checksum(stream.read(_HEADER)), footer=footer)


def _states_a_checksum(header: bytes) -> bool:
    """Whether a page's header (Thrift's compact protocol) has a fourth number: three are always there."""
    at = 0
    for _ in range(3):
        if header[at : at + 1] != b"\x15":
            return False
        at += 1
        while at < len(header) and header[at] & 0x80:
            at += 1
        at += 1
    return header[at : at + 1] == b"\x15"
