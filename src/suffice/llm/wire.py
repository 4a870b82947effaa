"""The OpenAI wire format: requests, failures, counts and tokens, no network."""

from __future__ import annotations

import json
import math
import reprlib
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal, Self

from suffice._optional import require
from suffice.contracts import GenerationRequest
from suffice.errors import BackendError, SufficeError, UsageError, struck
from suffice.trace.rounds.records import Token, TopToken

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
    """Report that a server did not reply to any request; a later try may succeed."""

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
    """Report an invalid reply of a server: cut, empty, a web page, wrong types, too long."""


def late(url: str) -> str:
    return (
        f"{url} did not answer in time; is it overloaded? Raise OpenAISettings(timeout_s=...), --timeout, "
        "or lower concurrency"
    )


def translate(error: Exception, *, url: str, model: str) -> SufficeError:
    """Return the library's error, with a remedy, for one of ``openai``'s."""
    openai = require("openai", extra="openai", purpose="A model server")
    cause = error.__cause__ or error
    if isinstance(error, openai.APITimeoutError) or "Timeout" in type(error).__name__:
        return NoReply(late(url))
    if isinstance(error, openai.APIConnectionError) or type(cause).__name__ in _WHILE_READING:
        if _UNTRUSTED in str(cause):
            why = str(cause).rpartition("certificate verify failed: ")[2].partition(" (_ssl")[0]
            return UsageError(
                f"{url} has an untrusted certificate ({why}), so it was asked "
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


def _of_status(error: Any, url: str, model: str) -> SufficeError:
    status: int = error.status_code
    said = f"{url} answered {status}: {_message(error)}"
    words = f"{error} {error.body}".lower()
    if status == 403 and any(phrase in words for phrase in _ABOUT_THE_RATE):
        return NoReply(
            f"{said}. Wait, lower concurrency, and run the same command again",
            pause_s=_pause_s(error),
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
    body = error.body
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        return str(body["message"]).rstrip(".")
    return struck(str(body) if body else str(error)).rstrip(".")[:500]


Api = Literal["chat", "completion"]
MAX_TOP_LOGPROBS = 20
# llama.cpp's guided grammars read it; small models, free to put white space anywhere, put it there
# until max_tokens
ONE_LINE = {
    "x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
}


class Closable:
    """Close an object at the end of ``with``."""

    def close(self) -> None:
        """Release all resources. You may call it twice."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class NullReply(BrokenReply):
    """Report a reply with null in place of a text: a passing fault, or the model's whole reply."""


def check_request(request: GenerationRequest, api: Api, name: str) -> None:
    form: Api = "completion" if isinstance(request.prompt, str) else "chat"
    if form != api:
        wanted = "a string" if api == "completion" else "a tuple of messages"
        raise UsageError(
            f"model {name!r} is used through its {api} interface and wants {wanted} as prompt, "
            f"found {type(request.prompt).__name__}; build the prompt for model.api, "
            f'or choose api="{form}" when connecting'
        )
    for field, value, low, high in (
        ("n", request.n, 1, math.inf),
        ("max_tokens", request.max_tokens, 1, math.inf),
        ("top_logprobs", request.top_logprobs, 0, MAX_TOP_LOGPROBS),
        ("temperature", request.temperature, 0, math.inf),
        ("top_p", request.top_p, 0, 1),
    ):
        if not low <= value <= high:
            limit = f"at least {low}" if high == math.inf else f"between {low} and {high}"
            raise UsageError(f"{field} must be {limit}, found {value}")
    if request.json_schema is not None:
        schema_text(request.json_schema)


def schema_text(schema: Mapping[str, Any]) -> str:
    """Return a JSON schema as JSON with its keys in the given order, which a reply follows."""
    if not isinstance(schema, Mapping):
        raise UsageError(
            f"json_schema must be a mapping such as {{'type': 'object'}}, found {type(schema).__name__}"
        )
    try:
        return json.dumps(schema, default=_as_dict, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(
            f"json_schema cannot be written as JSON ({error}); only strings, finite numbers, true, "
            "false, null, lists and mappings with text keys are allowed"
        ) from error


def request_body(request: GenerationRequest) -> dict[str, Any]:
    """Return the request as a JSON object, without ``model``."""
    body: dict[str, Any] = {
        "temperature": request.temperature,
        "top_p": request.top_p,
        "max_tokens": request.max_tokens,
    }
    if request.n > 1:
        body["n"] = request.n
    if request.seed is not None:
        body["seed"] = request.seed
    if request.stop:
        body["stop"] = list(request.stop)
    if isinstance(request.prompt, str):
        body["prompt"] = request.prompt
        if request.top_logprobs:
            body["logprobs"] = request.top_logprobs
    else:
        body["messages"] = [{"role": m.role, "content": m.content} for m in request.prompt]
        if request.top_logprobs:
            body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    if request.json_schema is not None:
        schema = json.loads(schema_text(request.json_schema))
        if isinstance(request.prompt, str):
            body["json_schema"] = ONE_LINE | schema
        else:
            named = {"name": "reply", "schema": schema, "strict": True}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
    return body


def _as_dict(value: object) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"found {type(value).__name__}")


def excerpt(value: object) -> str:
    """Return its beginning, however deep or large it is."""
    short = reprlib.Repr()
    short.maxdict = short.maxlist = short.maxlevel = 6
    short.maxstring = short.maxlong = short.maxother = 80
    text = short.repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def tokens_of(logprobs: object, top_logprobs: int, source: str) -> tuple[Token, ...] | None:
    """Return the tokens under ``logprobs``, in either form; ``None``: neither, or some are unknown."""
    if not isinstance(logprobs, Mapping):
        return None
    try:
        if isinstance(logprobs.get("content"), list):
            rows = [
                (
                    entry["token"],
                    entry["logprob"],
                    [(top["token"], top["logprob"]) for top in entry.get("top_logprobs") or ()],
                )
                for entry in logprobs["content"]
            ]
        elif isinstance(logprobs.get("tokens"), list):
            rows = _legacy_rows(logprobs)
        else:
            return None
    except (KeyError, TypeError, AttributeError) as error:
        raise BrokenReply(
            f"{source} sent log-probabilities of an unknown shape: {excerpt(logprobs)}"
        ) from error
    if not all(isinstance(token, str) for token, _, _ in rows):
        raise BrokenReply(f"{source} sent a token that is no text: {excerpt(logprobs)}")
    if any(logprob is None for _, logprob, _ in rows):
        return None
    return tuple(
        Token(token, _number(logprob, token, source), _best(top, top_logprobs, source))
        for token, logprob, top in rows
    )


def _legacy_rows(logprobs: Mapping[str, Any]) -> list[tuple[str, Any, list[tuple[str, Any]]]]:
    tokens = logprobs["tokens"]
    values = logprobs.get("token_logprobs") or []
    tops: Sequence[Any] = logprobs.get("top_logprobs") or [None] * len(tokens)
    if not len(tokens) == len(values) == len(tops):
        raise KeyError("lengths differ")
    return [
        (token, value, list((top or {}).items()))
        for token, value, top in zip(tokens, values, tops, strict=True)
    ]


def _best(top: list[tuple[str, Any]], limit: int, source: str) -> tuple[TopToken, ...]:
    known = [TopToken(t, _number(v, t, source)) for t, v in top if v is not None]
    return tuple(sorted(known, key=lambda entry: -entry.logprob)[:limit])


def _number(value: object, token: str, source: str) -> float:
    try:
        number = float(value) if isinstance(value, int | float) else math.nan
    except OverflowError:
        number = math.nan
    if math.isnan(number) or number == math.inf:
        raise BrokenReply(
            f"{source} gave token {token!r} the log-probability {excerpt(value)}; a number of at most 0 is "
            "allowed. The server's numerics failed: check its log, its weights and its precision, "
            "or ask for no log-probabilities"
        )
    # float32 of the trace has no room below this; the probability is 0 either way
    return number if number > -3.0e38 else -math.inf
