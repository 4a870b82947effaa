"""An index on disk, whatever its kind.

``index.json`` names the folder with everything else and is replaced last, so a reader finds either
the old index or the new one, never half of each. It holds the size and SHA-256 of every file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import struct
import tokenize
import uuid
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

from suffice.errors import DataError, StorageError, UsageError
from suffice.retrieval.ranking import corpus_fingerprint
from suffice.trace.durable import in_turn, sha256_of
from suffice.trace.rounds.records import Passage

SCHEMA = 2
_UNSUMMED = 1  # the schema that knew files by their size alone
_HEADER = "index.json"
_PASSAGES = "passages.jsonl"
_LOCKED = "index"
_FIRST_KIND = "bm25"  # what a header without a kind holds: the first version wrote no other
_DATA = re.compile(r"data-[0-9a-f]{32}")
_NO_NAME = re.compile(r"\.{0,2}|.*[/\\\0].*", re.DOTALL)  # may lead out of the folder
_SHOWN = 3


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

    def need(self, *names: str) -> None:
        """Refuse an index whose header leaves out one of these files."""
        for name in names:
            if name not in self.files:
                raise DataError(
                    f"names no {name}, which such an index has; build the index again",
                    file=str(self.header),
                    column="files",
                )


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _flushed(path: Path) -> dict[str, object]:
    """Make a file durable; what the header says of it."""
    _sync(path)
    return {"bytes": path.stat().st_size, "sha256": sha256_of(path)}


# --- the user's folder ----------------------------------------------------------------------------
def has_index(folder: Path) -> bool:
    """Whether an index, of whatever state, was saved to a folder."""
    try:
        return (folder / _HEADER).exists()
    except OSError as error:
        raise _unusable(folder, error) from error


def prepare_folder(folder: Path) -> None:
    """Make the folder an index is to be saved to, where it is missing."""
    try:
        if folder.exists() and not folder.is_dir():
            raise UsageError(
                f"{folder} is a file; an index is saved to a folder: name a new or empty one"
            )
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"{folder} may not be written")
        names = sorted(entry.name for entry in folder.iterdir())
        ours = _holds_ours(folder)
    except OSError as error:
        raise _unusable(folder, error) from error
    beside = (f"{_HEADER}.tmp", f".{_LOCKED}.lock")
    others = [name for name in names if not (_DATA.fullmatch(name) or name in beside)]
    if others and not ours:
        more = ", ..." if len(others) > _SHOWN else ""
        raise UsageError(
            f"{folder} holds other files ({', '.join(others[:_SHOWN])}{more}) and no index; an index "
            "is saved to a folder of its own: name a new or empty one"
        )


def _unusable(folder: Path, error: OSError) -> UsageError:
    return UsageError(
        f"an index cannot be kept in {folder} ({error.strerror or error}); name a folder that can be "
        "made and written"
    )


def _holds_ours(folder: Path) -> bool:
    """Whether ``index.json`` is one of ours, or what is left of one beside its data."""
    path = folder / _HEADER
    if not path.is_file():
        return False
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return bool(_data_folders(folder))
    return (
        isinstance(header, dict)
        and _is_whole(header.get("schema"))
        and isinstance(header.get("folder"), str)
        and _DATA.fullmatch(header["folder"]) is not None
    )


def _data_folders(folder: Path) -> list[Path]:
    """What saves of ours made, killed ones too; links are not ours."""
    return [
        entry
        for entry in folder.iterdir()
        if _DATA.fullmatch(entry.name) and entry.is_dir() and not entry.is_symlink()
    ]


# --- saving ---------------------------------------------------------------------------------------
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
    """Write aside, then switch ``index.json`` over and drop what it named before."""
    prepare_folder(folder)
    with in_turn(folder, _LOCKED):  # or the first to end would drop what others are writing
        _save(folder, kind, passages, settings, write)


def _save(
    folder: Path,
    kind: str,
    passages: tuple[Passage, ...],
    settings: Mapping[str, Any],
    write: Callable[[Path], None],
) -> None:
    data = folder / f"data-{uuid.uuid4().hex}"
    try:
        data.mkdir()
        _write_passages(data / _PASSAGES, passages)
        write(data)
        header = {
            "schema": SCHEMA,
            "kind": kind,
            "fingerprint": corpus_fingerprint(passages),
            "passages": len(passages),
            "settings": dict(settings),
            "folder": data.name,
            "files": {path.name: _flushed(path) for path in sorted(data.iterdir())},
        }
        aside = data / f"{_HEADER}.tmp"
        aside.write_text(json.dumps(header, indent=2) + "\n", encoding="ascii")
        _sync(aside)
        aside.replace(folder / _HEADER)
    except OSError as error:
        shutil.rmtree(data, ignore_errors=True)
        raise StorageError(
            f"cannot write the index to {folder} ({error.strerror or error}); make room or name "
            "another folder"
        ) from error
    except BaseException:
        shutil.rmtree(data, ignore_errors=True)
        raise
    for other in _data_folders(folder):
        if other != data:
            shutil.rmtree(other, ignore_errors=True)


# --- loading --------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _File:
    size: int
    sha256: str | None  # None: of a header that knew no checksums


@dataclass(frozen=True, slots=True)
class _Header:
    settings: Mapping[str, Any]
    folder: str
    files: Mapping[str, _File]
    fingerprint: str


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _read_header(path: Path, kind: str) -> _Header:
    try:
        header = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"missing: no {kind} index was saved here", file=str(path)) from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"not a readable index header ({error})", file=str(path)) from error
    schema = header.get("schema") if isinstance(header, dict) else None
    if not _is_whole(schema) or schema < 1:
        raise DataError("no schema number; not the header of an index", file=str(path))
    if schema > SCHEMA:
        raise DataError(
            f"schema {schema!s:.20} is newer than {SCHEMA}, the newest this version reads; "
            "update suffice or build the index again",
            file=str(path),
        )
    stated = header.get("kind", _FIRST_KIND if schema == _UNSUMMED else None)
    if stated != kind:
        raise DataError(
            f"holds an index of kind {stated!r:.60}, not {kind!r}; name another folder or build it "
            "again",
            file=str(path),
            column="kind",
        )
    return _checked(header, path)


def _checked(header: Mapping[str, Any], path: Path) -> _Header:
    """The header's parts, each of the kind it must be."""
    folder, settings = header.get("folder"), header.get("settings")
    files, fingerprint = header.get("files"), header.get("fingerprint")

    def wrong(column: str, wanted: str) -> DataError:
        return DataError(
            f"not the header of an index: must be {wanted}, found {header.get(column)!r:.80}; build "
            "the index again",
            file=str(path),
            column=column,
        )

    if not isinstance(folder, str) or not _DATA.fullmatch(folder):
        raise wrong("folder", "data- and 32 hexadecimal digits")
    if not isinstance(settings, dict):
        raise wrong("settings", "an object")
    if not isinstance(fingerprint, str):
        raise wrong("fingerprint", "a text")
    if not isinstance(files, dict) or any(_NO_NAME.fullmatch(name) for name in files):
        raise wrong("files", "an object of plain file names")
    summed = header["schema"] > _UNSUMMED
    known = {name: _file(value, summed=summed) for name, value in files.items()}
    kept = {name: value for name, value in known.items() if value is not None}
    if len(kept) < len(known) or _PASSAGES not in kept:
        raise wrong("files", f"sizes and checksums of files, {_PASSAGES} among them")
    return _Header(settings, folder, kept, fingerprint)


def _file(value: object, *, summed: bool) -> _File | None:
    if not summed:
        return _File(value, None) if _is_whole(value) else None
    size, checksum = (
        (value.get("bytes"), value.get("sha256")) if isinstance(value, dict) else (None, None)
    )
    return _File(size, checksum) if _is_whole(size) and isinstance(checksum, str) else None


def _check_files(data: Path, files: Mapping[str, _File]) -> None:
    """Refuse changed files before anything parses them."""
    for name, wanted in files.items():
        path = data / name
        if not path.is_file():
            raise DataError("missing from the saved index; build it again", file=str(path))
        try:
            size = path.stat().st_size
            if size == wanted.size and wanted.sha256 in (None, sha256_of(path)):
                continue
        except OSError as error:
            raise DataError(f"cannot be read ({error})", file=str(path)) from error
        raise DataError(
            f"{size} bytes instead of {wanted.size}: cut short or changed; build the index again"
            if size != wanted.size
            else "its content is not what was saved; build the index again",
            file=str(path),
        )


def _read_passages(path: Path) -> tuple[Passage, ...]:
    passages = []
    row = 0
    try:
        with path.open(encoding="ascii") as file:
            for row, line in enumerate(file):  # noqa: B007 - named in the error
                passages.append(Passage(**json.loads(line)))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise DataError(f"not a passage ({error})", file=str(path), row=row) from error
    return tuple(passages)


def load_index(folder: Path, kind: str) -> StoredIndex:
    """Read and check what :func:`save_index` wrote."""
    path = folder / _HEADER
    while True:
        header = _read_header(path, kind)
        try:
            return _load(path, header)
        except DataError:
            if _read_header(path, kind).folder == header.folder:
                raise
            # another process has replaced it meanwhile


def _load(path: Path, header: _Header) -> StoredIndex:
    folder = path.parent
    data = folder / header.folder
    _check_files(data, header.files)
    passages = _read_passages(data / _PASSAGES)
    if corpus_fingerprint(passages) != header.fingerprint:
        raise DataError(
            "the passages are not the ones that were indexed; build the index again",
            file=str(data / _PASSAGES),
        )
    return StoredIndex(
        passages=passages,
        settings=header.settings,
        data=data,
        files=frozenset(header.files),
        header=path,
    )


UNREADABLE: tuple[type[Exception], ...] = (
    # any file, and JSON
    *(OSError, EOFError, ValueError),
    # too deep, of an unknown kind, or encrypted, as flipped bits may say
    *(RecursionError, NotImplementedError, RuntimeError),
    # NumPy reads an array's header as Python source, and makes an array of the size it states
    *(SyntaxError, tokenize.TokenError, MemoryError, OverflowError, struct.error),
    *(zipfile.BadZipFile, zlib.error),
    # well-formed, but not what the reader expects
    *(TypeError, KeyError, IndexError, AttributeError, ArithmeticError),
)
"""Not among them: ``ImportError``, which :class:`suffice.errors.MissingExtra` is."""
