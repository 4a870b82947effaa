"""The service as an ASGI application: its routes, and how errors are said."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from suffice.errors import InternalError, SufficeError
from suffice.serve.asking import PREFIX, model_id
from suffice.serve.chat import ChatCompletions
from suffice.serve.responses import Responses
from suffice.serve.service import Served, Service
from suffice.web.replies import Refusal, refusal_of

_LOG = logging.getLogger("suffice.serve")


def make_app(
    service: Service,
    *,
    routes: Sequence[BaseRoute] = (),
    middleware: Sequence[Middleware] = (),
) -> Starlette:
    """The application of a service.

    Parameters
    ----------
    service
        Answers.
    routes
        Further ones.
    middleware
        What stands before all of them, outermost first.
    """
    models = _Models(service)
    own = [
        Route("/v1/chat/completions", ChatCompletions(service).create, methods=["POST"]),
        Route("/v1/responses", Responses(service).create, methods=["POST"]),
        Route("/v1/models", models.listed, methods=["GET"]),
        Route("/v1/models/{model:path}", models.one, methods=["GET"]),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await service.drain(service.limits.seconds)
        service.close()

    return Starlette(
        lifespan=lifespan,
        routes=[*own, *routes],
        middleware=middleware,
        exception_handlers=dict.fromkeys((Refusal, SufficeError, HTTPException, Exception), _error),
    )


class _Models:
    """``/v1/models``: one a policy."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._since = int(time.time())

    async def listed(self, _: Request) -> Response:
        """All of them, the default first."""
        data = [self._model(served) for served in self._service.policies.values()]
        return JSONResponse({"object": "list", "data": data})

    async def one(self, request: Request) -> Response:
        """One of them."""
        name = request.path_params["model"].removeprefix(PREFIX)
        return JSONResponse(self._model(self._service.served(name)))

    def _model(self, served: Served) -> dict[str, object]:
        return {
            "id": model_id(served),
            "object": "model",
            "created": self._since,
            "owned_by": "suffice",
            "suffice": {
                "policy": served.live.policy.facts.summary,
                "policy_hash": served.hash,
                "model": served.live.model.name,
                "pipeline": served.live.loop.pipeline,
                "max_rounds": served.max_rounds,
                "notes": list(served.notes),
            },
        }


async def _error(request: Request, error: Exception) -> Response:
    """Whatever was raised, in the form that OpenAI's clients read; a defect is logged and not told."""
    if isinstance(error, HTTPException):
        said = f"{request.method} {request.url.path}: {error.detail}"
        return Refusal(error.status_code, said, headers=error.headers).reply()
    if isinstance(error, Refusal):
        return error.reply()
    if not isinstance(error, SufficeError) or isinstance(error, InternalError):
        _LOG.error("a request failed", exc_info=error)
        error = InternalError()
    return refusal_of(error).reply()
