"""A BM25 index on disk.

``index.json`` names the folder with everything else and is replaced last, so a reader finds either
the old index or the new one, never half of each.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from suffice.errors import DataError, UsageError
from suffice.retrieval.bm25 import BM25Settings, corpus_fingerprint, load_bm25s
from suffice.trace.records import Passage

__all__ = ["SCHEMA", "StoredIndex", "load_index", "save_index"]

SCHEMA = 1
_HEADER = "index.json"
_PASSAGES = "passages.jsonl"


@dataclass(frozen=True, slots=True)
class StoredIndex:
    """What a folder holds; ``engine`` is ``None`` for okapi and for passages without words."""

    passages: tuple[Passage, ...]
    settings: BM25Settings
    engine: Any


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
    folder: Path, passages: tuple[Passage, ...], settings: BM25Settings, engine: Any
) -> None:
    """Write aside, then switch ``index.json`` over and drop what it named before."""
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{folder} is a file; an index is saved to a folder")
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / f"data-{uuid.uuid4().hex}"
    data.mkdir()
    try:
        _write_passages(data / _PASSAGES, passages)
        if engine is not None:
            engine.save(data, show_progress=False)
        files = {path.name: path.stat().st_size for path in sorted(data.iterdir())}
        for name in files:
            _sync(data / name)
        header = {
            "schema": SCHEMA,
            "fingerprint": corpus_fingerprint(passages),
            "passages": len(passages),
            "settings": asdict(settings),
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


def _read_header(path: Path) -> dict[str, Any]:
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError("missing: no BM25 index was saved here", file=str(path)) from error
    except (OSError, ValueError) as error:
        raise DataError(f"not a readable index header ({error})", file=str(path)) from error
    if not isinstance(header, dict) or not isinstance(header.get("schema"), int):
        raise DataError("no schema number; not the header of a BM25 index", file=str(path))
    if header["schema"] > SCHEMA:
        raise DataError(
            f"schema {header['schema']} is newer than {SCHEMA}, the newest this version reads; "
            "update suffice or build the index again",
            file=str(path),
        )
    return header


def _check_files(data: Path, files: dict[str, int]) -> None:
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


def _load_engine(data: Path) -> Any:
    module = load_bm25s()
    try:
        return module.BM25.load(data, show_progress=False)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"not a readable bm25s index ({error})", file=str(data)) from error


def load_index(folder: Path) -> StoredIndex:
    """Read and check what :func:`save_index` wrote."""
    path = folder / _HEADER
    header = _read_header(path)
    try:
        data = folder / str(header["folder"])
        settings = BM25Settings(**header["settings"])
        files = {str(name): int(size) for name, size in header["files"].items()}
        fingerprint = str(header["fingerprint"])
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as error:
        raise DataError(f"not the header of a BM25 index ({error!r})", file=str(path)) from error
    _check_files(data, files)
    passages = _read_passages(data / _PASSAGES)
    if corpus_fingerprint(passages) != fingerprint:
        raise DataError(
            "the passages are not the ones that were indexed; build the index again",
            file=str(data / _PASSAGES),
        )
    has_engine = "params.index.json" in files
    return StoredIndex(passages, settings, _load_engine(data) if has_engine else None)
