"""What a service adds to its model: a stand-in that answers at once, asked directly and through proxies.

    python -m benchmarks.service_overhead [--seconds S] [--through NAME=URL ...] [--memory N]

In one run and by one client: requests one at a time, 64 at once without a pause, and 64 open streams
of about two seconds each, begun one after the other over two seconds or all together. Printed are, for each
way, requests a second, milliseconds to the end of an answer (p50, p99) beyond those of the stand-in asked
directly in the same phase, and the milliseconds of CPU that its process took for a request. ``bare proxy`` is
what the stack costs: starlette and uvicorn, and an asynchronous HTTP client that hands on every byte.
``--through`` adds proxies that run already in front of the stand-in at ``--port``. ``--memory N`` asks N
requests and prints what memory the service takes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import openai
import uvicorn
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

PIECES = ("Answer", ":", " Skien", ",", " Norway", "\n", "Confidence", ":", " 4")
PACED_S = 2.0
STREAMS = 64


# --- the stand-in -------------------------------------------------------------------------------------
async def stand_in(port: int) -> None:
    """Chat completions of fixed pieces; a model named ``paced`` takes two seconds for them."""
    server = await asyncio.start_server(_converse, "127.0.0.1", port)
    print("ready", flush=True)
    await server.serve_forever()


async def _converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(
                (int(line.split(b":")[1]) for line in head.lower().split(b"\r\n")
                 if line.startswith(b"content-length:")), 0,
            )  # fmt: skip
            body = await reader.readexactly(length)
            if head.startswith(b"GET"):
                _say(writer, {"object": "list", "data": [{"id": "at-once", "object": "model"}]})
            else:
                await _complete(writer, json.loads(body))
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def _complete(writer: asyncio.StreamWriter, asked: dict[str, object]) -> None:
    pause = PACED_S / len(PIECES) if "paced" in str(asked.get("messages")) else 0.0
    usage = {"prompt_tokens": 100, "completion_tokens": len(PIECES), "total_tokens": 109}
    held = {"id": "x", "created": 1, "model": str(asked.get("model"))}
    if not asked.get("stream"):
        await asyncio.sleep(pause * len(PIECES))
        message = {"role": "assistant", "content": "".join(PIECES)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        _say(writer, {**held, "object": "chat.completion", "choices": [choice], "usage": usage})
        return
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    for piece in PIECES:
        if pause:
            await asyncio.sleep(pause)
        choice = {"index": 0, "delta": {"content": piece}, "finish_reason": None}
        _event(writer, {**held, "object": "chat.completion.chunk", "choices": [choice]})
    end = {"index": 0, "delta": {}, "finish_reason": "stop"}
    _event(writer, {**held, "object": "chat.completion.chunk", "choices": [end], "usage": usage})
    _chunk(writer, b"data: [DONE]\n\n")
    writer.write(b"0\r\n\r\n")


def _say(writer: asyncio.StreamWriter, document: dict[str, object]) -> None:
    content = json.dumps(document).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)


def _event(writer: asyncio.StreamWriter, document: dict[str, object]) -> None:
    _chunk(writer, b"data: " + json.dumps(document).encode() + b"\n\n")


def _chunk(writer: asyncio.StreamWriter, content: bytes) -> None:
    writer.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")


# --- the floor ------------------------------------------------------------------------------------------
def bare_proxy(port: int) -> None:
    """Hands on each request to the stand-in at the port before, and what it says byte by byte."""
    client = openai.DefaultAsyncHttpxClient(base_url=f"http://127.0.0.1:{port - 1}")

    async def hand_on(request: Request) -> StreamingResponse:
        asked = client.build_request("POST", request.url.path, content=await request.body())
        reply = await client.send(asked, stream=True)
        return StreamingResponse(
            reply.aiter_bytes(),
            headers={"content-type": reply.headers["content-type"]},
            background=BackgroundTask(reply.aclose),
        )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        print("ready", flush=True)
        yield

    routes = [Route("/v1/chat/completions", hand_on, methods=["POST"])]
    app = Starlette(routes=routes, lifespan=lifespan)
    uvicorn.Server(uvicorn.Config(app, port=port, access_log=False, backlog=1024)).run()


# --- the client -----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Way:
    """A way to the model; ``process``: what answers, where it was started here."""

    name: str
    url: str
    model: str
    process: subprocess.Popen[str] | None = None


async def _stream(way: Way, question: str) -> float:
    """Milliseconds to the end of one streamed answer, over a connection of its own."""
    parts = urlsplit(way.url)
    document = {
        "model": way.model,
        "stream": True,
        "messages": [{"role": "user", "content": question}],
    }
    body = json.dumps(document).encode()
    head = (
        f"POST {parts.path}/chat/completions HTTP/1.1\r\nHost: {parts.netloc}\r\n"
        "Authorization: Bearer sk-1234\r\nContent-Type: application/json\r\n"
        f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    begun = time.perf_counter()
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    writer.write(head.encode() + body)
    content = b""
    while b"[DONE]" not in content[-200:]:
        piece = await reader.read(65536)
        if not piece:
            raise RuntimeError(f"{way.name}: {content[-600:]!r}")
        content += piece
    took = time.perf_counter() - begun
    writer.close()
    if b"Skien" not in content:
        raise RuntimeError(f"{way.name}: {content[-600:]!r}")
    return took * 1e3


@dataclass(frozen=True, slots=True)
class Phase:
    """So many streams at any time, the first of which begin within ``begun_s`` seconds."""

    title: str
    at_once: int
    question: str = "Where was Ibsen born?"
    begun_s: float = 0.0

    async def run(self, way: Way, seconds: float) -> list[float]:
        """Milliseconds of each answer."""
        until, took = time.perf_counter() + seconds, list[float]()

        async def one(number: int) -> None:
            await asyncio.sleep(self.begun_s * number / self.at_once)
            while time.perf_counter() < until:
                took.append(await _stream(way, self.question))

        await asyncio.gather(*(one(number) for number in range(self.at_once)))
        return took


_PACED = f"{STREAMS} open streams of {PACED_S:g} s"
PHASES = (
    Phase("one at a time, at once", 1),
    Phase(f"{_PACED}, begun one after the other", STREAMS, "Where was Ibsen born? paced", PACED_S),
    Phase(f"{_PACED}, begun together", STREAMS, "Where was Ibsen born? paced"),
    Phase(f"{STREAMS} at once, at once", STREAMS),
)


# --- the run --------------------------------------------------------------------------------------------
@contextmanager
def _running(command: Sequence[str], ready: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=sys.stderr,
        text=True,
        env={**os.environ, "OPENAI_API_KEY": "x"},
    )
    try:
        assert process.stdout is not None
        while ready not in (line := process.stdout.readline()):
            if not line:
                raise RuntimeError(f"{command} ended")
        yield process
    finally:
        process.terminate()
        process.wait(30)


def _megabytes(process: subprocess.Popen[str]) -> float:
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if "VmRSS" in line).split()[1]) / 1024


def _cpu_s(process: subprocess.Popen[str] | None) -> float:
    if process is None:
        return float("nan")
    spent = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, spent)) / os.sysconf("SC_CLK_TCK")


def _serving(port: int, folder: Path) -> list[str]:
    notes = folder / "notes"
    notes.mkdir()
    for number in range(50):
        (notes / f"{number}.md").write_text(f"Note {number}: Ibsen was born in Skien in Norway.\n")
    return [
        *(sys.executable, "-m", "suffice", "serve", "--corpus", str(notes), "--policy", "fixed-1"),
        *("--llm", f"http://127.0.0.1:{port}/v1", "--model", "at-once", "--port", str(port + 2)),
        *("--record", str(folder / "record")),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each phase and way")
    parser.add_argument("--port", type=int, default=18_950, help="of the stand-in")
    parser.add_argument("--through", action="append", default=[], metavar="NAME=URL[=MODEL]")
    parser.add_argument("--memory", type=int, default=0, metavar="N")
    parser.add_argument("--stand-in", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--bare-proxy", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.stand_in:
        asyncio.run(stand_in(asked.port))
        return
    if asked.bare_proxy:
        bare_proxy(asked.port)
        return
    here, port = [sys.executable, "-m", "benchmarks.service_overhead"], asked.port
    with (
        tempfile.TemporaryDirectory() as folder,
        _running([*here, "--stand-in", "--port", str(port)], "ready") as model,
        _running([*here, "--bare-proxy", "--port", str(port + 1)], "ready") as bare,
        _running(_serving(port, Path(folder)), "listening") as service,
    ):
        ways = [
            Way("stand-in", f"http://127.0.0.1:{port}/v1", "at-once", model),
            Way("bare proxy", f"http://127.0.0.1:{port + 1}/v1", "at-once", bare),
            Way("suffice", f"http://127.0.0.1:{port + 2}/v1", "suffice/fixed-1", service),
        ]
        for text in asked.through:
            name, url, *other = text.split("=")
            ways.append(Way(name, url, *(other or ["at-once"])))
        if asked.memory:
            _memory(ways[2], service, asked.memory)
            return
        for phase in PHASES:
            print(phase.title)
            direct: list[float] = []
            for way in ways:
                asyncio.run(phase.run(way, 1.0))
                begun, cpu = time.perf_counter(), _cpu_s(way.process)
                took = asyncio.run(phase.run(way, asked.seconds))
                rate = len(took) / (time.perf_counter() - begun)
                cpu = (_cpu_s(way.process) - cpu) / len(took) * 1e3
                direct = direct or took
                p50, p99 = np.percentile(took, [50, 99])
                beyond = np.percentile(took, [50, 99]) - np.percentile(direct, [50, 99])
                print(
                    f"  {way.name:10} {rate:8.1f} requests/s; p50 {p50:8.1f} ms, p99 {p99:8.1f} ms; beyond "
                    f"the stand-in {beyond[0]:+8.1f}, {beyond[1]:+8.1f}; {cpu:6.2f} ms of CPU a request",
                    flush=True,
                )


def _memory(way: Way, service: subprocess.Popen[str], requests: int) -> None:
    async def some(count: int) -> None:
        left = iter(range(count))

        async def one() -> None:
            for _ in left:
                await _stream(way, "Where was Ibsen born?")

        await asyncio.gather(*(one() for _ in range(16)))

    done, step = 0, max(1, requests // 10)
    while done < requests:
        asyncio.run(some(step))
        done += step
        print(f"  {done:8,} requests: {_megabytes(service):7.1f} MB", flush=True)


if __name__ == "__main__":
    main()
