"""The service as an ASGI application: its routes, and how errors are said."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from suffice.errors import InternalError, SufficeError
from suffice.serve.asking import PREFIX, model_id
from suffice.serve.chat import ChatCompletions
from suffice.serve.decisions import Decisions, Policies
from suffice.serve.loops import Loops
from suffice.serve.openapi import Operation, described, documentation
from suffice.serve.responses import Responses
from suffice.serve.service import Served, Service, Wanted
from suffice.serve.settings import LoopSettings
from suffice.web.replies import Refusal, refusal_of

_LOG = logging.getLogger("suffice.serve")
_DRAINED_S = 2.0  # at least, whatever a request may take


def make_app(
    service: Service,
    *,
    routes: Sequence[BaseRoute] = (),
    middleware: Sequence[Middleware] = (),
    loops: LoopSettings | None = None,
    beside: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
) -> Starlette:
    """The application of a service."""
    models = _Models(service)
    policies = Policies(service.policy_files)
    settings = loops or LoopSettings()
    followed = Loops(
        policies,
        lambda file: service.watch(file, settings.mode),
        limits=settings,
        taken=service.limits,
        tell=service.tell,
    )
    own = [
        Route("/v1/chat/completions", ChatCompletions(service).create, methods=["POST"]),
        Route("/v1/responses", Responses(service).create, methods=["POST"]),
        Route("/v1/models", models.listed, methods=["GET"]),
        Route("/v1/models/{model:path}", models.one, methods=["GET"]),
    ]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with beside():
            async with followed.running():
                yield
            await service.drain(max(service.limits.seconds, _DRAINED_S))
            service.close()

    app = Starlette(
        lifespan=lifespan,
        routes=[
            *own,
            *Decisions(policies, limits=service.limits.bodies, tell=service.tell).routes(),
            *followed.routes(),
            *routes,
            *documentation(lambda: app.routes),
        ],
        middleware=middleware,
        exception_handlers=dict.fromkeys((Refusal, SufficeError, HTTPException, Exception), _error),
    )
    return app


# --- what OpenAI's clients ask for, as far as it is read ---------------------------------------------
_MODEL = {"type": "string", "description": "suffice/ and the policy's name; left out: the first."}
_STREAM = {"type": "boolean", "description": "Whether the answer comes in pieces as it is made."}
_ANSWERED = {"type": "object", "required": ["id", "object", "model", "suffice"]}
_TEXT = {"role": "user", "content": "Where was Ibsen born?"}


def _asked(required: str, **properties: Mapping[str, object]) -> Operation:
    """The operation of an endpoint of OpenAI's: what it reads besides the question, and an example."""
    known = {"model": _MODEL, "stream": _STREAM, **properties}
    wanted = {"$ref": "#/components/schemas/Wanted"}
    return Operation(
        takes={
            "type": "object",
            "required": [required],
            "properties": {**known, "suffice": wanted},
        },
        gives={200: _ANSWERED},
        uses=(Wanted,),
        example={required: [_TEXT]},
        headers={
            "X-Suffice-Policy": "which policy decides",
            "X-Suffice-Max-Rounds": "at most so many rounds",
            "X-Suffice-Budget-Usd": "at most so many US dollars",
        },
    )


_MESSAGES = {"type": "array", "description": "Of which the user's last is the question."}
_INPUT = {"description": "The question, or messages of which the user's last is the question."}
described(_asked("messages", messages=_MESSAGES))(ChatCompletions.create)
described(_asked("input", input=_INPUT))(Responses.create)


class _Models:
    """``/v1/models``: one a policy."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._since = int(time.time())

    @described(Operation(gives={200: {"type": "object", "required": ["object", "data"]}}))
    async def listed(self, _: Request) -> Response:
        """All of them, the default first."""
        data = [self._model(served) for served in self._service.policies.values()]
        return JSONResponse({"object": "list", "data": data})

    @described(Operation(gives={200: {"type": "object", "required": ["id", "suffice"]}}))
    async def one(self, request: Request) -> Response:
        """One of them."""
        name = request.path_params["model"].removeprefix(PREFIX)
        return JSONResponse(self._model(self._service.served(name)))

    def _model(self, served: Served) -> dict[str, object]:
        live = served.live
        return {
            "id": model_id(served),
            "object": "model",
            "created": self._since,
            "owned_by": "suffice",
            "suffice": {
                "policy": served.file.policy.facts.summary,
                "policy_hash": served.hash,
                "model": None if live is None else live.model.name,
                "pipeline": None if live is None else live.loop.pipeline,
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
