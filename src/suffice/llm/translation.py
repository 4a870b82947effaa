"""Errors of the ``openai`` package, translated in one place."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from suffice._optional import require
from suffice.errors import BackendError, SufficeError, UsageError

# refusals of one prompt, not of the way the server is used; no standard names them
_ABOUT_THE_PROMPT = (
    "context length",
    "context_length",
    "context limit",
    "context size",
    "context_size",
    "context window",
    "content_filter",
    "exceeds the model",
    "exceeds the maximum number of tokens",
    "input is too long",
    "input length",
    "input token count",
    "input tokens exceed",
    "inputs` tokens",
    "maximum model length",
    "prompt is too long",
    "prompt too long",
    "reduce the length",
    "reduce your prompt",
    "string_above_max_length",
    "token count",
    "too many tokens",
)
_ABOUT_THE_RATE = ("rate limit", "rate_limit", "ratelimit", "too many requests")


class NoReply(BackendError):  # noqa: N818 - reads as what it is
    """A server gave no reply, whatever it was asked: another one, or the same one later, may.

    Parameters
    ----------
    busy_s
        For how many seconds it wants to be left alone, where it said that it has too much to do.
    """

    def __init__(self, message: str, *, busy_s: float | None = None) -> None:
        super().__init__(message)
        self.busy_s = busy_s


def translate(error: Exception, *, url: str, model: str) -> SufficeError:
    """The error of this library that says what to do about one of ``openai``'s.

    Parameters
    ----------
    error
        An ``openai.OpenAIError``.
    url, model
        What was asked, named in the message.

    Returns
    -------
    SufficeError
        A :class:`UsageError` when the caller must change the request, the key, the name or the URL;
        a :class:`NoReply` when the server or the way to it failed; another :class:`BackendError` when it
        refuses this one prompt, for example as too long.
    """
    openai = require("openai", extra="openai", purpose="A model server")
    if isinstance(error, openai.APITimeoutError):
        return NoReply(
            f"{url} did not answer in time; is it overloaded? Raise OpenAISettings(timeout_s=...) or "
            "lower concurrency"
        )
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        return NoReply(
            f"{url} cannot be reached ({cause}); check that the server runs there and that the URL "
            "is its base URL, for example http://127.0.0.1:8000/v1"
        )
    if isinstance(error, openai.APIStatusError):
        return _of_status(error, url, model)
    return BackendError(f"{url} failed: {type(error).__name__}: {error}")


def _of_status(error: Any, url: str, model: str) -> SufficeError:
    status: int = error.status_code
    said = f"{url} answered {status}: {_message(error)}"
    words = f"{error} {error.body}".lower()
    if status == 403 and any(phrase in words for phrase in _ABOUT_THE_RATE):
        return NoReply(
            f"{said}. Wait, lower concurrency, and run the same again", busy_s=_pause_s(error)
        )
    if status in (401, 403):
        return UsageError(
            f"{said}. Set the environment variable OPENAI_API_KEY, or pass "
            f"OpenAISettings(api_key=...), to a key that may use {model!r}"
        )
    if status == 404:
        return UsageError(
            f"{said}. Check the model's name, {model!r} (curl {url}/models lists what there is), and "
            "that the URL is the base URL (it often ends in /v1)"
        )
    too_large = status == 413
    if too_large or (status in (400, 422) and any(phrase in words for phrase in _ABOUT_THE_PROMPT)):
        return BackendError(f"{said}. The server refuses this prompt; shorten it")
    if 400 <= status < 500 and status not in (402, 408, 409, 425, 429):
        return UsageError(
            f"{said}. The server does not accept the request for {model!r}; check that its interface "
            "is the chosen one (chat or completion) and that it allows the options asked for"
        )
    busy_s = _pause_s(error) if status == 429 else None
    return NoReply(f"{said} (after the allowed retries)", busy_s=busy_s)


def _pause_s(error: Any) -> float:
    """What the server asks for in its headers; a second where it does not say, or by a date."""
    headers = error.response.headers
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        with suppress(TypeError, ValueError):
            return max(0.0, float(headers.get(name)) * unit)
    return 1.0


def _message(error: Any) -> str:
    """What the server said, without the status line the package puts before it."""
    body = error.body
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        return str(body["message"]).rstrip(".")
    return (str(body) if body else str(error)).rstrip(".")[:500]
