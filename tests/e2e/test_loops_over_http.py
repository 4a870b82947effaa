"""Loops of other languages against a service that listens: under node, by curl, and when it is killed."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.loop_service import listening

from suffice.trace.rounds.reader import read_traces

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "serving-loops.md"


def post(port: int, path: str, body: Any) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("POST", path, json.dumps(body))
    reply = connection.getresponse()
    document = json.loads(reply.read())
    connection.close()
    assert reply.status < 300, document
    return document


def test_a_client_that_hangs_up_has_its_round_observed_once() -> None:
    with listening() as port:
        loop = post(port, "/v1/loops", {"question": "Where was Ibsen born?"})["id"]
        body = json.dumps({"round": 1, "answer": "Oslo"}).encode()
        head = f"POST /v1/loops/{loop}/rounds HTTP/1.1\r\nHost: localhost\r\n"
        for sent in (body[:10], body):  # in the middle of its body, and before its reply
            with socket.create_connection(("127.0.0.1", port)) as client:
                client.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + sent)
        reply = post(port, f"/v1/loops/{loop}/rounds", {"round": 1, "answer": "Oslo"})
        assert reply["round"] == 1
        assert post(port, f"/v1/loops/{loop}/rounds", {"round": 2, "answer": "b"})["round"] == 2


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="runs where curl is installed")
def test_curl_lines_of_the_page_are_answered_as_printed(tmp_path: Path) -> None:
    blocks = re.findall(
        r"```sh\n(curl.*?)```(?:\n+```json\n(.*?)```)?", PAGE.read_text(), re.DOTALL
    )
    assert len(blocks) >= 5
    loop = ""
    with listening(tmp_path / "record") as port:
        for block, printed in blocks:
            command = block.replace("127.0.0.1:8642", f"127.0.0.1:{port}").replace("$LOOP", loop)
            done = subprocess.run(
                ["bash", "-c", command], capture_output=True, text=True, check=True, timeout=30
            )
            reply = json.loads(done.stdout)
            loop = reply.get("id", loop)
            for name, value in json.loads(printed or "{}").items():
                assert reply[name] == value or value == "...", (block, name, reply)


def test_what_is_acknowledged_is_committed(tmp_path: Path) -> None:
    """What a kill finds, without one: see the slow test for the kill."""
    with listening(tmp_path / "record") as port:
        loop = post(port, "/v1/loops", {"question": "Where was Ibsen born?"})["id"]
        for number in (1, 2):
            post(port, f"/v1/loops/{loop}/rounds", {"round": number, "answer": f"{number}"})
            with closing(sqlite3.connect(tmp_path / "record" / "record.db")) as database:
                contents = database.execute("SELECT content FROM rounds").fetchall()
            assert [json.loads(content)["answer"] for (content,) in contents][-1] == f"{number}"


@pytest.mark.slow
def test_a_killed_service_loses_no_round_that_it_answered(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "ibsen.txt").write_text("Ibsen was born in Skien.")
    record = tmp_path / "record"
    with serving(tmp_path, record) as (port, process):
        loops = [
            post(port, "/v1/loops", {"question": f"Question {number}?"})["id"]
            for number in range(20)
        ]
        for number in (1, 2, 3):
            for loop in loops:
                body = {"round": number, "answer": f"{number}"}
                post(port, f"/v1/loops/{loop}/rounds", body)
        process.send_signal(signal.SIGKILL)
        process.wait()
    killed = list(read_traces(record).records())
    assert len(killed) == 20
    assert all([held.answer for held in one.rounds] == ["1", "2", "3"] for one in killed)
    assert {one.stopped_by for one in killed} == {"error"}
    with serving(tmp_path, record) as (port, process):
        connection = http.client.HTTPConnection("127.0.0.1", port)
        connection.request("GET", f"/v1/loops/{loops[0]}")
        assert "started anew" in json.loads(connection.getresponse().read())["error"]["message"]
        connection.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0  # a service that is asked to end has done its work
    assert read_traces(record).n_questions == 20


@contextmanager
def serving(folder: Path, record: Path) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """``suffice serve`` as a process of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["serve", "--llm", "scripted", "--corpus", "notes", "--policy", "answer_stable"]
    process = subprocess.Popen(
        [sys.executable, "-m", "suffice", *words, "--record", record, "--port", str(port)],
        cwd=folder,
        env=os.environ,
        text=True,
    )
    try:
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.05)
        yield port, process
    finally:
        process.kill()
        process.wait()
