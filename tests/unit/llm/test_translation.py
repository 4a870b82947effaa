from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import openai
import pytest

from suffice.errors import BackendError, SufficeError, UsageError
from suffice.llm.translation import translate

URL = "http://127.0.0.1:9/v1"


def answer(status: int) -> Any:
    """The parts of an HTTP response that the package reads, whichever client it is built on."""
    return SimpleNamespace(status_code=status, headers={}, request=SimpleNamespace(url=URL))


def tree(root: type[openai.OpenAIError]) -> list[type[openai.OpenAIError]]:
    return [root, *(found for child in root.__subclasses__() for found in tree(child))]


def build(kind: Any) -> Any:
    """An instance by the constructor the class has, or without one where it wants other things."""
    if issubclass(kind, openai.APIStatusError):
        status = getattr(kind, "status_code", 418)
        response = answer(status if isinstance(status, int) else 418)
        try:
            return kind("said", response=response, body={"message": "said"})
        except TypeError:
            error = kind.__new__(kind)
            Exception.__init__(error, "said")
            error.status_code, error.body = response.status_code, None
            return error
    error_ = kind.__new__(kind)
    Exception.__init__(error_, "said")
    return error_


@pytest.mark.parametrize("kind", tree(openai.OpenAIError), ids=lambda kind: kind.__name__)
def test_every_error_of_the_package_is_translated(kind: type[openai.OpenAIError]) -> None:
    found = translate(build(kind), url=URL, model="m")
    assert isinstance(found, UsageError | BackendError)
    assert URL in str(found)


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (400, UsageError, "chat or completion"),
        (401, UsageError, "OPENAI_API_KEY"),
        (403, UsageError, "OPENAI_API_KEY"),
        (404, UsageError, f"curl {URL}/models"),
        (405, UsageError, "does not accept"),
        (422, UsageError, "does not accept"),
        (402, BackendError, "402"),
        (408, BackendError, "retries"),
        (409, BackendError, "retries"),
        (429, BackendError, "retries"),
        (500, BackendError, "retries"),
        (503, BackendError, "retries"),
    ],
)
def test_who_must_act(status: int, kind: type[SufficeError], words: str) -> None:
    response = answer(status)
    error = openai.APIStatusError("x", response=response, body={"message": "The reason."})
    found = translate(error, url=URL, model="m")
    assert type(found) is kind
    assert words in str(found)
    assert f"answered {status}: The reason" in str(found)


@pytest.mark.parametrize(
    "body",
    [
        {"message": "too long", "type": "exceed_context_size_error"},
        {"message": "too long", "code": "context_length_exceeded"},
        {"message": "no", "code": "content_filter"},
    ],
)
def test_a_refused_prompt_is_not_a_wrong_setting(body: dict[str, Any]) -> None:
    response = answer(400)
    error = openai.BadRequestError(f"Error code: 400 - {body}", response=response, body=body)
    assert isinstance(translate(error, url=URL, model="m"), BackendError)
