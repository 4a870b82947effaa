"""What memory the service takes over many decisions, or watched loops; of answers: ``service_overhead``.

    python -m benchmarks.service_memory [--of decisions|loops] [--requests N]

A loop is five requests: it begins, has three rounds and ends. They are recorded, and the record is watched.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from benchmarks.service_overhead import _megabytes, _running

AT_ONCE = 16
ANSWERS = ("Oslo", "Skien", "Skien")
QUESTION = "Where was Ibsen born?"


class Client:
    """One connection that is kept."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, path: str, document: Mapping[str, Any]) -> dict[str, Any]:
        """The reply."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        body = json.dumps(document).encode()
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        status, *headers = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
        length = next(line for line in headers if line.lower().startswith(b"content-length:"))
        reply: dict[str, Any] = json.loads(await reader.readexactly(int(length.split(b":")[1])))
        if status.split()[1][:1] != b"2":
            raise RuntimeError(f"{path}: {reply}")
        return reply


async def decide(client: Client) -> int:
    """One decision about three rounds."""
    rounds = [{"answer": answer, "passages": [f"{answer} is a town."]} for answer in ANSWERS]
    await client.post("/v1/decisions", {"question": QUESTION, "rounds": rounds})
    return 1


async def loop(client: Client) -> int:
    """A loop of three rounds."""
    begun = await client.post("/v1/loops", {"question": QUESTION})
    here = f"/v1/loops/{begun['id']}"
    for number, answer in enumerate(ANSWERS, start=1):
        held = {"round": number, "answer": answer, "passages": [f"{answer} is a town."]}
        await client.post(f"{here}/rounds", held)
    await client.post(f"{here}/end", {})
    return len(ANSWERS) + 2


async def some(ask: Callable[[Client], Awaitable[int]], port: int, requests: int) -> None:
    """So many requests."""
    done = 0

    async def one() -> None:
        nonlocal done
        client = Client(port)
        while done < requests:
            asked = await ask(client)
            done += asked

    await asyncio.gather(*(one() for _ in range(AT_ONCE)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--of", choices=("decisions", "loops"), default="loops")
    parser.add_argument("--requests", type=int, default=100_000, metavar="N")
    parser.add_argument("--port", type=int, default=18_960)
    asked = parser.parse_args()
    ask = decide if asked.of == "decisions" else loop
    step = max(1, asked.requests // 10)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "suffice", "serve", "--policy", "stable=answer_stable"]
        command += ["--port", str(asked.port), "--record", f"{folder}/record"]
        with _running(command, "listening") as service:
            for done in range(step, asked.requests + 1, step):
                asyncio.run(some(ask, asked.port, step))
                print(f"  {done:8,} requests: {_megabytes(service):7.1f} MB", flush=True)


if __name__ == "__main__":
    main()
