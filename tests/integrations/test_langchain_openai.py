"""LangChain's class for OpenAI asks ``suffice serve``."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

openai = pytest.importorskip(
    "langchain_openai", reason="runs in its own environment: make test-integrations"
)
pytest.importorskip("uvicorn")

from tests.serving import QUESTION, listening, service  # noqa: E402


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with listening(service()) as base:
        yield base


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Of all tests: every model shares one client, which keeps its connections."""
    with asyncio.Runner() as runner:
        yield runner.get_loop()


async def asked(llm: Any) -> tuple[str, str]:
    whole = await llm.ainvoke(QUESTION)
    return whole.text, "".join([chunk.text async for chunk in llm.astream(QUESTION)])


def test_chat_completions(url: str, loop: asyncio.AbstractEventLoop) -> None:
    llm = openai.ChatOpenAI(
        base_url=url, api_key="none", model="suffice/two", temperature=0, max_tokens=50
    )
    reply = llm.invoke(QUESTION)
    assert reply.content == "Skien, Norway"
    assert reply.usage_metadata["total_tokens"] > 0
    assert reply.response_metadata["model_name"] == "suffice/two"
    pieces = [chunk.content for chunk in llm.stream(QUESTION)]
    assert "".join(pieces) == "Skien, Norway"
    assert len([piece for piece in pieces if piece]) == 2
    assert loop.run_until_complete(asked(llm)) == ("Skien, Norway", "Skien, Norway")
    limited = llm.bind(extra_headers={"X-Suffice-Max-Rounds": "1"}).invoke(QUESTION)
    assert limited.content == "Skien, Norway"
