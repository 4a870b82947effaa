"""The service over HTTP: routers of answers, decisions and loops."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Header, Request, Response

from suffice.serve.decisions import decision_router
from suffice.serve.forms import ChatRequest, Completion, Open, model_id
from suffice.serve.guard import Door, application
from suffice.serve.loops import Loops
from suffice.serve.service import Served, Service, Wanted
from suffice.serve.service_settings import SecuritySettings

_DRAINED_S = 5.0  # for the threads of questions that were answered or refused


class AnswerReply(Open):
    """An answer in OpenAI's form; ``suffice`` says how it came about."""

    id: str
    object: str
    model: str
    suffice: dict[str, Any]


OfHeaders = Annotated[Wanted, Header()]


def make_app(
    service: Service,
    *,
    routers: Sequence[APIRouter] = (),
    door: Door | None = None,
    beside: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    clock: Callable[[], float] = time.monotonic,
) -> FastAPI:
    """Make the application of a service, open to anybody without a door."""
    loops = Loops(service, clock)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with beside():
            async with loops.running():
                yield
            await service.drain(_DRAINED_S)
            service.close()

    anybody = Door(settings=SecuritySettings(hosts=("*",)), body_bytes=service.limits.body_bytes)
    app = application(
        [answer_router(service), decision_router(service), loops.router, *routers],
        door or anybody,
        lifespan=lifespan,
    )
    app.state.loops = loops
    return app


def answer_router(service: Service) -> APIRouter:
    router = APIRouter(tags=["answers"])
    since = int(time.time())

    @router.post("/v1/chat/completions", response_model=AnswerReply)
    async def complete(request: Request, body: ChatRequest, headers: OfHeaders) -> Response:
        """Answer the last message of the user."""
        return await Completion.answer(service, request, body, headers)

    @router.get("/v1/models")
    async def models() -> dict[str, Any]:
        """List every policy as a model, the default first."""
        data = [_model(served, since) for served in service.policies.values()]
        return {"object": "list", "data": data}

    @router.get("/v1/models/{model:path}")
    async def model(model: str) -> dict[str, Any]:
        """Describe a policy as a model."""
        return _model(service.served(model, code="model_not_found"), since)

    return router


def _model(served: Served, since: int) -> dict[str, Any]:
    live = served.live
    return {
        "id": model_id(served),
        "object": "model",
        "created": since,
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
