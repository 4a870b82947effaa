"""A service over a shelf and a scripted model, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from suffice.pipelines.live.ask import AskSettings
from suffice.protocols import ChatModel, Retriever, StopPolicy
from suffice.serve.app import make_app
from suffice.serve.events import Event, Observer
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
        """The first of them."""
        del query
        return SHELF[:k]


class Heard(Observer):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on(self, event: Event) -> None:
        """Keep it."""
        self.events.append(event)


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


def client(served: Service) -> TestClient:
    """Asks it."""
    return TestClient(make_app(served), raise_server_exceptions=False)


def chat(asked: TestClient, **fields: Any) -> Any:
    """The reply to a chat completion."""
    headers = fields.pop("headers", None)
    return asked.post(
        "/v1/chat/completions", json={"messages": MESSAGES, **fields}, headers=headers
    )
