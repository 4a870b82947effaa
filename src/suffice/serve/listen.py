"""The server process: it runs until a signal, and loses no finished question."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import socket
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from suffice.errors import UsageError, struck
from suffice.serve.guard import Refusal, full

_LOG = logging.getLogger("suffice.serve")
_MOST_HEAD_BYTES = 32 << 10
_KEEP_ALIVE_S = 15
_BACKLOG = 1024
_ACCEPTED = 64  # connections taken in at once, before one of them can be closed
_FURTHER = 32  # connections beyond the limit, which are told so; health is answered on them
_OTHER_FILES = 256  # that may be open: of models, the record, logs, and what is accepted
_FEWEST = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Listening:
    """Address, limits and callbacks of a server process."""

    host: str = "127.0.0.1"
    port: int = 8642
    connections: int = 1024
    head_s: float = 10.0
    end_s: float = 30.0
    access_log: bool = False
    started: Callable[[str], None] = lambda _: None
    ending: Callable[[], None] = lambda: None
    over: Callable[[], None] = lambda: None  # called after ``end_s``, in the event loop


def open_at_once(wanted: int) -> int:
    """Raise the limit of open files if needed, and return how many connections it allows."""
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = wanted + _FURTHER + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < enough:
        soft = enough if hard == resource.RLIM_INFINITY else min(enough, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        enough = soft
    allowed = min(wanted, enough - _FURTHER - _OTHER_FILES)
    if allowed < min(wanted, _FEWEST):
        raise UsageError(
            f"{soft:,} files may be open here (ulimit -n); {_FEWEST + _FURTHER + _OTHER_FILES} are needed at "
            "least: type ulimit -n 4096, or LimitNOFILE=4096 in a unit of systemd"
        )
    if allowed < wanted:
        said = "%d connections are served at once, not %d: few files may be open (ulimit -n)"
        _LOG.warning(said, allowed, wanted)
    return allowed


def _without_query(record: logging.LogRecord) -> bool:
    """Log no query: clients put texts and keys there."""
    if isinstance(record.args, tuple):  # address, method, path, version and status
        who, method, path, *rest = record.args
        record.args = (who, method, struck(str(path).partition("?")[0]), *rest)
    return True


def run(app: ASGIApp, listening: Listening) -> None:
    """Take requests until SIGTERM or SIGINT; a second signal also cuts requests in progress."""
    own = {"head_s": listening.head_s, "most": listening.connections + _FURTHER, "waiting": {}}
    logger = logging.getLogger("uvicorn.access")
    logger.addFilter(_without_query)
    if listening.access_log:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        logger.setLevel(logging.INFO)
        logger.propagate = False
        logger.addHandler(handler)
    config = uvicorn.Config(
        app,
        http=type("_Timed", (_Protocol,), own),
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=listening.access_log,
        proxy_headers=False,
        server_header=False,
        backlog=_ACCEPTED,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=math.ceil(listening.end_s + 3.0),  # to reply that it ends
        h11_max_incomplete_event_size=_MOST_HEAD_BYTES,
    )
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    # asyncio sends small pieces at once only on sockets that say they are TCP's
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((listening.host, listening.port))
        except (OSError, OverflowError) as error:
            raise UsageError(
                f"port {listening.port} of {listening.host} cannot be listened on ({error}); choose another "
                "with --port N, 0 takes any that is free"
            ) from error
        _Server(config, listening).run(sockets=[listener])


class _Protocol(H11Protocol):
    head_s: float
    most: int
    waiting: dict[_Protocol, asyncio.TimerHandle | None]  # the longest first

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait_for_head()
        if len(self.connections) > self.most:
            longest = next(iter(self.waiting))
            longest._let_go(full(f"{self.most:,} connections are open, which is the limit"))  # noqa: SLF001

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._wait_for_head()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if str(self.conn.their_state) == "IDLE" and not self.transport.is_closing():
            self.waiting.setdefault(self)  # for its next request, by uvicorn's clock

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def _wait_for_head(self) -> None:
        if str(self.conn.their_state) != "IDLE":
            self._wait_no_more()
        elif self.waiting.get(self) is None:
            late = Refusal(408, f"the head of the request took more than {self.head_s:g} s")
            self.waiting[self] = self.loop.call_later(self.head_s, self._let_go, late)

    def _wait_no_more(self) -> None:
        timer = self.waiting.pop(self, None)
        if timer is not None:
            timer.cancel()

    def _let_go(self, why: Refusal) -> None:
        self._wait_no_more()
        if self.transport.is_closing():
            return
        if self.cycle is None:  # else its client may take this for the reply to a request under way
            reply = why.reply()
            lines = [b"HTTP/1.1 %d " % why.status]
            lines += [name + b": " + value for name, value in reply.raw_headers]
            self.transport.write(b"\r\n".join([*lines, b"", bytes(reply.body)]))
        self.transport.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, listening: Listening) -> None:
        super().__init__(config)
        self._listening = listening

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End soon, after a second signal at once; do not raise the signal again at the end."""
        del sig, frame
        if self.should_exit:
            self.force_exit = True
            # tracebacks of what is cut
            logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        self.should_exit = True
        self._listening.ending()

    async def shutdown(self, sockets: Any = None) -> None:
        over = asyncio.get_running_loop().call_later(self._listening.end_s, self._listening.over)
        await super().shutdown(sockets)
        over.cancel()

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if not self.started:
            return
        for listener in sockets or ():
            listener.listen(_BACKLOG)  # longer than the number accepted at once
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        gc.collect()
        gc.freeze()  # collections that looked through loaded modules would delay requests
        self._listening.started(f"http://{f'[{host}]' if ':' in host else host}:{port}")
