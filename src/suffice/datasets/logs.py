"""Logs of every known format, and records, found in files and folders."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from suffice.datasets.columns import Layout
from suffice.datasets.recordings import FORMATS, recognized
from suffice.errors import DataError, UsageError, counted, did_you_mean
from suffice.trace.engines import Address, as_place
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.schema import COLUMNS
from suffice.trace.rounds.trace_set import TraceSet
from suffice.trace.store import SUFFIXES, store_at
from suffice.trace.stored_file import EXAMPLE

_NEEDED = {column.name for column in COLUMNS if column.required}
_READ = _NEEDED | {"prompt_tokens", "completion_tokens", "usd", "llm_calls", "action", "query"}
_READ |= {"score", "gold_answers", "stopped_by"}


@dataclass(slots=True)
class Log:
    """A file of logs, or a record (format ``record``); ``problems``: why not all of it was read."""

    path: str
    format: str
    stated: bool = False  # by the user, not recognized
    problems: list[str] = field(default_factory=list)

    @property
    def called(self) -> str:
        """The format's name for people."""
        return "record" if self.format == "record" else FORMATS[self.format].called

    def runs(self) -> Iterator[QuestionRecord]:
        """Read the runs; without texts of passages and the like, if it is a record."""
        try:
            if self.format != "record":
                yield from FORMATS[self.format].read(Path(self.path), Layout())
                return
            for traces in self._record():
                names = [name for name in _READ if name in traces.table.column_names]
                yield from replace(traces, table=traces.table.select(names)).records()
        except (DataError, OSError) as error:
            self.problems.append(str(error))

    def _record(self) -> Iterator[TraceSet]:
        try:
            yield read_traces(self.path)
        except DataError as error:  # some of it is valid, or records of the same questions
            self.problems.append(str(error))
            files = sorted(Path(self.path).glob("[!.]*.parquet")) or [Path(self.path)]
            yield from (read_traces(file, skip_invalid=True) for file in files)


def find_logs(
    places: Iterable[str | Path],
    format: str | None = None,  # noqa: A002
) -> tuple[list[Log], list[str]]:
    """Find logs and records, and say what else there was; folders without hidden files and links to folders.

    ``format`` is that of every file that is no record; ``None``: recognized file by file.
    """
    if format is not None and format not in FORMATS:
        near = did_you_mean(format, FORMATS)
        raise UsageError(f"no format {format!r}; allowed: {', '.join(FORMATS)}{near}")
    found: dict[object, Log] = {}
    others, unread, named = 0, list[str](), [*map(str, places)]
    if not named:
        raise UsageError("no log to look at; name files or folders, such as: suffice look logs/")
    for path, alone in _files(named, unread):
        try:
            if isinstance(as_place(path), Address) or path == EXAMPLE.stem:
                found[path] = Log(path, "record")
                continue
            about = Path(path).stat()
            if not alone and not (S_ISREG(about.st_mode) or S_ISDIR(about.st_mode)):
                continue
            own = store_at(path) or _is_record(Path(path))
            kind = "record" if own else format or recognized(path)
            found.setdefault((about.st_dev, about.st_ino), Log(path, kind, bool(format)))
        except DataError:
            if alone:
                raise
            others += 1
        except OSError as error:
            unread.append(str(error))
    if not found:
        told = "; ".join([f"no log among {counted(others + len(unread), 'file')}", *unread[:1]])
        allowed = f"read are records, and by --format {', '.join(FORMATS)}"
        raise DataError(f"{told}; {allowed}", file=", ".join(named[:3]))
    passed = f"{counted(others, 'other file')} passed over: no log that is recognized."
    notes = [passed] * bool(others)
    notes += [f"{counted(len(unread), 'file')} not readable: {one:.120}" for one in unread[:1]]
    return [*found.values()], notes


def _files(named: Iterable[str], unread: list[str]) -> Iterator[tuple[str, bool]]:
    for name in named:
        if not Path(name).is_dir():
            yield name, True
            continue
        walk = os.walk(name, onerror=lambda error: unread.append(str(error)))
        for folder, folders, files in walk:
            folders[:] = sorted(one for one in folders if not one.startswith("."))
            paths = [Path(folder, one) for one in sorted(files) if not one.startswith(".")]
            if own := store_at(folder) is not None or any(map(_is_record, paths)):
                yield folder, False  # one record, perhaps a store and what was exported of it
            for path in paths:
                if not own or path.suffix not in (".parquet", *SUFFIXES):
                    yield str(path), False


def _is_record(path: Path) -> bool:
    if path.is_dir():
        return any(map(_is_record, path.glob("[!.]*.parquet")))
    if path.suffix != ".parquet" or not path.is_file():
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return {*pq.read_schema(path).names} >= _NEEDED
    except (pa.ArrowException, OSError):
        return False
