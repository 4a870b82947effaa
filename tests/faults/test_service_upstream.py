"""A service whose model server refuses, redirects, hangs or asks for a pause: what clients and log read."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.commands import SUFFICE
from tests.database import Server as Database
from tests.server import Answer, Body, Server

KEY = "sk-service-key-0123456789"
INSIDE = "models.corp.internal"
ASKED = {"messages": [{"role": "user", "content": "Where was Ibsen born?"}]}
TELLING = (INSIDE, "10.0.0.7", "8123", KEY, "127.0.0.1", "://", "Traceback", "suffice-notes")


@pytest.fixture
def upstream() -> Iterator[Server]:
    with closing(Server(lambda _: said("Answer: Skien"))) as server:
        yield server


def said(text: str, *, events: bool = False) -> Answer:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    return 200, {}, {"choices": [choice], "usage": usage}


@dataclass(frozen=True, slots=True)
class Running:
    process: subprocess.Popen[str]
    client: httpx2.Client
    err: Path

    def chat(self, **more: Any) -> httpx2.Response:
        return self.client.post("/v1/chat/completions", json={**ASKED, **more})

    @property
    def log(self) -> str:
        return self.err.read_text(encoding="utf-8")


@contextmanager
def serving(folder: Path, llm: str, *words: str, settings: str = "") -> Iterator[Running]:
    """``suffice serve`` as a process of its own; at the end it is stopped if it runs still."""
    (folder / "suffice-notes").mkdir(exist_ok=True)
    notes = "\n\n".join(f"Ibsen was born in town {number}." for number in range(30))
    (folder / "suffice-notes/a.txt").write_text(notes, encoding="utf-8")
    (folder / "serve.toml").write_text(settings, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = f"serve --config serve.toml --corpus suffice-notes --llm {llm} --model m --port {port}"
    environment = {**os.environ, "OPENAI_API_KEY": KEY}
    with (folder / "err").open("w") as err:
        process = subprocess.Popen(
            [*SUFFICE, *line.split(), *words], cwd=folder, env=environment, text=True, stderr=err,
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
    client = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False)
    with client:
        until = time.monotonic() + 60
        while True:
            try:
                client.get("/health/live")
                break
            except httpx2.TransportError:
                assert process.poll() is None, (folder / "err").read_text()
                assert time.monotonic() < until
                time.sleep(0.05)
        try:
            yield Running(process, client, folder / "err")
        finally:
            process.kill() if process.poll() is None else None
            process.wait(10)


def errors_of(reply: httpx2.Response) -> dict[str, Any]:
    """The error of a reply, or of a stream's event."""
    text = reply.text
    if reply.headers["content-type"].startswith("text/event-stream"):
        (text,) = (line[6:] for line in text.splitlines() if '"error"' in line)
    error: dict[str, Any] = json.loads(text)["error"]
    return error


def tells_nothing(reply: httpx2.Response) -> None:
    for word in TELLING:
        assert word not in reply.text, (word, reply.text)
        assert word not in str(reply.headers).replace("content-type", ""), (word, reply.headers)


# --- what an upstream says ----------------------------------------------------------------------------
def refusal(status: int) -> Answer:
    """With everything in it that a client must not read."""
    location = f"http://{INSIDE}:8123/v1" if 300 <= status < 400 else ""
    message = f"no route to http://{INSIDE}:8123/v1 (10.0.0.7) for key {KEY}"
    headers = {"location": location} if location else {}
    return status, {**headers, "retry-after-ms": "1"}, {"error": {"message": message}}


def test_no_refusal_of_the_model_server_tells_where_it_is(upstream: Server, tmp_path: Path) -> None:
    statuses = (
        301,
        302,
        307,
        308,
        400,
        401,
        402,
        403,
        404,
        405,
        413,
        418,
        422,
        429,
        500,
        502,
        503,
        504,
    )
    odd: tuple[Answer, ...] = (
        (200, {}, f"<html>{INSIDE}:8123".encode()),
        (200, {}, {"choices": [{"text": {"at": f"http://{INSIDE}:8123"}}]}),
        (200, {"content-encoding": "gzip"}, b"no gzip of 10.0.0.7"),
    )
    with serving(tmp_path, upstream.url, "--policy", "fixed-1", "--policy", "fixed-2") as running:
        for answer in (*map(refusal, statuses), *odd):
            upstream.answer = lambda _, now=answer: now  # type: ignore[misc]
            for stream in (False, True):
                before = running.log
                reply = running.chat(stream=stream)
                status = 503 if "retry-after" in reply.headers else 502
                assert reply.status_code == (200 if stream else status), (answer, reply.text)
                assert status == 502 or answer[0] in (402, 429) or answer[0] >= 500
                error = errors_of(reply)
                assert (error["type"], error["code"]) == ("upstream_error", "model_failed")
                tells_nothing(reply)
                assert upstream.url in running.log[len(before) :]
        assert KEY not in running.log
        assert "Traceback" not in running.log


def test_a_server_that_fails_after_a_round_is_not_told_either(
    upstream: Server, tmp_path: Path
) -> None:
    upstream.answers(said("Answer: Skien"), refusal(404))
    with serving(tmp_path, upstream.url, "--policy", "answer_stable") as running:
        reply = running.chat()
        assert reply.status_code == 200
        assert reply.json()["suffice"]["stopped_by"] == "error"
        tells_nothing(reply)
        assert upstream.url in running.log


def test_a_server_that_is_gone(upstream: Server, tmp_path: Path) -> None:
    with serving(tmp_path, upstream.url, "--max-wait", "0", "--request-timeout", "20") as running:
        upstream.close()
        reply = running.chat()
        assert reply.status_code == 502
        tells_nothing(reply)
        ready = running.client.get("/health/ready")
        assert ready.status_code == 503
        tells_nothing(ready)


def test_a_database_that_is_gone(database_server: Database, tmp_path: Path) -> None:
    place = database_server.database()
    with serving(tmp_path, "scripted", "--record", place) as running:
        label = {"question_id": "nobody's", "score": 1.0}
        unknown = running.client.post("/v1/labels", json=label)
        assert unknown.status_code == 404
        database_server.stop()
        try:
            replies = [running.client.get("/health/ready")]
            replies += [running.client.post("/v1/labels", json=label)]
        finally:
            database_server.start()
        assert [reply.status_code for reply in replies] == [503, 502]
        for reply in (unknown, *replies):
            tells_nothing(reply)
            assert str(database_server.port) not in reply.text
        assert str(database_server.port) in running.log


# --- pauses -------------------------------------------------------------------------------------------
def test_a_pause_is_kept_within_the_time_of_a_request(upstream: Server, tmp_path: Path) -> None:
    words = ("--policy", "fixed-1", "--request-timeout", "20")
    with serving(tmp_path, upstream.url, *words) as running:
        for status, seconds in ((429, "3"), (503, "3"), (429, "")):
            after = seconds or formatdate(time.time() + 5, usegmt=True)
            busy: Answer = (status, {"retry-after": after}, {"error": {"message": "slow down"}})
            upstream.answers(busy, said("Answer: Skien"))
            upstream.bodies.clear()
            begun = time.monotonic()
            assert running.chat().status_code == 200
            assert time.monotonic() - begun > 2.5
            assert len(upstream.bodies) == 2


@pytest.mark.parametrize("status", [403, 429, 503])
def test_a_pause_that_is_too_long_is_passed_on(
    status: int, upstream: Server, tmp_path: Path
) -> None:
    words = ("--policy", "fixed-1", "--request-timeout", "20", "--max-wait", "10")
    message = {"error": {"message": "rate limit reached"}}
    with serving(tmp_path, upstream.url, *words) as running:
        for after, kept in (("3600", "3600"), ("21", "21"), ("1e300", "86400")):
            upstream.answer = lambda _, now=after: (status, {"retry-after": now}, message)  # type: ignore[misc]
            upstream.bodies.clear()
            begun = time.monotonic()
            reply = running.chat()
            assert (reply.status_code, reply.headers["retry-after"]) == (503, kept)
            assert time.monotonic() - begun < 5
            assert len(upstream.bodies) == 1
            tells_nothing(reply)


# --- the end ------------------------------------------------------------------------------------------
def test_a_client_that_waits_for_a_model_that_hangs_is_told_of_the_end(
    upstream: Server, tmp_path: Path
) -> None:
    hangs, asked = threading.Event(), threading.Semaphore(0)

    def answer(_: Body) -> Answer:
        asked.release()
        hangs.wait(40)
        return said("Answer: Skien")

    upstream.answer = answer
    settings = "[operation]\nend_seconds = 1.0\n[limits]\nquestions = 2\n"
    try:
        with (
            serving(tmp_path, upstream.url, settings=settings) as running,
            ThreadPoolExecutor(4) as pool,
        ):
            whole = pool.submit(running.chat)
            streamed = pool.submit(running.chat, stream=True)
            for _ in range(2):
                assert asked.acquire(timeout=20)
            waits = pool.submit(running.chat)
            time.sleep(0.5)
            running.process.send_signal(signal.SIGTERM)
            for reply in (whole.result(20), waits.result(20), streamed.result(20)):
                error = errors_of(reply)
                assert (error["type"], error["code"]) == ("server_error", "ending"), error
            assert whole.result().status_code == waits.result().status_code == 503
            assert "retry-after" in whole.result().headers
            assert running.process.wait(30) == 0
            assert "Traceback" not in running.log
            assert "Cancel" not in running.log
    finally:
        hangs.set()


# --- the access log -----------------------------------------------------------------------------------
def test_no_log_has_a_query(upstream: Server, tmp_path: Path) -> None:
    word = "query-of-a-client"
    with serving(tmp_path, upstream.url, "--access-log") as running:
        for path in (
            "/v1/models",
            "/health",
            "/nothing",
            "/",
            "/v1/models/sk-0123456789abcdef",
            "/a%3Fb",
        ):
            running.client.get(f"{path}?token={word}&q=a%0Ab")
            running.client.get(f"{path}?{word}")
        running.client.post(f"/v1/chat/completions?{word}", json=ASKED)
        running.client.post(f"/v1/chat/completions?{word}", content=b"{")
        with socket.create_connection(
            (running.client.base_url.host, running.client.base_url.port)
        ) as raw:
            raw.sendall(
                f"GET http://x/v1/models?{word} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            )
            raw.recv(100)
        time.sleep(0.3)
        lines = [line for line in running.log.splitlines() if '"GET ' in line or '"POST ' in line]
        assert len(lines) >= 14
        assert word not in running.log
        assert "sk-0123456789abcdef" not in running.log
        assert not re.search(r'"(?:GET|POST) [^"]*\?', running.log)
        assert '"GET /a%3Fb HTTP/1.1" 404' in running.log


# --- the front, and the check -------------------------------------------------------------------------
def test_the_front_and_the_docs_are_alike(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"ann {hashlib.sha256(b'secret').hexdigest()}\n")
    token = {"Authorization": "Bearer secret"}
    with serving(tmp_path, "scripted", "--tokens", "tokens") as running:
        for given, status in (({}, 401), ({"Authorization": "Bearer x"}, 401), (token, 200)):
            front, docs = (running.client.get(path, headers=given) for path in ("/", "/docs"))
            assert front.status_code == docs.status_code == status
            assert front.json() == docs.json()
    with serving(tmp_path, "scripted") as running:
        front, docs = (running.client.get(path, headers=token) for path in ("/", "/docs"))
        assert front.status_code == docs.status_code == 200
        assert front.json() == docs.json()
        assert running.client.get(front.json()["routes"]).status_code == 200


def checked(folder: Path, llm: str, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "notes").mkdir(exist_ok=True)
    (folder / "notes/a.txt").write_text("Skien is a town.", encoding="utf-8")
    line = ["serve", "--check", "--corpus", "notes", "--llm", llm, "--model", "m", *words]
    return subprocess.run(
        [*SUFFICE, *line], cwd=folder, capture_output=True, text=True, check=False, timeout=100
    )


def test_a_check_asks_the_model(upstream: Server, tmp_path: Path) -> None:
    assert checked(tmp_path, upstream.url).returncode == 0
    assert len(upstream.bodies) == 1
    upstream.answer = lambda _: refusal(404)
    assert checked(tmp_path, upstream.url).returncode == 2
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{deaf.getsockname()[1]}/v1"
        nobody = checked(tmp_path, address, "--max-wait", "0")
        assert (nobody.returncode, nobody.stdout) == (1, "")
        assert address in nobody.stderr
        deaf.listen(8)  # it takes connections and says nothing
        words = ("--timeout", "1", "--request-timeout", "5")
        silent = checked(tmp_path, address, *words)
        assert (silent.returncode, silent.stdout) == (1, "")
        assert address in silent.stderr
