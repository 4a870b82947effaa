"""Loops of other languages against a service that listens: under node, by curl, and when it is killed."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.loop_service import listening

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
