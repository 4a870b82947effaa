"""How long a record is kept: whole files of it are removed, by age and by what the folder takes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from suffice.errors import UsageError
from suffice.trace.filelist import unlist
from suffice.trace.rounds.journal import together

_DAY_S = 86_400
_GIGABYTE = 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What is kept of a folder.

    Parameters
    ----------
    days
        Files whose last question ended longer ago are removed; ``None``: whatever their age.
    gigabytes
        The oldest files are removed until the rest takes no more; ``None``: whatever they take.
    """

    days: float | None = None
    gigabytes: float | None = None

    def __post_init__(self) -> None:
        for name in ("days", "gigabytes"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name} of a record that is kept must be above 0, found {value}")

    @property
    def limited(self) -> bool:
        """Whether anything is ever removed."""
        return self.days is not None or self.gigabytes is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """What was removed, or would be: names of files, their bytes, and the bytes that are left."""

    files: tuple[str, ...]
    bytes: int
    bytes_left: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    path: Path
    bytes: int
    time: float


def prune(
    folder: str | Path, retention: Retention, *, now: float | None = None, dry: bool = False
) -> Pruned:
    """Remove Parquet files of a folder that are too old or too much, the oldest first.

    Rounds that are being recorded stand in journals, which are never removed; Parquet files are whole when
    they appear. Several processes may prune one folder, and record into it, at once: a file leaves the
    folder's list before it is removed, so whatever a kill leaves can be read.

    Parameters
    ----------
    folder
        A directory of traces.
    retention
        What is kept.
    now
        POSIX seconds.
    dry
        Whether to say only what would be removed.
    """
    root = Path(folder)
    if not root.is_dir():
        raise UsageError(f"{root} is no directory; files of a directory of traces are removed")
    moment = time.time() if now is None else now
    with together(root):
        files = sorted(_files(root), key=lambda file: (file.time, file.path.name))
        left = sum(file.bytes for file in files)
        most = None if retention.gigabytes is None else retention.gigabytes * _GIGABYTE
        gone = list[_File]()
        for file in files:
            old = retention.days is not None and moment - file.time > retention.days * _DAY_S
            if old or (most is not None and left > most):
                gone.append(file)
                left -= file.bytes
        if not dry:
            for file in gone:
                unlist(file.path)
                file.path.unlink(missing_ok=True)
    return Pruned(
        files=tuple(file.path.name for file in gone),
        bytes=sum(file.bytes for file in gone),
        bytes_left=left,
    )


def _files(root: Path) -> list[_File]:
    found = list[_File]()
    for path in root.glob("*.parquet"):
        if path.name.startswith("."):
            continue
        try:
            stat = path.stat()
        except FileNotFoundError:
            continue
        found.append(_File(path=path, bytes=stat.st_size, time=stat.st_mtime))
    return found
