from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import openai
import pytest

from suffice.errors import BackendError, SufficeError, UsageError
from suffice.llm.wire import NoReply, translate

URL = "http://127.0.0.1:9/v1"


def answer(status: int) -> Any:
    """The parts of an HTTP response that the package reads, whichever client it is built on."""
    return SimpleNamespace(status_code=status, headers={}, request=SimpleNamespace(url=URL))


@pytest.mark.parametrize(
    ("status", "kind", "words"),
    [
        (400, UsageError, "chat or completion"),
        (401, UsageError, "OPENAI_API_KEY"),
        (403, UsageError, "OPENAI_API_KEY"),
        (404, UsageError, f"curl {URL}/models"),
        (405, UsageError, "does not accept"),
        (422, UsageError, "does not accept"),
        (402, NoReply, "402"),
        (408, NoReply, "408"),
        (409, NoReply, "409"),
        (429, NoReply, "429"),
        (500, NoReply, "500"),
        (503, NoReply, "503"),
    ],
)
def test_who_must_act(status: int, kind: type[SufficeError], words: str) -> None:
    response = answer(status)
    error = openai.APIStatusError("x", response=response, body={"message": "The reason."})
    found = translate(error, url=URL, model="m")
    assert type(found) is kind
    assert words in str(found)
    assert f"answered {status}: The reason" in str(found)


TOO_LONG = {
    "openai": "This model's maximum context length is 4097 tokens. However, your messages resulted in "
    "5012 tokens. Please reduce the length of the messages.",
    "openai-input": "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted "
    "in 278000 tokens. Please reduce the length of the messages.",
    "openai-window": "Your input exceeds the context window of this model. Please adjust your input "
    "and try again.",
    "openai-embeddings": "This model's maximum context length is 8192 tokens, however you requested "
    "9216 tokens (9216 in your prompt; 0 for the completion). Please reduce your prompt; or "
    "completion length.",
    "vllm": "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens "
    "(4744 in the messages, 256 in the completion). Please reduce the length of the messages or "
    "completion.",
    "vllm-decoder": "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "llama.cpp": "the request exceeds the available context size, try increasing it",
    "llama.cpp-counted": "request (5000 tokens) exceeds the available context size (4096 tokens), try "
    "increasing it",
    "anthropic": "prompt is too long: 208310 tokens > 200000 maximum",
    "anthropic-limit": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, "
    "decrease input length or `max_tokens` and try again",
    "ollama": "the input length exceeds the context length",
    "ollama-max": "prompt too long; exceeded max context length by 31 tokens",
    "gemini": "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "sglang": "Requested token count exceeds the model's maximum context length of 4096 tokens.",
    "mistral": "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "bedrock": "Input is too long for requested model.",
    "tgi": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 "
    "`inputs` tokens and 20 `max_new_tokens`",
}
WRONG_SETTINGS = (
    "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas "
    "you provided 100000.",
    "Invalid 'stop': array too long. Expected an array with maximum length 4, but got 5 instead.",
    "Unrecognized request argument supplied: top_k",
    "'top_logprobs' must be at most 5",
    "Invalid model: no-such-model",
    "The model `x` does not support the chat interface",
)


def refused(status: int, message: str) -> SufficeError:
    body = {"message": message, "type": "invalid_request_error"}
    text = f"Error code: {status} - {body}"
    error = openai.APIStatusError(text, response=answer(status), body=body)
    return translate(error, url=URL, model="m")


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("server", TOO_LONG)
def test_a_prompt_that_is_too_long_fails_its_question_alone(server: str, status: int) -> None:
    for message in (TOO_LONG[server], TOO_LONG[server].upper()):
        found = refused(status, message)
        assert type(found) is BackendError
        assert "shorten it" in str(found)
        assert message.rstrip(".") in str(found)


@pytest.mark.parametrize("message", WRONG_SETTINGS)
def test_a_wrong_setting_is_not_about_the_prompt(message: str) -> None:
    assert type(refused(400, message)) is UsageError


def test_a_body_without_a_message_is_read_too() -> None:
    text = TOO_LONG["vllm"]
    error = openai.APIStatusError("Error code: 400", response=answer(400), body=text)
    assert type(translate(error, url=URL, model="m")) is BackendError


def test_a_request_that_is_too_large_is_that_request_alone() -> None:
    assert "shorten it" in str(refused(413, "Request Entity Too Large"))
    assert type(refused(413, "Request Entity Too Large")) is BackendError


@pytest.mark.parametrize("status", [401, 404])
def test_a_key_or_name_is_never_about_the_prompt(status: int) -> None:
    assert type(refused(status, TOO_LONG["openai"])) is UsageError


@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (403, "You have exceeded a secondary rate limit. Please wait a few minutes.", NoReply),
        (403, "Quota exceeded for this project", UsageError),
        (403, "Country not supported", UsageError),
        (429, "Rate limit reached for requests", NoReply),
        (429, "You exceeded your current quota, please check your plan.", NoReply),
    ],
)
def test_a_rate_limit_passes_and_a_quota_does_not(
    status: int, message: str, kind: type[SufficeError]
) -> None:
    found = refused(status, message)
    assert type(found) is kind
    assert ("OPENAI_API_KEY" in str(found)) == (kind is UsageError)
