"""A service over a shelf and a scripted model, for tests."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

from suffice.contracts import ChatModel, Retriever, StopPolicy
from suffice.live.answering import AskSettings
from suffice.live.observing import Observer, QuestionEnded
from suffice.serve.app import make_app
from suffice.serve.service import Ground, Service
from suffice.testing.models import ScriptedModel
from suffice.trace.rounds.records import Passage

SHELF = tuple(
    Passage(id=f"p{number}", title=f"Town {number}", text=f"Skien is town {number} of Norway.")
    for number in range(8)
)
QUESTION = "Where was Ibsen born?"
MESSAGES = [{"role": "user", "content": QUESTION}]


class Shelf:
    """Finds the passages of a shelf in their order."""

    def retrieve(self, query: str, k: int) -> Sequence[Passage]:
        del query
        return SHELF[:k]


class Heard(Observer):
    def __init__(self) -> None:
        self.ended: list[QuestionEnded] = []

    def on(self, ended: QuestionEnded) -> None:
        self.ended.append(ended)


def service(
    model: ChatModel | None = None,
    policies: Mapping[str, StopPolicy | str | Path] | None = None,
    *,
    retriever: Retriever | None = None,
    settings: AskSettings | None = None,
    **further: Any,
) -> Service:
    """Over a model that always says Skien, unless another is given."""
    ground = Ground(
        model=model or ScriptedModel(lambda *_: "Answer: Skien, Norway\nConfidence: 4"),
        retriever=retriever or Shelf(),
        settings=settings or AskSettings(),
    )
    return Service(ground, policies or {"two": "fixed-2", "stable": "answer_stable"}, **further)


def client(served: Service) -> Any:
    from starlette.testclient import TestClient

    return TestClient(make_app(served), raise_server_exceptions=False)


def chat(asked: Any, **fields: Any) -> Any:
    headers = fields.pop("headers", None)
    return asked.post(
        "/v1/chat/completions", json={"messages": MESSAGES, **fields}, headers=headers
    )


@contextmanager
def running(app: Any, lifespan: Literal["on", "off"] = "on") -> Iterator[int]:
    """The port of an application that a thread of this process runs."""
    import uvicorn

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan=lifespan))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        time.sleep(0.005)
    try:
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(20)


@contextmanager
def listening(served: Service) -> Iterator[str]:
    """The base URL of a service that listens in a thread."""
    with running(make_app(served)) as port:
        yield f"http://127.0.0.1:{port}/v1"
