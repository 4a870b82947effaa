"""LlamaIndex' classes for OpenAI ask ``suffice serve``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

like = pytest.importorskip(
    "llama_index.llms.openai_like", reason="runs in its own environment: make test-integrations"
)
messages = pytest.importorskip("llama_index.core.llms")
pytest.importorskip("uvicorn")

from tests.serving import QUESTION, listening, service  # noqa: E402

# its asynchronous client is closed by nobody
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with listening(service()) as base:
        yield base


def asked() -> list[Any]:
    return [messages.ChatMessage(role="user", content=QUESTION)]


async def streamed(llm: Any) -> str:
    return "".join([piece.delta or "" async for piece in await llm.astream_chat(asked())])


def test_openai_like(url: str) -> None:
    llm = like.OpenAILike(
        api_base=url, api_key="none", model="suffice/two", is_chat_model=True, max_tokens=50
    )
    assert llm.chat(asked()).message.content == "Skien, Norway"
    pieces = [chunk.delta for chunk in llm.stream_chat(asked())]
    assert "".join(piece or "" for piece in pieces) == "Skien, Norway"
    assert asyncio.run(llm.achat(asked())).message.content == "Skien, Norway"
    assert asyncio.run(streamed(llm)) == "Skien, Norway"
    assert llm.complete(QUESTION).text == "Skien, Norway"
