"""Files that appear only when complete, even if the process dies."""

from __future__ import annotations

import errno
import glob
import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from suffice.errors import DataError, StorageError, UsageError, plain_file

try:
    import fcntl
except ImportError:  # no POSIX system
    fcntl = None  # type: ignore[assignment]


def writable(path: str | Path, *suffixes: str, folder: bool = False) -> Path:
    """Return the path if a file with these endings (none: any) or, if allowed, a folder can go there."""
    place = Path(path)
    if not str(path).strip():
        raise UsageError("the path is empty; name a file or a directory")
    as_file = place.suffix in suffixes if suffixes else not folder
    if not as_file and folder:
        if place.exists() and not place.is_dir():
            wanted = f"a {suffixes[0]} file or a directory" if suffixes else "a directory"
            raise UsageError(f"{place} is a file, and {wanted} is wanted; name another place")
    elif place.is_dir() or not as_file:
        ending = suffixes[0] if suffixes else place.suffix
        within = place.is_dir()
        why = "is a directory" if within else f"does not end in {' or '.join(suffixes)}"
        instead = place / f"{place.stem}{ending}" if within else place.with_suffix(ending)
        raise UsageError(f"{path} {why}; write {instead}")
    there = place if place.is_dir() else place.parent
    while not there.exists():
        there = there.parent
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        why = "cannot be written" if there.is_dir() else "is no directory"
        raise UsageError(f"{path} cannot be written: {there} {why}; choose another place")
    return place


def replace_file(path: Path, content: bytes) -> None:
    """Write a file aside, flush it to disk and rename it over ``path``, whole or not at all."""
    aside = _free_aside(path)
    try:
        with aside.open("wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(path)
    except OSError as error:
        raise _not_written(path, error) from error
    finally:  # of an interrupt, too
        with suppress(OSError):
            aside.unlink(missing_ok=True)
    _sync_directory(path.parent)


@contextmanager
def replaced_together(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """Give an empty folder; its files then replace all files with these names in ``folder``.

    No reader finds files of both runs: all old ones go first, then the new ones come. An error in the block
    leaves the old ones; after a kill between two renames files are missing. Everything else in
    ``folder`` stays.
    """
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        aside = _free_aside(folder / names[0])
        new, old = aside / "new", aside / "old"
        try:
            new.mkdir(parents=True)
            yield new
            _flush(new)
            old.mkdir()
            written = [name for name in names if (new / name).exists()]
            try:
                _move(names, folder, old)
                _move(names, new, folder)
            except BaseException:
                for name in written:
                    if not (new / name).exists():
                        (folder / name).unlink(missing_ok=True)
                for name in names:
                    with suppress(FileNotFoundError):
                        (old / name).replace(folder / name)
                raise
            _sync_directory(folder)
        finally:
            _remove(aside)
            if made:
                with suppress(OSError):  # it holds files
                    folder.rmdir()
    except (OSError, StorageError) as error:
        raise _not_written(folder, error) from error


def _move(names: Sequence[str], source: Path, target: Path) -> None:
    for name in names:
        if (source / name).is_dir():
            raise IsADirectoryError(errno.EISDIR, f"{name} is a directory")
        with suppress(FileNotFoundError):
            (source / name).rename(target / name)


def _not_written(
    place: Path, error: OSError | StorageError, left: str = "what stood there before is kept"
) -> StorageError:
    cause = error if isinstance(error, OSError) else error.__cause__
    return StorageError(
        f"cannot write {place}: {getattr(cause, 'strerror', None) or error}; {left}, make room or choose "
        "another --out and run the same command again"
    )


def check_free(target: Path) -> None:
    """Refuse a place that exists already, unless it is an empty directory."""
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UsageError(f"{target} exists already; choose another --out")


@contextmanager
def written_aside(target: Path) -> Iterator[Path]:
    """Give a place beside ``target`` for a new file or directory; it takes the name when complete."""
    check_free(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = _free_aside(target)
    try:
        yield aside
        _flush(aside)
        check_free(target)  # another process may have been faster
        if aside.is_dir() and target.exists():
            target.rmdir()
        aside.rename(target)
    except (OSError, StorageError) as error:
        raise _not_written(target, error, "nothing was written") from error
    finally:
        _remove(aside)
    _sync_directory(target.parent)


def _free_aside(target: Path) -> Path:
    for leftover in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        if not is_written(leftover):
            _remove(leftover)
    return target.with_name(f".{target.name}.{os.getpid()}.tmp")


def is_written(aside: Path) -> bool:
    """Whether another running process of this machine still writes the place aside."""
    number = aside.name.split(".")[-2]
    if os.name != "posix" or not number.isdecimal() or int(number) == os.getpid():
        return False
    return bool(process_of(int(number)))


def process_of(number: int) -> str:
    """Return an id of a running process of this machine that no later process shares; empty: gone."""
    if os.name != "posix":
        return str(number)
    try:
        started = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[19]
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (OSError, IndexError):
        if Path("/proc/self/stat").exists():
            return ""
    else:
        return f"{number} {boot} {started}"
    with suppress(PermissionError):
        try:
            os.kill(number, 0)
        except (ProcessLookupError, OverflowError):
            return ""
    return str(number)


def usable_cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _remove(leftover: Path) -> None:
    if leftover.is_dir():
        shutil.rmtree(leftover, ignore_errors=True)
    else:
        leftover.unlink(missing_ok=True)


def _flush(written: Path) -> None:
    for file in filter(Path.is_file, written.rglob("*") if written.is_dir() else [written]):
        with file.open("rb+") as stream:
            os.fsync(stream.fileno())
    if written.is_dir():
        _sync_directory(written)


def _sync_directory(folder: Path) -> None:
    """Make the rename itself durable, if the platform can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


_SHARD = re.compile(r"(\d{1,9})/(\d{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Shard:
    """One recorder's part of the questions, when several write one folder."""

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise UsageError(
                f"a shard is I/N with I from 1 to N, such as 3/8, found {self.number}/{self.of}"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        named = _SHARD.fullmatch(text.strip())
        if named is None:
            raise UsageError(f"a shard is I/N, such as 3/8 for the third of eight, found {text!r}")
        return cls(int(named[1]), int(named[2]))

    @property
    def name(self) -> str:
        """Its name in files: ``3of8``."""
        return f"{self.number}of{self.of}"

    def is_sister(self, database: Path) -> bool:
        """Whether another shard of the same division writes this."""
        own = f"record-{self.name}"
        return database.stem.endswith(f"of{self.of}") and database.stem != own

    def check_place(self, root: Path) -> None:
        if root.suffix == ".parquet":
            raise UsageError(
                f"each shard writes its own file, so {root} cannot be one file; choose a directory: "
                f"--out {root.with_suffix('')}"
            )

    def holds(self, question_id: str) -> bool:
        digest = hashlib.sha256(question_id.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % self.of == self.number - 1


def sha256_of(file: Path) -> str:
    with plain_file(file).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def in_turn(folder: Path, name: str) -> Iterator[None]:
    """Let one process in at a time; a system without file locks lets all in at once."""
    if fcntl is None:
        yield
        return
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # NFS shares a lock on what can be read only
            stream = held.enter_context((folder / f".{name}.lock").open("a+"))
            fcntl.flock(stream, fcntl.LOCK_EX)
        except OSError as error:
            raise DataError(
                f"cannot be locked: {error.strerror or error}; choose another --out, on a file system that "
                "supports locks (flock)",
                file=str(folder),
            ) from error
        yield
