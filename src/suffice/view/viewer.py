"""The viewer over HTTP: its page, and the record's data as JSON, read-only."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from importlib.resources import files
from itertools import permutations
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.compute as pc
from fastapi import APIRouter, FastAPI, Query, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import FileResponse
from fastapi.sse import EventSourceResponse
from numpy.typing import NDArray
from starlette.staticfiles import StaticFiles

from suffice.errors import DataError, SufficeError, UsageError, counted
from suffice.results.as_json import as_json
from suffice.serve.guard import PAGE_CONTENT, Door, Refusal, application
from suffice.trace.durable import written_aside
from suffice.view import responses
from suffice.view.data import NotReadyError, RecordView
from suffice.view.responses import PageWanted, Selection

_WATCHED_S = 1.0
_MOST_ARRIVED = 200
_STYLE = files("suffice.report").joinpath("page.css")


def assets() -> dict[str, bytes]:
    folder = files("suffice.view").joinpath("static")
    page = {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}
    return {**page, "page.css": _STYLE.read_bytes()}


class Shown:
    def __init__(
        self,
        view: RecordView | None,
        source: Path | None = None,
        open_again: Callable[[], RecordView] | None = None,
    ) -> None:
        self._view = view
        self._source, self._open_again = source, open_again
        self.version: int = 1
        self.arrived: list[dict[str, str]] = []
        self.doing: str = "the record is being opened"
        self.trouble: str = ""
        self.ended: bool = False
        self._stamp = self._look() if view is not None else ""
        self._busy = threading.Lock()

    @property
    def view(self) -> RecordView:
        if self._view is None:
            raise DataError(self.trouble) if self.trouble else NotReadyError(self.doing)
        return self._view

    def reading(self, share: float) -> None:
        self.doing = f"reading the record, {int(100 * share)} %"

    def end(self) -> None:
        """End the streams of open pages."""
        self.ended = True

    def open(self) -> None:
        if self._open_again is None:
            return
        self._stamp = self._look()
        try:
            self._view = self._open_again().start()
        except (SufficeError, OSError) as error:
            self.trouble = str(error)

    def renew(self) -> bool:
        """Open the record again if its files changed; return whether they did."""
        if self._open_again is None or self._view is None or not self._busy.acquire(blocking=False):
            return False
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            try:
                newer = self._open_again()
            except SufficeError as error:
                self.trouble = f"the record changed and cannot be read now: {error}"
                return False
            self.trouble = ""
            before, after = self._view.question_ids, newer.question_ids
            known = pc.is_in(after, value_set=before.combine_chunks())
            places = np.flatnonzero(~np.asarray(known, bool))[:_MOST_ARRIVED]
            new = [
                {name: row[name] for name in ("id", "question")}
                for row in responses.rows_shown(newer, places, [])
            ]
            self.arrived = [*new, *self.arrived][:_MOST_ARRIVED]
            self._view.stop()
            self._view = newer.start()
            self.version += 1
            return True
        finally:
            self._busy.release()

    def _look(self) -> str:
        if self._source is None:
            return ""
        place = self._source
        try:
            entries = [place]
            if place.is_dir():  # hidden files are no part of a record
                entries = sorted(one for one in place.iterdir() if not one.name.startswith("."))
            stats = [(entry.name, entry.stat()) for entry in entries]
        except OSError:
            return self._stamp
        return str([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])

    def state(self) -> dict[str, Any]:
        try:
            view = self.view
        except SufficeError as error:
            return {"opening": str(error)}
        progress = view.progress
        return {
            "version": self.version,
            "questions": view.n_questions,
            "arrived": len(self.arrived),
            "done": progress.done,
            "of": progress.of,
            "doing": progress.doing,
            "ready": progress.ready,
            "trouble": self.trouble,
        }


def viewer_app(shown: Shown) -> FastAPI:
    app = application([viewer_router(shown)], Door(content=PAGE_CONTENT))

    @app.exception_handler(NotReadyError)
    async def not_ready(_: object, error: Exception) -> Response:
        return Refusal(503, str(error), code="not_ready", headers={"Retry-After": "1"}).reply()

    app.mount("/", StaticFiles(packages=[("suffice.view", "static")], html=True))
    return app


def viewer_router(shown: Shown) -> APIRouter:
    router = APIRouter(tags=["viewer"])

    @router.get("/api/record")
    def record(split: str = "") -> Response:
        """Give facts of the record, and every policy's figures on a split."""
        figures = responses.figures(shown.view, split)
        return _reply({**figures, "version": shown.version, "live": shown.trouble or None})

    @router.get("/api/questions")
    def questions(wanted: Annotated[PageWanted, Query()]) -> Response:
        """Give a page of questions, filtered and sorted."""
        return _reply(responses.question_page(shown.view, wanted))

    @router.get("/api/question/{id:path}")
    def question(id: str, chosen: Annotated[Selection, Query()]) -> Response:  # noqa: A002
        """Give a question round by round, and where every policy stops and why."""
        return _reply(responses.one_question(shown.view, id, chosen.rule, chosen))

    @router.get("/api/what-if")
    def what_if(rule: str, against: str = "", split: str = "") -> Response:
        """Give a rule's stops, score and cost."""
        return _reply(responses.what_if(shown.view, rule, against, split))

    @router.get("/api/compare")
    def compare(a: str, b: str, rule: str = "", split: str = "") -> Response:
        """Compare two policies."""
        return _reply(responses.compared(shown.view, a, b, rule, split))

    @router.get("/api/promises")
    def promises() -> Response:
        """Give every policy's promise and its evidence."""
        return _reply(responses.promises(shown.view))

    @router.get("/api/arrived")
    async def arrived() -> Response:
        """List questions that came since the record was opened."""
        told = {"version": shown.version, "questions": shown.arrived, "trouble": shown.trouble}
        return _reply(told)

    @router.get("/api/chart")
    def chart(split: str = "", rule: str = "") -> Response:
        """Draw scores against cost."""
        picture = responses.chart(shown.view, split, rule).encode()
        return Response(picture, media_type="image/svg+xml")

    @router.get("/api/live", response_class=EventSourceResponse)
    async def live() -> AsyncIterator[dict[str, Any]]:
        """Tell of progress and of a grown record, whenever one changes."""
        last = None
        while not shown.ended:
            await run_in_threadpool(shown.renew)
            if (state := shown.state()) != last:
                last = state
                yield state
            await asyncio.sleep(_WATCHED_S)

    @router.get("/page.css", include_in_schema=False)
    async def style() -> FileResponse:
        return FileResponse(str(_STYLE))

    return router


def _reply(told: object) -> Response:
    return Response(document(told), media_type="application/json")


def document(value: object) -> bytes:
    """Return strict JSON, as short as it gets."""
    text = json.dumps(as_json(value), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


# --- as static files ------------------------------------------------------------------------------
MOST_ROWS = 5_000  # questions of a bundle
_MOST_PAIRED = 12  # policies that are compared with one another
_A_FILE = 50  # questions
_MARK = b'<html lang="en">'


def write_bundle(view: RecordView, folder: Path) -> list[str]:
    """Write the viewer of a measured record as files into a new or empty folder; return lines to print."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already; name a new folder for the bundle")
    with written_aside(folder) as aside:
        shown = _written(view, aside)
    said = [f"wrote {folder}: {counted(shown, 'question')}"]
    if shown < view.n_questions:
        said.append(
            f"left out: {counted(view.n_questions - shown, 'question')}; it has {MOST_ROWS:,}"
        )
    return [*said, f"look at it: python -m http.server --directory {folder}"]


def _written(view: RecordView, folder: Path) -> int:
    data = folder / "data"
    data.mkdir(parents=True)
    step = -(-view.n_questions // MOST_ROWS)
    places: NDArray[np.int64] = np.arange(0, view.n_questions, step)
    policies = list(view.policies)
    rows = responses.rows_shown(view, places, policies)
    for number, start in enumerate(range(0, len(rows), _A_FILE)):
        part = rows[start : start + _A_FILE]
        told = {row["id"]: responses.one_question(view, row["id"]) for row in part}
        (data / f"rounds-{number}.json").write_bytes(document(told))
        for row in part:
            row["file"] = number
    names = [policy.candidate.name for policy in policies]
    (data / "questions.json").write_bytes(document({"policies": names, "rows": rows}))
    (data / "record.json").write_bytes(document(_record(view, len(rows))))
    page = assets()
    page["index.html"] = page["index.html"].replace(_MARK, _MARK[:-1] + b' data-bundle="">', 1)
    for name, content in page.items():
        (folder / name).write_bytes(content)
    return len(rows)


def _record(view: RecordView, shown: int) -> dict[str, Any]:
    splits = ["*", *(name for name in view.facts()["splits"] if name)]
    records = {
        split: {
            "policies": (of_split := responses.figures(view, split))["policies"],
            "split": of_split["split"],
            "chart": str(responses.chart(view, split)),
        }
        for split in splits
    }
    names = [policy.candidate.name for policy in view.policies][-_MOST_PAIRED:]
    asked = view.scored_split or "*"
    said = "static files: no rule can be tried, signals are not filtered by, nothing new comes"
    if shown < view.n_questions:
        said += f"; it holds {counted(shown, 'question')}, evenly over the record"
    return {
        **view.facts(),
        "records": records,
        "pairs": {
            f"{one}\n{other}\n{asked}": responses.compared(view, one, other, "", asked)
            for one, other in permutations(names, 2)
        },
        "promises_made": responses.promises(view),
        "full": f"fixed-{view.traces.n_rounds}",
        "bundle": said,
    }
