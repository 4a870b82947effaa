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
from typing import Any

import numpy as np
import pyarrow.compute as pc
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp

from suffice.errors import DataError, InternalError, SufficeError
from suffice.measures.measures import Measures
from suffice.results.as_json import as_json
from suffice.trace.rounds.table import TraceSet
from suffice.view import answers
from suffice.view.data import NotReadyError, Progress, RecordView
from suffice.view.selection import Selection, rows_shown
from suffice.web.guard import PAGE_CONTENT, Door, Guard
from suffice.web.replies import Refusal, refusal_of

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


def viewer_app(shown: Shown, door: Door | None = None) -> ASGIApp:
    """The viewer of a record; ``door`` says who may come in (left out: whoever reaches it by an address)."""
    served = assets()
    page = served.pop("index.html")

    async def asset(request: Request) -> Response:  # no thread: they wait for nothing
        name = request.path_params["name"]
        if name not in served:
            raise Refusal(404, "there is no such page")
        return _tagged(request, served[name], _KINDS[Path(name).suffix])

    def index(request: Request) -> Response:
        return _tagged(request, page.replace(_GIVEN, _given(shown, request), 1), _KINDS[".html"])

    routes = [
        *(Route(f"/api/{name}", _answering(shown, answer)) for name, answer in _ANSWERS.items()),
        Route("/api/question/{id:path}", _answering(shown, _question)),
        Route("/api/chart", _charting(shown)),
        Route("/api/live", _following(shown)),
        Route("/", index),
        Route("/index.html", index),
        Route("/{name}", asset),
    ]
    app = Starlette(
        routes=routes,
        exception_handlers={Refusal: _refused, SufficeError: _failed, 404: _no_page},
    )
    return Guard(app, door or Door(content=PAGE_CONTENT))


_GIVEN = b'id="given">{}'


def _given(shown: Shown, request: Request) -> bytes:
    """What the page asks for first, written into it, as far as it is known."""
    wanted = {"record": _record}
    if request.query_params.get("view") == "questions":
        wanted["questions"] = _questions
    told = {}
    for name, answer in wanted.items():
        with suppress(SufficeError, Refusal):  # the page will be told when it asks
            told[name] = answer(shown, request)
    return b'id="given">' + document(told).replace(b"<", b"\\u003c")


def _refused(_: Request, error: Exception) -> Response:
    return error.reply() if isinstance(error, Refusal) else _no_page(_, error)


def _no_page(_: Request, __: Exception) -> Response:
    return Refusal(404, "there is no such page").reply()


def _failed(_: Request, error: Exception) -> Response:
    if isinstance(error, NotReadyError):
        return Refusal(503, str(error), code="not_ready", headers={"Retry-After": "1"}).reply()
    told = error if isinstance(error, SufficeError) else InternalError(str(error))
    return refusal_of(told).reply()


def _tagged(request: Request, content: bytes, kind: str) -> Response:
    """The content, or that it is what the client has."""
    tag = f'"{blake2b(content, digest_size=12).hexdigest()}"'
    headers = {"etag": tag, "cache-control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=kind, headers=headers)


def document(value: object) -> bytes:
    """Strict JSON in as few bytes as it takes."""
    text = json.dumps(as_json(value), allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "backslashreplace")


_Answer = Callable[[Shown, Request], Any]


def _answering(shown: Shown, answer: _Answer) -> Callable[[Request], Response]:
    def handle(request: Request) -> Response:
        if len(request.url.query) > _LONGEST_QUERY:
            raise Refusal(414, f"a query may have {_LONGEST_QUERY:,} characters")
        return _tagged(request, document(answer(shown, request)), "application/json")

    return handle


def _record(shown: Shown, request: Request) -> dict[str, Any]:
    told = answers.figures(shown.view, request.query_params.get("split", ""))
    return {**told, "version": shown.version, "live": shown.trouble or None}


def _questions(shown: Shown, request: Request) -> dict[str, Any]:
    query = dict(request.query_params)
    return answers.question_page(shown.view, Selection.of(query), query)


def _question(shown: Shown, request: Request) -> dict[str, Any]:
    query = dict(request.query_params)
    chosen, name = Selection.of(query), request.path_params["id"]
    return answers.one_question(shown.view, name, query.get("rule", ""), chosen)


def _what_if(shown: Shown, request: Request) -> dict[str, Any]:
    query = request.query_params
    return answers.what_if(
        shown.view, query.get("rule", ""), query.get("against", ""), query.get("split", "")
    )


def _compared(shown: Shown, request: Request) -> dict[str, Any]:
    query = request.query_params
    return answers.compared(
        shown.view,
        query.get("a", ""),
        query.get("b", ""),
        query.get("rule", ""),
        query.get("split", ""),
    )


def _promises(shown: Shown, _: Request) -> dict[str, Any]:
    return answers.promises(shown.view)


def _arrived(shown: Shown, _: Request) -> dict[str, Any]:
    return {"version": shown.version, "questions": shown.arrived, "trouble": shown.trouble}


_ANSWERS: dict[str, _Answer] = {
    "record": _record,
    "questions": _questions,
    "what-if": _what_if,
    "compare": _compared,
    "promises": _promises,
    "arrived": _arrived,
}


def _charting(shown: Shown) -> Callable[[Request], Response]:
    def handle(request: Request) -> Response:
        query = request.query_params
        drawn = answers.chart(shown.view, query.get("split", ""), query.get("rule", ""))
        return _tagged(request, drawn.encode(), "image/svg+xml")

    return handle


def _following(shown: Shown) -> Callable[[Request], Any]:
    async def handle(_: Request) -> Response:
        if shown.listeners >= _MOST_LISTENERS:
            raise Refusal(429, "too many pages follow this record", headers={"Retry-After": "30"})
        return StreamingResponse(_events(shown), media_type="text/event-stream")

    return handle


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
