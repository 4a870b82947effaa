"""The application and its guard: it admits callers by token, host and origin."""

from __future__ import annotations

import asyncio
import hashlib
import ipaddress
import logging
import math
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, ClassVar

from fastapi import APIRouter, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from suffice._version import VERSION
from suffice.errors import BackendError, DataError, SufficeError, UsageError, read_plain, struck
from suffice.foreign import is_here
from suffice.serve.service_settings import SecuritySettings

_LOG = logging.getLogger("suffice.serve")
_MOST_LETTERS = 2_000  # of a message
_NAMELESS = frozenset({"body", "query", "header", "path"})


class Body(BaseModel):
    """A request's body with its declared fields and no others."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True)


class ErrorDetail(BaseModel):
    """What was found, what is allowed and what to send."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorReply(BaseModel):
    """An error as OpenAI's clients read it."""

    error: ErrorDetail


class Refusal(Exception):  # noqa: N818 - reads as what it is
    """A request that is answered with an error."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status: int = status
        self.headers: Mapping[str, str] | None = headers
        text = struck(message)[:_MOST_LETTERS]
        self.document: dict[str, Any] = {
            "error": {"message": text, "type": kind, "param": param, "code": code}
        }

    def reply(self) -> JSONResponse:
        return JSONResponse(self.document, self.status, headers=self.headers)


def too_many(said: str, code: str, wait_s: float) -> Refusal:
    """Refuse a client that asks too often (429), with the seconds to wait."""
    headers = {"Retry-After": str(math.ceil(wait_s))}
    return Refusal(429, said, kind="rate_limit_error", code=code, headers=headers)


def full(said: str) -> Refusal:
    """Refuse a client while the service is full (503)."""
    headers = {"Retry-After": "1", "Connection": "close"}
    return Refusal(503, said, kind="server_error", code="too_many_connections", headers=headers)


# what a client hears of a failure behind the service: nothing that names a server or a place
BEHIND = "what the service rests on failed, such as the model; its log says why"


def ending() -> Refusal:
    """Refuse a client, since the service ends (503)."""
    said, after = "the service ends", {"Retry-After": "5"}
    return Refusal(503, said, kind="server_error", code="ending", headers=after)


def failed_behind(error: SufficeError, what: str) -> Refusal:
    """Log a failure behind the service, and refuse: 503 where the server there asks for a pause, else 502."""
    _LOG.error("%s: %s", what, " ".join(str(error).split()))
    pause_s = math.ceil(min(getattr(error, "pause_s", 0.0), 86_400.0))
    status, headers = (503, {"Retry-After": str(pause_s)}) if pause_s else (502, None)
    return Refusal(status, BEHIND, kind="upstream_error", code="model_failed", headers=headers)


def refusal_of(error: Exception) -> Refusal:
    """Turn an error of what a client sent into a refusal; a defect tells the client nothing more."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, RequestValidationError | ValidationError):
        return _misfit(error.errors()[0])
    if isinstance(error, BackendError):
        return failed_behind(error, "a request failed")
    if isinstance(error, DataError | UsageError):
        return Refusal(400, error.message if isinstance(error, DataError) else str(error))
    return Refusal(500, "the service failed; its log says where", kind="server_error")


def _misfit(error: Mapping[str, Any]) -> Refusal:
    where = ".".join(str(part) for part in error["loc"] if part not in _NAMELESS) or "the body"
    if error["type"] == "json_invalid":
        where = "the body"
        said = f"the body is no JSON: {error['ctx']['error']}"
    elif error["type"] == "missing":
        said = f"{where} is missing"
    elif error["type"] == "extra_forbidden":
        said = f"unknown field {where!r:.80}; GET /openapi.json lists those allowed"
    else:
        said = f"{where}: {error['msg']}, found {error['input']!r:.60}"
    return Refusal(400, said, param=where[:60])


async def answer_error(request: Request, error: Exception) -> Response:
    """Answer an error with its refusal, and log a defect."""
    if isinstance(error, HTTPException):
        said = f"{request.method} {request.url.path}: {error.detail}"
        code = "too_large" if error.status_code == 413 else None
        return Refusal(error.status_code, said, code=code, headers=error.headers).reply()
    refusal = refusal_of(error)
    if refusal.status == 500 and not isinstance(error, Refusal):
        _LOG.error("a request failed", exc_info=error)
    return refusal.reply()


API_CONTENT = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
PAGE_CONTENT = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content security policies of a service without pages, and of pages that load their own files."""

OPEN_PATHS = frozenset({"/health", "/health/live", "/health/ready"})
"""Paths that need no token: they say only whether the service is up."""

_ALWAYS = {
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+)(?::(\d{1,5}))?")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_TOKEN = 512  # letters that are hashed of what a client sends


# --- tokens ---------------------------------------------------------------------------------------
# A token is 256 random bits, as the docs make it: nobody guesses it from a hash, and a slow hash would win
# nothing. bcrypt is for passwords, and would cost every request a tenth of a second that an attacker can ask
# for as well.
Tokens = Mapping[str, str]
"""The SHA-256 of bearer tokens, by name."""


def read_tokens(file: Path) -> Tokens:
    """Read a file with a line ``NAME SHA256`` a token; lines that begin with ``#`` are comments."""
    try:
        lines = read_plain(file).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the file of tokens {file} cannot be read: {error}") from error
    tokens: dict[str, str] = {}
    for number, line in enumerate(lines):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, sha256 = line.strip().partition(" ")
        if not _NAME.fullmatch(name) or not _DIGEST.fullmatch(sha256.strip()):
            raise DataError(
                "must be a name, a blank and the SHA-256 of its token in small hexadecimal digits",
                file=str(file),
                row=number,
            )
        if name in tokens:
            raise DataError(
                f"{name} has a token already; each has its own", file=str(file), row=number
            )
        tokens[name] = sha256.strip()
    return tokens


def _sha256(secret: bytes) -> str:
    return hashlib.sha256(secret).hexdigest()


def check_exposed(address: str, tokens: Tokens, *, allow_unauthenticated: bool) -> None:
    """Refuse to listen beyond this machine without tokens, unless that was typed."""
    if tokens or allow_unauthenticated or is_here(address):
        return
    raise UsageError(
        f"whoever reaches {address} could ask; type --tokens FILE, with a line NAME SHA256 a token, or "
        "listen on 127.0.0.1, or type --allow-unauthenticated where something in front of it asks who comes"
    )


# --- the guard ------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """Settings of a guard; ``content`` is its content security policy."""

    settings: SecuritySettings = field(default_factory=SecuritySettings)
    tokens: Tokens = field(default_factory=dict)
    content: str = API_CONTENT
    request_s: float = 900.0
    body_bytes: int = 1 << 20


class Guard:
    """Middleware that admits requests by token, host, origin, size and time."""

    def __init__(self, app: ASGIApp, door: Door) -> None:
        self._app = app
        self._door, self._settings = door, door.settings
        self._under_way = 0
        self._hosts = frozenset(name.lower() for name in door.settings.hosts)
        self._origins = frozenset(name.lower().rstrip("/") for name in door.settings.origins)
        self._headers = {**_ALWAYS, "content-security-policy": door.content}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        say = self._with_headers(send)
        try:
            self._check(scope)
        except Refusal as refusal:
            await refusal.reply()(scope, receive, say)
            return
        if scope["path"] in OPEN_PATHS:
            await self._app(scope, receive, say)
            return
        if self._under_way >= self._settings.connections:
            said = f"{self._under_way:,} requests are under way, the limit; ask again later"
            await full(said).reply()(scope, receive, say)
            return
        self._under_way += 1
        try:
            await self._limited(scope, receive, say)
        finally:
            self._under_way -= 1

    async def _limited(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request against the clock; its body counts as JSON, which curl -d calls a form."""
        most, size, whole, started = self._door.body_bytes, 0, False, False
        limit = asyncio.timeout(self._door.request_s)

        async def taken() -> Message:
            nonlocal whole, size
            message = await receive()
            size += len(message.get("body", b""))
            if size > most:
                said = f"a body may have {most:,} bytes"
                raise HTTPException(413, said, {"Connection": "close"})
            whole = whole or not message.get("more_body", False)
            return message

        async def said(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        headers = [header for header in scope["headers"] if header[0] != b"content-type"]
        scope = {**scope, "headers": [*headers, (b"content-type", b"application/json")]}
        try:
            async with limit:
                await self._app(scope, taken, said)
        except TimeoutError:
            if not limit.expired():
                raise
            if started:
                return  # uvicorn cuts the connection, so the client sees that the answer is not whole
            status, what = (504, "the answer") if whole else (408, "the body")
            refusal = Refusal(status, f"it took too long to wait for {what}", code="too_slow")
            with suppress(OSError):
                await refusal.reply()(scope, receive, send)

    # --- who asks ----------------------------------------------------------------------------------
    def _check(self, scope: Scope) -> None:
        headers = dict(scope["headers"])
        if b"content-length" in headers and b"transfer-encoding" in headers:
            raise Refusal(400, "a request may have a Content-Length or be sent in chunks, not both")
        host = self._check_host(headers.get(b"host"))
        if scope["method"] not in _SAFE:
            self._check_origin(headers.get(b"origin"), host, headers.get(b"sec-fetch-site"))
        if scope["path"] not in OPEN_PATHS and self._door.tokens:
            self._check_token(headers.get(b"authorization", b""))

    def _check_token(self, authorization: bytes) -> None:
        """Compare every token, each in the same time, whichever matches."""
        kind, _, secret = authorization.partition(b" ")
        digest = _sha256(secret.strip()) if len(secret) <= _MOST_TOKEN else ""
        known = [secrets.compare_digest(digest, one) for one in self._door.tokens.values()]
        if kind.lower() != b"bearer" or not any(known):
            raise Refusal(
                401,
                "a token is needed: Authorization: Bearer TOKEN (as api_key of the openai client); who runs "
                "the service gives it",
                code="invalid_api_key",
                kind="authentication_error",
                headers={"WWW-Authenticate": "Bearer"},
            )

    def _check_host(self, host: bytes | None) -> str:
        matched = _HOST.fullmatch((host or b"").decode("latin-1"))
        if matched is None:
            raise Refusal(400, "the header Host is invalid", code="bad_host")
        name = matched[1].lower().rstrip(".")
        any_host = "*" in self._hosts or (bool(self._door.tokens) and not self._hosts)
        if not (any_host or name == "localhost" or name in self._hosts or _ip(name) is not None):
            raise Refusal(
                421,
                f"this service is not called {name!r:.80}; who runs it may allow the name by hosts",
                code="bad_host",
            )
        return matched[0].lower()

    def _check_origin(self, origin: bytes | None, host: str, site: bytes | None) -> None:
        if origin is None:
            if site in (b"cross-site", b"same-site"):
                raise Refusal(403, "a page of another origin asks", code="bad_origin")
            return
        said = origin.decode("latin-1").lower()
        if said.partition("://")[2] != host and said not in self._origins:
            raise Refusal(
                403,
                f"a page of another origin asks, {said!r:.100}; who runs the service may allow it by origins",
                code="bad_origin",
            )

    def _with_headers(self, send: Send) -> Send:
        async def say(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                # what the guard says counts; a page of its own policy states it by the door
                headers.update(self._headers)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        return say


def _ip(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return None


# --- the application ------------------------------------------------------------------------------
def application(
    routers: Sequence[APIRouter],
    door: Door,
    *,
    lifespan: Callable[[Any], AbstractAsyncContextManager[None]] | None = None,
) -> FastAPI:
    """Make the application of routers behind a guard."""
    app = FastAPI(
        title="Suffice",
        summary="Adaptive answers, and decisions about when a loop has seen enough.",
        version=VERSION,
        docs_url=None,  # their scripts are of another server
        redoc_url=None,
        lifespan=lifespan,
        responses={"default": {"model": ErrorReply, "description": "refused"}},
        exception_handlers=dict.fromkeys(
            (Refusal, SufficeError, RequestValidationError, HTTPException, Exception), answer_error
        ),
    )
    for router in routers:
        app.include_router(router)
    app.add_middleware(Guard, door=door)
    return app
