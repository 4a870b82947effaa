"""Requests to one server: time limits, retries and the size limit of a reply."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import parse_qsl, urlsplit

from suffice._optional import require
from suffice.concurrency import CallTally, Once, may_be_cut, rest, seconds_left, started
from suffice.errors import (
    BackendError,
    UsageError,
    keep_secret,
    struck,
    without_credentials,
    without_keys,
)
from suffice.foreign import is_here
from suffice.llm.replies import EventReply, are_events, joined_events
from suffice.llm.wire import Api, BrokenReply, Closable, NoReply, excerpt, late, translate

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_Read = TypeVar("_Read")
Send = Callable[[Any], AbstractAsyncContextManager[Any]]
"""A function that sends a request by the client and opens its reply."""

_NO_KEY = "none"  # local servers ask for a key and read none
_RETRIES_OF_NOBODY = 4  # of a server that never answered, once ten first pauses have passed
_LONGEST_PAUSE_S = 8.0  # of those that are ours
_LOGGING_URLS = ("httpx", "httpx2")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenAISettings:
    api: Api = "chat"
    api_key: str | None = field(default=None, repr=False)
    timeout_s: float = 60.0
    max_retries: int = 6
    first_pause_s: float = 0.5
    max_wait_s: float = 120.0
    max_reply_bytes: int = 1 << 25
    concurrency: int = 8
    extra_body: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        if self.api not in ("chat", "completion"):
            raise UsageError(f"api must be 'chat' or 'completion', found {self.api!r}")
        for name, low in (
            ("max_retries", 0),
            ("first_pause_s", 0),
            ("max_wait_s", 0),
            ("max_reply_bytes", 1),
            ("concurrency", 1),
        ):
            value = getattr(self, name)
            if isinstance(value, str) or not value >= low:
                raise UsageError(f"{name} must be at least {low}, found {value!r}")
        if not self.timeout_s > 0:
            raise UsageError(f"timeout_s must be above 0, found {self.timeout_s}")


def _parts(url: str) -> tuple[str, str, Mapping[str, str]]:
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
    bare, asked = (text.partition("?")[0].partition("#")[0].rstrip("/") for text in (shown, url))
    return bare, asked, query


def _running_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    started(loop.run_forever, "model-calls")
    weakref.finalize(loop, _settle, os.getpid(), loop)  # of those made later these run before
    return loop


def _settle(process: int, loop: asyncio.AbstractEventLoop) -> None:

    async def settled() -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        if others:
            await asyncio.wait(others, timeout=1.0)

    if process == os.getpid():
        asyncio.run_coroutine_threadsafe(settled(), loop).result()


_loops: dict[int, Once[asyncio.AbstractEventLoop]] = {}  # a fork has its own


def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of all requests, so that each can be canceled and ends in time."""
    return _loops.setdefault(os.getpid(), Once(_running_loop))()


def _hang_up(clients: dict[int, Once[Any]]) -> Future[None] | None:
    client = clients.pop(os.getpid(), None)
    return None if client is None else asyncio.run_coroutine_threadsafe(client().close(), _loop())


class _Cut:
    """Hold a handle that ends a request, called in the event loop's thread."""

    def __init__(self) -> None:
        self._scope: Any = None
        self._over = False

    def ends(self, scope: Any) -> None:
        """Set the task to cancel; cancel at once if the cut came before."""
        self._scope = scope
        if self._over:
            scope.cancel()

    def __call__(self) -> None:
        self._over = True
        if self._scope is not None:
            self._scope.cancel()


class Endpoint:
    """Talk to a server of the OpenAI protocol; safe to use from several threads."""

    def __init__(self, url: str, settings: OpenAISettings) -> None:
        shown, asked, query = _parts(url)
        self.url: str = shown
        openai = require("openai", extra="openai", purpose="A model server")
        self._tenacity = require("tenacity", extra="openai", purpose="A model server")
        self._anyio = importlib.import_module("anyio")  # of openai
        key = settings.api_key or os.environ.get("OPENAI_API_KEY") or _NO_KEY
        keep_secret(key)
        for name in _LOGGING_URLS:  # they log whole URLs where a program asks for its log
            logger = logging.getLogger(name)
            if _struck_record not in logger.filters:
                logger.addFilter(_struck_record)
        self.slots: threading.BoundedSemaphore = threading.BoundedSemaphore(settings.concurrency)
        self.tally: CallTally = CallTally()
        self._settings = settings
        http = importlib.import_module(
            openai.DefaultAsyncHttpxClient.__base__.__module__.partition(".")[0]
        )
        self._failures = (openai.OpenAIError, http.HTTPError)

        def client() -> Any:
            return openai.AsyncOpenAI(
                api_key=key,
                base_url=asked,
                default_query=query,
                timeout=settings.timeout_s,
                max_retries=0,  # it does not know which replies cannot be read
                http_client=openai.DefaultAsyncHttpxClient(
                    follow_redirects=False,
                    # no proxy of the environment reaches this machine's own servers
                    trust_env=asked.startswith("https")
                    or not is_here(urlsplit(asked).hostname or ""),
                ),
            )

        self._new_client = client
        self._clients: dict[int, Once[Any]] = {}  # of each process that a fork made
        _loop()
        weakref.finalize(self, _hang_up, self._clients)

    def close(self) -> None:
        if (closing := _hang_up(self._clients)) is not None:
            closing.result()

    def ask(
        self,
        send: Send,
        read: Callable[[object], _Read],
        *,
        model: str,
        events: EventReply | None = None,
    ) -> _Read:
        """Send ``send``, with retries, and return ``read`` of the reply's JSON."""
        tenacity, settings = self._tenacity, self._settings
        began = time.monotonic()
        ours = tenacity.wait_random_exponential(settings.first_pause_s, _LONGEST_PAUSE_S)
        left_s = settings.max_wait_s

        def pause_s(state: Any) -> float:
            """What the server asks for while that is not too much, else a pause of ours."""
            nonlocal left_s
            asked: float = state.outcome.exception().pause_s
            if not 0 < asked <= left_s:
                return float(ours(state))
            left_s -= asked
            return asked

        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_exception(
                lambda error: isinstance(error, NoReply) and error.again
            ),
            stop=self._enough,
            wait=pause_s,
            sleep=rest,
            reraise=True,
        )

        def attempt() -> _Read:
            try:
                reply = read(self._reply(send, model, events))
            except NoReply:
                self.tally.note(failed=True)
                raise
            self.tally.note(failed=False)
            return reply

        try:
            made: _Read = attempts(attempt)
        except NoReply as failure:
            tries = attempts.statistics["attempt_number"]
            if tries > 1:
                took = time.monotonic() - began
                failure.args = (f"{failure} (tried {tries} times in {took:.0f} s)",)
            if failure.pause_s > left_s:
                raise _asked_for_too_much(failure) from failure
            raise
        return made

    def _enough(self, state: Any) -> bool:
        """Say whether all attempts are used; fewer are allowed before any answer, for a wrong URL."""
        retries = self._settings.max_retries
        if max(state.upcoming_sleep, state.outcome.exception().pause_s) > seconds_left():
            return True  # nobody waits for so long
        if state.outcome.exception().nobody and self.tally.calls == self.tally.failed:
            soon = state.seconds_since_start < 10 * self._settings.first_pause_s
            retries = retries if soon else min(retries, _RETRIES_OF_NOBODY)
        return bool(state.attempt_number > retries)

    def _reply(self, send: Send, model: str, events: EventReply | None) -> object:
        if events is not None:
            events.begin()
        client = self._clients.setdefault(os.getpid(), Once(self._new_client))()
        cut, loop = _Cut(), _loop()
        under_way = asyncio.run_coroutine_threadsafe(
            self._content(send(client), events, cut, min(self._settings.timeout_s, seconds_left())),
            loop,
        )
        try:
            with may_be_cut(partial(loop.call_soon_threadsafe, cut)):
                content = under_way.result()
        except TimeoutError as error:
            raise NoReply(late(self.url)) from error
        except self._failures as error:
            failure = translate(error, url=self.url, model=model)
            raise failure from (None if failure is error.__cause__ else error)
        except KeyboardInterrupt:
            loop.call_soon_threadsafe(cut)
            raise
        if are_events(content):
            return joined_events(content, self.url)
        try:
            reply: object = json.loads(content)
        except (ValueError, RecursionError) as error:
            begins = struck(content[:2000].decode(errors="replace"))[:200]
            why = "nested too deeply" if isinstance(error, RecursionError) else error
            raise BrokenReply(
                f"{self.url} sent a reply that is not JSON ({why}): {begins!r}. Check that {self.url} is "
                "the URL of an OpenAI-compatible interface (it often ends in /v1)"
            ) from error
        return reply

    async def _content(
        self,
        opening: AbstractAsyncContextManager[Any],
        events: EventReply | None,
        cut: _Cut,
        limit_s: float,
    ) -> bytes:
        most, content = self._settings.max_reply_bytes, bytearray()
        with self._anyio.fail_after(limit_s) as scope:
            cut.ends(scope)
            async with opening as response:
                async for chunk in response.iter_bytes():
                    content += chunk
                    if len(content) > most:
                        raise BrokenReply(
                            f"{self.url} sent more than {most:,} bytes in one reply; where that is meant, "
                            "raise OpenAISettings(max_reply_bytes=...)"
                        )
                    if events is not None:
                        events.feed(without_keys(chunk))
                if events is not None:
                    events.feed(b"", end=True)
        return without_keys(bytes(content))


def _asked_for_too_much(failure: NoReply) -> NoReply:
    seconds = failure.pause_s
    try:
        until = datetime.now(UTC) + timedelta(seconds=seconds)
    except OverflowError:
        until = datetime.max.replace(tzinfo=UTC)
    return NoReply(
        f"{failure}; it accepts no request before {until:%Y-%m-%d %H:%M} UTC ({seconds:,.0f} s). Run the "
        "same again then, or raise OpenAISettings(max_wait_s=...), --max-wait",
        pause_s=seconds,
        until=until,
    )


def _struck_record(record: logging.LogRecord) -> bool:
    record.msg, record.args = struck(record.getMessage()), ()
    return True


# --- sentence vectors -----------------------------------------------------------------------------
class EndpointEncoder(Closable):
    """Encode texts over HTTP, from any thread; an :class:`suffice.contracts.Encoder`.

    Vectors are scaled to length 1. Servers refuse an empty text, so it is sent as one blank. On some servers
    a vector depends on the texts beside it: llama.cpp with several slots evaluates them together, and they
    move by up to 0.03 in cosine. Start it with one slot (``--parallel 1``).
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        query_prompt: str | None = None,
        batch_size: int = 32,
        server: OpenAISettings | None = None,
    ) -> None:
        self._server = server or OpenAISettings()
        self._query_prompt, self._batch_size = query_prompt or "", batch_size
        self._endpoint = Endpoint(base_url, self._server)
        self._url = self._endpoint.url
        self._model = model
        self._lock = threading.Lock()
        self._dimension: int | None = None

    @property
    def name(self) -> str:
        """Return the model, its server, and the settings of its vectors."""
        shaping = {"query_prompt": self._query_prompt, "extra_body": dict(self._server.extra_body)}
        used = {key: value for key, value in shaping.items() if value}
        tail = f" {json.dumps(used, sort_keys=True)}" if used else ""
        return f"endpoint:{self._model}@{self._url}{tail}"

    def encode(
        self, texts: Sequence[str], *, role: Literal["query", "passage"] = "passage"
    ) -> NDArray[np.float32]:
        """Return a unit vector for every text, (len(texts), dimension).

        Without texts, the first call sends one request, to learn the dimension.
        """
        import numpy as np

        if not texts:
            dimension = self._dimension or self._ask(["dimension"]).shape[1]
            return np.empty((0, dimension), np.float32)
        prompt = self._query_prompt if role == "query" else ""
        sent = [prompt + text or " " for text in texts]
        size = self._batch_size
        return np.concatenate(
            [self._ask(sent[start : start + size]) for start in range(0, len(sent), size)]
        )

    def close(self) -> None:
        self._endpoint.close()

    def _ask(self, texts: Sequence[str]) -> NDArray[np.float32]:
        source = f"{self._url} (model {self._model!r})"

        def send(client: Any) -> Any:
            return client.embeddings.with_streaming_response.create(
                model=self._model,
                input=list(texts),
                encoding_format="float",
                extra_body=dict(self._server.extra_body) or None,
            )

        def read(payload: object) -> NDArray[np.float32]:
            return _unit(payload, len(texts), source)

        with self._endpoint.slots:
            vectors = self._endpoint.ask(send, read, model=self._model)
        with self._lock:
            expected = self._dimension = self._dimension or vectors.shape[1]
        if vectors.shape[1] != expected:
            raise BackendError(
                f"{source} sent vectors of {expected} numbers before, but of {vectors.shape[1]} now; "
                "check that it still runs the same model"
            )
        return vectors


def _unit(payload: object, n: int, source: str) -> NDArray[np.float32]:
    import numpy as np

    try:
        rows: Any = payload["data"]  # type: ignore[index]
        places = [row.get("index", place) for place, row in enumerate(rows)]
        by_place = {place: row["embedding"] for place, row in zip(places, rows, strict=True)}
        vectors = np.array([[*by_place[place]] for place in range(n)], dtype=np.float64)
        if len(rows) != n:
            raise ValueError(f"{len(rows)} vectors for {n} texts")  # noqa: TRY301
    except (TypeError, KeyError, ValueError, AttributeError, OverflowError) as error:
        raise BrokenReply(
            f"{source} sent no vector of numbers for each text ({error!r}): {excerpt(payload)}. Check that "
            "the server has /v1/embeddings and runs an embedding model"
        ) from error
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise BackendError(
            f"{source} sent numbers of shape {vectors.shape} instead of one vector a text; a server "
            "that gives one vector a token needs its pooling set (llama.cpp: --pooling mean)"
        )
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    wrong = ~(np.isfinite(lengths) & (lengths > 0))
    if wrong.any():
        raise BrokenReply(
            f"{source} sent a vector of zeros, or of NaN or infinite numbers, for text "
            f"{int(np.argmax(wrong))} of {n}; check that the server runs an embedding model and its log"
        )
    unit: NDArray[np.float32] = (vectors / lengths).astype(np.float32)
    return unit
