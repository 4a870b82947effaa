"""Decisions a second over HTTP on one core, beside the same policy in-process.

The service runs in a process of its own, and its CPU time is what counts: the client that sends the requests
takes as much again, on the other core.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.timing import best_cpu_seconds
from suffice.live.controller import Controller
from suffice.live.reported import round_of
from suffice.policies.rules.policy import Rule
from suffice.trace.rounds.records import Round

POLICY = Rule(rule="answer_stable and not abstained")
CLIENTS, REQUESTS = 8, 2_000


def question(number: int) -> Mapping[str, Any]:
    """Five rounds of three passages and a short answer."""
    return {
        "question": f"Where was writer number {number} born?",
        "rounds": [
            {
                "answer": f"Town {min(round_, 3)}",
                "passages": [
                    {
                        "id": f"{number}-{round_}-{rank}",
                        "text": "word " * 20,
                        "score": 1 - rank / 10,
                    }
                    for rank in range(3)
                ],
                "usage": {"prompt_tokens": 600, "completion_tokens": 10},
            }
            for round_ in range(5)
        ],
    }


def serve(listening: socket.socket) -> None:
    """The routes of decisions alone."""
    import uvicorn

    from suffice.serve.decisions import decision_router
    from suffice.serve.guard import Door, application
    from suffice.serve.service import Service

    app = application([decision_router(Service(None, {"rule": POLICY}))], Door())
    config = uvicorn.Config(app, log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listening])


@contextmanager
def running(target: Callable[[socket.socket], None] = serve) -> Iterator[tuple[int, int]]:
    """Its port and process."""
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen()
    process = multiprocessing.get_context("spawn").Process(target=target, args=(listening,))
    process.start()
    try:
        yield listening.getsockname()[1], process.pid or 0
    finally:
        process.terminate()
        process.join()


def cpu_s(pid: int) -> float:
    """Seconds that a process worked."""
    stat = Path(f"/proc/{pid}/stat").read_text("ascii")
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def send(port: int, bodies: list[bytes]) -> None:
    """One after the other, over one connection."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for body in bodies:
        connection.request("POST", "/v1/decisions", body, {"Content-Type": "application/json"})
        reply = connection.getresponse()
        content = reply.read()
        if reply.status != 200:
            raise RuntimeError(content)
    connection.close()


def rates(port: int, pid: int, bodies: list[bytes]) -> tuple[float, float]:
    """Requests a second of the service's CPU, and of time."""
    send(port, bodies[:50])
    shares = [bodies[client::CLIENTS] for client in range(CLIENTS)]
    cpu, begun = cpu_s(pid), time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as pool:
        for _ in pool.map(lambda share: send(port, share), shares):
            pass
    took = time.perf_counter() - begun
    return len(bodies) / (cpu_s(pid) - cpu), len(bodies) / took


def main() -> dict[str, float]:
    questions = [question(number) for number in range(REQUESTS)]
    alone = [json.dumps(held).encode() for held in questions]
    with running() as (port, pid):
        one, one_wall = rates(port, pid, alone)
    ready = [[Round(answer=held["answer"]) for held in asked["rounds"]] for asked in questions]
    controller = Controller(POLICY)

    def decide(rounds: list[Round]) -> None:
        controller.start("")
        for finished in rounds:
            if controller.observe(finished).stop:
                break

    def from_rounds() -> None:
        for rounds in ready:
            decide(rounds)

    def from_reports() -> None:
        for asked in questions:
            decide([round_of(held, ()) for held in asked["rounds"]])

    in_process = REQUESTS / best_cpu_seconds(from_rounds, repeats=3)
    reported = REQUESTS / best_cpu_seconds(from_reports, repeats=3)
    return {
        "decisions over HTTP a second of one core (at least 200)": one,
        "the same a second of time, eight clients on the other core": one_wall,
        "the same questions in-process, rounds made of what was reported, over HTTP's": reported
        / one,
        "in-process, rounds ready, over HTTP's": in_process / one,
    }
