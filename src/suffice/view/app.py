"""The viewer over HTTP: its page, and the record's data as JSON. Nothing can be changed through it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from hashlib import blake2b
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.compute as pc
from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse
from pydantic import ValidationError

from suffice.errors import DataError, SufficeError
from suffice.measures.measures import Measures
from suffice.results.as_json import as_json
from suffice.serve.guard import PAGE_CONTENT, Door, application
from suffice.serve.replies import Refusal
from suffice.trace.rounds.table import TraceSet
from suffice.view import answers
from suffice.view.data import NotReadyError, Progress, RecordView
from suffice.view.selection import PageWanted, Selection, rows_shown

_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
}
_LONGEST_QUERY = 8_000  # letters
_WATCHED_S = 1.0
_BEAT_S = 15.0
_MOST_LISTENERS = 32
_MOST_ARRIVED = 200


def assets() -> dict[str, bytes]:
    """The files of the page by name; the report's style is its first."""
    folder = files("suffice.view").joinpath("static")
    page = {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.is_file()}
    page["page.css"] = files("suffice.report.page").joinpath("page.css").read_bytes()
    return {name: content for name, content in page.items() if Path(name).suffix in _KINDS}


class Shown:
    """The record that is shown, and the newer one of a folder that grows."""

    def __init__(
        self,
        view: RecordView | None,
        source: Path | None = None,
        open_again: Callable[[], RecordView] | None = None,
        first: Callable[[], TraceSet | None] = lambda: None,
    ) -> None:
        self._view = view
        self._beginning: RecordView | None = None
        self._first = first
        self._source, self._open_again = source, open_again
        self.version = 1
        self.arrived: list[dict[str, str]] = []
        self.trouble = ""
        self.listeners = 0
        self.ended = False
        self._stamp = self._look() if view is not None else ""
        self._busy = threading.Lock()

    @property
    def view(self) -> RecordView:
        """The record."""
        if self._view is None and self.trouble:
            raise DataError(self.trouble)
        shown = self._view or self._beginning
        if shown is None:
            raise NotReadyError("the record is being opened")
        return shown

    def reading(self, share: float) -> None:
        """Say how much of the record has been read."""
        if self._beginning is not None:
            percent = int(100 * share)
            doing = f"reading the record, {percent} %"
            self._beginning.progress = Progress(done=percent, of=101, doing=doing)

    def end(self) -> None:
        """End what pages follow."""
        self.ended = True

    def open(self) -> None:
        """Open the record."""
        if self._open_again is None:
            return
        stamp = self._look()
        try:
            first = self._first()
            if first is not None:
                self._beginning = RecordView(Measures(first), beginning=True)
                self.reading(0.0)
            self._view = self._open_again().read_questions().start()
        except (SufficeError, OSError) as error:
            self.trouble = str(error)
        self._stamp, self._beginning = stamp, None

    def renew(self) -> bool:
        """Open the record anew if its files changed; whether it did."""
        if self._open_again is None or self._view is None or not self._busy.acquire(blocking=False):
            return False
        try:
            stamp = self._look()
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            try:
                newer = self._open_again().read_questions()
            except SufficeError as error:
                self.trouble = f"the record changed and cannot be read as it is now: {error}"
                return False
            self.trouble = ""
            before, after = self._view.question_ids, newer.question_ids
            known = pc.is_in(after, value_set=before.combine_chunks())
            places = np.flatnonzero(~np.asarray(known, bool))[:_MOST_ARRIVED]
            new = [
                {name: row[name] for name in ("id", "question")}
                for row in rows_shown(newer, places, [])
            ]
            self.arrived = [*new, *self.arrived][:_MOST_ARRIVED]
            self._view.stop()
            self._view = newer.start()
            self.version += 1
            return True
        finally:
            self._busy.release()

    def _look(self) -> str:
        """What tells whether files changed: their names, sizes and times."""
        if self._source is None:
            return ""
        place = self._source
        try:
            entries = [place]
            if place.is_dir():  # what is hidden is no part of a record
                entries = sorted(one for one in place.iterdir() if not one.name.startswith("."))
            stats = [(entry.name, entry.stat()) for entry in entries]
        except OSError:
            return self._stamp
        return str([(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats])


_GIVEN = b'id="given">{}'


def viewer_app(shown: Shown) -> FastAPI:
    """The viewer of a record, for whoever reaches it by an address."""
    app = application([viewer_router(shown)], Door(content=PAGE_CONTENT))
    app.add_exception_handler(NotReadyError, _not_ready)
    return app


async def _not_ready(_: Request, error: Exception) -> Response:
    return Refusal(503, str(error), code="not_ready", headers={"Retry-After": "1"}).reply()


async def _check_length(request: Request) -> None:
    if len(request.url.query) > _LONGEST_QUERY:
        raise Refusal(414, f"a query may have {_LONGEST_QUERY:,} characters")


def viewer_router(shown: Shown) -> APIRouter:
    """The page of a record and its data."""
    router = APIRouter(tags=["viewer"], dependencies=[Depends(_check_length)])
    served = assets()
    page = served.pop("index.html")

    def told_of_record(split: str = "") -> dict[str, Any]:
        figures = answers.figures(shown.view, split)
        return {**figures, "version": shown.version, "live": shown.trouble or None}

    @router.get("/api/record")
    def record(request: Request, split: str = "") -> Response:
        """Facts of the record, and what every policy scores and pays on a split."""
        return _tagged(request, told_of_record(split))

    @router.get("/api/questions")
    def questions(request: Request, wanted: Annotated[PageWanted, Query()]) -> Response:
        """A page of questions, filtered and sorted."""
        return _tagged(request, answers.question_page(shown.view, wanted))

    @router.get("/api/question/{id:path}")
    def question(request: Request, id: str, chosen: Annotated[Selection, Query()]) -> Response:  # noqa: A002
        """A question round by round, and where every policy stops and why."""
        return _tagged(request, answers.one_question(shown.view, id, chosen.rule, chosen))

    @router.get("/api/what-if")
    def what_if(request: Request, rule: str, against: str = "", split: str = "") -> Response:
        """Where a rule would stop every question, and what it scores and pays."""
        return _tagged(request, answers.what_if(shown.view, rule, against, split))

    @router.get("/api/compare")
    def compare(request: Request, a: str, b: str, rule: str = "", split: str = "") -> Response:
        """Two policies beside each other."""
        return _tagged(request, answers.compared(shown.view, a, b, rule, split))

    @router.get("/api/promises")
    def promises(request: Request) -> Response:
        """What every policy promises, and on what that rests."""
        return _tagged(request, answers.promises(shown.view))

    @router.get("/api/arrived")
    async def arrived(request: Request) -> Response:
        """Questions that came since the record was opened."""
        told = {"version": shown.version, "questions": shown.arrived, "trouble": shown.trouble}
        return _tagged(request, told)

    @router.get("/api/chart")
    def chart(request: Request, split: str = "", rule: str = "") -> Response:
        """Scores against cost, as a picture."""
        return _tagged(request, answers.chart(shown.view, split, rule).encode(), "image/svg+xml")

    @router.get("/api/live")
    async def live() -> Response:
        """Where measuring stands and that the record grew, as events."""
        if shown.listeners >= _MOST_LISTENERS:
            raise Refusal(429, "too many pages follow this record", headers={"Retry-After": "30"})
        return StreamingResponse(_events(shown), media_type="text/event-stream")

    @router.get("/")
    @router.get("/index.html")
    def index(request: Request) -> Response:
        """The page, with what it asks for first written into it, as far as that is known."""
        told, query = {}, request.query_params
        with suppress(SufficeError, Refusal, ValidationError):  # the page will be told when it asks
            told["record"] = told_of_record()
            if query.get("view") == "questions":
                wanted = PageWanted.model_validate(dict(query))
                told["questions"] = answers.question_page(shown.view, wanted)
        given = b'id="given">' + document(told).replace(b"<", b"\\u003c")
        return _tagged(request, page.replace(_GIVEN, given, 1), _KINDS[".html"])

    @router.get("/{name}")
    async def asset(request: Request, name: str) -> Response:
        """A file of the page."""
        if name not in served:
            raise Refusal(404, "there is no such page")
        return _tagged(request, served[name], _KINDS[Path(name).suffix])

    return router


def _tagged(request: Request, told: object, kind: str = "application/json") -> Response:
    """The content, a document or bytes, or that it is what the client has."""
    content = told if isinstance(told, bytes) else document(told)
    tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)


def document(value: object) -> bytes:
    """Strict JSON in as few bytes as it takes."""
    text = json.dumps(as_json(value), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


async def _events(shown: Shown) -> AsyncIterator[bytes]:
    """Where measuring stands and that the record grew, whenever that changed."""
    shown.listeners += 1
    last, silent = "", 0.0
    try:
        while not shown.ended:
            await run_in_threadpool(shown.renew)
            said = json.dumps(_state(shown))
            silent += _WATCHED_S
            if said != last:
                last, silent = said, 0.0
                yield f"data: {said}\n\n".encode()
            elif silent >= _BEAT_S:
                silent = 0.0
                yield b": here\n\n"
            await asyncio.sleep(_WATCHED_S)
    finally:
        shown.listeners -= 1


def _state(shown: Shown) -> dict[str, Any]:
    try:
        view = shown.view
    except SufficeError as error:
        return {"opening": str(error)}
    progress = view.progress
    return {
        "version": shown.version,
        "beginning": view.beginning,
        "questions": view.n_questions,
        "arrived": len(shown.arrived),
        "done": progress.done,
        "of": progress.of,
        "doing": progress.doing,
        "ready": progress.ready,
        "trouble": shown.trouble,
    }
