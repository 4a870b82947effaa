"""The openai client, unchanged, against a service that listens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.serving import MESSAGES, QUESTION, listening, service

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


def test_responses(client: Any) -> None:
    reply = client.responses.create(
        model="suffice/stable", input=QUESTION, include=["file_search_call.results"]
    )
    assert reply.output_text == "Skien, Norway"
    assert reply.status == "completed"
    searches = [item for item in reply.output if item.type == "file_search_call"]
    assert [search.queries for search in searches] == [[QUESTION], [QUESTION]]
    assert [search.results[0].file_id for search in searches] == ["p0", "p1"]
    assert searches[0].results[0].attributes == {"round": 1}
    assert reply.usage.total_tokens == reply.usage.input_tokens + reply.usage.output_tokens
    assert reply.suffice["rounds"] == 2
    plain = client.responses.create(
        model="suffice/two", input=[{"role": "user", "content": QUESTION}]
    )
    assert plain.output[0].results is None


def test_responses_streamed(client: Any) -> None:
    events = list(client.responses.create(model="suffice/two", input=QUESTION, stream=True))
    kinds = [event.type.removeprefix("response.") for event in events]
    searched = [
        "output_item.added",
        "file_search_call.in_progress",
        "file_search_call.searching",
        "file_search_call.completed",
        "output_item.done",
    ]
    assert kinds == [
        "created",
        "in_progress",
        *searched,
        *searched,
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert [event.output_index for event in events if hasattr(event, "item")] == [0, 0, 1, 1, 2, 2]
    last = events[-1].response
    assert last.output_text == "Skien, Norway"
    assert last.suffice["rounds"] == 2
    with client.responses.stream(model="suffice/stable", input=QUESTION) as helped:
        for _ in helped:
            pass
        assert helped.get_final_response().output_text == "Skien, Norway"


def test_errors_are_the_clients_own(client: Any) -> None:
    with pytest.raises(openai.NotFoundError, match="unknown model 'gpt-5'") as lost:
        client.chat.completions.create(model="gpt-5", messages=MESSAGES)
    assert lost.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError, match="tools"):
        client.responses.create(model="suffice/two", input="?", tools=[{"type": "web_search"}])
    with pytest.raises(openai.BadRequestError, match="n: "):
        client.chat.completions.create(model="suffice/two", messages=MESSAGES, n=3)
