"""The routes of decisions and loops alone, over policies of a test's own."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from suffice.errors import SufficeError
from suffice.live.watch import Watch
from suffice.policies.file import PolicyFile
from suffice.policies.fixed import FixedPolicy
from suffice.policies.rules.policy import RulePolicy
from suffice.serve.decisions import Decisions, Policies
from suffice.serve.events import Event
from suffice.serve.loops import Loops
from suffice.serve.openapi import documentation
from suffice.serve.settings import LimitSettings, LoopSettings
from suffice.web.replies import Refusal, refusal_of

POLICIES: Mapping[str, PolicyFile] = {
    "stable": PolicyFile(RulePolicy(rule="answer_stable"), 5),
    "two": PolicyFile(FixedPolicy(2), None),
}


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def loop_app(
    record: Path | None = None,
    *,
    policies: Callable[[], Mapping[str, PolicyFile]] = lambda: POLICIES,
    limits: LoopSettings | None = None,
    taken: LimitSettings | None = None,
    clock: Callable[[], float] | None = None,
    tell: Callable[[Event], None] | None = None,
    **watch: Any,
) -> tuple[Starlette, Loops]:
    """An app, and its loops; ``watch`` goes to every watch, live by default."""
    named = Policies(policies)
    settings = {"mode": "live", "record": record, **watch}
    loops = Loops(
        named,
        lambda file: Watch(file, **settings),
        limits=limits,
        taken=taken,
        tell=tell,
        clock=clock or time.monotonic,
    )
    routes = [*Decisions(named, tell=tell).routes(), *loops.routes()]
    app = Starlette(
        routes=[*routes, *documentation(lambda: app.routes)],
        exception_handlers={Refusal: _refused, SufficeError: _refused},
        lifespan=lambda _: loops.running(),
    )
    return app, loops


async def _refused(_: Request, error: Exception) -> Response:
    if isinstance(error, SufficeError):
        return refusal_of(error).reply()
    assert isinstance(error, Refusal)
    return error.reply()


@contextmanager
def listening(record: Path | None = None) -> Iterator[int]:
    """A port at which the routes of loops are served in this process."""
    server = uvicorn.Server(uvicorn.Config(loop_app(record)[0], port=0, log_level="warning"))
    opened = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [opened]})
    thread.start()
    try:
        while not server.started:
            time.sleep(0.005)
        yield opened.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(20)
        opened.close()
