"""A record as it grows, and a policy watched over it, with a state that a restart goes on from."""

from __future__ import annotations

import ipaddress
import json
import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from suffice._optional import require
from suffice._version import VERSION as RELEASE
from suffice.contracts import strict_json
from suffice.errors import BackendError, DataError, UsageError, struck, without_credentials
from suffice.monitor.coverage import VERSION, opened, read_state, undamaged
from suffice.monitor.production import Alarm, Production
from suffice.monitor.questions import Asked
from suffice.stats.fields import whole
from suffice.trace.durable import replace_file
from suffice.trace.reader import StoredFile, parquet_files
from suffice.trace.recording import live_store
from suffice.trace.rounds.labels import LABELS_FILE, Label, read_label
from suffice.trace.rounds.reader import as_trace_set, read_traces
from suffice.trace.rounds.schema import QUESTIONS, records_to_table
from suffice.trace.rounds.table import TraceSet, TraceSetOrigin
from suffice.trace.store import Store

_TIMEOUT_S = 5.0


class WebHook:
    """Posts every alarm as JSON to one URL, which never leads elsewhere."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname, parts.port
        except ValueError as error:
            raise UsageError(f"the web hook is no URL: {error}") from error
        shown = without_credentials(url)
        if parts.scheme not in ("http", "https") or not host:
            raise UsageError(f"a web hook is an https URL, found {shown!r:.200}")
        if parts.scheme == "http" and not _is_here(host):
            raise UsageError(
                f"alarms go out by https only; http is for this machine (127.0.0.1), found {shown!r:.200}"
            )
        if parts.username or parts.password:
            raise UsageError("a web hook's URL holds no user and password; put a token in its path")
        self._httpx = require("httpx2", purpose="posting alarms to a web hook", extra="serve")
        # its log would tell the whole URL
        logging.getLogger("httpx2").addFilter(lambda record: host not in record.getMessage())
        self._url = url
        # what stands behind the host may be a secret, as in the hooks of chat services
        self._shown = f"{parts.scheme}://{host}/..."

    def send(self, alarm: Alarm) -> None:
        """Post it; one that is not taken is for the next look."""
        agent = {"User-Agent": f"suffice/{RELEASE}"}
        try:
            # no proxy of the environment: the address that was configured and no other
            with self._httpx.Client(headers=agent, timeout=_TIMEOUT_S, trust_env=False) as client:
                reply = client.post(self._url, json=alarm.to_json())
        except self._httpx.TransportError as error:
            said = struck(str(error).replace(self._url, self._shown))
        else:
            if reply.is_success:
                return
            said = f"status {reply.status_code}" + " (a redirect)" * reply.is_redirect
        raise BackendError(f"the web hook {self._shown} did not take an alarm: {said:.200}")


def _is_here(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


EARLIEST = datetime.min.replace(tzinfo=UTC)
"""When a question ended of which no time is recorded."""


class Following:
    """What is new in a store of live loops, a trace file, or a folder of them, taken in; alarms told once.

    New questions of one look come in the order in which their last rounds ended, of equal times and without
    any in the order of files by name and of rows. With a ``file`` it goes on from the state there.

    Notes
    -----
    The state is written after a look and after every alarm that was told, so that a crash loses nothing and
    counts nothing twice; an alarm that was told just before it is told again, under the same ``id``.
    """

    def __init__(self, root: Path, production: Production, *, file: Path | None = None) -> None:
        self.production = production
        self._root, self._file = root, file
        self._store: Store | None = None
        self._taken: dict[str, int] = {}  # questions of each Parquet file
        self._unchanged: dict[str, tuple[int, int]] = {}  # its size and time when it was last read
        self._turn = self._stored_labels = self._told = 0
        if file is not None and file.exists():
            with undamaged(file):
                self.resume(read_state(file))

    def look(self) -> tuple[Asked, ...]:
        """Take in what came since the last look; its questions in the order in which they ended."""
        # labels first: a question that ends meanwhile is read before a label that comes after it
        labels = self._new_labels()
        found: list[Asked] = []
        others = 0
        for traces, order in self._new_sets():
            asked = {one.id: one for one in self.production.reading.questions(traces)}
            found += [asked[name] for name in order if name in asked]
            others += len(order) - len(asked)
        found.sort(key=lambda question: question.time or EARLIEST)
        before = self.production.counts["labelled"]
        for question in found:
            self.production.take(question)
        # of one look, labels come in the order of their questions: a file sorted by outcome is no alarm
        place = {question.id: number for number, question in enumerate(found)}
        for label in sorted(labels, key=lambda one: place.get(one.question_id, len(place))):
            self.production.label(label)
        self.production.counts["others"] += others
        if found or others or self.production.counts["labelled"] != before:
            self._keep()
        return tuple(found)

    def _new_sets(self) -> Iterator[tuple[TraceSet, Sequence[str]]]:
        """New questions, with their ids in the order in which they stand there."""
        if (store := self._live()) is not None:
            turn = self._turn
            for run in store.runs(lambda _: turn, dead=False):
                if run.records:
                    origin = TraceSetOrigin(source=str(store.file), run=dict(run.document))
                    traces = as_trace_set(records_to_table(run.records), origin)
                    yield traces, [record.question.id for record in run.records]
                self._turn = max(self._turn, run.turn)
        there = self._root.is_file() or any(self._root.glob("[!.]*.parquet"))
        for file in parquet_files(self._root) if there else []:
            stat = file.stat()
            now = stat.st_size, stat.st_mtime_ns
            if self._unchanged.get(file.stem) == now:
                continue
            taken = self._taken.get(file.stem, 0)
            _, table = StoredFile.read_whole(file, {"question_id"}, QUESTIONS)
            ids = table.column("question_id").unique().to_pylist()
            if len(ids) < taken:
                raise DataError(
                    f"holds {len(ids):,} questions, of which {taken:,} were read before; a record that was "
                    "rewritten is watched with another --state",
                    file=str(file),
                )
            if new := ids[taken:]:
                read = read_traces(file, columns=self.production.reading.columns)
                yield (read.only_questions(new) if taken else read), new
            self._taken[file.stem], self._unchanged[file.stem] = len(ids), now

    def _live(self) -> Store | None:
        self._store = self._store or live_store(self._root)
        return self._store

    def _new_labels(self) -> list[Label]:
        if (store := self._live()) is not None:
            labels, self._stored_labels = store.labels(self._stored_labels)
            return labels
        file = self._root / LABELS_FILE
        if not file.is_file():
            return []
        # all of them: one that was taken before counts for nothing
        lines = file.read_bytes().splitlines(keepends=True)
        labels = []
        for number, line in enumerate(lines):
            try:
                labels += [read_label(strict_json(line), str(file))] if line.strip() else []
            except (ValueError, RecursionError) as error:
                if number < len(lines) - 1 or line.endswith(b"\n"):  # else it is being written
                    said = error.message if isinstance(error, DataError) else f"not JSON ({error})"
                    raise DataError(said, file=str(file), row=number) from error
        return labels

    @property
    def untold(self) -> list[Alarm]:
        """Alarms that were not told yet, in order."""
        return self.production.alarms[self._told :]

    def told(self) -> None:
        """The first of them was told."""
        self._told += 1
        self._keep()

    def _keep(self) -> None:
        if self._file is not None:
            replace_file(self._file, json.dumps(self.state(), allow_nan=False).encode())

    def state(self) -> dict[str, Any]:
        """All it needs to go on, as strict JSON."""
        return {
            "suffice_following": VERSION,
            "folder": {"files": self._taken, "store": [self._turn, self._stored_labels]},
            "production": self.production.state(),
            "told": self._told,
        }

    def resume(self, state: object) -> None:
        """Go on from what :meth:`state` gave; nothing may have been looked at before."""
        held = opened(state, "suffice_following", {})
        self.production.resume(held["production"])
        folder = held["folder"]
        for name, taken in folder["files"].items():  # once with a digest beside the number
            self._taken[name] = whole(taken[0] if isinstance(taken, list) else taken, "files")
        turn, labels = folder.get("store", (0, 0))
        self._turn, self._stored_labels = whole(turn, "store"), whole(labels, "store")
        self._told = min(whole(held["told"], "told"), len(self.production.alarms))
