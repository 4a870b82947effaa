"""One server's base URL: how it is asked, how much of a reply is read, when it is asked the same again."""

from __future__ import annotations

import copy
import json
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Literal, Self, TypeVar
from urllib.parse import parse_qsl, urlsplit

from suffice._optional import require
from suffice.concurrency import AdaptiveLimit, CallTally, Slots, may_be_cut, rest
from suffice.errors import UsageError, keep_secret, struck, without_credentials, without_keys
from suffice.llm.translation import BrokenReply, NoReply, late, translate
from suffice.llm.wire import Api, EventReply, joined_events

_Read = TypeVar("_Read")

_NO_KEY = "none"  # local servers ask for a key and read none
_NOTHING: Mapping[str, object] = MappingProxyType({})
_LONGEST_PAUSE_S = 8.0  # of those that are ours
_MOST_VALUES = 2_000_000  # in a reply: each takes up to 72 bytes when read
_LOGGING_URLS = ("httpx", "httpx2")
_LEAST_READ_S = 0.001
_FINE = 200
_OF_EVENTS = (b"data:", b"event:", b":")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAISettings:
    """How a server is asked."""

    api: Api = "chat"
    api_key: str | None = field(default=None, repr=False)
    timeout_s: float = 60.0
    max_retries: int = 4
    first_pause_s: float = 0.5
    max_wait_s: float = 120.0
    max_reply_bytes: int = 1 << 25
    concurrency: int | Literal["auto"] = 8
    max_concurrency: int = 100
    extra_body: Mapping[str, object] = field(default_factory=lambda: _NOTHING)

    def __post_init__(self) -> None:
        if self.api not in ("chat", "completion"):
            raise UsageError(f"api must be 'chat' or 'completion', found {self.api!r}")
        for name, low in (
            ("max_retries", 0),
            ("first_pause_s", 0),
            ("max_wait_s", 0),
            ("max_reply_bytes", 1),
            ("concurrency", 1),
            ("max_concurrency", 1),
        ):
            value = getattr(self, name)
            if value != "auto" and (isinstance(value, str) or not value >= low):
                word = ", or 'auto'" if name == "concurrency" else ""
                raise UsageError(f"{name} must be at least {low}{word}, found {value!r}")
        if not self.timeout_s > 0:
            raise UsageError(f"timeout_s must be above 0, found {self.timeout_s}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A base URL: as it is shown, as it is asked, and what every request has behind its ``?``."""

    shown: str
    asked: str
    query: Mapping[str, str]

    @classmethod
    def parse(cls, url: str) -> Self:
        """Whatever may be a key in it is kept secret."""
        shown = without_credentials(url)
        try:
            parts = urlsplit(url)
            there = bool(parts.hostname) and parts.port != 0
        except ValueError as error:
            raise UsageError(f"{shown!r} is no server's URL: {error}") from error
        if parts.scheme not in ("http", "https") or not there:
            raise UsageError(
                f"a server's URL starts with http:// or https:// and its host, found {shown!r}"
            )
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        for name, value in query.items():
            if not name.endswith("version"):
                keep_secret(value)
        return cls(
            shown=shown.partition("?")[0].partition("#")[0].rstrip("/"),
            asked=url.partition("?")[0].partition("#")[0].rstrip("/"),
            query=query,
        )


class Endpoint:
    """A server that speaks the OpenAI protocol; safe to use from several threads."""

    def __init__(self, url: str, settings: OpenAISettings) -> None:
        address = Address.parse(url)
        openai = require("openai", extra="openai", purpose="A model server")
        key = settings.api_key or os.environ.get("OPENAI_API_KEY") or _NO_KEY
        keep_secret(key)
        _keep_out_of_logs()
        self.url = address.shown
        self.limit: int | AdaptiveLimit = (
            AdaptiveLimit(most=settings.max_concurrency)
            if settings.concurrency == "auto"
            else settings.concurrency
        )
        self.slots = Slots(self.limit)
        self.tally = CallTally()
        self._settings = settings
        self.max_retries = settings.max_retries
        self._failures = openai.OpenAIError
        self._here = threading.local()
        self._client = openai.OpenAI(
            api_key=key,
            base_url=address.asked,
            default_query=address.query,
            timeout=settings.timeout_s,
            max_retries=0,  # they are made here
            http_client=_bounded(
                openai.DefaultHttpxClient, self.url, settings.max_reply_bytes, self._here
            ),
        )

    def but(self, *, max_retries: int, timeout_s: float | None = None) -> Self:
        """The same with its connections, slots and tally, asked otherwise."""
        other = copy.copy(self)
        other.max_retries = max_retries
        if timeout_s is not None:
            vars(other)["_client"] = self._client.with_options(timeout=timeout_s)
        return other

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def ask(
        self,
        send: Callable[[Any], Any],
        read: Callable[[object], _Read],
        *,
        model: str,
        events: EventReply | None = None,
    ) -> _Read:
        """What ``read`` makes of the JSON of a reply to what ``send`` sends, after some attempts or none.

        ``events`` hears the reply as it comes, where ``send`` asks for it as events.
        """
        waited = 0.0
        for attempt in range(self.max_retries + 1):
            try:
                reply = read(self._json(send, model, events))
            except NoReply as failure:
                self.tally.note(failed=True)
                if not isinstance(failure, BrokenReply):
                    self.slots.push_back()
                if attempt == self.max_retries or not failure.again:
                    raise
                if failure.pause_s and waited >= self._settings.max_wait_s:
                    raise _asked_for_too_much(failure, waited) from failure
                pause = min(failure.pause_s, self._settings.max_wait_s - waited)
                waited += pause
                rest(pause or self._pause_s(attempt))
            else:
                self.tally.note(failed=False)
                return reply
        raise AssertionError("the last attempt returns or raises")

    def _pause_s(self, attempt: int) -> float:
        longest = min(self._settings.first_pause_s * 2.0**attempt, _LONGEST_PAUSE_S)
        return longest * random.uniform(0.5, 1.0)  # noqa: S311 - spreads threads, guards nothing

    def _json(self, send: Callable[[Any], Any], model: str, events: EventReply | None) -> object:
        if events is not None:
            events.begin()
        self._here.hear = None if events is None else events.feed
        try:
            raw = send(self._client)
        except self._failures as error:
            failure = translate(error, url=self.url, model=model)
            raise failure from (None if failure is error.__cause__ else error)
        content = raw.http_response.content
        if events is not None and content.lstrip().startswith(_OF_EVENTS):
            _check_values(content, self.url)
            return joined_events(content, self.url)
        return _json_of(content, self.url)


def _asked_for_too_much(failure: NoReply, waited: float) -> NoReply:
    """What is told where a server wants to be left alone for longer than is waited."""
    seconds = failure.pause_s
    try:
        until = datetime.now(UTC) + timedelta(seconds=seconds)
    except OverflowError:
        until = datetime.max.replace(tzinfo=UTC)
    return NoReply(
        f"{failure}; it was waited for {waited:.0f} s as the server asked, and it asks for more: it wants "
        f"to be left alone until {until:%Y-%m-%d %H:%M} UTC ({seconds:,.0f} s). Run the same again then, or "
        "raise OpenAISettings(max_wait_s=...), --max-wait",
        busy=failure.busy,
        pause_s=seconds,
        until=until,
    )


def _keep_out_of_logs() -> None:
    """The HTTP client logs whole URLs where a program asks for its log."""
    for name in _LOGGING_URLS:
        logger = logging.getLogger(name)
        if _struck_record not in logger.filters:
            logger.addFilter(_struck_record)


def _struck_record(record: logging.LogRecord) -> bool:
    record.msg, record.args = struck(record.getMessage()), ()
    return True


# --- how much is read ------------------------------------------------------------------------------
def _json_of(content: bytes, url: str) -> object:
    """The JSON of a reply; :class:`BrokenReply` where it is none."""
    _check_values(content, url)
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        begins = struck(content[:2000].decode(errors="replace"))[:200]
        why = "nested too deeply" if isinstance(error, RecursionError) else error
        raise BrokenReply(
            f"{url} sent a reply that is not JSON ({why}): {begins!r}. {_where(url)}"
        ) from error


def _check_values(content: bytes, url: str) -> None:
    if content.count(b",") > _MOST_VALUES:
        raise BrokenReply(f"{url} sent a reply of more than {_MOST_VALUES:,} values. {_where(url)}")


def _where(url: str) -> str:
    return f"Check that {url} is the URL of an OpenAI-compatible interface (it often ends in /v1)"


def _bounded(kind: Any, url: str, most_bytes: int, here: threading.local) -> Any:
    """A client of the ``openai`` package's kind that reads so much, so long, and follows no redirect.

    A read that gets a byte now and then is never late by itself, so each is given what is left of the
    request's time. What this thread's ``here.hear`` is, if anything, is given a reply as it comes.
    """

    class Bounded(kind):  # type: ignore[misc]
        def send(self, request: Any, *, stream: bool = False, **how: Any) -> Any:
            del stream
            seconds = request.extensions.get("timeout", {}).get("read")
            here.until = float("inf") if seconds is None else time.monotonic() + seconds
            request.extensions["trace"] = connected
            response = super().send(request, stream=True, **how)
            try:
                chunks = _parts(url, response.iter_bytes(), most_bytes, here.until)
                hear = getattr(here, "hear", None)
                if hear is not None and response.status_code == _FINE:
                    chunks = _heard(chunks, hear)
                content = without_keys(b"".join(chunks))
            finally:
                response.close()
            packing = ("content-encoding", "content-length", "transfer-encoding")
            headers = [(k, v) for k, v in response.headers.multi_items() if k not in packing]
            return type(response)(
                response.status_code, headers=headers, content=content, request=response.request
            )

        def __del__(self) -> None:  # when nobody needs it any more, as the package's own is
            if not getattr(self, "is_closed", True):
                self.close()

    def connected(event: str, told: Mapping[str, Any]) -> None:
        """Told of a new connection: its reads end when the request's time does."""
        if not event.endswith(("connect_tcp.complete", "start_tls.complete")):
            return
        stream = told["return_value"]
        read = stream.read

        def hang_up() -> None:
            with suppress(OSError):  # the server did
                # of the socket below TLS, which is being read
                socket.socket.shutdown(stream.get_extra_info("socket"), socket.SHUT_RDWR)

        def in_time(max_bytes: int, timeout: float | None = None) -> Any:
            left = max(here.until - time.monotonic(), _LEAST_READ_S)
            with may_be_cut(hang_up):
                return read(max_bytes, left if timeout is None else min(left, timeout))

        stream.read = in_time

    return Bounded(follow_redirects=False)


def _heard(chunks: Iterable[bytes], hear: Callable[[bytes], None]) -> Iterator[bytes]:
    for chunk in chunks:
        hear(without_keys(chunk))
        yield chunk


def _parts(url: str, chunks: Iterable[bytes], most_bytes: int, until: float) -> Iterator[bytes]:
    """The chunks of a reply, while it is not too long and not too late."""
    length = 0
    for chunk in chunks:
        length += len(chunk)
        if length > most_bytes:
            raise BrokenReply(
                f"{url} sent more than {most_bytes:,} bytes in one reply; where that is meant, raise "
                "OpenAISettings(max_reply_bytes=...)"
            )
        if time.monotonic() > until:
            raise NoReply(late(url))
        yield chunk
