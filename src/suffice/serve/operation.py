"""The service in operation: access, health, metrics, spans and the watch."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from suffice.errors import StorageError, SufficeError, UsageError
from suffice.measures.scores import refuse_code
from suffice.monitor.following import AlarmLog, Following, WebHook
from suffice.monitor.production import KINDS, Alarm, Production, ProductionSettings
from suffice.policies.unfitted import FixedPolicy
from suffice.serve.guard import Door, check_exposed, read_tokens
from suffice.serve.listen import Listening, open_at_once
from suffice.serve.observers import Metrics, SpanSender
from suffice.serve.service import Served, Service
from suffice.serve.service_settings import ServeSettings, WatchSettings
from suffice.trace.durable import in_turn
from suffice.trace.engines import Address, as_place
from suffice.trace.store import Store, store_place

_LOG = logging.getLogger("suffice.serve")
_BODY_S = 20.0  # for the body of a request, beside its answer
_PROBE_S = 2.0
_CHECK_EVERY_S = 5.0


def check(settings: ServeSettings) -> Door:
    """Refuse settings that cannot work before a model is loaded; return the guard's settings."""
    guarded, record, watch = settings.security, settings.record, settings.watch
    tokens = {} if guarded.tokens is None else read_tokens(Path(guarded.tokens))
    check_exposed(settings.host, tokens, allow_unauthenticated=guarded.allow_unauthenticated)
    if record.folder is not None and (why := _refusal(store_place(record.folder))) is not None:
        raise StorageError(
            f"nothing can be recorded in {record.folder}: {why}; make room, let this user write there or "
            "name another place: --record DIR"
        )
    unwatched = record.folder is None or not watch.seconds
    if watch.seconds < 0 or (watch.webhook is not None and unwatched):
        raise UsageError(
            "seconds under [watch] is 0, which is never, or above; a webhook needs seconds above 0, and "
            "folder under [record]"
        )
    Production(FixedPolicy(1), _production_settings(watch))  # refuses what is out of range
    return Door(
        settings=replace(guarded, connections=open_at_once(guarded.connections)),
        tokens=tokens,
        request_s=settings.limits.seconds + _BODY_S,
        body_bytes=settings.limits.body_bytes,
    )


class Operation:
    """Health, metrics, spans and watch of one service."""

    def __init__(self, settings: ServeSettings, service: Service, door: Door) -> None:
        self.settings = settings
        self.door = door
        self.metrics: Metrics = Metrics(service)
        self._service = service
        self._ends = threading.Event()
        service.observers = (self.metrics,)
        self._spans: SpanSender | None = None
        if settings.operation.otel:
            self._spans = SpanSender(texts=settings.operation.otel_texts)
            service.observers += (self._spans,)
        folder = settings.record.folder
        self._place = None if folder is None else store_place(folder)
        self._checked: tuple[float, dict[str, str]] = (-1e9, {})

    # --- health --------------------------------------------------------------------------------------
    @property
    def routers(self) -> list[APIRouter]:
        router = APIRouter(tags=["operation"])

        @router.get("/", include_in_schema=False)
        @router.get("/docs", include_in_schema=False)
        async def front() -> dict[str, str]:
            return {"service": "suffice", "routes": "/openapi.json", "health": "/health/ready"}

        # balancers ask by HEAD, too
        @router.head("/health", include_in_schema=False)
        @router.head("/health/live", include_in_schema=False)
        @router.get("/health")
        @router.get("/health/live")
        async def live() -> dict[str, str]:
            """Answer while the process lives."""
            return {"status": "live"}

        @router.head("/health/ready", include_in_schema=False)
        @router.get("/health/ready", responses={503: {"description": "not ready, and why"}})
        async def ready() -> Response:
            """Say whether a question would be answered, and why not."""
            if self._ends.is_set() or not self._service.ready:
                return JSONResponse({"status": "ending"}, 503, headers={"Retry-After": "5"})
            problems = await self._problems()
            if self._service.failing:
                problems = {**problems, "record": "the last write to the record failed"}
            if problems:
                return JSONResponse({"status": "not ready", "problems": problems}, 503)
            return JSONResponse({"status": "ready"})

        return [router, self.metrics.router]

    async def _problems(self) -> dict[str, str]:
        checked, problems = self._checked
        if time.monotonic() - checked < _CHECK_EVERY_S:
            return problems
        problems = {}
        if self._place is not None and (why := await asyncio.to_thread(_refusal, self._place)):
            _LOG.error("the record cannot be written: %s", why)
            problems["record"] = "the record cannot be written; the log says why"
        if not await _reached(self.settings.model.llm):
            problems["model"] = "no server of the model can be reached"
        self._checked = (time.monotonic(), problems)
        return problems

    def listening(self, started: Callable[[str], None]) -> Listening:
        own = self.settings.operation
        return Listening(
            host=self.settings.host,
            port=self.settings.port,
            connections=self.door.settings.connections,
            head_s=self.settings.security.head_seconds,
            end_s=own.end_seconds,
            access_log=own.log,
            started=started,
            ending=self._ends.set,
            over=self._service.refuse_all,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Watch policies beside the requests; send the spans at the end."""
        folder, watch = self.settings.record.folder, self.settings.watch
        watching: asyncio.Task[None] | None = None
        if folder is not None and watch.seconds:
            policies = _Watching(as_place(folder), watch, self.metrics, self._service)
            watching = asyncio.create_task(policies.run())
        try:
            yield
        finally:
            self._ends.set()
            if watching is not None:
                watching.cancel()
                with suppress(asyncio.CancelledError):
                    await watching
            if self._spans is not None:
                await asyncio.to_thread(self._spans.close)


def _production_settings(watch: WatchSettings, max_rounds: int | None = None) -> ProductionSettings:
    refuse_code(watch.metric, "[watch]")
    return ProductionSettings(
        level=watch.level,
        first=watch.first,
        metric=watch.metric,
        max_loss=watch.max_loss,
        max_rounds=max_rounds,
    )


class _Watching:
    def __init__(
        self, folder: Path, settings: WatchSettings, metrics: Metrics, service: Service
    ) -> None:
        self._folder, self._settings = folder, settings
        self._metrics, self._policies = metrics, service.policies
        # machines share a database but no file: each tells its alarms
        self._home = None if isinstance(folder, Address) else store_place(folder).parent
        hook = None if settings.webhook is None else WebHook(settings.webhook)
        told = None if self._home is None else self._home / ".alarms.jsonl"
        self._log = AlarmLog(told, hook)
        self._logged: set[str] = set()
        self._problem = ""
        self._followed: dict[str, Following] = {}
        for name in self._policies:
            metrics.alarms(name, dict.fromkeys(KINDS, 0.0))

    async def run(self) -> None:
        while True:
            await asyncio.to_thread(self._look)
            await asyncio.sleep(self._settings.seconds)

    def _look(self) -> None:
        problem = ""
        for name, served in self._policies.items():
            try:
                following = self._followed.pop(name, None) or self._following(served)
                following.look()
                self._followed[name] = following  # after a failure the record is read anew
                self._metrics.alarms(name, following.production.gauges())
                self._tell(name, following.production.alarms)
            except Exception as error:  # noqa: BLE001
                problem = problem or f"{type(error).__name__}: {error}"
        if problem not in ("", self._problem):
            _LOG.error("not all policies are watched: %s", problem)
        self._problem = problem

    def _following(self, served: Served) -> Following:
        settings = _production_settings(self._settings, served.max_rounds)
        return Following(self._folder, Production(served.file.policy, settings))

    def _tell(self, name: str, alarms: Sequence[Alarm]) -> None:
        if not alarms:
            return
        with nullcontext() if self._home is None else in_turn(self._home, "alarms"):
            for alarm in self._log.untold(alarms):
                if alarm.id not in self._logged:
                    _LOG.error("policy %s: %s alarm: %s", name, alarm.kind, alarm.text)
                self._logged.add(alarm.id)
                self._log.tell(alarm)


def _refusal(place: Path) -> str | None:
    """Return why nothing can be recorded there; ``None``: it can."""
    if isinstance(place, Address):
        store = Store(place)
        store.wait_s = _PROBE_S
        try:
            with store.transaction():
                return None
        except SufficeError as error:
            return str(error)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return error.strerror or str(error)
    return None if os.access(place.parent, os.W_OK) else "this user may not write there"


async def _reached(llm: str) -> bool:
    """Return whether one of the model's servers takes a connection; a model in this process does."""
    servers = [urlsplit(url.strip()) for url in llm.split(",") if "://" in url]
    for server in servers:
        port = server.port or (443 if server.scheme == "https" else 80)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_PROBE_S):
                _, writer = await asyncio.open_connection(server.hostname, port)
            writer.close()
            return True
    return not servers
