"""One application for any routers: whether they answer, decide or show a record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from suffice._version import VERSION
from suffice.errors import SufficeError
from suffice.serve.guard import Door, Guard
from suffice.serve.replies import ErrorReply, Refusal, answer_error


def application(
    routers: Sequence[APIRouter],
    door: Door | None = None,
    *,
    lifespan: Callable[[Any], AbstractAsyncContextManager[None]] | None = None,
    body_bytes: int = 1 << 20,
) -> FastAPI:
    """Routers behind a door; without one whoever comes is let in. No page of it loads from elsewhere."""
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
    app.state.body_bytes = body_bytes
    for router in routers:
        app.include_router(router)
    if door is not None:
        app.add_middleware(Guard, door=door)
    return app
