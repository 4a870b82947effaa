"""Monitoring of a record as it grows, and the delivery of its alarms."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from suffice._optional import require
from suffice._version import VERSION
from suffice.errors import BackendError, DataError, UsageError, plain_file, struck
from suffice.foreign import is_here
from suffice.monitor.production import Alarm, Production
from suffice.monitor.questions import Asked
from suffice.trace.recording import live_store
from suffice.trace.rounds.labels import LABELS_FILE, Label, read_labels
from suffice.trace.rounds.reader import as_trace_set, in_order, read_traces
from suffice.trace.rounds.schema import QUESTIONS
from suffice.trace.rounds.trace_set import TraceSet, TraceSetOrigin
from suffice.trace.store import Store
from suffice.trace.stored_file import StoredFile, parquet_files

_TIMEOUT_S = 5.0


class WebHook:
    """Posts alarms as JSON to one URL, without redirects and proxies; its path stays secret."""

    def __init__(self, url: str) -> None:
        self._httpx = require("httpx2", purpose="posting alarms to a web hook", extra="serve")
        try:
            asked = self._httpx.URL(url)
        except self._httpx.InvalidURL as error:
            raise UsageError(f"the webhook is no URL: {error}") from error
        secure = asked.scheme == "https" or (asked.scheme == "http" and is_here(asked.host))
        if not asked.host or asked.userinfo or not secure:
            raise UsageError(
                "a webhook must be an https URL, or http on this machine (127.0.0.1), without user and "
                f"password; found {asked.scheme or 'no scheme'} and host {asked.host!r:.100}"
            )
        logging.getLogger("httpx2").addFilter(lambda record: str(asked) not in record.getMessage())
        self._url, self._shown = url, f"{asked.scheme}://{asked.host}/..."

    def send(self, alarm: Alarm) -> None:
        """Post an alarm; a refused one is sent again at the next look."""
        agent = {"User-Agent": f"suffice/{VERSION}"}
        try:
            with self._httpx.Client(headers=agent, timeout=_TIMEOUT_S, trust_env=False) as client:
                client.post(self._url, json=alarm.to_json()).raise_for_status()
        except self._httpx.HTTPStatusError as error:
            said = f"status {error.response.status_code}"
        except self._httpx.TransportError as error:
            said = struck(str(error).replace(self._url, self._shown))
        else:
            return
        raise BackendError(f"the webhook {self._shown} did not take an alarm: {said:.200}")


class AlarmLog:
    """Sends every alarm once: to a web hook, then to a file of JSON lines, which remembers it."""

    def __init__(self, file: Path | None = None, hook: WebHook | None = None) -> None:
        self._file, self._hook = file, hook
        self._ids: set[str] = set()

    def untold(self, alarms: Sequence[Alarm]) -> list[Alarm]:
        """Return the alarms that no writer of the file has sent yet, in order."""
        if self._file is not None and self._file.is_file():
            for line in self._file.read_bytes().splitlines():
                with suppress(ValueError, LookupError, TypeError, RecursionError):
                    self._ids.add(json.loads(line)["id"])
        return [alarm for alarm in alarms if alarm.id not in self._ids]

    def tell(self, alarm: Alarm) -> None:
        """Send an alarm, unless the hook refuses it."""
        if self._hook is not None:
            self._hook.send(alarm)
        if self._file is not None:
            with plain_file(self._file).open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(alarm.to_json(), ensure_ascii=False) + "\n")
        self._ids.add(alarm.id)


class Following:
    """A reader of new questions in a store of live loops, a trace file, or a folder of them.

    New questions of one look come in the order of the end of their first rounds; equal and missing times
    keep the order of files by name and of rows. The first look reads the whole record.
    """

    def __init__(self, root: Path, production: Production) -> None:
        self.production = production
        self._root = root
        self._store: Store | None = None
        self._taken: set[str] = set()  # questions of Parquet files
        self._unchanged: dict[Path, tuple[int, int]] = {}  # size and time when it was last read
        self._turn = self._stored_labels = 0

    def look(self) -> list[Asked]:
        """Take everything new since the last look; return its questions in the order they began."""
        # labels first: a question that ends meanwhile is read before a label that comes after it
        labels = self._new_labels()
        return self.production.read(self._new_parts(), labels)

    def _new_parts(self) -> Iterator[tuple[TraceSet, Sequence[str]]]:
        if (store := self._live()) is not None:
            turn = self._turn
            for run in store.runs(lambda _: turn, dead=False):
                if run.rows:
                    origin = TraceSetOrigin(source=str(store.file), run=dict(run.document))
                    ids = run.rows.column("question_id").unique().to_pylist()
                    yield as_trace_set(in_order(run.rows), origin), ids
                self._turn = max(self._turn, run.turn)
        there = self._root.is_file() or any(self._root.glob("[!.]*.parquet"))
        for file in parquet_files(self._root) if there else []:
            stat = file.stat()
            now = stat.st_size, stat.st_mtime_ns
            if self._unchanged.get(file) == now:
                continue
            _, table = StoredFile.read_whole(file, {"question_id"}, QUESTIONS)
            ids = table.column("question_id").unique().to_pylist()
            if new := [name for name in ids if name not in self._taken]:
                read = read_traces(file)
                yield (read if len(new) == len(ids) else read.only_questions(new)), new
            self._taken.update(new)
            self._unchanged[file] = now

    def _live(self) -> Store | None:
        self._store = self._store or live_store(self._root)
        return self._store

    def _new_labels(self) -> list[Label]:
        if (store := self._live()) is not None:
            labels, self._stored_labels = store.labels(self._stored_labels)
            return labels
        # all of them: one that was taken before counts for nothing, one that is being written is none yet
        labels = []
        for _, label in read_labels(self._root / LABELS_FILE):
            if isinstance(label, DataError):
                raise label
            labels += [label] if label else []
        return labels
