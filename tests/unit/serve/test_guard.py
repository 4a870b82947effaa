from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from suffice.errors import DataError, UsageError
from suffice.serve.guard import Door, Guard, check_exposed, read_tokens
from suffice.serve.service_settings import (
    SecuritySettings,
    ServeSettings,
    load_settings,
    with_given,
)

SECRET = "suffice-of-the-test"
TOKEN = {"anna": hashlib.sha256(SECRET.encode()).hexdigest()}
OTHER = {"bert": "0" * 64}
NAMED = SecuritySettings(hosts=("api.example.com",))


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    headers = [(b"cache-control", b"max-age=5"), (b"content-security-policy", b"default-src *")]
    if scope["path"] == "/bare":
        headers = []
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"let in"})


class Reply:
    def __init__(self, sent: Sequence[Message]) -> None:
        self.status = next(
            (said["status"] for said in sent if said["type"] == "http.response.start"), 0
        )
        self.headers = {
            name.decode(): value.decode()
            for said in sent
            for name, value in said.get("headers", ())
        }
        self.body = b"".join(said.get("body", b"") for said in sent)


def ask(guard: Any, method: str = "POST", path: str = "/v1/x", **headers: str | list[str]) -> Reply:
    """What is answered to one request; ``receive`` hangs once the body was given."""
    named = [
        (name.replace("_", "-").encode(), value.encode())
        for name, values in {"host": "localhost:8000", **headers}.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    return asyncio.run(_asked(guard, method, path, named))


async def _asked(
    guard: Any, method: str, path: str, headers: list[tuple[bytes, bytes]], *, body: bool = True
) -> Reply:
    sent: list[Message] = []
    waiting = [{"type": "http.request", "body": b"{}", "more_body": False}] if body else []

    async def receive() -> Message:
        if waiting:
            return waiting.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": headers,
        "client": ("192.0.2.7", 40000),
    }
    await guard(scope, receive, send)
    return Reply(sent)


@pytest.mark.parametrize(
    ("door", "host", "status"),
    [
        (Door(), "localhost:8000", 200),
        (Door(), "127.0.0.1", 200),
        (Door(), "[::1]:8000", 200),
        (Door(), "10.2.3.4:80", 200),  # no page can have digits point elsewhere
        (Door(), "evil.example", 421),
        (Door(), "localhost.evil.example", 421),
        (Door(), "127.0.0.1.evil.example", 421),
        (Door(), "localhost/../x", 400),
        (Door(), "local host", 400),
        (Door(), "", 400),
        (Door(settings=NAMED), "API.example.com:443", 200),
        (Door(settings=NAMED, tokens=TOKEN), "other.example.com", 421),
        (Door(tokens=TOKEN), "any.example.com", 200),
        (Door(settings=SecuritySettings(hosts=("*",))), "any.example.com", 200),
    ],
)
def test_a_foreign_name_is_refused(door: Door, host: str, status: int) -> None:
    reply = ask(Guard(app, door), host=host, authorization=f"Bearer {SECRET}")
    assert reply.status == status


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://localhost:8000"}, 200),
        ({"origin": "http://localhost:9000"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "https://ui.example.com"}, 200),
        ({"origin": "https://ui.example.com.evil.example"}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-origin"}, 200),
    ],
)
def test_a_page_of_another_origin_changes_nothing(headers: dict[str, str], status: int) -> None:
    guard = Guard(app, Door(settings=SecuritySettings(origins=("https://ui.example.com",))))
    assert ask(guard, **headers).status == status
    assert ask(guard, "GET", **headers).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": f"Bearer {SECRET}"}, 200),
        ({"authorization": f"bearer  {SECRET} "}, 200),
        ({"authorization": f"Basic {SECRET}"}, 401),
        ({"authorization": SECRET}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"authorization": f"Bearer {SECRET}x"}, 401),
        ({"authorization": "Bearer " + "x" * 10_000}, 401),
        ({"authorization": f"Bearer {TOKEN['anna']}"}, 401),  # the hash opens nothing
        (
            {"authorization": f"Bearer {SECRET}", "content_length": "2", "transfer_encoding": "x"},
            400,
        ),
    ],
)
def test_only_a_token_opens(headers: dict[str, Any], status: int) -> None:
    reply = ask(Guard(app, Door(tokens={**OTHER, **TOKEN})), **headers)
    assert reply.status == status
    if status == 200:
        assert reply.body == b"let in"
    else:
        assert SECRET.encode() not in reply.body
        assert reply.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)


def test_health_needs_no_token_and_says_its_headers() -> None:
    guard = Guard(app, Door(tokens=TOKEN))
    assert ask(guard, "GET", "/health/ready").status == 200
    assert ask(guard, "GET", "/health/ready/../../v1/models").status == 401
    for reply in (ask(guard, "GET", "/health/live"), ask(guard, "GET", "/v1/models")):
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in reply.headers["content-security-policy"]
        assert reply.headers["referrer-policy"] == "no-referrer"
    assert ask(guard, "GET", "/health/live").headers["cache-control"] == "max-age=5"
    bare = ask(guard, "GET", "/bare", authorization=f"Bearer {SECRET}")
    assert bare.headers["cache-control"] == "no-store"


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    guard = Guard(app, Door(request_s=0.02))
    reply = asyncio.run(_asked(guard, "POST", "/", [(b"host", b"localhost")], body=False))
    assert reply.status == 408
    assert b"too long to wait for the body" in reply.body


def test_an_answer_that_does_not_come_is_not_waited_for() -> None:
    ended: list[str] = []

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await receive()
            await asyncio.sleep(5)
        finally:
            ended.append("cut")

    reply = ask(Guard(slow, Door(request_s=0.02)))
    assert (reply.status, ended) == (504, ["cut"])


def test_a_reader_that_does_not_read_is_let_go() -> None:
    async def stuck(message: Message) -> None:
        if message["type"] == "http.response.body":
            await asyncio.sleep(5)

    async def asked() -> None:
        scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"localhost")]}

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        await Guard(app, Door(request_s=0.02))(scope, receive, stuck)

    asyncio.run(asyncio.wait_for(asked(), 1.0))


def test_a_file_holds_the_hashes_of_tokens(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    held = {"anna": b"first", "bert": b"second"}
    lines = [f"{who} {hashlib.sha256(token).hexdigest()}\n" for who, token in held.items()]
    file.write_text("".join(lines))
    guard = Guard(app, Door(tokens=read_tokens(file)))
    assert ask(guard, authorization="Bearer first").status == 200
    assert ask(guard, authorization="Bearer second").status == 200
    assert ask(guard, authorization="Bearer anna").status == 401
    file.write_text(f"anna {'0' * 64}\nbert plain-text\n")
    with pytest.raises(DataError, match="must be a name, a blank and the SHA-256"):
        read_tokens(file)
    file.write_text(f"anna {'0' * 64}\n" * 2)
    with pytest.raises(DataError, match="has a token already"):
        read_tokens(file)
    with pytest.raises(UsageError, match="cannot be read"):
        read_tokens(tmp_path / "none")


@pytest.mark.parametrize(
    ("address", "open_"),
    [("127.0.0.1", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False)],
)
def test_only_loopback_goes_without_a_token(address: str, open_: bool) -> None:
    check_exposed(address, TOKEN, allow_unauthenticated=False)
    check_exposed(address, {}, allow_unauthenticated=True)
    if open_:
        check_exposed(address, {}, allow_unauthenticated=False)
        return
    with pytest.raises(UsageError, match="--tokens FILE"):
        check_exposed(address, {}, allow_unauthenticated=False)


def written(folder: Path, text: str) -> Path:
    file = folder / "serve.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_a_file_states_what_it_states_and_options_hold_before_it(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "port = 9000\n[model]\nllm = 'http://localhost:1/v1'\ntimeout = 5\n"
        "[policies]\na = 'fixed-2'\n[record]\nexplore = 0.1\n",
    )
    settings = load_settings(file)
    assert (settings.port, settings.model.timeout, settings.policies) == (
        9000,
        5.0,
        {"a": "fixed-2"},
    )
    assert settings.model.api == ServeSettings().model.api
    given = with_given(settings, {"port": 1, "record": "traces", "request_timeout": 3.0})
    assert (given.port, given.record.folder, given.record.explore) == (1, "traces", 0.1)
    assert given.limits.seconds == 3.0
    assert settings.port == 9000


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("prot = 1", "'prot'.*'port'"),
        ("[record]\nexplor = 0.1", "record.*'explor'.*'explore'"),
        ("port = '80'", "port"),
        ("port = true", "port"),
        ("[model]\napi = 'caht'", r"model\.api.*chat.*caht"),
        ("model = 3", "model"),
        ("[policies]\na = 2", r"policies\.a"),
        ("[limits]\nquestions = 0", r"limits\.questions"),
        ("port = ", "TOML"),
        ("port = 2026-01-01", "port"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_key(tmp_path: Path, text: str, key: str) -> None:
    with pytest.raises(DataError, match=f"serve.toml: .*{key}"):
        load_settings(written(tmp_path, text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the settings"):
        load_settings(tmp_path / "none.toml")
