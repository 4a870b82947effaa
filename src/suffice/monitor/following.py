"""A record as it grows, and a policy watched over it, with a state that a restart goes on from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suffice.errors import DataError, plain_file
from suffice.monitor.aspects import Alarm
from suffice.monitor.production import Production
from suffice.monitor.questions import Asked, Reading
from suffice.monitor.state import VERSION, opened, read_state, undamaged
from suffice.numbers.tests.e_process import whole
from suffice.protocols import strict_json
from suffice.trace.durable import replace_file
from suffice.trace.reader import StoredFile, parquet_files
from suffice.trace.recording import live_store
from suffice.trace.rounds.labels import LABELS_FILE, Label, read_label
from suffice.trace.rounds.reader import as_trace_set, read_traces
from suffice.trace.rounds.schema import QUESTIONS, records_to_table
from suffice.trace.rounds.table import TraceSet, TraceSetOrigin
from suffice.trace.store import Store

EARLIEST = datetime.min.replace(tzinfo=UTC)
"""When a question ended of which no time is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is new: questions in the order in which they ended, then labels.

    ``others`` counts questions of other policies, ``damaged`` lines that were left out.
    """

    questions: tuple[Asked, ...] = ()
    labels: tuple[Label, ...] = ()
    others: int = 0
    damaged: int = 0

    def __bool__(self) -> bool:
        return bool(self.questions or self.labels or self.others or self.damaged)


@dataclass(slots=True)
class _Part:
    """How many questions of a file were read, and a digest of their ids."""

    taken: int = 0
    digest: str = ""
    seen: tuple[int, int] = (0, 0)  # size and time of the file when it was last read


class Folder:
    """A store of live loops, a trace file, or a folder of them.

    New questions of one look come in the order in which their last rounds ended, of equal times and without
    any in the order of files by name and of rows. What a look costs depends on what is new, not on what was
    read before.
    """

    def __init__(self, root: Path, reading: Reading) -> None:
        self._root, self._reading = root, reading
        self._parts: dict[str, _Part] = {}
        self._opened: Store | None = None
        self._labels = self._stored_labels = self._turn = 0

    def look(self) -> Found:
        """What came since the last look."""
        # labels first: a question that ends meanwhile is read before a label that comes after it
        labels, torn = self._new_labels()
        found: list[Asked] = []
        others = 0
        for traces, order in self._new_sets():
            asked = {question.id: question for question in self._reading.questions(traces)}
            found += [asked[name] for name in order if name in asked]
            others += len(order) - len(asked)
        found.sort(key=lambda question: question.time or EARLIEST)
        return Found(questions=tuple(found), labels=tuple(labels), others=others, damaged=torn)

    def _new_sets(self) -> Iterator[tuple[TraceSet, Sequence[str]]]:
        """New questions, with their ids in the order in which they stand there."""
        if (store := self._store()) is not None:
            turn = self._turn
            for run in store.runs(lambda _: turn, dead=False):
                if run.records:
                    origin = TraceSetOrigin(source=str(store.file), run=dict(run.document))
                    traces = as_trace_set(records_to_table(run.records), origin)
                    yield traces, [record.question.id for record in run.records]
                self._turn = max(self._turn, run.turn)
        there = self._root.is_file() or any(self._root.glob("[!.]*.parquet"))
        for file in parquet_files(self._root) if there else []:
            yield from self._of_file(file)

    def _store(self) -> Store | None:
        self._opened = self._opened or live_store(self._root)
        return self._opened

    def _of_file(self, file: Path) -> Iterator[tuple[TraceSet, Sequence[str]]]:
        part, stat = self._parts.setdefault(file.stem, _Part()), file.stat()
        now = (stat.st_size, stat.st_mtime_ns)
        if part.seen == now:
            return
        _, table = StoredFile.read_whole(file, {"question_id"}, QUESTIONS)
        ids = table.column("question_id").unique().to_pylist()
        known, new = ids[: part.taken], ids[part.taken :]
        if len(known) < part.taken or _digest("", known) != part.digest:
            raise DataError(
                f"other questions stand where {part.taken:,} were read before; a record that was "
                "rewritten is watched with another --state",
                file=str(file),
            )
        part.digest = _digest(part.digest, new)
        if new:
            read = read_traces(file, columns=self._reading.columns)
            yield (read.only_questions(new) if known else read), new
        part.taken, part.seen = len(ids), now

    def _new_labels(self) -> tuple[list[Label], int]:
        if (store := self._store()) is not None:
            came, self._stored_labels = store.labels(self._stored_labels)
            return came, 0
        file = self._root / LABELS_FILE
        if not self._root.is_dir() or not file.exists():
            return [], 0
        with plain_file(file).open("rb") as stream:
            if stream.seek(0, 2) < self._labels:
                raise DataError(
                    f"is shorter than the {self._labels:,} bytes that were read before; labels are added "
                    "at its end",
                    file=str(file),
                )
            stream.seek(self._labels)
            lines = stream.readlines()
        labels: list[Label] = []
        damaged = 0
        for line in lines:
            try:
                labels += [read_label(strict_json(line), str(file))] if line.strip() else []
            except (ValueError, RecursionError):  # DataError is one
                if not line.endswith(b"\n"):
                    break  # being written
                damaged += 1
            self._labels += len(line)
        return labels, damaged

    def to_json(self) -> dict[str, Any]:
        """How far it was read, as strict JSON; as long as there are files."""
        return {
            "files": {name: [part.taken, part.digest] for name, part in self._parts.items()},
            "labels": self._labels,
            "store": [self._turn, self._stored_labels],
        }

    def resume(self, held: Mapping[str, Any]) -> None:
        """Go on from what :meth:`to_json` gave."""
        for name, (taken, digest) in held["files"].items():
            self._parts[name] = _Part(whole(taken, "files"), str(digest))
        self._labels = whole(held["labels"], "labels")
        turn, labels = held.get("store", (0, 0))
        self._turn, self._stored_labels = whole(turn, "store"), whole(labels, "store")


def _digest(before: str, ids: Iterable[str]) -> str:
    """Twelve hexadecimal digits over all ids so far; empty: none."""
    for name in ids:
        before = hashlib.blake2b(f"{before} {name}".encode(), digest_size=6).hexdigest()
    return before


class Following:
    """What is new in a folder, taken in; what it raised, told once.

    Notes
    -----
    The state is written after a look and after every alarm that was told, so that a crash loses nothing and
    counts nothing twice; an alarm that was told just before it is told again, under the same ``id``.
    """

    def __init__(self, folder: Folder, production: Production, *, file: Path | None = None) -> None:
        self._folder, self.production, self._file = folder, production, file
        self._told = 0

    def go_on(self) -> None:
        """Go on from the state's file, where there is one; nothing may have been looked at before."""
        if self._file is not None and self._file.exists():
            self.resume(read_state(self._file))

    def look(self) -> Found:
        """Take in what came since the last look: questions in the order in which they ended, then labels."""
        found = self._folder.look()
        place = {question.id: number for number, question in enumerate(found.questions)}
        for question in found.questions:
            self.production.take(question)
        # of one look, labels come in the order of their questions: a file sorted by outcome is no alarm
        before = len(place)
        for label in sorted(found.labels, key=lambda one: place.get(one.question_id, before)):
            self.production.label(label)
        self.production.pass_over(found.others)
        if found:
            self._keep()
        return found

    @property
    def untold(self) -> tuple[Alarm, ...]:
        """Alarms that were not told yet, in order."""
        return self.production.alarms[self._told :]

    def told(self) -> None:
        """The first of them was told."""
        self._told += 1
        self._keep()

    def _keep(self) -> None:
        if self._file is not None:
            replace_file(self._file, json.dumps(self.to_json(), allow_nan=False).encode())

    def to_json(self) -> dict[str, Any]:
        """All it needs to go on, as strict JSON."""
        return {
            "suffice_following": VERSION,
            "folder": self._folder.to_json(),
            "production": self.production.to_json(),
            "told": self._told,
        }

    def resume(self, state: object) -> None:
        """Go on from what :meth:`to_json` gave; nothing may have been looked at before."""
        with undamaged(self._file):
            held = opened(state, "suffice_following", {})
            self.production.resume(held["production"])
            self._folder.resume(held["folder"])
            self._told = min(whole(held["told"], "told"), len(self.production.alarms))
