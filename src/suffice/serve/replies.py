"""Errors of the service, in the form that OpenAI's clients read."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.exceptions import HTTPException

from suffice.errors import BackendError, SufficeError, UsageError, struck

_LOG = logging.getLogger("suffice.serve")
_MOST_LETTERS = 2_000  # of a message
_NAMELESS = frozenset({"body", "query", "header", "path", "one", "several"})


class Body(BaseModel):
    """A body of a request: its fields as they are declared, and no others."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


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
        self.status = status
        self.headers = headers
        self._error = {
            "message": struck(message)[:_MOST_LETTERS],
            "type": kind,
            "param": param,
            "code": code,
        }

    @property
    def document(self) -> dict[str, Any]:
        """The body."""
        return {"error": self._error}

    def reply(self) -> JSONResponse:
        """The response."""
        return JSONResponse(self.document, self.status, headers=self.headers)


def too_many(said: str, code: str, wait_s: float) -> Refusal:
    """Refuse a client that asks too often (429), with the seconds to wait."""
    headers = {"Retry-After": str(math.ceil(wait_s))}
    return Refusal(429, said, kind="rate_limit_error", code=code, headers=headers)


def full(said: str) -> Refusal:
    """Refuse a client while the service is full (503)."""
    headers = {"Retry-After": "1", "Connection": "close"}
    return Refusal(503, said, kind="server_error", code="too_many_connections", headers=headers)


def refusal_of(error: Exception) -> Refusal:
    """The refusal that an error is; a defect says no more than that it is one."""
    if isinstance(error, Refusal):
        return error
    if isinstance(error, RequestValidationError | ValidationError):
        return _misfit(error.errors()[0])
    if isinstance(error, BackendError):
        return Refusal(502, str(error), kind="upstream_error", code="model_failed")
    if isinstance(error, SufficeError) and isinstance(error, UsageError | ValueError):
        return Refusal(400, str(error))  # DataError is a ValueError
    return Refusal(500, "the service failed; its log says where", kind="server_error")


def _misfit(error: Mapping[str, Any]) -> Refusal:
    """The first part of a request that does not fit."""
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
    """Say what was raised; a defect is logged and not told."""
    if isinstance(error, HTTPException):
        said = f"{request.method} {request.url.path}: {error.detail}"
        code = "too_large" if error.status_code == 413 else None
        return Refusal(error.status_code, said, code=code, headers=error.headers).reply()
    refusal = refusal_of(error)
    if refusal.status == 500 and not isinstance(error, Refusal):
        _LOG.error("a request failed", exc_info=error)
    return refusal.reply()
