"""From what a user types to a model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from suffice.errors import UsageError
from suffice.llm.cache import CachedModel
from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings
from suffice.llm.endpoint import OpenAISettings
from suffice.llm.openai_compatible import OpenAICompatibleModel
from suffice.llm.servers import ServerPool
from suffice.protocols import ChatModel


def connect(
    llm: str,
    model: str | None = None,
    *,
    server: OpenAISettings | None = None,
    embedded: EmbeddedSettings | None = None,
    cache: str | Path | None = None,
    on_change: Callable[[str], None] | None = None,
) -> ChatModel:
    """The model a name or URL stands for."""
    connected: ChatModel
    urls = [url.strip() for url in llm.split(",")]
    if llm == "embedded":
        connected = EmbeddedModel.load(model, settings=embedded)
    elif all(url.startswith(("http://", "https://")) for url in urls):
        connected = (
            OpenAICompatibleModel(urls[0], model, settings=server)
            if len(urls) == 1
            else ServerPool(urls, model, settings=server, on_change=on_change)
        )
    else:
        raise UsageError(
            f"unknown language model {llm!r}; allowed are a server's base URL (http://... or "
            "https://...), several of them separated by commas, and 'embedded'; the command line also "
            "takes 'scripted'"
        )
    return connected if cache is None else CachedModel(connected, cache)
