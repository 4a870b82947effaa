"""An application under signals, real sockets and clients that misbehave."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

APP = """
    import asyncio, sys, time
    from pathlib import Path
    from suffice.serve.guard import Door, Guard
    from suffice.serve.listen import Listening, run
    from suffice.serve.service_settings import SecuritySettings

    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[2]),) * 2)

    async def app(scope, receive, send):
        if scope["type"] == "lifespan":
            while True:
                message = await receive()
                await send({"type": message["type"] + ".complete"})
                if message["type"] == "lifespan.shutdown":
                    (folder / "closed").touch()
                    return
        size, more = 0, True
        while more:
            message = await receive()
            size, more = size + len(message.get("body", b"")), message.get("more_body", False)
        if scope["path"] == "/slow":
            (folder / "under_way").touch()
            await asyncio.sleep(0.5)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": f"{scope['path']} {size}".encode()})

    listening = Listening(port=0, head_s=float(sys.argv[3]) if len(sys.argv) > 3 else 0.3,
        end_s=2, connections=50, started=lambda url: print(url, flush=True))
    door = Door(settings=SecuritySettings(connections=50), request_s=0.8)
    run(Guard(app, door), listening)
    print("ended", flush=True)
"""


@dataclass(frozen=True, slots=True)
class Running:
    process: subprocess.Popen[str]
    port: int
    folder: Path

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=1)

    def say(self, *parts: bytes) -> bytes:
        """What comes back until the connection is closed, or nothing comes for some time."""
        with self.connect() as client:
            for part in parts:
                client.sendall(part)
            return _rest(client)

    def line(self) -> str:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], 10)[0]
        return self.process.stdout.readline().strip()


def _rest(client: socket.socket) -> bytes:
    content = b""
    try:
        while piece := client.recv(65536):
            content += piece
    except (ConnectionResetError, TimeoutError):
        pass
    return content


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with started(tmp_path) as made:
        yield made


@contextmanager
def started(tmp_path: Path, *words: str) -> Iterator[Running]:
    """The app; words are how many files it may open, and seconds for the head of a request."""
    with (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(APP), str(tmp_path), *words],
            stdout=subprocess.PIPE,
            stderr=err,
            text=True,
        )
    assert process.stdout is not None
    port = int(process.stdout.readline().strip().rpartition(":")[2])
    yield Running(process, port, tmp_path)
    process.kill()
    process.wait()
    process.stdout.close()


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()


def until(file: Path) -> None:
    end = time.monotonic() + 5
    while not file.exists() and time.monotonic() < end:
        time.sleep(0.01)
    assert file.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_it_ends_after_what_is_under_way(running: Running) -> None:
    with running.connect() as slow:
        slow.sendall(get("/slow"))
        until(running.folder / "under_way")
        running.process.send_signal(signal.SIGTERM)
        assert b"/slow 0" in _rest(slow)
    assert running.line() == "ended"
    assert running.process.wait(5) == 0
    assert (running.folder / "closed").exists()


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ((b"GET /", b" HTTP/1.1\r\nHost: local"), b"HTTP/1.1 408"),  # a head that does not end
        (
            (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n", b"ab"),
            b"HTTP/1.1 408",
        ),
        ((b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",), b"HTTP/1.1 4"),
        (
            (
                b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /b HTTP/1.1\r\n\r\n",
            ),
            b"HTTP/1.1 400",
        ),
    ],
)  # fmt: skip
@pytest.mark.slow
def test_what_is_no_request_is_sent_away(
    running: Running, parts: tuple[bytes, ...], status: bytes
) -> None:
    said = running.say(*parts)
    assert said.startswith(status)
    assert b"/b 0" not in said
    assert b"/well 0" in running.say(get("/well"))


def test_half_open_connections_give_way_to_whole_requests(tmp_path: Path) -> None:
    with started(tmp_path, "400", "30") as running, ExitStack() as held:
        half = [held.enter_context(running.connect()) for _ in range(450)]
        for client in half:
            with suppress(OSError):  # let go already
                client.sendall(b"GET / HTTP/1.1\r\nHost: loc")
        assert b"/health/live 0" in running.say(get("/health/live"))
        assert b"/well 0" in running.say(get("/well"))
        assert len([*Path(f"/proc/{running.process.pid}/fd").iterdir()]) < 150
        first = half[0].recv(4096)
        assert first.startswith(b"HTTP/1.1 503")
        assert b"too_many_connections" in first
    assert len((tmp_path / "err").read_text().splitlines()) < 5


def test_requests_beyond_the_limit_are_told_so_and_health_is_answered(running: Running) -> None:
    with ExitStack() as held:
        for _ in range(50):
            held.enter_context(running.connect()).sendall(get("/slow"))
        assert b"/health/live 0" in running.say(get("/health/live"))
        more = running.say(get("/well"))
        assert more.startswith(b"HTTP/1.1 503")
        assert b"too_many_connections" in more
        assert b"Retry-After" in more.title()


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_connections_stay_below_the_files_that_may_be_open() -> None:
    def said(soft: int, hard: int, wanted: int) -> list[str]:
        code = f"""
            import resource
            from suffice.serve.listen import open_at_once
            resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
            try:
                print(open_at_once({wanted}), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
            except Exception as error:
                print(type(error).__name__, str(error).split()[0])
            """
        done = [sys.executable, "-c", textwrap.dedent(code)]
        return subprocess.run(done, capture_output=True, text=True, check=True).stdout.split()

    allowed, files = map(int, said(256, 4096, 1024))  # raised as far as is needed
    assert (allowed, files > 1024) == (1024, True)
    allowed, files = map(int, said(1024, 1024, 1024))
    assert 500 < allowed < files == 1024
    assert said(256, 256, 1024) == ["UsageError", "256"]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "kill"), reason="signals of POSIX")
def test_a_second_signal_waits_for_nothing(running: Running) -> None:
    with running.connect() as slow:
        slow.sendall(get("/slow"))
        until(running.folder / "under_way")
        running.process.send_signal(signal.SIGTERM)
        time.sleep(0.05)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(5) == 0
