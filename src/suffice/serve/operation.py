"""What surrounds the service in operation: who may ask, health, log, spans, the watch, retention, the end."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from suffice.errors import BackendError, StorageError, SufficeError, UsageError
from suffice.monitor.aspects import Alarm
from suffice.monitor.following import Folder, Following
from suffice.monitor.hook import WebHook
from suffice.monitor.production import KINDS, Production, ProductionSettings
from suffice.policies.file import file_of, names_policy_file
from suffice.policies.fixed import FixedPolicy
from suffice.serve.events import Event, QuestionBegun, RoundEnded
from suffice.serve.guard import Door, check_exposed, read_tokens
from suffice.serve.listen import Hooks, Listening, Stamp, open_at_once, stamp_of
from suffice.serve.observers import Metrics, Spans
from suffice.serve.service import Served, Service
from suffice.serve.settings import ServeSettings, WatchSettings
from suffice.trace.durable import in_turn
from suffice.trace.postgres import Address, as_place
from suffice.trace.recording import prune
from suffice.trace.store import Store, store_at, store_place

_LOG = logging.getLogger("suffice.serve")
_LATELY_S = 60.0
_PROBE_S = 2.0
_CHECK_EVERY_S = 5.0
_PRUNE_EVERY_S = 600.0
_CLOCK_MAY_DIFFER_S = 60.0


def check(settings: ServeSettings) -> Door:
    """Refuse what cannot be operated, before a model is loaded for it; say who may come in and how."""
    guarded, record, watch = settings.security, settings.record, settings.watch
    tokens = {} if guarded.tokens is None else read_tokens(Path(guarded.tokens))
    check_exposed(settings.host, tokens, allow_unauthenticated=guarded.allow_unauthenticated)
    home = None if record.folder is None else store_place(record.folder)
    if home is not None and (why := _refusal(home)) is not None:
        raise StorageError(
            f"nothing can be recorded in {record.folder}: {why}; make room, let this user write there or "
            "name another place: --record DIR"
        )
    if watch.seconds < 0:
        raise UsageError(
            f"seconds of [watch] must be 0, which is never, or above, found {watch.seconds}"
        )
    if watch.webhook is not None and (home is None or not watch.seconds):
        raise UsageError(
            "alarms are posted to webhook where a record is watched: set folder under [record], and seconds "
            "under [watch] above 0"
        )
    # refuses what is out of range
    Production(FixedPolicy(1), ProductionSettings(**watch.production))
    return Door(
        tokens=tokens,
        hosts=guarded.hosts,
        origins=tuple(origin.lower().rstrip("/") for origin in guarded.origins),
        requests_per_minute=guarded.requests_per_minute,
        burst=guarded.burst,
        body_s=guarded.body_seconds,
        send_s=guarded.send_seconds,
        request_s=settings.limits.seconds + guarded.body_seconds,
        requests=open_at_once(guarded.connections),
    )


@dataclass(slots=True)
class _Lately:
    """Whether the model here answers: when it last did, and whether the last question failed."""

    answered: float = -1e9
    failed: bool = False

    def on(self, event: Event) -> None:
        """Take it in; loops of others ask models of their own."""
        if isinstance(event, QuestionBegun) or event.endpoint in ("decisions", "loops"):
            return
        if isinstance(event, RoundEnded):
            self.answered, self.failed = time.monotonic(), False
        elif event.error:
            self.failed = True


class Operation:
    """All of it for one service, by settings that were checked."""

    def __init__(self, settings: ServeSettings, service: Service, door: Door) -> None:
        self.settings = settings
        self.door = door
        self.metrics = Metrics(service)
        self._service = service
        self._ends = False
        self._held = ExitStack()
        self._lately = _Lately()
        service.observers = (self._lately, self.metrics)
        own, record = settings.operation, settings.record
        if own.log is not None:
            self._log_requests(own.log)
        if own.otel:
            spans = Spans(texts=own.otel_texts)
            self._held.callback(spans.close)
            service.observers += (spans,)
        self._home = None if record.folder is None else store_place(record.folder)
        self._checked: tuple[float, dict[str, str]] = (-1e9, {})
        self._watching: _Watching | None = None
        if record.folder is not None and settings.watch.seconds:
            self._watching = _Watching(as_place(record.folder), settings.watch, self.metrics)

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
            return await self._ready()

        return [router, self.metrics.router]

    async def _ready(self) -> Response:
        if self._ends or not self._service.ready:
            return JSONResponse({"status": "ending"}, 503, headers={"Retry-After": "5"})
        problems = await self._problems()
        if self._service.failing:
            problems = {**problems, "record": "what was recorded last could not be written"}
        if problems:
            return JSONResponse({"status": "not ready", "problems": problems}, 503)
        return JSONResponse({"status": "ready"})

    async def _problems(self) -> dict[str, str]:
        """By what is not ready; looked for every few seconds."""
        checked, problems = self._checked
        if time.monotonic() - checked < _CHECK_EVERY_S:
            return problems
        problems = {}
        if self._home is not None and (why := await asyncio.to_thread(_refusal, self._home)):
            problems["record"] = f"the record cannot be written: {why}"
        late = time.monotonic() - self._lately.answered > _LATELY_S
        if (late or self._lately.failed) and not await _reached(self.settings.model.llm):
            problems["model"] = "no server of the model can be reached"
        self._checked = (time.monotonic(), problems)
        return problems

    # --- how it is run -------------------------------------------------------------------------------
    @property
    def listening(self) -> Listening:
        """Where and how."""
        own = self.settings.operation
        return Listening(
            host=self.settings.host,
            port=self.settings.port,
            connections=self.door.requests,
            head_s=self.settings.security.head_seconds,
            notice_s=own.notice_seconds,
            end_s=own.end_seconds,
            access_log=own.log is not None,
        )

    def hooks(self, started: Callable[[str], None]) -> Hooks:
        """What is done on the way."""
        named = self.settings.policies.values()
        files = [file_of(name) for name in named if names_policy_file(name)]
        if self.settings.security.tokens is not None:
            files.append(Path(self.settings.security.tokens))
        return Hooks(
            started=started, ending=self._ending, reload=self._reload, watched=lambda: files
        )

    def _ending(self) -> None:
        self._ends = True

    def _reload(self) -> None:
        self._read_tokens_again()
        changed, refused = self._service.reload()
        self.metrics.reloaded(taken=len(changed), refused=len(refused))
        for name in changed:
            _LOG.warning("policy %s is taken up anew", name)
        for name, why in refused.items():
            _LOG.error("policy %s stays as it was: %s", name, why)

    def _read_tokens_again(self) -> None:
        """Those that were made or taken out hold at once; a file of none, or a broken one, opens nothing."""
        if self.settings.security.tokens is None:
            return
        try:
            tokens = read_tokens(Path(self.settings.security.tokens))
        except SufficeError as error:
            _LOG.error("tokens stay as they were: %s", error)
            return
        if self.door.tokens and not tokens:
            _LOG.error("tokens stay as they were: the file holds none")
        elif tokens != self.door.tokens:
            self.door.tokens = tokens
            _LOG.warning("tokens are taken up anew: %s", ", ".join(tokens))

    # --- while it runs -------------------------------------------------------------------------------
    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """What goes on beside the requests; at the end what is logged and traced is written."""
        beside = [
            asyncio.create_task(going_on())
            for going_on in (self._prune_for_ever, self._watch_for_ever)
        ]
        try:
            yield
        finally:
            if self._watching is not None:
                self._watching.ends.set()
            for task in beside:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await asyncio.to_thread(self._held.close)

    async def _prune_for_ever(self) -> None:
        record = self.settings.record
        place, days, most = record.folder, record.keep_days, record.keep_gigabytes
        if place is None or (days is None and most is None):
            return
        began, warned = time.time() - time.monotonic(), False
        while True:
            now = time.time()
            moved = now - time.monotonic() - began
            if abs(moved) > _CLOCK_MAY_DIFFER_S:  # a jump would make questions old
                if not warned:
                    said = "the clock was set by %+.0f s: nothing is pruned until it is right"
                    _LOG.error(said, moved)
                warned = True
            elif store_at(place) is not None:
                warned = False
                try:
                    done = await asyncio.to_thread(prune, place, days=days, gigabytes=most, now=now)
                    if done.questions:
                        said = "%d questions of the record are removed, %d bytes"
                        _LOG.warning(said, done.questions, done.bytes)
                except Exception:  # noqa: BLE001
                    _LOG.exception("old questions of the record could not be removed")
            await asyncio.sleep(_PRUNE_EVERY_S)

    async def _watch_for_ever(self) -> None:
        while self._watching is not None:
            for names, served in self._watching.in_force(self._service.policies):
                await asyncio.to_thread(self._watching.look_at, names, served)
            await asyncio.sleep(self.settings.watch.seconds)


class _Watching:
    """The policies in force, watched over the record, where it stands in the folder: alarms are told once."""

    def __init__(self, folder: Path, settings: WatchSettings, metrics: Metrics) -> None:
        self.ends = threading.Event()
        """Set where the service ends: no further try to post."""
        self._folder = folder
        # machines share a server, not where a look at it ended: each watches for itself, from its start on
        self._home = None if isinstance(folder, Address) else store_place(folder).parent
        self._metrics = metrics
        webhook, self._how = settings.webhook, settings.production
        self._hook = None if webhook is None else WebHook(webhook, pause=self._pause)
        # a state goes on under the settings that it was begun with
        tag = sha256(json.dumps(self._how).encode()).hexdigest()[:8]
        self._tag = "" if self._how == WatchSettings().production else f"-{tag}"
        self._shown: dict[str, str] = {}  # the hash by name
        self._held: dict[str, tuple[Following, Stamp | None]] = {}
        self._failed: dict[str, str] = {}
        self._logged: set[str] = set()
        self._posted: set[str] = set()

    def _pause(self, seconds: float) -> None:
        if self.ends.wait(seconds):
            raise BackendError("an alarm was not posted before the service ended")

    def in_force(self, policies: Mapping[str, Served]) -> list[tuple[list[str], Served]]:
        """The policies, each once with its names; gauges of one that is new begin at 0."""
        names: dict[str, list[str]] = {}
        for name, served in policies.items():
            key = served.hash or name
            names.setdefault(key, []).append(name)
            if self._shown.get(name) != key:
                self._shown[name] = key
                for kind in KINDS:
                    self._metrics.alarm(name, kind, raised=False)
        for gone in self._held.keys() - names.keys():
            del self._held[gone]
        return [(own, policies[own[0]]) for own in names.values()]

    def look_at(self, names: Sequence[str], served: Served) -> None:
        """Take in what is new; what fails is logged once."""
        key = served.hash or names[0]
        try:
            name = f"watch-{key}{self._tag}"
            with nullcontext() if self._home is None else in_turn(self._home, name):
                self._look(key, names, served)
        except Exception as error:  # noqa: BLE001
            said = f"{type(error).__name__}: {error}"
            if self._failed.get(key) != said and not self.ends.is_set():
                _LOG.error("policy %s is not watched as it should be: %s", ", ".join(names), said)
            self._failed[key] = said
        else:
            self._failed.pop(key, None)

    def _look(self, key: str, names: Sequence[str], served: Served) -> None:
        file = None if self._home is None else self._home / f".watch-{key}{self._tag}.json"
        following, stamp = self._held.pop(key, (None, None))
        if following is None or stamp != _stamp(file):  # another service looked meanwhile
            settings = ProductionSettings(max_rounds=served.max_rounds, **self._how)
            production = Production(served.file.policy, settings)
            following = Following(Folder(self._folder, production.reading), production, file=file)
            following.go_on()
        following.look()
        for kind, gauge in following.production.gauges().items():
            for name in names:
                self._metrics.alarm(name, kind, raised=gauge > 0)
        for alarm in following.untold:
            self._tell(alarm, ", ".join(names))
            following.told()
        self._held[key] = (following, _stamp(file))

    def _tell(self, alarm: Alarm, names: str) -> None:
        if alarm.id not in self._logged:
            _LOG.error("policy %s: %s alarm: %s", names, alarm.kind, alarm.text)
        self._logged.add(alarm.id)
        if self._hook is not None and alarm.id not in self._posted:
            self._hook.send(alarm)
            self._posted.add(alarm.id)


def _stamp(file: Path | None) -> tuple[int, ...] | None:
    return None if file is None else stamp_of(file)


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
    folder = place.parent
    probe = folder / f".ready-{os.getpid()}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
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
    if not servers:
        return True
    for server in servers:
        port = server.port or (443 if server.scheme == "https" else 80)
        try:
            async with asyncio.timeout(_PROBE_S):
                _, writer = await asyncio.open_connection(server.hostname, port)
            writer.close()
        except (OSError, TimeoutError):
            continue
        return True
    return False
