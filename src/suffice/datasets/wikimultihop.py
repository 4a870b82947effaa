"""2WikiMultiHopQA: the format of HotpotQA, with further question types and sometimes none."""

from __future__ import annotations

from pathlib import Path

from suffice.datasets.example import Example
from suffice.datasets.files import json_rows, read_rows
from suffice.datasets.hotpotqa import build


def read_wikimultihop(path: str | Path, *, limit: int | None = None) -> tuple[Example, ...]:
    """Questions of a 2WikiMultiHopQA file, plain or ``.gz``, in file order; the first ``limit``.

    Question types, where the file has them, are ``compositional``, ``comparison``, ``inference`` and
    ``bridge_comparison``. Titles can repeat within a question: the second is ``title#2``.

    Raises
    ------
    DataError
        When the file is not what it must be, naming file, row and column.
    """
    path = Path(path)
    return read_rows(json_rows(path), build, path, limit)
