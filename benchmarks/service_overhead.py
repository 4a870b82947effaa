"""What a service adds to its model: a stand-in that answers at once, asked directly and through proxies.

    python -m benchmarks.service_overhead [--seconds S] [--through NAME=URL ...] [--memory N]

In one run and by one client: requests one at a time, 64 at once without a pause, and 64 open streams of which
each lasts about two seconds. Printed are, for each way, requests a second, and milliseconds to the end of an
answer (p50, p99) beyond those of the stand-in asked directly in the same phase. ``--through`` adds proxies
that run already in front of the stand-in at ``--port``. ``--memory N`` asks N requests and prints what memory
the service takes.
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
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np

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


# --- the client -----------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Way:
    """A way to the model."""

    name: str
    url: str
    model: str


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


async def _phase(way: Way, at_once: int, seconds: float, question: str) -> list[float]:
    until, took = time.perf_counter() + seconds, list[float]()

    async def one() -> None:
        while time.perf_counter() < until:
            took.append(await _stream(way, question))

    await asyncio.gather(*(one() for _ in range(at_once)))
    return took


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


def _serving(port: int, folder: Path) -> list[str]:
    notes = folder / "notes"
    notes.mkdir()
    for number in range(50):
        (notes / f"{number}.md").write_text(f"Note {number}: Ibsen was born in Skien in Norway.\n")
    return [
        *(sys.executable, "-m", "suffice", "serve", "--corpus", str(notes), "--policy", "fixed-1"),
        *("--llm", f"http://127.0.0.1:{port}/v1", "--model", "at-once", "--port", str(port + 1)),
        *("--record", str(folder / "record")),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=8.0, help="of each phase and way")
    parser.add_argument("--port", type=int, default=18_950, help="of the stand-in")
    parser.add_argument("--through", action="append", default=[], metavar="NAME=URL[=MODEL]")
    parser.add_argument("--memory", type=int, default=0, metavar="N")
    parser.add_argument("--stand-in", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.stand_in:
        asyncio.run(stand_in(asked.port))
        return
    here = [sys.executable, "-m", "benchmarks.service_overhead", "--stand-in"]
    with (
        tempfile.TemporaryDirectory() as folder,
        _running([*here, "--port", str(asked.port)], "ready"),
        _running(_serving(asked.port, Path(folder)), "listening") as service,
    ):
        ways = [
            Way("stand-in", f"http://127.0.0.1:{asked.port}/v1", "at-once"),
            Way("suffice", f"http://127.0.0.1:{asked.port + 1}/v1", "suffice/fixed-1"),
        ]
        for text in asked.through:
            name, url, *model = text.split("=")
            ways.append(Way(name, url, *(model or ["at-once"])))
        if asked.memory:
            _memory(ways[1], service, asked.memory)
            return
        phases = (
            ("one at a time, at once", 1, "Where was Ibsen born?"),
            (f"{STREAMS} at once, at once", STREAMS, "Where was Ibsen born?"),
            (f"{STREAMS} open streams of {PACED_S:g} s", STREAMS, "Where was Ibsen born? paced"),
        )
        for title, at_once, question in phases:
            print(title)
            direct: list[float] = []
            for way in ways:
                begun = time.perf_counter()
                asyncio.run(_phase(way, at_once, 1.0, question))
                begun = time.perf_counter()
                took = asyncio.run(_phase(way, at_once, asked.seconds, question))
                rate = len(took) / (time.perf_counter() - begun)
                direct = direct or took
                shares = [np.percentile(took, q) - np.percentile(direct, q) for q in (50, 99)]
                print(
                    f"  {way.name:10} {rate:8.1f} requests/s; p50 {np.percentile(took, 50):8.1f} ms, p99 "
                    f"{np.percentile(took, 99):8.1f} ms; beyond the stand-in {shares[0]:+8.1f}, "
                    f"{shares[1]:+8.1f}",
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
