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

from suffice.errors import DataError, first_line, plain_file

FOOTER_KEY = b"suffice.footer.sha256"
"""Where a footer states its SHA-256, which is taken with zeros in the place of its digits."""
_ZEROS = b"0" * 64
# a key and a value of 64 bytes as Thrift's compact protocol has them: kind of field, length, bytes
_BEFORE = b"\x18" + bytes([len(FOOTER_KEY)]) + FOOTER_KEY + b"\x18\x40"
_FEW_ROWS = 1024  # threads take longer to start than these to read
_TAIL = 8  # bytes after the footer: its length and the name of the format


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
    footer = footer_of(file)
    return pq.ParquetFile(pa.OSFile(str(file)), metadata=footer, page_checksum_verification=True)


def complete(parquet: pq.ParquetFile, names: Sequence[str]) -> pa.Table:
    """Columns of all rows."""
    stated = parquet.metadata.num_rows
    table = parquet.read(columns=names, use_threads=stated > _FEW_ROWS)
    if names and table.num_rows != stated:
        raise pa.ArrowInvalid(f"{table.num_rows} rows where the footer says {stated}")
    return table


def footer_of(file: Path) -> pq.FileMetaData:
    """What a Parquet file says of itself, read and compared with its checksum once."""
    known = plain_file(file).stat()
    return _footer(file, known.st_mtime_ns, known.st_size, known.st_ino)


@lru_cache(maxsize=1024)
def _footer(file: Path, _changed: int, _size: int, _number: int) -> pq.FileMetaData:
    """Of many row groups it takes longer to read than some of their columns."""
    source = pa.OSFile(str(file))
    _check_footer(source)
    return pq.ParquetFile(source).metadata


def nulls_throughout(footer: pq.FileMetaData) -> set[str]:
    """The columns, and the parts of lists and structs, of which the footer says that all is null."""
    groups = [footer.row_group(group) for group in range(footer.num_row_groups)]
    names = set()
    for leaf in range(footer.num_columns):
        for group in groups:
            column = group.column(leaf)
            counted = column.statistics
            if not counted or not counted.has_null_count or counted.null_count < column.num_values:
                break
        else:
            names.add(footer.row_group(0).column(leaf).path_in_schema if groups else "")
    return names


_NO_THREAD = "Failed to launch worker thread"  # Arrow's own words


@contextmanager
def readable(file: Path) -> Iterator[None]:
    """Names the file where it cannot be read."""
    try:
        yield
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        if _NO_THREAD in str(error):  # with too little memory; the file may be whole
            raise MemoryError(first_line(error)) from error
        if isinstance(error, PermissionError):
            raise DataError("Permission denied; change who may read it", file=str(file)) from error
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
    """Compare the footer with the checksum that it states, if it does."""
    footer = _footer_bytes(stream)
    at = footer.find(_BEFORE) + len(_BEFORE)
    if at < len(_BEFORE):
        return
    taken = hashlib.sha256(footer[:at] + _ZEROS + footer[at + len(_ZEROS) :]).hexdigest()
    if taken.encode() != footer[at : at + len(_ZEROS)]:
        raise pa.ArrowInvalid("the footer's checksum does not match")


# --- headers of pages -----------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _Page:
    """What the header of a page says.

    ``header`` and ``content`` are their bytes; ``values`` are those of a column, 0 of a dictionary.
    """

    header: int
    content: int
    values: int
    has_checksum: bool


class _Compact:
    """Reads Thrift's compact protocol, as far as headers of pages need it."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.at = 0

    def byte(self) -> int:
        """The next one."""
        value = self._content[self.at]
        self.at += 1
        return value

    def unsigned(self) -> int:
        """A number of variable length."""
        value = shift = 0
        while True:
            part = self.byte()
            value |= (part & 0x7F) << shift
            shift += 7
            if part < 0x80:
                return value
            if shift > _MOST_BITS:
                raise IndexError(shift)

    def signed(self) -> int:
        """A number of either sign."""
        value = self.unsigned()
        return (value >> 1) ^ -(value & 1)

    def fields(self) -> Iterator[tuple[int, int]]:
        """Number and type of each field of a struct, whose value is read between two of them."""
        number = 0
        while (head := self.byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self.signed()
            yield number, head & 0x0F

    def skip(self, kind: int) -> None:
        """Over a value."""
        if self.at > len(self._content):
            raise IndexError(self.at)
        if kind in _NUMBERS:
            self.unsigned()
        elif kind in _WIDTHS:
            self.at += _WIDTHS[kind]
        elif kind == _TEXT:
            length = self.unsigned()
            self.at += length
        elif kind == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner)
        elif kind in _LISTS:
            head = self.byte()
            for _ in range(head >> 4 if head < _LONG_LIST else self.unsigned()):
                self.skip(_BYTE if head & 0x0F in _FLAGS else head & 0x0F)
        else:
            raise IndexError(kind)


_FLAGS, _BYTE, _NUMBERS, _TEXT, _LISTS, _STRUCT = (1, 2), 3, (4, 5, 6), 8, (9, 10), 12
_WIDTHS = {1: 0, 2: 0, _BYTE: 1, 7: 8}  # of a flag, which its type says, a byte and a float
_LONG_LIST = 0xF0
_MOST_BITS = 63
_OF_VALUES = (5, 8)  # fields of a page's header that are there where it holds values


def _page(stream: BinaryIO, at: int) -> _Page:
    """The page that begins at a byte of a file."""
    for size in (256, _LONGEST_HEADER):  # longer ones hold long texts
        stream.seek(at)
        content = stream.read(size)
        try:
            page = _parsed(_Compact(content))
        except (IndexError, RecursionError):
            continue
        if 0 <= page.content < _LONGEST_PAGE and page.header <= len(content):
            return page
    raise pa.ArrowInvalid("where a page should be there is none")


_LONGEST_HEADER, _LONGEST_PAGE = 1 << 24, 1 << 31


def _parsed(reader: _Compact) -> _Page:
    content = values = 0
    has_checksum = False
    for number, kind in reader.fields():
        has_checksum |= number == 4
        if number == 3 and kind in _NUMBERS:
            content = reader.signed()
        elif number in _OF_VALUES and kind == _STRUCT:
            for inner, of in reader.fields():
                if inner == 1 and of in _NUMBERS:
                    values = reader.signed()
                else:
                    reader.skip(of)
        else:
            reader.skip(kind)
    return _Page(reader.at, content, values, has_checksum)


def check_pages(stream: BinaryIO, column: pq.ColumnChunkMetaData) -> None:
    """Compare how many values the pages of a column hold with what the footer says.

    A page that says another number shifts all rows after it; its checksum does not cover its header.
    """
    at, values = _begin(column), 0
    end = at + column.total_compressed_size
    for _ in range(column.num_values + 2):  # a dictionary, and pages with a value each at least
        if values >= column.num_values or at >= end:
            break
        page = _page(stream, at)
        at += page.header + page.content
        values += page.values
    if values != column.num_values:
        raise pa.ArrowInvalid(
            f"pages of {column.path_in_schema} with {values} values where the footer says {column.num_values}"
        )


def _begin(column: pq.ColumnChunkMetaData) -> int:
    """The byte of its first page."""
    if column.has_dictionary_page:
        return max(0, int(column.dictionary_page_offset))
    return max(0, int(column.data_page_offset))


def checksums_of(file: Path) -> Checksums:
    """What a file has, told by its footer and the header of its first page."""
    with readable(file):
        metadata = footer_of(file)
        footer = FOOTER_KEY in (metadata.metadata or {})
        if not metadata.num_row_groups or not metadata.num_columns:
            return Checksums(pages=footer, footer=footer)
        with file.open("rb") as stream:
            page = _page(stream, _begin(metadata.row_group(0).column(0)))
    return Checksums(pages=page.has_checksum, footer=footer)
