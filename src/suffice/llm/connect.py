"""From what a user types to a model."""

from __future__ import annotations

from pathlib import Path

from suffice.contracts import ChatModel
from suffice.errors import UsageError
from suffice.llm.cache import CachedModel
from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings
from suffice.llm.endpoint import OpenAISettings
from suffice.llm.openai_compatible import OpenAICompatibleModel


def connect(
    llm: str,
    model: str | None = None,
    *,
    server: OpenAISettings | None = None,
    embedded: EmbeddedSettings | None = None,
    cache: str | Path | None = None,
) -> ChatModel:
    """The model a name or URL stands for."""
    connected: ChatModel
    if llm == "embedded":
        connected = EmbeddedModel.load(model, settings=embedded)
    elif "," in llm:
        raise UsageError(
            f"--llm takes one server, found {llm!r}; put several behind a LiteLLM proxy and name its URL"
        )
    elif llm.startswith(("http://", "https://")):
        connected = OpenAICompatibleModel(llm, model, settings=server)
    else:
        raise UsageError(
            f"unknown language model {llm!r}; allowed are a server's base URL (http://... or "
            "https://...) and 'embedded'; the command line also takes 'scripted'"
        )
    return connected if cache is None else CachedModel(connected, cache)
