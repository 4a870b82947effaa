"""The first objects of a file, from a bounded part of it, to say what the file is."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from suffice.contracts import repaired_json, strict_json
from suffice.datasets.files import content_of, objects_in_lists, plain_suffix
from suffice.errors import DataError, plain_file

_HEAD, _REPAIRED = 256 << 10, 16 << 10  # of the file; of a document that has to be closed
_MOST = 50


def sample(path: Path) -> Sequence[Mapping[str, Any]]:
    """Return up to 50 first objects of JSON or JSON lines, or the names of a table's columns as one object.

    A zip gives an object of its names. It reads at most 256 KiB, and of Parquet the footer. Raises
    ``DataError`` for a file that cannot be read; one of another kind gives none.
    """
    text = content_of(path, _HEAD).lstrip()
    try:
        if text.startswith("PAR1"):
            import pyarrow.parquet as pq

            with plain_file(path).open("rb") as stream:
                return [dict.fromkeys(pq.read_schema(stream).names)]
        if text.startswith("PK"):
            with zipfile.ZipFile(path) as archive:
                return [dict.fromkeys(archive.namelist()[:_MOST])]
    except (OSError, zipfile.BadZipFile, ValueError) as error:
        raise DataError(f"cannot be read ({error})", file=str(path)) from error
    if plain_suffix(path) in (".csv", ".tsv"):
        names = re.split(r"[,;\t|]", re.split("[\r\n]", text, maxsplit=1)[0])
        return [dict.fromkeys(name.strip(' "') for name in names)]
    return objects_in_lists(_values(text) if text[:1] in ("{", "[") else [], "messages")[:_MOST]


def _values(text: str) -> list[Any]:
    """Return the values of lines, or a document, closed where it was cut."""
    found: list[Any] = []
    lines = re.split("[\r\n]", text, maxsplit=_MOST)[:_MOST]
    with suppress(ValueError, RecursionError):  # what stands before a broken line is kept
        found.extend(strict_json(line) for line in lines if line.strip())
    with suppress(ValueError, RecursionError):
        return found or [repaired_json(text[:_REPAIRED])]
    return []
