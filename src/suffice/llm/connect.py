"""From what a user types to a model."""

from __future__ import annotations

from pathlib import Path

from suffice.errors import UsageError
from suffice.llm.cache import CachedModel
from suffice.llm.embedded import EmbeddedModel, EmbeddedSettings
from suffice.llm.openai_compatible import OpenAICompatibleModel, OpenAISettings
from suffice.protocols import ChatModel


def connect(
    llm: str,
    model: str | None = None,
    *,
    server: OpenAISettings | None = None,
    embedded: EmbeddedSettings | None = None,
    cache: str | Path | None = None,
) -> ChatModel:
    """The model a name or URL stands for.

    Parameters
    ----------
    llm
        A server's base URL, or ``embedded``.
    model
        The server's name for the model (``None``: its only one), or the embedded model's name or
        GGUF file.
    server, embedded
        Settings of that kind of model; those of the other kind are not read.
    cache
        A file that keeps replies; ``None``: none are kept.

    Raises
    ------
    UsageError
        When ``llm`` is none of these, or as the chosen kind raises it.
    """
    connected: ChatModel
    if llm == "embedded":
        connected = EmbeddedModel.load(model, settings=embedded)
    elif llm.startswith(("http://", "https://")):
        connected = OpenAICompatibleModel(llm, model, settings=server)
    else:
        raise UsageError(
            f"unknown language model {llm!r}; allowed are a server's base URL (http://... or "
            "https://...) and 'embedded'; the command line also takes 'scripted'"
        )
    return connected if cache is None else CachedModel(connected, cache)
