"""An index on disk, whatever its kind.

``index.json`` names the folder with everything else and is replaced last, so a reader finds either
the old index or the new one, never half of each.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.errors import DataError, UsageError
from suffice.retrieval.ranking import corpus_fingerprint
from suffice.trace.records import Passage

__all__ = ["SCHEMA", "StoredIndex", "load_index", "save_index"]

SCHEMA = 1
_HEADER = "index.json"
_PASSAGES = "passages.jsonl"
_FIRST_KIND = "bm25"  # what a header without a kind holds: the first version wrote no other


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredIndex:
    """What a folder holds.

    ``settings`` are as they were saved; ``data`` is the folder with the kind's own ``files``;
    ``header`` the file that :class:`suffice.errors.DataError` names for a wrong setting.
    """

    passages: tuple[Passage, ...]
    settings: Mapping[str, Any]
    data: Path
    files: frozenset[str]
    header: Path


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_passages(path: Path, passages: Iterable[Passage]) -> None:
    with path.open("w", encoding="ascii") as file:
        for passage in passages:
            row = {"id": passage.id, "title": passage.title, "text": passage.text}
            file.write(json.dumps(row) + "\n")


def save_index(
    folder: Path,
    kind: str,
    passages: tuple[Passage, ...],
    settings: Mapping[str, Any],
    write: Callable[[Path], None],
) -> None:
    """Write aside, then switch ``index.json`` over and drop what it named before.

    Parameters
    ----------
    folder
        Made where missing; an index already there is replaced in one step.
    kind
        ``bm25``, ``tfidf`` or ``dense``.
    passages
        The corpus, kept with the index.
    settings
        JSON values that :func:`load_index` gives back.
    write
        Puts the kind's own files, and no folders, into the folder it is given.

    Raises
    ------
    UsageError
        When ``folder`` is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; an index is saved to a folder")
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / f"data-{uuid.uuid4().hex}"
    data.mkdir()
    try:
        _write_passages(data / _PASSAGES, passages)
        write(data)
        files = {path.name: path.stat().st_size for path in sorted(data.iterdir())}
        for name in files:
            _sync(data / name)
        header = {
            "schema": SCHEMA,
            "kind": kind,
            "fingerprint": corpus_fingerprint(passages),
            "passages": len(passages),
            "settings": dict(settings),
            "folder": data.name,
            "files": files,
        }
        aside = data / f"{_HEADER}.tmp"
        aside.write_text(json.dumps(header, indent=2) + "\n", encoding="ascii")
        _sync(aside)
        aside.replace(folder / _HEADER)
    except BaseException:
        shutil.rmtree(data, ignore_errors=True)
        raise
    for other in folder.glob("data-*"):
        if other != data:
            shutil.rmtree(other, ignore_errors=True)


def _read_header(path: Path, kind: str) -> dict[str, Any]:
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"missing: no {kind} index was saved here", file=str(path)) from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"not a readable index header ({error})", file=str(path)) from error
    if not isinstance(header, dict) or not isinstance(header.get("schema"), int):
        raise DataError("no schema number; not the header of an index", file=str(path))
    if header["schema"] > SCHEMA:
        raise DataError(
            f"schema {header['schema']} is newer than {SCHEMA}, the newest this version reads; "
            "update suffice or build the index again",
            file=str(path),
        )
    found = header.get("kind", _FIRST_KIND)
    if found != kind:
        raise DataError(
            f"holds an index of kind {found!r}, not {kind!r}; name another folder or build it again",
            file=str(path),
            column="kind",
        )
    return header


def _check_files(data: Path, files: Mapping[str, int]) -> None:
    for name, size in files.items():
        path = data / name
        if not path.is_file():
            raise DataError("missing from the saved index; build it again", file=str(path))
        found = path.stat().st_size
        if found != size:
            raise DataError(
                f"{found} bytes instead of {size}: cut short or changed; build the index again",
                file=str(path),
            )


def _read_passages(path: Path) -> tuple[Passage, ...]:
    passages = []
    row = 0
    try:
        with path.open(encoding="ascii") as file:
            for row, line in enumerate(file):  # noqa: B007 - named in the error
                passages.append(Passage(**json.loads(line)))
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"not a passage ({error})", file=str(path), row=row) from error
    return tuple(passages)


def load_index(folder: Path, kind: str) -> StoredIndex:
    """Read and check what :func:`save_index` wrote.

    Raises
    ------
    DataError
        When a file is missing, cut short or changed, naming it, of another kind, or written by a
        newer version.
    """
    path = folder / _HEADER
    header = _read_header(path, kind)
    try:
        data = folder / str(header["folder"])
        settings = dict(header["settings"])
        files = {str(name): int(size) for name, size in header["files"].items()}
        fingerprint = str(header["fingerprint"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"not the header of an index ({error!r})", file=str(path)) from error
    _check_files(data, files)
    passages = _read_passages(data / _PASSAGES)
    if corpus_fingerprint(passages) != fingerprint:
        raise DataError(
            "the passages are not the ones that were indexed; build the index again",
            file=str(data / _PASSAGES),
        )
    return StoredIndex(
        passages=passages, settings=settings, data=data, files=frozenset(files), header=path
    )
