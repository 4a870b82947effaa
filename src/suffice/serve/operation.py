"""What surrounds the service in operation: who may ask, health, log, spans, the watch, retention, the end."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from suffice.errors import StorageError, SufficeError, UsageError
from suffice.monitor.following import AlarmLog, Following, WebHook
from suffice.monitor.production import KINDS, Alarm, Production, ProductionSettings
from suffice.policies.unfitted import FixedPolicy
from suffice.serve.guard import Door, check_exposed, read_tokens
from suffice.serve.listen import Listening, open_at_once
from suffice.serve.observers import Metrics, Spans
from suffice.serve.service import Served, Service
from suffice.serve.service_settings import RecordSettings, ServeSettings, WatchSettings
from suffice.trace.durable import in_turn
from suffice.trace.engines import Address, as_place
from suffice.trace.recording import prune
from suffice.trace.store import Store, store_at, store_place

_LOG = logging.getLogger("suffice.serve")
_PROBE_S = 2.0
_CHECK_EVERY_S = 5.0
_CLOCK_MAY_DIFFER_S = 60.0
_PRUNE_EVERY_S = 600.0
_LOOK_EVERY_S = 2.0


def check(settings: ServeSettings) -> Door:
    """Refuse what cannot be operated, before a model is loaded for it; say who may come in and how."""
    guarded, record, watch = settings.security, settings.record, settings.watch
    tokens = {} if guarded.tokens is None else read_tokens(Path(guarded.tokens))
    check_exposed(settings.host, tokens, allow_unauthenticated=guarded.allow_unauthenticated)
    if record.folder is not None and (why := _refusal(store_place(record.folder))) is not None:
        raise StorageError(
            f"nothing can be recorded in {record.folder}: {why}; make room, let this user write there or "
            "name another place: --record DIR"
        )
    if watch.seconds < 0:
        raise UsageError(
            f"seconds of [watch] must be 0, which is never, or above, found {watch.seconds}"
        )
    if watch.webhook is not None and (record.folder is None or not watch.seconds):
        raise UsageError(
            "alarms are posted to webhook where a record is watched: set folder under [record], and seconds "
            "under [watch] above 0"
        )
    Production(FixedPolicy(1), _how(watch))  # refuses what is out of range
    return Door(
        settings=replace(guarded, connections=open_at_once(guarded.connections)),
        tokens=tokens,
        request_s=settings.limits.seconds + guarded.body_seconds,
        body_bytes=settings.limits.body_bytes,
    )


class Operation:
    """All of it for one service, by settings that were checked."""

    def __init__(self, settings: ServeSettings, service: Service, door: Door) -> None:
        self.settings = settings
        self.door = door
        self.metrics = Metrics(service)
        self._service = service
        self._ends = threading.Event()
        self._reloading = threading.Lock()
        self._refused = ""  # why tokens were not taken up when they were last read
        self._held = ExitStack()
        service.observers = (self.metrics,)
        own = settings.operation
        if own.log is not None:
            self._log_requests(own.log)
        if own.otel:
            spans = Spans(texts=own.otel_texts)
            self._held.callback(spans.close)
            service.observers += (spans,)
        folder = settings.record.folder
        self._place = None if folder is None else store_place(folder)
        self._checked: tuple[float, dict[str, str]] = (-1e9, {})

    def _log_requests(self, log: str) -> None:
        """Have uvicorn write a line for each request."""
        try:
            handler = logging.StreamHandler() if log == "-" else logging.FileHandler(log)
        except OSError as error:
            raise UsageError(f"the access log {log} cannot be written: {error}") from error
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logger = logging.getLogger("uvicorn.access")
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(handler)
        self._held.callback(handler.close)
        self._held.callback(logger.removeHandler, handler)

    # --- health --------------------------------------------------------------------------------------
    @property
    def routers(self) -> list[APIRouter]:
        """Health and metrics."""
        router = APIRouter(tags=["operation"])

        # balancers ask by HEAD, too
        @router.head("/health", include_in_schema=False)
        @router.head("/health/live", include_in_schema=False)
        @router.get("/health")
        @router.get("/health/live")
        async def live() -> dict[str, str]:
            """Whether it answers at all."""
            return {"status": "live"}

        @router.head("/health/ready", include_in_schema=False)
        @router.get("/health/ready", responses={503: {"description": "not ready, and why"}})
        async def ready() -> Response:
            """Whether a question would be taken and answered, and why not."""
            if self._ends.is_set() or not self._service.ready:
                return JSONResponse({"status": "ending"}, 503, headers={"Retry-After": "5"})
            problems = await self._problems()
            if self._service.failing:
                problems = {**problems, "record": "what was recorded last could not be written"}
            if problems:
                return JSONResponse({"status": "not ready", "problems": problems}, 503)
            return JSONResponse({"status": "ready"})

        return [router, self.metrics.router]

    async def _problems(self) -> dict[str, str]:
        """By what is not ready; looked for every few seconds."""
        checked, problems = self._checked
        if time.monotonic() - checked < _CHECK_EVERY_S:
            return problems
        problems = {}
        if self._place is not None and (why := await asyncio.to_thread(_refusal, self._place)):
            problems["record"] = f"the record cannot be written: {why}"
        if not await _reached(self.settings.model.llm):
            problems["model"] = "no server of the model can be reached"
        self._checked = (time.monotonic(), problems)
        return problems

    # --- how it is run -------------------------------------------------------------------------------
    def listening(self, started: Callable[[str], None]) -> Listening:
        """Where and how."""
        own = self.settings.operation
        return Listening(
            host=self.settings.host,
            port=self.settings.port,
            connections=self.door.settings.connections,
            head_s=self.settings.security.head_seconds,
            notice_s=own.notice_seconds,
            end_s=own.end_seconds,
            access_log=own.log is not None,
            started=started,
            ending=self._ends.set,
            reload=self.reload,
        )

    def reload(self) -> None:
        """Read policies and tokens that changed; what is broken stays as it was."""
        with self._reloading:
            changed, refused = self._service.reload()
            self.metrics.reloaded(taken=len(changed), refused=len(refused))
            for name in changed:
                _LOG.warning("policy %s is taken up anew", name)
            for name, why in refused.items():
                _LOG.error("policy %s stays as it was: %s", name, why)
            refusal = self._read_tokens()
            if refusal and refusal != self._refused:
                _LOG.error("tokens stay as they were: %s", refusal)
            self._refused = refusal

    def _read_tokens(self) -> str:
        """Take up tokens that were made or taken out; why not: a broken file and one of none open nothing."""
        if self.settings.security.tokens is None:
            return ""
        try:
            tokens = read_tokens(Path(self.settings.security.tokens))
        except SufficeError as error:
            return str(error)
        if self.door.tokens and not tokens:
            return "the file holds none"
        if tokens != self.door.tokens:
            self.door.tokens = tokens
            _LOG.warning("tokens are taken up anew: %s", ", ".join(tokens))
        return ""

    # --- while it runs -------------------------------------------------------------------------------
    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What goes on beside the requests; at the end what is logged and traced is written."""
        works = [self._repeated("files are not read again", self.reload, _LOOK_EVERY_S)]
        record, watch = self.settings.record, self.settings.watch
        if record.folder is not None and (record.keep_days, record.keep_gigabytes) != (None, None):
            pruner = _pruner(record.folder, record)
            works.append(self._repeated("old questions are not removed", pruner, _PRUNE_EVERY_S))
        if record.folder is not None and watch.seconds:
            watching = _Watching(as_place(record.folder), watch, self.metrics, self._service)
            look = watching.look
            works.append(self._repeated("not all policies are watched", look, watch.seconds))
        beside = [asyncio.create_task(work) for work in works]
        try:
            yield
        finally:
            self._ends.set()
            for task in beside:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await asyncio.to_thread(self._held.close)

    async def _repeated(self, without: str, work: Callable[[], None], every_s: float) -> None:
        """What is done in a thread again and again; a failure is logged once and tried again."""
        failed = ""
        while True:
            try:
                await asyncio.to_thread(work)
                failed = ""
            except Exception as error:  # noqa: BLE001
                said = f"{without}: {type(error).__name__}: {error}"
                if said != failed and not self._ends.is_set():
                    _LOG.error("%s", said)
                failed = said
            await asyncio.sleep(every_s)


def _how(watch: WatchSettings, max_rounds: int | None = None) -> ProductionSettings:
    """How a policy is watched."""
    return ProductionSettings(
        level=watch.level,
        seed=watch.seed,
        first=watch.first,
        metric=watch.metric,
        max_loss=watch.max_loss,
        max_rounds=max_rounds,
    )


def _pruner(folder: str, record: RecordSettings) -> Callable[[], None]:
    began = time.time() - time.monotonic()

    def work() -> None:
        now = time.time()
        moved = now - time.monotonic() - began
        if abs(moved) > _CLOCK_MAY_DIFFER_S:  # a jump would make questions old
            raise StorageError("the clock was set: nothing is removed until it is right again")
        if store_at(folder) is not None:
            done = prune(folder, days=record.keep_days, gigabytes=record.keep_gigabytes, now=now)
            if done.questions:
                said = "%d questions of the record are removed, %d bytes"
                _LOG.warning(said, done.questions, done.bytes)

    return work


class _Watching:
    """The policies in force, watched over the record; who shares its folder tells an alarm once."""

    def __init__(
        self, folder: Path, settings: WatchSettings, metrics: Metrics, service: Service
    ) -> None:
        self._folder, self._settings = folder, settings
        self._metrics, self._service = metrics, service
        # machines share a server, but no file: each tells for itself
        self._home = None if isinstance(folder, Address) else store_place(folder).parent
        hook = None if settings.webhook is None else WebHook(settings.webhook)
        told = None if self._home is None else self._home / ".alarms.jsonl"
        self._log = AlarmLog(told, hook)
        self._logged: set[str] = set()
        self._shown: dict[str, str] = {}  # the hash by name
        self._held: dict[str, Following] = {}

    def look(self) -> None:
        """Take in what is new of every policy in force; gauges of one that is new begin at 0."""
        policies = self._service.policies
        names: dict[str, list[str]] = {}
        for name, served in policies.items():
            names.setdefault(served.hash or name, []).append(name)
        before, self._held = self._held, {}
        failed: list[Exception] = []
        for key, own in names.items():
            self._show([n for n in own if self._shown.get(n) != key], dict.fromkeys(KINDS, 0.0))
            self._shown |= dict.fromkeys(own, key)
            try:
                following = before.get(key) or self._begun(policies[own[0]])
                following.look()
                self._held[key] = following  # what fails in between is read anew
                self._show(own, following.production.gauges())
                self._tell(own, following.production.alarms)
            except Exception as error:  # noqa: BLE001
                failed.append(error)
        if failed:
            raise failed[0]

    def _show(self, names: Sequence[str], gauges: Mapping[str, float]) -> None:
        for kind, gauge in gauges.items():
            for name in names:
                self._metrics.alarm(name, kind, raised=gauge > 0)

    def _begun(self, served: Served) -> Following:
        settings = _how(self._settings, served.max_rounds)
        return Following(self._folder, Production(served.file.policy, settings))

    def _tell(self, names: Sequence[str], alarms: Sequence[Alarm]) -> None:
        if not alarms:
            return
        with nullcontext() if self._home is None else in_turn(self._home, "alarms"):
            for alarm in self._log.untold(alarms):
                if alarm.id not in self._logged:
                    said = "policy %s: %s alarm: %s"
                    _LOG.error(said, ", ".join(names), alarm.kind, alarm.text)
                self._logged.add(alarm.id)
                self._log.tell(alarm)


def _refusal(place: Path) -> str | None:
    """Why nothing can be recorded there; ``None``: a file can be made in its folder, or its server writes."""
    if isinstance(place, Address):
        store = Store(place)
        store.wait_s = _PROBE_S
        try:
            with store.transaction():
                return None
        except SufficeError as error:
            return str(error)
    probe = place.parent / f".ready-{os.getpid()}"
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"suffice")
        probe.unlink()
    except OSError as error:
        with suppress(OSError):
            probe.unlink(missing_ok=True)
        return error.strerror or str(error)
    return None


async def _reached(llm: str) -> bool:
    """Whether a connection to one of the model's servers can be made; a model in this process is there."""
    servers = [urlsplit(url.strip()) for url in llm.split(",") if "://" in url]
    for server in servers:
        port = server.port or (443 if server.scheme == "https" else 80)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_PROBE_S):
                _, writer = await asyncio.open_connection(server.hostname, port)
            writer.close()
            return True
    return not servers
