"""Files that survive a kill: written whole or not at all, locked, and gone on with by a later run."""

from __future__ import annotations

import errno
import glob
import hashlib
import json
import os
import re
import shutil
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self

from suffice.errors import DataError, StorageError, UsageError, plain_file
from suffice.protocols import strict_json


def writable(path: str | Path, *suffixes: str, folder: bool = False) -> Path:
    """The path, where a file of these endings (none: any) or, if allowed, a folder can be written to it."""
    place = Path(path)
    if not str(path).strip():
        raise UsageError("an empty text names no place; name a file or a directory")
    as_file = place.suffix in suffixes if suffixes else not folder
    if not as_file and folder:
        _check_folder(place, suffixes, certainly=str(path).endswith(("/", os.sep)))
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
        raise UsageError(f"{path} cannot be written, since {there} {why}; choose another place")
    return place


def _check_folder(place: Path, suffixes: Sequence[str], *, certainly: bool) -> None:
    """Refuse what is no directory, or, unless it is one ``certainly``, was hardly meant as one."""
    if place.exists() and not place.is_dir():
        wanted = f"a {suffixes[0]} file or a directory" if suffixes else "a directory"
        raise UsageError(f"{place} is a file, and {wanted} is wanted; name another place")
    # a name such as run-0.05 or run.v2 is a directory's; one such as policy.txt was meant as a file
    if not certainly and not place.is_dir() and place.suffix[1:].isalpha():
        instead = f"{place.with_suffix(suffixes[0])}, or " if suffixes else ""
        raise UsageError(
            f"{place} would be made a directory; write {instead}{place}/ if a directory is meant"
        )


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
    """An empty folder for files of these names, which then stand in ``folder`` in place of all so called.

    Nobody finds files of both runs: all old ones go first, then the new ones come. Whatever ends the block
    before leaves the old ones. After a kill between two renames files of one run are missing, which the next
    run puts back. Everything else in ``folder`` stays.
    """
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        aside = _free_aside(folder / names[0])
        new, old = aside / _NEW, aside / _OLD
        try:
            new.mkdir(parents=True)
            yield new
            _flush(new)
            with _alone(folder):
                old.mkdir()  # from here on _remove puts back what it holds
                for name in names:
                    if (folder / name).is_dir():
                        raise IsADirectoryError(errno.EISDIR, f"{name} is a directory")
                    try:
                        (folder / name).rename(old / name)
                    except FileNotFoundError:
                        (old / name).mkdir()  # nothing stood there
                for name in names:
                    with suppress(FileNotFoundError):
                        (new / name).rename(folder / name)
                _sync_directory(folder)
                old.rename(aside / "replaced")
        finally:
            _remove(aside)
            if made:
                with suppress(OSError):  # it holds files
                    folder.rmdir()
    except (OSError, StorageError) as error:
        raise _not_written(folder, error) from error


def _not_written(
    place: Path, error: OSError | StorageError, left: str = "what stood there before is kept"
) -> StorageError:
    """What could not be written, why, and what to do."""
    cause = error if isinstance(error, OSError) else error.__cause__
    return StorageError(
        f"cannot write {place}: {getattr(cause, 'strerror', None) or error}; {left}, make room or choose "
        "another --out and run the same command again"
    )


def check_free(target: Path) -> None:
    """Refuse a place where something stands; an empty directory may."""
    if target.exists() and not (target.is_dir() and not any(target.iterdir())):
        raise UsageError(f"{target} exists already; choose another --out")


@contextmanager
def written_aside(target: Path) -> Iterator[Path]:
    """A place beside ``target`` for a new file or directory, which takes its name when all is written.

    Whatever ends the block before, nothing stands at ``target``. What a killed run left aside is removed.
    """
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


_NEW, _OLD = "new", "old"  # of what is replaced together, aside


def _free_aside(target: Path) -> Path:
    """Where this process writes aside; what processes that are gone left there is removed."""
    for leftover in target.parent.glob(f".{glob.escape(target.name)}.*.tmp"):
        if not is_written(leftover):
            _remove(leftover)
    return target.with_name(f".{target.name}.{os.getpid()}.tmp")


def is_written(aside: Path) -> bool:
    """Whether another process of this machine is at what stands aside, which has its number in the name."""
    number = aside.name.split(".")[-2]
    if os.name != "posix" or not number.isdecimal() or int(number) == os.getpid():
        return False
    try:
        os.kill(int(number), 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _remove(leftover: Path) -> None:
    """What was written aside and is not needed; of a replacement that was cut the old files stand again."""
    if not leftover.is_dir():
        leftover.unlink(missing_ok=True)
        return
    if (leftover / _OLD).is_dir():
        with _alone(leftover.parent):
            for kept in (leftover / _OLD).iterdir():
                place = leftover.with_name(kept.name)
                if kept.is_dir():
                    place.unlink(missing_ok=True)
                    kept.rmdir()
                else:
                    kept.replace(place)
    shutil.rmtree(leftover, ignore_errors=True)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """One process after the other, where the system locks directories."""
    if not _has_locks():
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _flush(written: Path) -> None:
    """Have a file, or all of a directory, on the disk."""
    for file in filter(Path.is_file, written.rglob("*") if written.is_dir() else [written]):
        with file.open("rb+") as stream:
            os.fsync(stream.fileno())
    if written.is_dir():
        _sync_directory(written)


def _sync_directory(folder: Path) -> None:
    """Make the rename itself durable, where the platform can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


_FAILURES_FILE = "failures.jsonl"
_SHARD = re.compile(r"(\d{1,9})/(\d{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Shard:
    """The questions of one recorder of several that write one folder.

    A question belongs to the shard that the sha256 of its id gives, whatever else is recorded, in whatever
    order, by whatever version. ``number`` counts from 1.
    """

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise UsageError(
                f"shard {self.number} of {self.of} is none; shards count from 1/{max(self.of, 1)} to "
                f"{max(self.of, 1)}/{max(self.of, 1)}"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """The shard that ``3/8`` names.

        >>> Shard.parse("3/8")
        Shard(number=3, of=8)
        """
        named = _SHARD.fullmatch(text.strip())
        if named is None:
            raise UsageError(f"a shard is I/N, such as 3/8 for the third of eight, found {text!r}")
        return cls(int(named[1]), int(named[2]))

    @property
    def name(self) -> str:
        """What its files are called by: ``3of8``."""
        return f"{self.number}of{self.of}"

    def check_place(self, root: Path) -> None:
        """Refuse to write a part of one file."""
        if root.suffix == ".parquet":
            raise UsageError(
                f"shards write files of their own, so {root} cannot be one file; choose a directory: "
                f"--out {root.with_suffix('')}"
            )

    def holds(self, question_id: str) -> bool:
        """Whether the question is one of its own."""
        digest = hashlib.sha256(question_id.encode("utf-8", "surrogatepass")).digest()
        return int.from_bytes(digest[:8], "big") % self.of == self.number - 1


@contextmanager
def locked(root: Path, *, needed: bool = True, shard: Shard | None = None) -> Iterator[None]:
    """Keep a second recorder out; the lock goes with the process, however it ends.

    Unless ``needed``, a system without such locks goes without. Recorders of different shards of as many
    may be at one folder together; of one shard, or of shards of another number, only one.
    """
    if not _has_locks():
        if needed:
            raise UsageError(
                "recording needs the file locks of a POSIX system, which this one has not; record on "
                "Linux, macOS or WSL (traces are read, replayed and used for decisions anywhere)"
            )
        yield
        return
    single = root.suffix == ".parquet"
    folder = root.parent if single else root
    with ExitStack() as held:
        whole = held.enter_context(_lock_file(folder, f".{root.name}.lock" if single else ".lock"))
        if not _taken(whole, shared=shard is not None):
            raise UsageError(
                f"another recorder is writing {root}; wait for it or choose another --out"
            )
        if shard is not None:
            own = held.enter_context(_lock_file(folder, f".lock-{shard.name}"))
            if not _taken(own):
                raise UsageError(
                    f"another recorder is writing shard {shard.number}/{shard.of} of {root}; wait for it, "
                    "or end it first"
                )
            _refuse_other_shards(folder, shard)
        yield


def sha256_of(file: Path) -> str:
    """Of a whole file."""
    with plain_file(file).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def in_turn(folder: Path, name: str) -> Iterator[None]:
    """One process after the other; a system without file locks lets all in at once."""
    with ExitStack() as held:
        if _has_locks():
            _taken(held.enter_context(_lock_file(folder, f".{name}.lock")), wait=True)
        yield


def _has_locks() -> bool:
    try:
        import fcntl  # noqa: F401
    except ImportError:
        return False
    return True


def _lock_file(folder: Path, name: str) -> IO[str]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return (folder / name).open("a+")  # NFS shares a lock on what can be read only
    except OSError as error:
        raise DataError(
            f"cannot be written: {error.strerror or error}; choose another --out", file=str(folder)
        ) from error


def _taken(stream: IO[str], *, shared: bool = False, wait: bool = False) -> bool:
    """Whether the lock could be had."""
    import fcntl

    kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(stream, kind if wait else kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise DataError(
            f"cannot be locked: {error.strerror or error}; the file system has to support locks (flock), "
            "which keep two recorders from doing the same; choose another --out",
            file=stream.name,
        ) from error
    return True


def _refuse_other_shards(folder: Path, shard: Shard) -> None:
    """A question is in one shard of so many, and in another of as many others."""
    for file in sorted(folder.glob(".lock-*of*")):
        of = file.name.rpartition("of")[2]
        if of == str(shard.of):
            continue
        with _lock_file(folder, file.name) as other:
            if not _taken(other):
                raise UsageError(
                    f"{folder} is being recorded in {of} shards, not in {shard.of}; wait for these "
                    "recorders, or start this one as one of them"
                )


def check_same_run(
    before: Mapping[str, Any], now: Mapping[str, Any], root: Path, *, may_differ: frozenset[str]
) -> None:
    """Refuse to go on with other settings, naming every entry that changed and must not."""
    stated, wanted = dict(_entries(before, may_differ)), dict(_entries(now, may_differ))
    changed = [
        f"{name} was {stated.get(name)!r}, now {wanted.get(name)!r}"
        for name in sorted({*stated, *wanted})
        if stated.get(name) != wanted.get(name)
    ]
    if changed:
        raise UsageError(
            f"{root} was recorded with other settings ({'; '.join(changed)}); "
            "use the same settings to go on, or choose another --out"
        )


def _entries(run: Mapping[str, Any], without: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """The entries of a run document, and in their place those of its steps: ``derived.0.prompt``."""
    for name, value in run.items():
        if name in without:
            continue
        if name == "derived" and isinstance(value, list):
            for number, step in enumerate(value):
                parts = step.items() if isinstance(step, Mapping) else [("", step)]
                yield from ((f"{name}.{number}.{inner}", held) for inner, held in parts)
        else:
            yield name, value


def failures_file(root: Path, shard: Shard | None = None) -> Path:
    """Where a recorder keeps what it could not finish."""
    if root.suffix == ".parquet":
        return root.with_suffix(".failures.jsonl")
    return root / (_FAILURES_FILE if shard is None else f"failures-{shard.name}.jsonl")


def failures_files(root: Path) -> list[Path]:
    """Those that are there: of a folder recorded in shards one a shard."""
    whole = failures_file(root)
    shards = [] if root.suffix == ".parquet" else sorted(root.glob("failures-*of*.jsonl"))
    return [file for file in (whole, *shards) if file.exists()]


class FailureFile:
    """The failures file of a trace set: a line for each question or run that could not be finished.

    A key is a tuple with a value for each of ``names``. Without a ``shard`` failures are read of all shards,
    which move into the one file at the next change.
    """

    def __init__(
        self,
        root: Path,
        names: Sequence[str] = ("question_id",),
        *,
        shard: Shard | None = None,
    ) -> None:
        self._path = failures_file(root, shard)
        self._names = tuple(names)
        self._lines: dict[tuple[Any, ...], dict[str, Any]] = {}
        files = failures_files(root) if shard is None else [self._path]
        self._files = [file for file in files if file.exists()]
        for file in self._files:
            for row, line in enumerate(plain_file(file).read_bytes().splitlines()):
                if line.strip():
                    self._load(line, file, row)

    def _load(self, line: bytes, file: Path, row: int) -> None:
        try:
            entry = strict_json(line.decode("utf-8"))
            key = tuple(entry[name] for name in self._names)
            self._lines[key] = {**entry, "attempts": int(entry["attempts"])}
        except (ValueError, LookupError, TypeError, OverflowError, RecursionError) as error:
            raise DataError(
                "not a failure record; delete the line to go on", file=str(file), row=row
            ) from error

    @property
    def keys(self) -> frozenset[tuple[Any, ...]]:
        """What failed."""
        return frozenset(self._lines)

    def add(self, key: tuple[Any, ...], reason: str) -> None:
        """Note a failure, durably; one more attempt where it is known."""
        attempts = self._lines.get(key, {}).get("attempts", 0) + 1
        entry = dict(zip(self._names, key, strict=True))
        self._write(self._lines | {key: {**entry, "reason": reason, "attempts": attempts}})

    def take_over(self, other: FailureFile, finished: Container[tuple[Any, ...]]) -> None:
        """Add what failed elsewhere, but for what was ``finished``."""
        new = {key: entry for key, entry in other._lines.items() if key not in finished}
        self._write(new | self._lines)

    def clear(self, keys: Iterable[tuple[Any, ...]]) -> None:
        """Forget those that were finished after all."""
        gone = set(keys)
        self._write({key: entry for key, entry in self._lines.items() if key not in gone})

    def _write(self, lines: dict[tuple[Any, ...], dict[str, Any]]) -> None:
        if lines == self._lines:
            return
        text = "".join(f"{json.dumps(entry, ensure_ascii=False)}\n" for entry in lines.values())
        replace_file(self._path, text.encode(errors="backslashreplace"))
        self._lines = lines
        for file in self._files:
            if file != self._path:
                file.unlink(missing_ok=True)
