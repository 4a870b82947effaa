"""Errors of the ``openai`` package and of its HTTP client, as errors of this library."""

from __future__ import annotations

import math
import time
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from suffice._optional import require
from suffice.errors import BackendError, SufficeError, UsageError, struck

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
_NO_MONEY = 402
_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_WHILE_READING = ("DecodingError", "ReadError", "RemoteProtocolError")
_ABOUT_THE_RATE = ("rate limit", "rate_limit", "ratelimit", "too many requests")


class NoReply(BackendError):  # noqa: N818 - reads as what it is
    """A server gave no reply, whatever it was asked: another one, or the same one later, may.

    ``nobody``: no connection was made at all.
    """

    passing = True

    def __init__(
        self,
        message: str,
        *,
        pause_s: float = 0.0,
        until: datetime | None = None,
        again: bool = True,
        nobody: bool = False,
    ) -> None:
        super().__init__(message)
        self.pause_s = pause_s
        self.until = until
        self.again = again
        self.nobody = nobody


class BrokenReply(NoReply):
    """A server sent what is no reply: cut, empty, a page, of wrong types, too long."""


def late(url: str) -> str:
    """What is told of a reply that is not whole in time."""
    return (
        f"{url} did not answer in time; is it overloaded? Raise OpenAISettings(timeout_s=...), --timeout, "
        "or lower concurrency"
    )


def translate(error: Exception, *, url: str, model: str) -> SufficeError:
    """The error of this library that says what to do about one of ``openai``'s."""
    openai = require("openai", extra="openai", purpose="A model server")
    cause = error.__cause__ or error
    if isinstance(error, openai.APITimeoutError) or "Timeout" in type(error).__name__:
        return NoReply(late(url))
    if isinstance(error, openai.APIConnectionError) or type(cause).__name__ in _WHILE_READING:
        if _UNTRUSTED in str(cause):
            return UsageError(
                f"{url} showed a certificate that is not trusted ({_reason(cause)}), so it was asked "
                "nothing. Check the URL; where the server is yours, name the certificate of whoever signed "
                "its own: SSL_CERT_FILE=authority.pem"
            )
        if type(cause).__name__ in _WHILE_READING:
            return NoReply(
                f"{url} cannot be reached or broke off its reply ({cause}); check the server's log"
            )
        return NoReply(
            f"{url} cannot be reached ({cause}); check that the server runs there and that the URL "
            "is its base URL, for example http://127.0.0.1:8000/v1",
            nobody=True,
        )
    if isinstance(error, openai.APIStatusError):
        return _of_status(error, url, model)
    return BackendError(f"{url} failed: {type(error).__name__}: {error}")


def _reason(cause: BaseException) -> str:
    """What is wrong with a certificate, out of OpenSSL's message."""
    return str(cause).rpartition("certificate verify failed: ")[2].partition(" (_ssl")[0]


def _of_status(error: Any, url: str, model: str) -> SufficeError:
    status: int = error.status_code
    said = f"{url} answered {status}: {_message(error)}"
    words = f"{error} {error.body}".lower()
    if status == 403 and any(phrase in words for phrase in _ABOUT_THE_RATE):
        return NoReply(
            f"{said}. Wait, lower concurrency, and run the same again", pause_s=_pause_s(error)
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
    if 300 <= status < 400:
        there = error.response.headers.get("location")
        return UsageError(
            f"{said}. It redirects to {there!r}, which is not followed, since the key would go with it; "
            "name that server's base URL where it is the right one"
        )
    if 400 <= status < 500 and status not in (402, 408, 409, 425, 429):
        return UsageError(
            f"{said}. The server does not accept the request for {model!r}; check that its interface "
            "is the chosen one (chat or completion) and that it allows the options asked for"
        )
    return NoReply(said, pause_s=_pause_s(error), again=status != _NO_MONEY)


def _pause_s(error: Any) -> float:
    """What the server asks for in its headers, in seconds or by a date; 0 where it does not say."""
    headers = error.response.headers
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        said = headers.get(name)
        with suppress(TypeError, ValueError):
            seconds = float(said) * unit
            return seconds if 0 < seconds < math.inf else 0.0
        with suppress(TypeError, ValueError):
            return max(0.0, parsedate_to_datetime(said).timestamp() - time.time())
    return 0.0


def _message(error: Any) -> str:
    """What the server said, without the status line the package puts before it."""
    body = error.body
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        return str(body["message"]).rstrip(".")
    return struck(str(body) if body else str(error)).rstrip(".")[:500]
