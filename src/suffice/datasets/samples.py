"""The first objects of a file, from a bounded part of it, to say what the file is."""

from __future__ import annotations

import gzip
import json
import re
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from suffice.datasets.files import objects_in_lists, plain_suffix
from suffice.errors import DataError, plain_file

_HEAD = 256 << 10
_MOST = 50
_MARKS = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],]')
_CLOSE = {"{": "}", "[": "]"}


def sample(path: Path) -> Sequence[Mapping[str, Any]]:
    """Return up to 50 first objects of JSON or JSON lines, or the names of a table's columns as one object.

    A zip gives an object of its names. It reads at most 256 KiB, and of Parquet the footer. Raises
    ``DataError`` for a file that cannot be read; one of another kind gives none.
    """
    try:
        with plain_file(path).open("rb") as stream:
            magic = stream.peek(4)[:4]
            if magic == b"PAR1":
                import pyarrow.parquet as pq

                return [dict.fromkeys(pq.read_schema(stream).names)]
            if magic[:2] == b"PK":
                with zipfile.ZipFile(path) as archive:
                    return [dict.fromkeys(archive.namelist()[:_MOST])]
            packed = magic[:2] == b"\x1f\x8b"
            data = (gzip.GzipFile(fileobj=stream) if packed else stream).read(_HEAD)
    except (OSError, EOFError, zlib.error, zipfile.BadZipFile, ValueError) as error:
        missing = isinstance(error, FileNotFoundError)
        said = "does not exist" if missing else f"cannot be read ({error})"
        raise DataError(said, file=str(path)) from error
    marked = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = data.decode("utf-16" if marked else "utf-8-sig", errors="replace").lstrip()
    if plain_suffix(path) in (".csv", ".tsv") or text[:1] not in ("{", "["):
        header = re.split("[\r\n]", text, maxsplit=1)[0]
        names = [name.strip(' "') for name in re.split(r"[,;\t|]", header)]
        return [dict.fromkeys(names)] if plain_suffix(path) in (".csv", ".tsv") else []
    return objects_in_lists(_values(text, cut=len(data) == _HEAD), "messages")[:_MOST]


def _values(text: str, *, cut: bool) -> list[Any]:
    found: list[Any] = []
    decoder, at = json.JSONDecoder(), 0
    while at < len(text) and len(found) < _MOST:
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            if found or not cut:
                break
            value, at = _completed(text), len(text)
        found.append(value)
        while at < len(text) and text[at].isspace():
            at += 1
    return found


def _completed(text: str) -> Any:
    """Return the start of a cut document, closed after its last whole value."""
    open_, whole = "", (0, "")
    for mark in _MARKS.finditer(text):
        if mark[0] in _CLOSE:
            open_ += mark[0]
        elif mark[0] in "}]":
            open_ = open_[:-1]
        elif mark[0] == ",":
            whole = (mark.start(), open_)
    try:
        return json.loads(text[: whole[0]] + "".join(_CLOSE[one] for one in reversed(whole[1])))
    except (ValueError, RecursionError):
        return None
