"""The list of a folder's files, ``files.sha256``: one that is missing, or another in its place, is noticed.

``sha256sum -c files.sha256`` compares the files whole. Reading them compares their sizes and footers, which
say where and how large every part is and are read anyway.

A file is listed before it is written, beside what stands there until then: so whatever a kill leaves, and
whatever a reader finds while others write, is listed. Files of a shard, ``part-3of8-00000.parquet``, are in a
list of their own, ``files-3of8.sha256``, so that each list has one writer, or writers who take turns.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from shlex import quote
from typing import Any

from suffice.errors import DataError, StorageError, UsageError, plain_file
from suffice.protocols import strict_json
from suffice.trace.durable import in_turn, locked, replace_file, sha256_of
from suffice.trace.parquet import footer_digest

_LIST = re.compile(r"files(-\d+of\d+)?\.sha256")
_OF_SHARD = re.compile(r"part(-\d+of\d+)-\d+\.parquet")
_LINE = re.compile(rb"(\\?)([0-9a-f]{64}) [ *](.+)")
_TRIES = 100
_HEAD = b"# What the files here are: sha256sum -c compares them whole, Suffice sizes and footers.\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """What a file is, as far as is known at a glance: its size, and a SHA-256 of its footer."""

    size: int | None = None
    footer: str | None = None

    @classmethod
    def of(cls, file: Path) -> Stamp | None:
        """That of a file; ``None``: there is none."""
        try:
            with plain_file(file).open("rb") as stream:
                return cls._read(stream)
        except FileNotFoundError:
            return None

    @classmethod
    def of_content(cls, content: bytes) -> Stamp:
        """That of a file to be."""
        return cls._read(io.BytesIO(content))

    @classmethod
    def _read(cls, stream: Any) -> Stamp:
        return cls(size=stream.seek(0, 2), footer=footer_digest(stream))

    def admits(self, other: Stamp | None) -> bool:
        """Whether a file may be this one, as far as is known."""
        return other is not None and all(
            known in (None, found)
            for known, found in ((self.size, other.size), (self.footer, other.footer))
        )

    def __str__(self) -> str:
        size = "" if self.size is None else f"{self.size:,} bytes"
        footer = "" if self.footer is None else f"footer {self.footer[:12]}"
        return ", ".join(part for part in (size, footer) if part) or "of a size not stated"


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A file of the list.

    Parameters
    ----------
    sha256
        Of the whole file.
    stamp
        What it is at a glance.
    before
        What may stand in its place while it is written; ``None`` in it: nothing.
    """

    sha256: str
    stamp: Stamp
    before: tuple[Stamp | None, ...] = ()

    def admits(self, found: Stamp | None) -> bool:
        """Whether a file is as listed; ``None``: there is none."""
        if found is None:
            return None in self.before
        return any(
            stamp is not None and stamp.admits(found) for stamp in (self.stamp, *self.before)
        )


Files = Mapping[str, Listed]


def list_of(file: Path) -> Path:
    """The list that a file of a folder belongs to, which need not be there."""
    shard = _OF_SHARD.fullmatch(file.name)
    return file.with_name(f"files{shard[1] if shard else ''}.sha256")


def lists_in(folder: Path) -> list[Path]:
    """The lists of a folder."""
    return sorted(file for file in folder.glob("files*.sha256") if _LIST.fullmatch(file.name))


def listed_files(folder: Path) -> dict[str, Listed]:
    """All that the lists of a folder name."""
    return {name: listed for file in lists_in(folder) for name, listed in _read(file).items()}


# --- reading --------------------------------------------------------------------------------------
def check_listed(file: Path) -> None:
    """Refuse a file that is another one than its folder's list says."""
    listed = _known(file)
    if listed is None or listed.admits(Stamp.of(file)):
        return
    for _ in range(_TRIES):
        # it may be written now: wrong is what does not match while the list stays the same
        listed = _known(file, again=True)
        found = Stamp.of(file)
        if listed is None or found is None or listed.admits(found):
            return
        if listed == _known(file, again=True):
            raise DataError(
                f"is another file than {list_of(file).name} says: found {found}; listed {listed.stamp}; put "
                f"that file back, or {_accept(file.parent)}",
                file=str(file),
            )


def missing_files(root: Path) -> list[DataError]:
    """What the lists of a directory name and is not there; or why a list cannot be read."""
    if not root.is_dir():
        return []
    errors: list[DataError] = []
    for file in lists_in(root):
        try:
            errors += _missing(file)
        except DataError as error:
            errors.append(error)
    return errors


def _missing(file: Path) -> Iterator[DataError]:
    files = _read_once(file)
    with os.scandir(file.parent) as entries:  # after the list, since files are listed first
        there = {entry.name for entry in entries}
    for name, listed in files.items():
        if name in there or listed.admits(None):
            continue
        if name in _read(file):  # else it was pruned meanwhile
            yield DataError(
                f"is listed in {file.name} ({listed.stamp}) and missing; bring it back, or "
                f"{_accept(file.parent)}",
                file=str(file.with_name(name)),
            )


def differing_files(root: Path) -> list[DataError]:
    """The listed files of a directory of which some byte is another; each is read whole."""
    return [
        DataError(
            f"its SHA-256 is not that of {list_of(file).name}; put that file back, or {_accept(root)}",
            file=str(file),
        )
        for place in (lists_in(root) if root.is_dir() else ())
        for file in _names(place)
        if _differs(file)
    ]


def _names(place: Path) -> list[Path]:
    try:
        return [place.with_name(name) for name in _read(place)]
    except DataError:
        return []


def _differs(file: Path) -> bool:
    """Whether some byte of a file is another; of one that is missing, or of another size, others tell."""
    while True:
        listed, found = _known(file, again=True), Stamp.of(file)
        if listed is None or found is None or not listed.stamp.admits(found):
            return False
        if sha256_of(file) == listed.sha256:
            return False
        if (listed, found) == (_known(file, again=True), Stamp.of(file)):
            return True


def _accept(folder: Path) -> str:
    return f"take the files as they are: suffice traces accept {quote(str(folder))}"


def _known(file: Path, *, again: bool = False) -> Listed | None:
    """What the list says of a file; of a list that is damaged others tell."""
    try:
        return (_read if again else _read_once)(list_of(file)).get(file.name)
    except DataError:
        return None


def _read(file: Path) -> dict[str, Listed]:
    try:
        content = plain_file(file).read_bytes()
    except FileNotFoundError:
        return {}
    files: dict[str, Listed] = {}
    said: dict[str, Any] = {}
    for number, line in enumerate(content.splitlines(), start=1):
        try:
            if line.startswith(b"# {"):
                said = strict_json(line[2:])
            elif not line.startswith(b"#"):
                name, listed = _of_line(line, said)
                files[name], said = listed, {}
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise DataError(
                f"line {number} is none of a list of files, so the list is damaged; {_accept(file.parent)}",
                file=str(file),
            ) from error
    return files


def _read_once(file: Path) -> Files:
    """What a list says, or said a moment ago."""
    try:
        state = file.stat()
    except FileNotFoundError:
        return {}
    return _read_as_of(file, state.st_mtime_ns, state.st_size, state.st_ino)


@lru_cache(maxsize=64)
def _read_as_of(file: Path, _changed: int, _size: int, _number: int) -> Files:
    return _read(file)


def _of_line(line: bytes, said: Mapping[str, Any]) -> tuple[str, Listed]:
    match = _LINE.fullmatch(line)
    if match is None:
        raise ValueError(line)
    name = os.fsdecode(match[3])
    if match[1]:
        name = re.sub(r"\\(.)", lambda sign: {"n": "\n", "r": "\r"}.get(sign[1], sign[1]), name)
    before = tuple(None if each is None else _stamp(each) for each in said.get("before", ()))
    return name, Listed(sha256=match[2].decode(), stamp=_stamp(said), before=before)


def _stamp(said: Mapping[str, Any]) -> Stamp:
    size, footer = said.get("size"), said.get("footer")
    if not isinstance(size, int | None) or not isinstance(footer, str | None):
        raise TypeError(said)
    return Stamp(size=size, footer=footer)


# --- writing --------------------------------------------------------------------------------------
def write_listed(file: Path, content: bytes, *, settled: bool = True) -> None:
    """Write a file of a listed folder, atomically, and list it.

    Unless ``settled``, the list goes on naming what stood there before, until the next file is written or
    :func:`settle` is called.
    """
    place = list_of(file)
    with in_turn(file.parent, place.name):
        files = _settled(place)
        stamp, sha256 = Stamp.of_content(content), hashlib.sha256(content).hexdigest()
        files[file.name] = Listed(sha256=sha256, stamp=stamp, before=(Stamp.of(file),))
        _write(place, files)
        replace_file(file, content)
        if settled:
            files[file.name] = Listed(sha256=sha256, stamp=stamp)
            with suppress(StorageError):  # what stands there is listed already
                _write(place, files)


def unlist(file: Path) -> None:
    """Let a folder's list name a file no more, which may be removed then."""
    place = list_of(file)
    if not place.exists():
        return
    with in_turn(file.parent, place.name):
        files = _settled(place)
        if files.pop(file.name, None) is not None:
            _write(place, files)


def is_listed(file: Path) -> bool:
    """Whether a list of its folder names a file."""
    return _known(file) is not None


def settle(place: Path) -> None:
    """Let a list name what stands there, and no longer what stood there before."""
    if place.exists():
        with in_turn(place.parent, place.name):
            files = _read(place)
            settled = _settled(place)
            if settled != files:
                with suppress(StorageError):
                    _write(place, settled)


def _settled(place: Path) -> dict[str, Listed]:
    """What a list says, without what was to be written and was not: whoever writes holds its lock."""
    files = {}
    for name, listed in _read(place).items():
        if not listed.before:
            files[name] = listed
            continue
        file = place.with_name(name)
        found = Stamp.of(file)
        if found is not None and any(each and each.admits(found) for each in listed.before):
            files[name] = Listed(sha256=sha256_of(file), stamp=found)
        elif found is not None or not listed.admits(None):
            files[name] = replace(listed, before=())
    return files


def _write(place: Path, files: Files) -> None:
    """Nothing listed needs no list."""
    lines = [_HEAD]
    for name in sorted(files):
        listed = files[name]
        said: dict[str, Any] = asdict(listed.stamp)
        if listed.before:
            said["before"] = [None if stamp is None else asdict(stamp) for stamp in listed.before]
        escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        sign = b"\\" if escaped != name else b""
        line = sign + listed.sha256.encode() + b"  " + os.fsencode(escaped)
        lines += [b"# " + json.dumps(said).encode() + b"\n", line + b"\n"]
    replace_file(place, b"".join(lines))


# --- as they are ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """What a folder's lists say now, and did not say before.

    Parameters
    ----------
    folder
        Which.
    files
        How many are listed.
    added
        Names that were in no list.
    changed
        Names of which another file was listed.
    gone
        Names that were listed and are not there.
    """

    folder: str
    files: int
    added: tuple[str, ...]
    changed: tuple[str, ...]
    gone: tuple[str, ...]


def accept_files(path: str | Path) -> Accepted:
    """List the Parquet files of a folder as they are, whatever its lists said."""
    folder = Path(path)
    if not folder.is_dir() or not any(folder.glob("*.parquet")):
        raise UsageError(f"{folder} is no directory with *.parquet files; name one")
    with ExitStack() as held:
        held.enter_context(locked(folder, needed=False))
        places = {*lists_in(folder), *map(list_of, folder.glob("*.parquet"))}
        for place in sorted(places):
            held.enter_context(in_turn(folder, place.name))
        before: dict[str, Listed] = {}
        for place in places:
            with suppress(DataError):
                before |= _read(place)
        now = list_as_they_are(folder)
    return Accepted(
        folder=str(folder),
        files=len(now),
        added=tuple(sorted(now.keys() - before.keys())),
        changed=tuple(
            sorted(n for n in now.keys() & before.keys() if now[n].sha256 != before[n].sha256)
        ),
        gone=tuple(sorted(before.keys() - now.keys())),
    )


def list_as_they_are(folder: Path) -> dict[str, Listed]:
    """Write the lists of a folder's Parquet files, which nobody else writes meanwhile."""
    places: dict[Path, dict[str, Listed]] = {place: {} for place in lists_in(folder)}
    for file in sorted(folder.glob("*.parquet")):
        stamp = None if file.name.startswith(".") else Stamp.of(file)
        if stamp is not None:
            listed = Listed(sha256=sha256_of(file), stamp=stamp)
            places.setdefault(list_of(file), {})[file.name] = listed
    for place, files in places.items():
        _write(place, files)
    return {name: listed for files in places.values() for name, listed in files.items()}
