"""Parquet files, every page of which is written with a checksum and compared with it when it is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from suffice.errors import DataError, first_line, plain_file

_FEW_ROWS = 1024  # threads take longer to start than these to read


def parquet_writer(sink: BinaryIO | Path, schema: pa.Schema) -> pq.ParquetWriter:
    """What writes tables one after the other, each page with a checksum."""
    return pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True)


def opened(file: Path, **options: Any) -> pq.ParquetFile:
    """A Parquet file; a page that has a checksum is compared with it when it is read."""
    footer, stream = footer_of(file), pa.OSFile(str(file))
    return pq.ParquetFile(stream, metadata=footer, page_checksum_verification=True, **options)


def complete(parquet: pq.ParquetFile, names: Sequence[str]) -> pa.Table:
    """Columns of all rows."""
    stated = parquet.metadata.num_rows
    table = parquet.read(columns=names, use_threads=stated > _FEW_ROWS)
    if names and table.num_rows != stated:
        raise pa.ArrowInvalid(f"{table.num_rows} rows where the footer says {stated}")
    return table


def footer_of(file: Path) -> pq.FileMetaData:
    """What a Parquet file says of itself, read once."""
    known = plain_file(file).stat()
    return _footer(file, known.st_mtime_ns, known.st_size, known.st_ino)


@lru_cache(maxsize=1024)
def _footer(file: Path, _changed: int, _size: int, _number: int) -> pq.FileMetaData:
    """Of many row groups it takes longer to read than some of their columns."""
    return pq.ParquetFile(pa.OSFile(str(file))).metadata


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
