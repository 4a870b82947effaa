"""The openai client, unchanged, against a service that listens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.serving import MESSAGES, listening, service

openai = pytest.importorskip("openai")
pytest.importorskip("uvicorn")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with listening(service()) as base:
        yield base


@pytest.fixture
def client(url: str) -> Iterator[Any]:
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as asking:
        yield asking


def test_chat_completions(client: Any) -> None:
    reply = client.chat.completions.create(
        model="suffice/stable", messages=MESSAGES, extra_headers={"X-Suffice-Max-Rounds": "3"}
    )
    assert reply.choices[0].message.content == "Skien, Norway"
    assert reply.usage.prompt_tokens_details.cached_tokens == 0
    assert reply.suffice["rounds"] == 2
    raw = client.chat.completions.with_raw_response.create(
        model="suffice/two", messages=MESSAGES, extra_headers={"X-Suffice-Max-Rounds": "1"}
    )
    assert raw.headers["x-suffice-stopped-by"] == "budget"


def test_chat_completions_streamed(client: Any) -> None:
    stream = client.chat.completions.create(
        model="suffice/two", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "Skien, Norway"
    assert chunks[-1].usage.total_tokens > 0
    assert chunks[-1].suffice["stopped_by"] == "policy"
    with client.chat.completions.stream(model="suffice/two", messages=MESSAGES) as helped:
        assert helped.get_final_completion().choices[0].message.content == "Skien, Norway"


def test_errors_are_the_clients_own(client: Any) -> None:
    with pytest.raises(openai.NotFoundError, match="unknown model 'gpt-5'") as lost:
        client.chat.completions.create(model="gpt-5", messages=MESSAGES)
    assert lost.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="tools"):
        client.chat.completions.create(
            model="suffice/two", messages=MESSAGES, tools=[{"type": "function"}]
        )
    with pytest.raises(openai.BadRequestError, match="n: "):
        client.chat.completions.create(model="suffice/two", messages=MESSAGES, n=3)
