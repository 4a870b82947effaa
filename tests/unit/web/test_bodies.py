"""Bodies are read within limits, whatever they hold."""

from __future__ import annotations

import time
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from suffice.web.bodies import BodyLimits, read_json
from suffice.web.replies import Refusal

LIMITS = BodyLimits(bytes=200_000, depth=32)


async def _echo(request: Request) -> Response:
    try:
        return JSONResponse(await read_json(request, LIMITS))
    except Refusal as refusal:
        return refusal.reply()


@pytest.fixture(scope="module")
def client() -> TestClient:
    return TestClient(Starlette(routes=[Route("/", _echo, methods=["POST"])]))


@pytest.mark.parametrize(
    ("content", "status", "said"),
    [
        (b'{"a": [1, "]]]"]}', 200, None),
        (b"{" + b'"a": {' * 10_000 + b"}" * 10_001, 400, "nested 32 deep"),
        (b"[" * 100_000 + b"]" * 100_000, 400, "nested 32 deep"),
        (b'{"a": NaN}', 400, "NaN is not JSON"),
        (b'{"a": ' + b"9" * 5_000 + b"}", 400, "no JSON"),
        (b'{"a": "\xff"}', 400, "no JSON in UTF-8"),
        (b"[]", 400, "one JSON object, found a list"),
        (b" " * 200_001, 413, "200,000 bytes"),
        (b'{"a": "' + b'\\"' * 90_000, 400, "no JSON"),
        (b'{"a": "\\', 400, "no JSON"),
    ],
)
def test_what_is_read_and_what_is_refused(
    client: TestClient, content: bytes, status: int, said: str | None
) -> None:
    begun = time.perf_counter()
    reply = client.post("/", content=content)
    assert (
        time.perf_counter() - begun < 2.0
    )  # quotes that are left open were searched in their square
    assert reply.status_code == status
    if said is not None:
        assert said in reply.json()["error"]["message"]


def test_half_a_surrogate_pair_becomes_text_that_can_be_sent_back(client: TestClient) -> None:
    held: Any = client.post(
        "/", content=b'{"\\ud800": ["Os\\uDC00lo", {"a": "\\ud83d\\ude00"}]}'
    ).json()
    assert held == {"\ufffd": ["Os\ufffdlo", {"a": "\U0001f600"}]}
