"""Logs of every known format, and records, found in files and folders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from suffice.datasets.columns import Layout
from suffice.datasets.formats import FORMATS, inside, recognized
from suffice.datasets.samples import sample
from suffice.errors import DataError, UsageError, counted, unknown_name
from suffice.trace.engines import Address, as_place
from suffice.trace.rounds.reader import read_traces
from suffice.trace.rounds.records import QuestionRecord
from suffice.trace.rounds.schema import COLUMNS
from suffice.trace.store import NAME, SUFFIXES
from suffice.trace.stored_file import EXAMPLE

_NEEDED = {column.name for column in COLUMNS if column.required}
_READ = _NEEDED.union(
    ("prompt_tokens", "completion_tokens", "usd", "llm_calls", "action", "query"),
    ("score", "gold_answers", "stopped_by"),
)


@dataclass(slots=True)
class Log:
    """A file of logs, or a record (format ``record``); ``problems``: why not all of it was read."""

    path: str
    format: str
    stated: str = ""  # the option that a user named the format with
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
            try:
                found = iter([read_traces(self.path)])
            except DataError as error:  # some of it is valid, or records of the same questions
                self.problems.append(str(error))
                files = sorted(Path(self.path).glob("[!.]*.parquet")) or [Path(self.path)]
                found = (read_traces(file, skip_invalid=True) for file in files)
            for traces in found:
                names = [name for name in traces.table.column_names if name in _READ]
                yield from replace(traces, table=traces.table.select(names)).records()
        except (DataError, OSError) as error:
            self.problems.append(str(error))


def find_logs(places: Iterable[str | Path], format: str | None) -> tuple[list[Log], list[str]]:  # noqa: A002
    """Find logs and records, and what files were passed over; ``format`` is that of every other file."""
    if format is not None and format not in FORMATS:
        raise UsageError(unknown_name("format", format, FORMATS))
    found: dict[object, Log] = {}
    named, others, unread = [*map(str, places)], 0, list[OSError]()
    if not named:
        raise UsageError("no log to look at; name files or folders, such as: suffice look logs/")
    for name in named:
        alone = not Path(name).is_dir()
        for path in [name] if alone else map(str, inside(Path(name), unread.append)):
            try:
                record = _record_of(path, alone=alone)
                kind = "record" if record else format or recognized(path)
                log = Log(record or path, kind, f" --format {format}" if format else "")
                about = Path(log.path).stat() if Path(log.path).exists() else None
                found.setdefault((about.st_dev, about.st_ino) if about else log.path, log)
            except DataError:
                if alone:
                    raise
                others += 1
            except OSError as error:
                unread.append(error)
    notes = [f"{counted(others, 'other file')} passed over: no log that is recognized."] * bool(
        others
    )
    notes += [
        f"{counted(len(unread), 'place')} not readable: {one:.120}" for one in map(str, unread[:1])
    ]
    if not found:
        told = " ".join(["no log here.", *notes, "Read are records, and by --format:"])
        raise DataError(f"{told} {', '.join(FORMATS)}", file=", ".join(named[:3]))
    return [*found.values()], notes


def _record_of(path: str, *, alone: bool) -> str | None:
    """Return the record that a file is, or, in a folder, belongs to."""
    place = as_place(path)
    if isinstance(place, Address) or (path == EXAMPLE.stem and not place.exists()):
        return path
    with suppress(DataError):
        if place.suffix == ".parquet" and {*next(iter(sample(place)), ())} >= _NEEDED:
            return path if alone else str(place.parent)
    whole = alone or place.name != NAME  # a folder may hold a store, and what was exported of it
    return (path if whole else str(place.parent)) if place.suffix in SUFFIXES else None
